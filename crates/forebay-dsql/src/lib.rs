//! Aurora DSQL without waits, wrong retries or stale tokens.
//!
//! What is here needs no AWS SDK: a [`Signer`] makes tokens, and `forebay-aws` has one that does it with the SDK.
//!
//! - [`Options`]: which cluster, as whom, and how; from code, a `dsql://` or `postgres://` URL or the environment.
//! - [`TokenCache`]: tokens signed ahead of need, so that a failing token service does not stop new connections.
//! - [`DsqlPool`]: one handle to a cluster, with connections from a reservoir or from a pool. It is called `Dsql` with
//!   connections of tokio-postgres, and `SqlxDsql` with those of sqlx.
//! - [`Member`]: what all pools of a process share, and through a table a whole fleet: leases and connect rate.
//! - [`Error`] and [`ErrorKind`]: what went wrong, by what to do next.

pub mod metrics;
pub mod variables;

mod cas;
mod driver;
mod error;
mod id;
mod member;
mod options;
mod pool;
#[cfg(feature = "tokio-postgres")]
mod postgres;
#[cfg(feature = "raw")]
mod raw;
mod settings;
#[cfg(feature = "sqlx")]
mod sqlx;
mod status_page;
mod timestamp;
mod token;
mod transaction;
#[cfg(feature = "tokio-postgres")]
mod wire;

#[cfg(feature = "sqlx")]
pub use cas::Bind;
pub use cas::{ConditionFailed, Fence, swapped};
pub use driver::{ConnectorParts, Driver};
pub use error::{Auth, Conflict, Error, ErrorKind, Limit, Throttle};
pub use id::{IdError, Ids, Node};
pub use member::{JoinError, Member, MemberBuilder};
pub use options::{Options, OptionsBuilder, RootCertificates};
#[cfg(feature = "tokio-postgres")]
pub use pool::Dsql;
#[cfg(feature = "sqlx")]
pub use pool::SqlxDsql;
pub use pool::metrics as pool_metrics;
pub use pool::{
    Builder, ConnectionId, ConnectionInfo, Drained, DsqlPool, HookFuture, PoolMode, PoolStatus,
    PooledConnection, Registry,
};
#[cfg(feature = "tokio-postgres")]
pub use postgres::{Postgres, PostgresConnection};
#[cfg(feature = "raw")]
pub use raw::{RawConnection, RawPostgres, Reported, ServerMessage};
pub use settings::{EnvReader, Note, Settings, StandardSettings, StatusPageSettings};
#[cfg(feature = "sqlx")]
pub use sqlx::{Sqlx, SqlxConnection};
pub use timestamp::{TimeOutOfRange, Timestamp};
pub use token::{
    Action, Cause, Identity, SignFuture, Signed, Signer, Token, TokenCache, TokenError, TokenRequest,
    TokenStatus,
};
pub use transaction::{
    BodyError, OpenTransaction, Operation, RetryBudget, RetryPolicy, Session, Sessions, Stage, Transaction,
    Transactions,
};

#[cfg(feature = "tokio-postgres")]
pub use wire::{ConnectionState, StateTracker};

/// UUIDs, which are bound to a column as text: `to_string` writes one, and `parse_str` reads it.
pub use uuid::Uuid;

// What options and pools are set up with, and what a `Session` is given.
pub use forebay::{Config, ConfigError, Instant, Lifetime, StartError};

/// The pages that show this crate, so that what they show is compiled and run.
#[cfg(all(doctest, feature = "tokio-postgres"))]
mod manual {
    #[doc = include_str!("../../../docs/configuration.md")]
    mod configuration {}
    #[doc = include_str!("../../../docs/dsql.md")]
    mod dsql {}
    #[doc = include_str!("../../../docs/migrate.md")]
    mod migrate {}
    #[doc = include_str!("../README.md")]
    mod readme {}
}
