//! The blocking face: the same sessions and pools, for threads.
//!
//! A private thread runs the connections. A caller runs its own statement and sleeps on a condition variable in between, so
//! it works outside a runtime and inside of any.

mod client;
mod engine;
mod handle;
mod pipe;
mod pool;
mod prepared;
mod reader;
mod session;
mod transaction;

pub use client::FlightSQLClient;
pub use handle::SessionHandle;
pub use pool::FlightSQLPool;
pub use prepared::PreparedQuery;
pub use reader::QueryReader;
pub use session::Session;
pub use transaction::Transaction;
