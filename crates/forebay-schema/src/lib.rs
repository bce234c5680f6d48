//! Schema migrations for Aurora DSQL.
//!
//! Aurora DSQL runs one change of the schema in a transaction, and nothing that changes rows beside it. It builds indexes in the
//! background, has no advisory locks, and makes every open connection fail once after a change. [`Migrator`] applies numbered
//! files of SQL under these rules. It may be interrupted anywhere, and two may run at the same time.

mod apply;
mod bookkeeping;
mod catalog;
mod definition;
mod dump;
mod error;
mod event;
mod files;
mod finding;
mod fix;
mod hook;
mod jobs;
mod lock;
mod migrator;
mod pending;
mod plan;
mod rules;
mod snapshot;
mod sql;
mod status;
mod steps;
mod undo;
mod verify;
mod version;

pub use dump::dump;
pub use error::Error;
pub use event::Event;
pub use files::{FilesError, MigrationFile, Migrations};
pub use finding::Finding;
pub use hook::{Hook, HookFuture};
pub use migrator::{Migrator, Summary};
pub use plan::{Plan, PlannedTransaction};
pub use rules::Rules;
pub use status::{FileState, FileStatus, Status};
pub use verify::{Difference, Verification};
pub use version::Version;

/// The manual page, so that what it shows is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/schema.md")]
mod manual {}
