//! A Flight SQL client and pools with real sessions, deadlines and cancellation.
//!
//! For a Flight SQL server, a connection is a session, and the statements of a session run one after another.
//! So:
//!
//! - [`FlightSQLPool`] and [`AsyncFlightSQLPool`] run the statements of many callers in parallel, each on its
//!   own session. They also lend a session to a caller that needs one for several statements.
//! - [`FlightSQLClient`] and [`AsyncSession`] are one session, for programs that do one thing at a time.
//! - [`QueryOptions`] and [`CancelHandle`] stop a statement that takes too long, on the server too.
//! - [`Error`] is split by what the caller does next.
//!
//! ```text
//!   FlightSQLPool, FlightSQLClient       blocking/    for threads: one private thread runs the connections
//!          │
//!   AsyncFlightSQLPool                   pool/        forebay::Reservoir on demand: opens, lends, cleans, closes
//!          │                                          session budget, quarantine, retries
//!      AsyncSession                      session/     one session: transactions, options, catalog
//!          │
//!   fetch, update, ingest, prepared      statement/   one deadline from the call to the last row; cancellation
//!          │
//!      Connection                        connection/  one TCP connection that is never replaced by another:
//!                                                     permits, background tasks, TLS, login, HTTP/2
//! ```
//!
//! How the parts work together:
//!
//! - Every call in a session needs a `StatementPermit`. A permit is granted only when no background task is
//!   left from an earlier call, so a cancelled statement or an abandoned transaction never reaches the next
//!   caller.
//! - A future that is dropped leaves its clean-up to a background task of its connection: it cancels the
//!   statement, rolls back the transaction, or closes the prepared statement. These tasks run one at a time,
//!   in order.
//! - A session whose cancelled statement does not end goes into quarantine, outside the pool, and counts in
//!   the session budget.
//! - `sql` decides from the words of a statement whether it may run twice and what it leaves in its session.
//!   When in doubt, it runs once and the session is not lent again.
//!
//! The manual page `docs/flight.md` says which type to use, and what happens when something fails.

pub mod metrics;
#[doc(hidden)] // For forebay's own Flight SQL shell.
pub mod sql;

mod blocking;
mod connection;
mod error;
mod pool;
mod session;
mod statement;

pub use blocking::{
    FlightSQLClient, FlightSQLPool, PreparedQuery, QueryReader, Session, SessionHandle, Transaction,
};
pub use connection::{ConnectOptions, Endpoint, TokenFuture, TokenProvider};
pub use error::{Code, Error, Phase, Result};
pub use pool::{AsyncFlightSQLPool, AsyncSessionHandle, PoolConfig, PoolStatus, PooledConnection};
pub use session::{AsyncSession, AsyncTransaction, OptionValue, TableFilter, TableName};
#[cfg(any(feature = "lz4", feature = "zstd"))]
pub use statement::Compression;
pub use statement::{
    AsyncPreparedQuery, CancelHandle, Ingest, IngestProgress, QueryOptions, QueryResult, QueryStream,
    UpdateResult,
};

/// Compiles and runs the examples of the manual.
#[cfg(doctest)]
mod manual {
    #[doc = include_str!("../../../docs/flight.md")]
    mod flight {}
    #[doc = include_str!("../README.md")]
    mod readme {}
}
