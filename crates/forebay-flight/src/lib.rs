//! A Flight SQL client and pools with real sessions, deadlines and cancellation.
//!
//! To a Flight SQL server a connection is a session, whose statements run one after another. So:
//!
//! - [`FlightSQLPool`] and [`AsyncFlightSQLPool`] run the statements of many callers side by side, on a session each, and lend
//!   sessions to whoever needs one for several statements.
//! - [`FlightSQLClient`] and [`AsyncSession`] are one session, for programs that do one thing at a time.
//! - [`QueryOptions`] and [`CancelHandle`] end what takes too long, on the server as well.
//! - [`Error`] tells what went wrong, by what to do next.
//!
//! ```text
//!   FlightSQLPool, FlightSQLClient      threads: a thin blocking face, one private thread
//!          │
//!   AsyncFlightSQLPool ── forebay::Reservoir, filling on demand
//!          │                            opens, lends, cleans, closes
//!      AsyncSession                     one session: statements, transactions, prepared statements
//!          │
//!        a link                         one TCP connection, which is never replaced by another
//! ```
//!
//! The manual page, `docs/flight.md`, says when to take which, and what happens when something fails.

pub mod metrics;
#[doc(hidden)] // for forebay's own Flight SQL shell
pub mod sql;

mod actions;
mod auth;
mod budget;
mod cancel;
mod catalog;
mod config;
mod connector;
mod dress;
mod endpoint;
mod error;
mod fetch;
mod first_failure;
mod greeting;
mod ingest;
mod ladder;
mod limits;
mod link;
mod login;
mod making;
mod options;
mod patience;
mod phase;
mod pool;
mod pooled;
mod prepared;
mod put;
mod query_options;
mod result;
mod server;
mod session;
mod stream;
mod sync;
mod tls;
mod transaction;
mod valve;
mod wire;

pub use actions::OptionValue;
pub use auth::{TokenFuture, TokenProvider};
pub use cancel::CancelHandle;
pub use catalog::TableFilter;
pub use config::PoolConfig;
pub use endpoint::Endpoint;
pub use error::{Code, Error, Phase, Result};
pub use ingest::{Ingest, IngestProgress};
pub use options::ConnectOptions;
pub use pool::{AsyncFlightSQLPool, PoolStatus};
pub use pooled::{AsyncSessionHandle, PooledConnection};
pub use prepared::AsyncPreparedQuery;
pub use query_options::QueryOptions;
pub use result::{QueryResult, UpdateResult};
pub use session::AsyncSession;
pub use stream::QueryStream;
pub use sync::{
    FlightSQLClient, FlightSQLPool, PreparedQuery, QueryReader, Session, SessionHandle, Transaction,
};
pub use transaction::AsyncTransaction;

/// The pages that show this crate, so that what they show is compiled and run.
#[cfg(doctest)]
mod manual {
    #[doc = include_str!("../../../docs/flight.md")]
    mod flight {}
}
