//! The server, seen by arrow-flight's own client.

mod backpressure;
mod cancel;
mod catalog;
mod client;
mod control;
mod endpoints;
mod faults;
mod hostile;
mod ingest;
mod life;
mod options;
mod poll;
mod prepared;
mod security;
mod sessions;
mod statements;
mod transactions;
