//! Aurora DSQL without waits, wrong retries or stale tokens.
//!
//! What is here needs no AWS SDK: a [`Signer`] makes tokens, and `forebay-aws` has one that does it with the SDK.
//!
//! - [`Options`]: which cluster, as whom, and how; from code, a `dsql://` or `postgres://` URL or the environment.
//! - [`TokenCache`]: tokens signed ahead of need, so that a failing token service does not stop new connections.
//! - [`DsqlPool`]: one handle to a cluster, with connections from a reservoir or from a pool. It is called `Dsql` with
//!   connections of tokio-postgres, and `SqlxDsql` with those of sqlx.
//! - [`Member`]: what all pools of a process share, and through a table a whole fleet: leases and connect rate.
//! - [`Error`] and [`Class`]: what went wrong, by what to do next.

pub mod metrics;
pub mod pool_metrics;
pub mod variables;

mod builder;
mod cas;
mod client;
mod dsql;
mod error;
mod id;
mod keeper;
mod lending;
mod lent;
mod member;
mod options;
#[cfg(feature = "tokio-postgres")]
mod postgres;
mod registry;
mod retry;
mod session;
mod settings;
#[cfg(feature = "sqlx")]
mod sqlx;
mod standard;
mod timestamp;
#[cfg(feature = "tokio-postgres")]
mod tls;
mod token;
mod transaction;
mod uuid;
mod warmup;
#[cfg(feature = "tokio-postgres")]
mod wire;

pub use builder::Builder;
#[cfg(feature = "sqlx")]
pub use cas::Bind;
pub use cas::{ConditionFailed, Fence, swapped};
pub use client::{Client, ConnectorParts};
#[cfg(feature = "tokio-postgres")]
pub use dsql::Dsql;
#[cfg(feature = "sqlx")]
pub use dsql::SqlxDsql;
pub use dsql::{Drained, DsqlPool, PoolMode, PoolStatus};
pub use error::{Auth, Class, Conflict, Error, Limit, Throttle};
pub use id::{IdError, Ids, Node};
pub use lent::Lent;
pub use member::{JoinError, Member, MemberBuilder};
pub use options::{Options, OptionsBuilder, Roots};
#[cfg(feature = "tokio-postgres")]
pub use postgres::{Postgres, PostgresConnection};
pub use registry::{ConnectionId, Listed, Registry};
pub use retry::{RetryBudget, RetryPolicy};
pub use session::{Session, Sessions};
pub use settings::{EnvReader, Note, Settings, StandardSettings};
#[cfg(feature = "sqlx")]
pub use sqlx::{Sqlx, SqlxConnection};
pub use timestamp::{TimeOutOfRange, Timestamp};
pub use token::{
    Action, Cause, Identity, SignFuture, Signed, Signer, Token, TokenCache, TokenError, TokenRequest,
};
pub use transaction::{Operation, Stage, Transaction, Transactions};
pub use uuid::{NotAUuid, uuid_bytes, uuid_text};
#[cfg(feature = "tokio-postgres")]
pub use wire::{Shape, Watch};

// What options and pools are set up with.
pub use forebay::{Config, ConfigError, Lifetime, StartError};

/// The pages that show this crate, so that what they show is compiled and run.
#[cfg(all(doctest, feature = "tokio-postgres"))]
mod manual {
    #[doc = include_str!("../../../docs/configuration.md")]
    mod configuration {}
    #[doc = include_str!("../../../docs/dsql.md")]
    mod dsql {}
}
