//! A local Aurora DSQL that admits, authenticates, expires and fails like the real one.
//!
//! It speaks the PostgreSQL protocol over TLS; its passwords are connect tokens, signed with keys it was given; new
//! connections are rationed by a token bucket and a cap; sessions end after an hour of its own clock, which can be
//! advanced, sped up or stopped; and it can be told to fail.
//!
//! ```
//! use dsql_local::{Cluster, Config, Credentials};
//!
//! # fn main() -> Result<(), dsql_local::Error> {
//! let keys = Credentials::new("AKIDEXAMPLE", "not-a-secret");
//! let cluster = Cluster::start(Config { credentials: vec![keys], ..Config::default() })?;
//! println!("connect to {} with the authority in {}", cluster.address(), cluster.ca_file().display());
//! cluster.clock().advance(std::time::Duration::from_secs(3_600)); // every session of an hour ago has ended
//! assert_eq!(cluster.counters().live, 0);
//! cluster.stop();
//! # Ok(())
//! # }
//! ```
//!
//! The manual page, `docs/dsql-local.md`, says what it is and what it is not.

pub mod builtin;
pub mod engine;
pub mod postgres;

mod acceptor;
mod bucket;
mod clock;
mod cluster;
mod config;
mod connection;
mod control;
mod counters;
mod credentials;
mod denials;
mod error;
mod faults;
mod race;
mod rules;
mod runtime;
mod sessions;
mod settings;
mod shared;
mod sigv4;
mod statement;
mod tls;
mod token;
mod transaction_state;
mod wire;

pub use clock::{Clock, Moment, Speed};
pub use cluster::Cluster;
pub use config::{Config, EngineKind, Limits, RefuseWhen, Rules, TokenClock};
pub use counters::Counters;
pub use credentials::Credentials;
pub use error::{Error, SqlError};
pub use faults::{Fault, duration};
pub use statement::{Kind, Statement};
pub use token::{Action, Denial, LONGEST_LIFE, TokenVerifier, sign, sign_now};
pub use wire::Format;
