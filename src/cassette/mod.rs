//! A run of a job, kept beside its file, so that it can be run again without a model.
//!
//! ```text
//! test --record   models, tools, commands, files ─▶ Deck ─▶ Cassette ─▶ jobs/<id>.cassette
//! test            jobs/<id>.cassette ─▶ Deck ─▶ the same code ─▶ Deck ─▶ Cassette
//!                        └────────── expected ──── compare ─── found ──────┘
//! ```
//!
//! A [`Deck`] stands between a run and the world. While it records, the world answers and it takes
//! down; while it replays, the [`Cassette`] answers, and what the run asks is taken down all the
//! same: two cassettes, and [`compare`] is a plain function of them.
//!
//! What is asked anew on replay is what the host decides by itself: the prompt that the job renders
//! now, the tools and commands that it allows now, how the recorded bytes are understood, limits,
//! and checks on the reply. What would need the world is answered from the cassette: models,
//! tools, the commands of checks, and of files whether they were there, how long and how fresh.

mod compare;
mod deck;
mod file;
mod seen;
mod take;
mod wording;

pub use compare::{Difference, compare};
pub use deck::{Deck, Plays};
pub use file::{Cassette, CassetteError, End, TakenCheck, VERSION, cassette_path};
pub use seen::{SeenCommand, SeenFile};
pub use take::Unkept;
