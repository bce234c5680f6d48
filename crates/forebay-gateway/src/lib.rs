//! A gateway that speaks the PostgreSQL protocol to any client, and gives each session a ready connection to Aurora DSQL.
//!
//! ```text
//!  gateway.rs ── listener.rs ──▶ login/       start-up, TLS, SCRAM: from a fresh socket to a client that is known (users.rs, config.rs)
//!      │                           │
//!      ├─ clients.rs               ▼
//!      │  keys, drain            relay.rs     one task for each client, on one of workers.rs; relay/clock.rs keeps its limits
//!      │                           │
//!      │                           ├──▶ session/     the virtual session: a pure state machine over the frames of both sides
//!      ▼                           ▼
//!  forebay_dsql::DsqlPool ◀── backends.rs     who gets a connection, and who gives way
//! ```

pub mod config;
pub mod login;
pub mod metrics;
pub mod protocol;
pub mod session;
pub mod users;

mod backends;
mod clients;
mod document;
mod gateway;
mod listener;
mod peers;
mod refusal;
mod relay;
mod seat;
mod workers;

pub use backends::Backends;
pub use gateway::{Cluster, Gateway, RawPool, Readiness, StartError};
pub use workers::WorkerThreads;
