//! What a run tells while it goes on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::finding::Finding;

/// Something that happened during a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Another run holds the lock.
    Waiting {
        /// Who that is.
        holder: String,
    },
    /// The run that held the lock has not moved for the length of a lease, so this one goes on in its place.
    TookOver {
        /// Who held it.
        holder: String,
    },
    /// A statement is written otherwise than in its file, as [`Migrator::fix`](crate::Migrator::fix) wants it.
    Fixed(Finding),
    /// A file begins, or goes on where an earlier run ended.
    File {
        /// Its name.
        file: String,
        /// How many of its statements are applied already.
        done: usize,
        /// How many it has.
        of: usize,
    },
    /// A transaction of a file begins.
    Statement {
        /// The name of the file.
        file: String,
        /// The line of the statement.
        line: usize,
        /// The first statement of the transaction, counted from 1.
        number: usize,
        /// How many the file has.
        of: usize,
        /// Its first line.
        summary: String,
    },
    /// The outcome of a statement was not known, and the catalog told.
    Recovered {
        /// The name of the file.
        file: String,
        /// The line of the statement.
        line: usize,
        /// Whether it had taken effect; if not, it runs again.
        applied: bool,
    },
    /// A job goes on in the background.
    Job {
        /// Its id.
        job: String,
        /// The index or constraint.
        object: String,
        /// What `sys.jobs` says.
        status: String,
        /// How long this run has waited for it.
        waited: Duration,
    },
    /// An index whose build had failed is dropped, to be built again.
    Rebuild {
        /// The index.
        index: String,
    },
    /// A file is applied.
    Applied {
        /// Its name.
        file: String,
    },
}

/// Who is told of events.
#[derive(Clone, Default)]
pub(crate) struct Observer(Option<Arc<Callback>>);

type Callback = dyn Fn(&Event) + Send + Sync;

impl Observer {
    pub(crate) fn new(observer: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observer)))
    }

    pub(crate) fn tell(&self, event: &Event) {
        tracing::debug!(?event, "migration");
        if let Some(observer) = &self.0 {
            observer(event);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
