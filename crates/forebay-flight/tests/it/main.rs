//! Behaviour of clients, sessions and pools against a real server with real sessions.

mod basics;
mod blocking_ingest;
mod cancellation;
mod cleanup;
mod connecting;
mod drops;
mod fixture;
mod known_faults;
mod minimal_server;
mod misbehaving_servers;
mod observability;
mod outages;
mod session_limits;
mod session_reuse;
mod small_stacks;
mod spans;
mod streaming;
mod swanlake;
