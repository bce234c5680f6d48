//! Behaviour of clients, sessions and pools against a real server with real sessions.

mod basics;
mod cancelling;
mod clearing;
mod distrust;
mod drops;
mod existing_client;
mod fixture;
mod handing_on;
mod outages;
mod plain;
mod reaching;
mod session_limits;
mod small_stacks;
mod spans;
mod streaming;
mod threaded_input;
mod watching;
