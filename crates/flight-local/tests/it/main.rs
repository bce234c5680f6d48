//! The server, seen by arrow-flight's own client.

mod client;
mod sessions;
mod statements;
