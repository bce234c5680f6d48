//! A Flight SQL client and pools with real sessions, deadlines and cancellation.

pub mod metrics;

mod actions;
mod budget;
mod cancel;
mod config;
mod connector;
mod dress;
mod endpoint;
mod error;
mod fetch;
mod first_failure;
mod ingest;
mod ladder;
mod limits;
mod link;
mod options;
mod patience;
mod pool;
mod pooled;
mod prepared;
mod put;
mod query_options;
mod result;
mod server;
mod session;
mod sql;
mod stream;
mod sync;
mod tls;
mod transaction;
mod wire;

pub use actions::OptionValue;
pub use cancel::CancelHandle;
pub use config::PoolConfig;
pub use endpoint::Endpoint;
pub use error::{Code, Error, Phase, Result};
pub use ingest::{Ingest, IngestProgress};
pub use options::{ConnectOptions, TokenFuture, TokenProvider};
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
