//! What is asked of models and what their servers send back, taken down and played again.
//!
//! A [`Tape`] takes down each request with the bytes that answered it, below the parsers: a
//! [`Replaying`] provider sends the same bytes through the same parsers, so that a change of what
//! they understand shows. It knows no job: which recording belongs to which run, and what of it
//! is compared, is decided elsewhere.
//!
//! Neither the request's headers nor its URL are taken down. Of the response's headers only those
//! two are that an answer depends on: the content type, and how long to wait.

mod recording;
mod replaying;
mod script;
mod tape;

pub use recording::Recording;
pub use replaying::Replaying;
pub use tape::{Break, Dialect, Exchange, Held, Tape, Traffic};
