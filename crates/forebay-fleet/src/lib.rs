//! One budget of connections for many processes.
//!
//! A database such as Aurora DSQL limits connections for the whole cluster: how many at a time, and how many new ones a
//! second. This crate gives each process of a fleet its part of both limits, through a table that all processes share.
//!
//! ```text
//!   reservoirs of a process          this crate                         a table all processes share
//!  ─────────────────────────    ─────────────────────────────────    ─────────────────────────────────
//!   Leases: how many        ◀──  ledger (or counter)  heartbeat   ──▶  forebay_ledger#<endpoint>#0..7
//!   Limit: how fast         ◀──  share, then bucket   every 30 s  ──▶  forebay_bucket#<endpoint>
//! ```
//!
//! - [`Fleet::start`] joins the fleet, and [`Fleet::wire`] gives a reservoir its leases and its limit.
//! - [`Table`] is the interface to the shared store. `forebay-aws` implements it for DynamoDB.
//! - [`operator`] has functions that inspect and repair the table.
//! - Feature `test-util` has a table in memory (`MemoryTable`), a network with faults (`FaultyTable`), and tests for
//!   implementations of [`Table`] (`conformance`).
//!
//! # Example
//!
//! ```
//! use forebay::{Config, Reservoir, Seed, memory::Memory, rt::VirtualTime};
//! use forebay_fleet::{Fleet, FleetSettings, LeaseSettings, MemoryTable, Tables};
//!
//! let config = Config::default().max_open(20);
//! let leases = LeaseSettings::new("leases").limit(1000);
//! let settings = FleetSettings::new("db.example", "history").leases(leases).for_pools([&config]);
//!
//! let (time, timeout) = (VirtualTime::new(), std::time::Duration::from_secs(5));
//! let (server, table) = (Memory::new(time.clone()), MemoryTable::new());
//! time.run(async {
//!     let fleet = Fleet::start(settings, Tables::one(table), time.clone(), Seed::new(1)).await?;
//!     let reservoir = Reservoir::builder(server).config(config).runtime(time.clone());
//!     let reservoir = fleet.wire(reservoir).start().await?;
//!     assert_eq!(fleet.status().leases, 20);
//!     assert!(fleet.instance_index().is_some(), "it has joined");
//!     reservoir.drain(timeout).await;
//!     assert!(fleet.leave(timeout).await);
//!     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
pub mod metrics;
pub mod operator;

mod bucket;
mod counter;
mod expression;
#[cfg(feature = "test-util")]
mod faulty;
mod fleet;
mod item;
mod ledger;
#[cfg(any(test, feature = "test-util"))]
mod memory;
mod name;
mod node_number;
mod params;
mod rate;
mod settings;
mod share;
mod store;
mod store_outage;
mod table;
mod token_bucket;
mod window;
mod wiring;

pub use expression::{Change, Condition, KEY};
#[cfg(feature = "test-util")]
pub use faulty::{Delivery, Faults, FaultyTable, Network, RandomFaults};
pub use fleet::{Fleet, FleetStatus, StartError, Tables};
pub use item::{Item, Path, Value};
#[cfg(any(test, feature = "test-util"))]
pub use memory::{Bill, MemoryTable};
pub use node_number::NodeNumber;
pub use settings::{
    FleetSettings, LeaseMode, LeaseSettings, RateMode, RateSettings, StoreOutagePolicy, cluster_host,
};
pub use table::{Cancelled, Cursor, Delete, Page, Returning, Table, TableError, Update, Write};
pub use wiring::Wiring;
