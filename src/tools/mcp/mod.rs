//! Tools of other programs, by the Model Context Protocol.
//!
//! A job names servers of the configuration; they are started when its turn begins, and what they
//! list is offered as ordinary [`Tool`](super::Tool)s for the whole of it: a prompt that changes in
//! mid-turn would cost its cache and could not be told again. A server that is started runs below
//! our supervisor like every other command, so that nothing of it outlives the run; the client
//! library is only handed the line to it.
//!
//! What a server says is bounded where it is read ([`wire`]), where it becomes an offer ([`offer`])
//! and where it becomes a result ([`result`]).

mod call;
mod client;
mod connection;
mod http;
mod names;
mod offer;
mod result;
mod schema;
mod server;
mod servers;
mod spec;
mod tool;
mod wire;

pub use connection::McpError;
pub use servers::McpServers;
pub use spec::ServerSpec;
