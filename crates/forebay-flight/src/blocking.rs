//! The same sessions and pools, for threads.
//!
//! A private thread runs the connections. The caller's own thread runs its statement, and sleeps on a
//! condition variable in between. So it works outside a runtime and inside any.

mod client;
mod ingest;
mod pool;
mod prepared;
mod reader;
mod runtime_thread;
mod session;
mod transaction;

pub use client::FlightSQLClient;
pub use pool::FlightSQLPool;
pub use prepared::PreparedQuery;
pub use reader::QueryReader;
pub use session::{Session, SessionHandle};
pub use transaction::Transaction;
