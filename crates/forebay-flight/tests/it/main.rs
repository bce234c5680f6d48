//! Behaviour of clients, sessions and pools against a real server with real sessions.

mod basics;
mod fixture;
