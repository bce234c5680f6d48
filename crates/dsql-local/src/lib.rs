#![doc = include_str!("../README.md")]

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
