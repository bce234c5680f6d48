//! A reservoir of ready connections, for databases that ration them.

#[doc(hidden)]
pub mod bench;
pub mod memory;
pub mod rt;

mod acquire;
mod backoff;
mod builder;
mod checkout;
mod config;
mod connect;
mod core;
mod error;
mod event;
mod lease;
mod limit;
mod race;
mod reservoir;
mod seed;
mod state;
mod status;
mod sync;
mod tasks;
mod time;

pub use acquire::Acquire;
pub use builder::{Builder, StartError};
pub use checkout::{Checkout, Detached, OwnedCheckout};
pub use config::{Config, ConfigError, Lifetime, Problem};
pub use connect::{Connect, Lifeline, LifelineGuard};
pub use error::{BoxError, CheckoutError, OpenError};
pub use event::{Discard, Event, Failure, Observer};
pub use lease::{HeldLease, LeaseError, LeaseId, Leases, LocalLeases, StoreFuture};
pub use limit::{Limit, LimitError, LocalLimit, Pace, Permit};
pub use reservoir::{Drained, Reservoir};
pub use seed::{Draws, Seed};
pub use status::{Counts, Status};
pub use time::Instant;
