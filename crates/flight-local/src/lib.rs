//! A local Flight SQL server with real sessions, for tests, demos and laptops.
//!
//! Each connection has a SQL session of its own (SQLite, in the process): transactions, temporary tables, prepared
//! statements and options live in it and end with it. Statements of one session run one after another, those of
//! different sessions side by side. A statement can be interrupted by every means that Flight has, and really stops;
//! and the server can be told to be slow, to hang, to fail, to cut connections, or to restart.
//!
//! ```
//! use flight_local::{Config, FlightLocal};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), flight_local::StartError> {
//! let server = FlightLocal::start(Config { session_limit: 5, ..Config::default() }).await?;
//! println!("connect to {}", server.url());
//! assert_eq!(server.counters().sessions_open, 0);
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! The manual page, `docs/flight-local.md`, says what it is and what it is not.

pub mod messages;

mod auth;
mod background;
mod batch_builder;
mod client;
mod config;
mod control;
mod control_client;
mod counters;
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
pub use config::{Actions, Config, SessionKey, Support};
pub use control_client::{Access, Login, TellError, tell};
pub use counters::Counters;
pub use error::StartError;
pub use faults::Faults;
pub use server::FlightLocal;
pub use tls::{SelfSigned, Tls};
