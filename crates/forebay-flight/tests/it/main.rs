//! Behaviour of clients, sessions and pools against a real server with real sessions.

mod basics;
mod cancelling;
mod existing_client;
mod fixture;
mod reaching;
mod streaming;
