//! Aurora DSQL without waits, wrong retries or stale tokens.
//!
//! What is here needs no AWS SDK: a [`Signer`] makes tokens, and `forebay-aws` has one that does it with the SDK.
//!
//! - [`Options`]: which cluster, as whom, and how; from code, a `dsql://` URL or the environment.
//! - [`TokenCache`]: tokens signed ahead of need, so that a failing token service does not stop new connections.
//! - [`Error`] and [`Class`]: what went wrong, by what to do next.

pub mod metrics;

mod cas;
mod error;
mod id;
mod options;
mod retry;
mod session;
mod timestamp;
mod token;
mod transaction;
mod uuid;

#[cfg(feature = "sqlx")]
pub use cas::Bind;
pub use cas::{ConditionFailed, Fence, swapped};
pub use error::{Auth, Class, Conflict, Error, Limit, Throttle};
pub use id::{ClockOutOfRange, Ids, Node};
pub use options::{Options, OptionsBuilder, Roots};
pub use retry::{RetryBudget, RetryPolicy};
pub use session::{Session, Sessions};
pub use timestamp::{TimeOutOfRange, Timestamp};
pub use token::{Action, Identity, SignFuture, Signed, Signer, Token, TokenCache, TokenError, TokenRequest};
pub use transaction::{Operation, Stage, Transaction, Transactions};
pub use uuid::{NotAUuid, uuid_bytes, uuid_text};

/// The page of the manual, so that what it shows is compiled and run.
#[cfg(doctest)]
mod manual {
    #[doc = include_str!("../../../docs/dsql.md")]
    mod dsql {}
}
