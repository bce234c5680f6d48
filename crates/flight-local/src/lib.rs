#![doc = include_str!("../README.md")]

pub mod messages;

mod auth;
mod background;
mod batch_builder;
mod client;
mod config;
mod control;
mod control_client;
mod counters;
mod crypto_provider;
mod database;
mod deadline;
mod error;
mod execute;
mod execution;
mod faults;
mod functions;
mod handle;
mod ingest;
mod listener;
mod options;
mod parameters;
mod prebuilt;
mod race;
mod result_source;
mod result_stream;
mod runtime;
mod server;
mod service;
mod session;
mod sessions;
mod shared;
mod statement_task;
mod tls;

pub use auth::Auth;
pub use config::{Actions, Config, Quirks, SessionKey, Support};
pub use control_client::{Access, Login, TellError, tell};
pub use counters::Counters;
pub use error::StartError;
pub use faults::Faults;
pub use server::FlightLocal;
pub use tls::{SelfSigned, Tls};
