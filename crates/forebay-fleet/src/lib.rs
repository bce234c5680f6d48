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
//! use forebay::{Config, Reservoir, Seed, memory::Memory, rt::VirtualTime};
//! use forebay_fleet::{Fleet, FleetSettings, LeaseSettings, MemoryTable, Tables};
//!
//! let config = Config::default().max_open(20);
//! let leases = LeaseSettings::new("leases").limit(1000);
//! let settings = FleetSettings::new("db.example", "history").leases(leases).for_pools([&config]);
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

pub mod conformance;
pub mod metrics;
pub mod operator;

mod away;
mod bucket;
mod counter;
mod expression;
mod faulty;
mod fleet;
mod item;
mod ledger;
mod memory;
mod name;
mod rate;
mod settings;
mod share;
mod store;
mod table;
mod window;
mod wiring;

pub use expression::{Change, Condition, KEY};
pub use faulty::{Faults, FaultyTable};
pub use fleet::{Fleet, FleetStatus, StartError, Tables};
pub use item::{Item, Path, Value};
pub use memory::{Bill, MemoryTable};
pub use settings::{
    FleetSettings, LeaseMode, LeaseSettings, RateMode, RateSettings, StoreOutagePolicy, cluster_host,
};
pub use table::{Cancelled, Cursor, Delete, Page, Returning, Table, TableError, Update, Write};
pub use wiring::Wiring;
