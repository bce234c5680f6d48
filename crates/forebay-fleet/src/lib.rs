//! One budget of connections for many processes.
//!
//! A database that rations connections does so for the whole cluster: so many at a time, so many new ones a second. A
//! reservoir keeps to what it is given; this crate gives each process of a fleet its part, through a table that all of
//! them share.
//!
//! ```text
//!   reservoirs of a process          this crate                         a table all processes share
//!  ─────────────────────────    ─────────────────────────────────    ─────────────────────────────────
//!   Leases: how many        ◀──  ledger (or counter)   one beat   ──▶  forebay_ledger#<endpoint>#0..7
//!   Limit: how fast         ◀──  share, then bucket    in 30 s    ──▶  forebay_bucket#<endpoint>
//! ```
//!
//! - [`Fleet::start`] joins; [`Fleet::wire`] gives every reservoir of the process its part.
//! - [`Table`] is the seam to the store; [`MemoryTable`] is one, [`FaultyTable`] makes any of them misbehave, and
//!   [`conformance`] says what each must do.
//! - [`operator`] is for people: who holds what, and how to mend it.
//!
//! # Example
//!
//! ```
//! use forebay::{Config, EnvReader, Reservoir, Seed, memory::Memory, rt::VirtualTime};
//! use forebay_fleet::{Fleet, FleetSettings, MemoryTable, Tables};
//!
//! let environment = EnvReader::new("DSQL").read([
//!     ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
//!     ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "leases"),
//!     ("DSQL_DISTRIBUTED_CONN_LIMIT", "1000"),
//! ])?;
//! let config = Config::default().max_open(20);
//! let mut settings = FleetSettings::new("db.example", "history").for_pools([&config]);
//! settings.leases = environment.leases;
//!
//! let (time, patience) = (VirtualTime::new(), std::time::Duration::from_secs(5));
//! let (server, table) = (Memory::new(time.clone()), MemoryTable::new());
//! time.run(async {
//!     let fleet = Fleet::start(settings, Tables::one(table), time.clone(), Seed::new(1)).await?;
//!     let reservoir = Reservoir::builder(server).config(config).runtime(time.clone());
//!     let reservoir = fleet.wire(reservoir).start().await?;
//!     assert_eq!(fleet.status().leases, 20);
//!     assert!(fleet.instance_index().is_some(), "it knows its turn");
//!     reservoir.drain(patience).await;
//!     assert!(fleet.leave(patience).await);
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
mod params;
mod rate;
mod settings;
mod share;
mod store;
mod store_outage;
mod table;
mod window;
mod wiring;

pub use expression::{Change, Condition, KEY};
#[cfg(feature = "test-util")]
pub use faulty::{Delivery, Faults, FaultyTable, Network, RandomFaults};
pub use fleet::{Fleet, FleetStatus, StartError, Tables};
pub use item::{Item, Path, Value};
#[cfg(any(test, feature = "test-util"))]
pub use memory::{Bill, MemoryTable};
pub use settings::FleetSettings;
pub use table::{Cancelled, Cursor, Delete, Page, Returning, Table, TableError, Update, Write};
pub use wiring::Wiring;
