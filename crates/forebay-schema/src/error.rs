//! Errors, by what the caller does next.

use std::time::Duration;

use forebay::duration::show;

use crate::files::FilesError;
use crate::finding::{Finding, list};

/// Why a run ended early. Everything that was applied is recorded: the same command continues after it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The files cannot be used. Correct them.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Aurora DSQL will refuse statements. Nothing has run; correct them.
    #[error("nothing was run: Aurora DSQL refuses {} of these files\n{}", count(.0.len(), "statement"), list(.0))]
    Refused(Vec<Finding>),
    /// The database has tables, and no record of how they came about. Say what they are.
    #[error(
        "the database has tables but no record of migrations ({}); if they are what the files up to some version make, \
         record that with `setup --baseline VERSION`; if that is recorded in another schema, name it with --bookkeeping; \
         otherwise use an empty database", .tables.join(", ")
    )]
    UnknownDatabase {
        /// Some of the tables.
        tables: Vec<String>,
    },
    /// There is no record of these migrations. Set the database up first.
    #[error("the database has no record of the migrations `{name}`; run `setup` first")]
    NotSetUp {
        /// Their name.
        name: String,
    },
    /// Files were changed after they were applied. Restore them, or accept the change.
    #[error(
        "{} changed after being applied: {}; restore the text, and put the change into a new file; if the database is as \
         it should be, --accept-changed records the new text",
        if .files.len() == 1 { "a file was" } else { "files were" }, .files.join(", ")
    )]
    Changed {
        /// Their names.
        files: Vec<String>,
    },
    /// Statements of a file were changed after they were applied; the rest of it is not. Restore them.
    #[error(
        "{file}: its first {done} statements are applied, and were changed since; restore them: only what follows may \
         be changed"
    )]
    ChangedPart {
        /// The name of the file.
        file: String,
        /// How many are applied.
        done: usize,
    },
    /// Versions are applied whose files are gone. Bring them back.
    #[error("applied versions have no file: {}; bring the files back, or use the directory that was applied", .files.join(", "))]
    Missing {
        /// Their names when they were applied.
        files: Vec<String>,
    },
    /// A new file has a lower version than one that is applied. Renumber it, or accept the order.
    #[error(
        "{file} is not applied, but the later version {applied} is; give it a higher version, or apply it now with \
         --out-of-order"
    )]
    OutOfOrder {
        /// The name of the file.
        file: String,
        /// The latest version.
        applied: String,
    },
    /// There is no such version.
    #[error("there is no version {version}; the files have {}", .known.join(", "))]
    NoVersion {
        /// The version that was asked for.
        version: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// Another run holds the lock. Try again later.
    #[error(
        "another run holds the lock ({holder}); waited {}; run this again later, or wait longer: a run that has died is replaced when \
         its lease is over, after 30 s by default", show(*.waited)
    )]
    Locked {
        /// Who that is.
        holder: String,
        /// How long this one has waited.
        waited: Duration,
    },
    /// Another run has taken over, because this one did not renew its lock in time. That one continues.
    #[error("another run has taken over, since this one did not renew its lock in time; that one continues")]
    Deposed,
    /// A statement failed. Correct it or the data, and run again.
    #[error(
        "{file}:{line}: {cause}\n  {summary}\n{} of this file {} applied; correct it and run the same command again: it \
         continues with this statement", count(*.done, "earlier statement"), if *.done == 1 { "is" } else { "are" }
    )]
    Statement {
        /// The name of the file.
        file: String,
        /// The line of the statement.
        line: usize,
        /// Its first line.
        summary: String,
        /// How many statements before it are applied.
        done: usize,
        /// Why it failed.
        cause: forebay_dsql::Error,
    },
    /// The outcome of a statement was unknown, and what the database has is not what the statement makes.
    #[error("{file}:{line}: an earlier run ended in this statement, and {what}; {remedy}")]
    Doubt {
        /// The name of the file.
        file: String,
        /// The line of the statement.
        line: usize,
        /// What is there.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// A job in the background failed. Correct the data, and run again.
    #[error(
        "{file}:{line}: job {job} for {object} failed: {details}\ncorrect the rows that stand in the way, and run the same command \
         again: it drops what was not built, and builds it again"
    )]
    Job {
        /// The name of the file.
        file: String,
        /// The line of the statement.
        line: usize,
        /// The id of the job.
        job: String,
        /// The index or constraint.
        object: String,
        /// What `sys.jobs` says.
        details: String,
    },
    /// The caller has asked to stop. Run again to continue.
    #[error("stopped {at}; run the same command again to continue")]
    Stopped {
        /// Where.
        at: String,
    },
    /// The database does not answer well, or refuses what this crate itself asks for.
    #[error(transparent)]
    Database(#[from] forebay_dsql::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error.into())
    }
}

pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
