//! Temporal's persistence on Aurora DSQL.
//!
//! A store on which a server that is compatible with Temporal can be built. It reads and writes the same rows as the plugin in Go with
//! schema 1.1: the same tables, columns and keys, with identifiers as UUID. `docs/temporal.md` lists the differences. One table is its own,
//! `shard_takeovers`, in which a change of the owner of a shard is announced.
//!
//! ```text
//!   Persistence     run: a transaction      fenced: one that commits only for the owner of a shard
//!       │           read: without one       write: a single statement
//!       ▼
//!   Tx, Connection  what the operations take
//!       │
//!       ▼
//!   shard, ...      one module for each kind of row, one function for each operation
//! ```
//!
//! ```no_run
//! use forebay_temporal::{Blob, Persistence, ShardOwner, shard};
//!
//! # async fn example(pool: forebay_dsql::Dsql, ids: forebay_dsql::Ids) -> forebay_temporal::Result<()> {
//! let persistence = Persistence::new(pool, ids);
//! let row = persistence.read("select_shard", async |c| shard::select(&c, 7).await).await?;
//! // Take the shard over.
//! let mine = shard::ShardRow { range_id: row.range_id + 1, ..row.clone() };
//! persistence.update_shard(&mine, row.range_id).await?;
//! // Write as its owner.
//! let owner = ShardOwner { shard_id: 7, range_id: mine.range_id };
//! let mine = &mine;
//! persistence.fenced(owner, "checkpoint", async |tx| shard::update(&tx, mine, mine.range_id).await).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Round trips
//!
//! Statements are prepared once for each connection. Operations of one transaction that do not depend on each other can be joined, with
//! `futures::try_join!` or the like: their statements then leave together, in any order, and cost one round trip.
//!
//! # What it guarantees
//!
//! - **Whole transactions are run again on a conflict**, by the retry policy of the pool, and counted as `dsql_tx_*` by operation. A
//!   failed condition is never tried again. A COMMIT of unknown outcome is never run again: [`Error::CommitUnknown`].
//! - **A deposed owner writes nothing** in a fenced transaction, if all owners use this store: see [`shard`]. What runs outside of one is
//!   not fenced: single writes, and whatever is split into several transactions.
//! - **Limits hold.** [`history_task::range_delete`], [`history_node::range_delete`], [`cluster_membership::prune`], and what has
//!   `in_batches` in its name, are split into transactions of at most 3,000 rows and 10 MiB, and can be resumed. Everything else is one
//!   transaction, or part of one, and [`Error::TooLarge`] if it does not fit. A statement that is too long for one message is not even
//!   sent.

mod batch;
mod blob;
mod bounded_value;
pub mod buffered_event;
pub mod build_id;
pub mod cluster_membership;
pub mod cluster_metadata;
mod connection;
pub mod current_execution;
mod error;
pub mod execution;
pub mod execution_map;
pub mod history_node;
pub mod history_task;
pub mod history_tree;
pub mod namespace;
pub mod namespace_metadata;
pub mod nexus_endpoint;
mod page;
mod persistence;
pub mod queue_message;
pub mod queue_metadata;
pub mod queue_v2_metadata;
pub mod schema;
pub mod schema_version;
pub mod shard;
mod shard_turns;
mod source;
mod takeover;
pub mod task;
pub mod task_queue;
mod task_queue_id;
pub mod task_queue_user_data;
mod task_version;
pub mod visibility;
pub mod workflow;

pub use blob::Blob;
pub use connection::{Connection, Tx};
pub use error::{Condition, Error, Result};
pub use page::{Page, PageToken};
pub use persistence::Persistence;
pub use shard::ShardOwner;
pub use source::{ConnectionSource, SourceConnection};
