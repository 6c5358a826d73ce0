//! The way out to others on the network, and whom not to reach on it.
//!
//! An address that somebody else has named (a page that a model asks for, a webhook) must not lead
//! to this machine, its network or a cloud's metadata (semantics §10). It is judged here and only
//! here: the text of the address first, then what its name stands for, at the moment of the lookup
//! whose answer the connection uses. What was judged is what is connected to, whatever a second
//! lookup would say.

mod address;
mod client;

pub use address::{Guard, PrivateAddress, guard_for, leads_inside};
pub(crate) use client::CONNECT_TIMEOUT;
pub use client::{Clients, NoWay, private_in, words_of};
