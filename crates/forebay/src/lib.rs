//! A reservoir of ready connections, for databases that ration them.
//!
//! Some databases let a client open only so many connections a second, and end each after a while. A pool that opens
//! a connection when a caller wants one makes the caller wait for that ration; one whose connections were all opened
//! together loses them all together. A [`Reservoir`] opens ahead of need, at the pace the ration allows, and hands out
//! what is ready:
//!
//! ```text
//!   limiter, leases            the reservoir                      callers
//!  ─────────────────▶  opening ─▶ ready ─▶ lent  ◀────────── checkout() / try_checkout()
//!   so many a second,     ▲         │        │
//!   so many at all        │         ▼        ▼
//!                         └──── retired, one at a time, each after its replacement is there
//! ```
//!
//! - [`try_checkout`](Reservoir::try_checkout) takes some ten nanoseconds, never waits and never allocates.
//! - [`checkout`](Reservoir::checkout) waits in a queue: strictly first come, first served. Dropping it loses nothing.
//! - A connection is replaced before it gets too old. Retirements are spread over a whole life: each connection has a time slot
//!   of its own, as long as there is a free one.
//! - [`max_open`](Config::max_open) bounds what is ready, lent and opening, taken together. While connections are replaced, a
//!   few more exist: [`max_connections`](Config::max_connections) counts those, too. What is being closed is not counted.
//!
//! # Example
//!
//! A connector says how to open a connection; everything else has a default.
//!
//! ```
//! use forebay::{Config, Connect, ConnectionMonitor, OpenError, Reservoir};
//!
//! struct Greeter;
//!
//! impl Connect for Greeter {
//!     type Connection = String;
//!
//!     async fn open(&self, _monitor: ConnectionMonitor) -> Result<String, OpenError> {
//!         Ok("hello".to_owned())
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let config = Config::default().max_open(10).startup_jitter(std::time::Duration::ZERO);
//! let reservoir = Reservoir::builder(Greeter).config(config).start().await?;
//!
//! let mut connection = reservoir.checkout().await?;
//! connection.push_str(", world");
//! assert_eq!(*connection, "hello, world");
//! drop(connection); // goes back
//!
//! reservoir.drain(std::time::Duration::from_secs(5)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The feature `test-util` adds `memory`, a server that misbehaves on request, and `rt::VirtualTime`, a runtime in which an
//! hour passes in microseconds. With both, applications test their own use of connections.

pub mod backoff;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod bench;
#[cfg(feature = "test-util")]
pub mod conformance;
pub mod duration;
#[cfg(feature = "test-util")]
pub mod memory;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod rt;
#[cfg(forebay_sabotage)]
#[doc(hidden)]
pub mod sabotage;

mod acquire;
#[cfg(any(feature = "bb8", feature = "deadpool"))]
mod adapter;
mod builder;
mod checkout;
mod config;
mod connect;
mod core;
mod error;
mod event;
mod lease;
mod limit;
#[cfg(feature = "tracing")]
mod logs;
mod opens;
mod race;
mod reservoir;
#[cfg(not(forebay_sabotage))]
#[allow(unreachable_pub, reason = "public in the other build")]
mod sabotage;
mod seed;
mod state;
mod status;
mod sync;
mod tasks;
mod time;

pub use acquire::Acquire;
#[cfg(any(feature = "bb8", feature = "deadpool"))]
pub use adapter::ReservoirManager;
pub use builder::{Builder, StartError};
pub use checkout::{Checkout, Detached, OwnedCheckout};
pub use config::{Config, ConfigError, Fill, Lifetime, Problem};
pub use connect::{Connect, ConnectionMonitor, MonitorGuard};
pub use error::{BoxError, Chain, CheckoutError, OpenError};
pub use event::{Discard, Event, Failure, Observer};
pub use lease::{HeldLease, LeaseError, LeaseId, Leases, LocalLeases, StoreFuture};
pub use limit::{Limit, LimitError, LocalLimit, Pace, Permit};
#[cfg(feature = "tracing")]
pub use logs::Logs;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use reservoir::{Drained, Reservoir, WeakReservoir};
pub use seed::{Rng, Seed};
pub use status::{CheckoutFailure, Counts, Status};
pub use time::Instant;

/// The pages of the manual, so that what they show is compiled and run.
#[cfg(doctest)]
mod manual {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/first-hour.md")]
    mod first_hour {}
    #[doc = include_str!("../../../docs/metrics.md")]
    mod metrics {}
}
