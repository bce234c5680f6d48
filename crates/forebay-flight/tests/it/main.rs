//! Behaviour of clients, sessions and pools against a real server with real sessions.

mod basics;
mod cancelling;
mod distrust;
mod drops;
mod existing_client;
mod fixture;
mod odd_server;
mod outages;
mod plain;
mod reaching;
mod slow_input;
mod spans;
mod streaming;
mod watching;
