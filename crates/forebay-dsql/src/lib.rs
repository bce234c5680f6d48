//! Aurora DSQL without waits, wrong retries or stale tokens.
//!
//! What is here needs no AWS SDK: a [`Signer`] makes tokens, and `forebay-aws` has one that does it with the SDK.
//!
//! - [`Options`]: which cluster, as whom, and how; from code, a `dsql://` URL or the environment.
//! - [`TokenCache`]: tokens signed ahead of need, so that a failing token service does not stop new connections.
//! - [`Error`] and [`Class`]: what went wrong, by what to do next.

pub mod metrics;
pub mod pool_metrics;

mod builder;
mod cas;
mod client;
mod dsql;
mod error;
mod keeper;
mod lent;
mod options;
#[cfg(feature = "tokio-postgres")]
mod postgres;
mod registry;
mod session;
#[cfg(feature = "sqlx")]
mod sqlx;
mod standard;
mod tls;
mod token;
mod warmup;
mod wire;

pub use builder::Builder;
pub use cas::ConditionFailed;
pub use client::{Client, ConnectorParts};
#[cfg(feature = "tokio-postgres")]
pub use dsql::Dsql;
#[cfg(feature = "sqlx")]
pub use dsql::SqlxDsql;
pub use dsql::{Drained, DsqlPool, PoolMode, PoolStatus};
pub use error::{Auth, Class, Conflict, Error, Limit, Throttle};
pub use lent::Lent;
pub use options::{Options, OptionsBuilder, Roots};
#[cfg(feature = "tokio-postgres")]
pub use postgres::{Postgres, PostgresConnection};
pub use registry::{ConnectionId, Listed, Registry};
pub use session::{Session, Sessions};
#[cfg(feature = "sqlx")]
pub use sqlx::{Sqlx, SqlxConnection};
pub use token::{Action, Identity, SignFuture, Signed, Signer, Token, TokenCache, TokenError, TokenRequest};
pub use wire::{Shape, Watch};
