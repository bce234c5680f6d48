//! A reservoir of ready connections, for databases that ration them.
//!
//! Some databases limit how many connections a client may open per second, and end each connection after some
//! time. A pool that opens connections on demand makes callers wait for that limit. A pool that opened all
//! its connections together loses them together. A [`Reservoir`] opens connections ahead of demand, at the
//! rate that is allowed, and lends those that are ready:
//!
//! ```text
//!   limiter, leases            the reservoir                      callers
//!  ─────────────────▶  opening ─▶ ready ─▶ lent  ◀────────── checkout() / try_checkout()
//!   so many a second,     ▲         │        │
//!   so many at all        │         ▼        ▼
//!                         └──── retired, one at a time, each after its replacement is there
//! ```
//!
//! - [`try_checkout`](Reservoir::try_checkout) takes about ten nanoseconds. It never waits and never
//!   allocates.
//! - [`checkout`](Reservoir::checkout) waits in a queue, strictly first come, first served. Dropping its
//!   future loses nothing.
//! - Each connection is replaced before it gets too old. Retirements are spread over a whole lifetime: each
//!   connection gets its own time slot, as long as one is free.
//! - [`max_open`](Config::max_open) limits the connections that are ready, lent and opening, together. While
//!   connections are replaced, a few more exist: [`max_with_overlap`](Config::max_with_overlap) includes those.
//!   Connections that are being closed are not counted.
//!
//! # Example
//!
//! A connector opens connections. Everything else has a default.
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
//! The feature `test-util` adds `memory`, a server in memory that fails on request, and `rt::VirtualTime`, a
//! runtime in which an hour passes in microseconds. Use both to test your own code.

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
mod inspection;
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
pub use inspection::{ConnectionPhase, ConnectionStatus, RefillStatus};
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

/// Pages of the manual, so that their examples are compiled and run.
#[cfg(doctest)]
mod manual {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/first-hour.md")]
    mod first_hour {}
    #[doc = include_str!("../../../docs/metrics.md")]
    mod metrics {}
}
