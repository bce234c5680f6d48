//! Brings a database to the state that the files describe.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay_dsql::Dsql;
use futures_util::future::{Either, select};

use crate::apply::Apply;
use crate::bookkeeping::{Bookkeeping, PREFIX, Record, run};
use crate::catalog;
use crate::error::Error;
use crate::event::{Event, Observer};
use crate::files::{MigrationFile, Migrations};
use crate::hook::Hook;
use crate::lock::{LEASE, Lock, Terms};
use crate::version::Version;

/// How long a run waits for another one, unless the caller says otherwise.
const WAIT: Duration = Duration::from_secs(600);

/// Applies [`Migrations`] to a database.
///
/// ```no_run
/// # async fn start(dsql: &forebay_dsql::Dsql) -> Result<(), forebay_schema::Error> {
/// use forebay_schema::{Migrations, Migrator};
///
/// let migrations = Migrations::from_dir("migrations")?.named("orders");
/// let summary = Migrator::new(dsql.clone(), migrations).setup().await?;
/// println!("{} files applied", summary.applied.len());
/// # Ok(())
/// # }
/// ```
pub struct Migrator {
    pub(crate) dsql: Dsql,
    pub(crate) migrations: Migrations,
    pub(crate) tables: Bookkeeping,
    pub(crate) observer: Observer,
    pub(crate) hook: Option<Arc<dyn Hook>>,
    pub(crate) stopped: Arc<dyn Fn() -> bool + Send + Sync>,
    pub(crate) fix: bool,
    wait: Duration,
    lease: Duration,
    accept_changed: bool,
    out_of_order: bool,
    to: Option<Version>,
}

/// What a run has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The files that were applied, or whose rest was.
    pub applied: Vec<String>,
    /// How many statements that were.
    pub statements: usize,
    /// The last version that is applied now.
    pub version: Option<String>,
}

/// A file that is not applied as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Pending<'a> {
    pub(crate) file: &'a MigrationFile,
    pub(crate) record: Record,
    /// The file before it.
    pub(crate) previous: Option<&'a MigrationFile>,
}

impl Migrator {
    /// For this database and these files. The pool should have four connections or more: the work, its heartbeat, a wait for a job
    /// and a look at it.
    #[must_use]
    pub fn new(dsql: Dsql, migrations: Migrations) -> Self {
        Self {
            dsql,
            migrations,
            tables: Bookkeeping::new("public"),
            observer: Observer::default(),
            hook: None,
            stopped: Arc::new(|| false),
            fix: false,
            wait: WAIT,
            lease: LEASE,
            accept_changed: false,
            out_of_order: false,
            to: None,
        }
    }

    /// Keeps its own tables in this schema, which must exist: `public` unless it is given. Every run must name the same.
    #[must_use]
    pub fn bookkeeping_schema(mut self, schema: &str) -> Self {
        self.tables = Bookkeeping::new(schema);
        self
    }

    /// Is called with every [`Event`].
    #[must_use]
    pub fn observer(mut self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.observer = Observer::new(observer);
        self
    }

    /// Is called whenever a file is applied.
    #[must_use]
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Stops as soon as this is true: after the statement that is under way, or while waiting.
    #[must_use]
    pub fn stop_when(mut self, stopped: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stopped = Arc::new(stopped);
        self
    }

    /// Rewrites statements where Aurora DSQL leaves only one other way: indexes are built in the background, and a transaction
    /// with several changes of the schema becomes several. Off unless it is called.
    #[must_use]
    pub fn fix(mut self, fix: bool) -> Self {
        self.fix = fix;
        self
    }

    /// How long to wait while another run works: 10 minutes by default.
    #[must_use]
    pub fn wait_for_lock(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long a run may be silent before another one takes over: 30 s by default. All runs should have the same.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Records the present text of files that were changed after they were applied, instead of refusing them.
    #[must_use]
    pub fn accept_changed(mut self, accept: bool) -> Self {
        self.accept_changed = accept;
        self
    }

    /// Applies new files also if a later version is applied.
    #[must_use]
    pub fn out_of_order(mut self, accept: bool) -> Self {
        self.out_of_order = accept;
        self
    }

    /// Applies no later version than this one.
    #[must_use]
    pub fn to(mut self, version: Version) -> Self {
        self.to = Some(version);
        self
    }

    /// The files.
    #[must_use]
    pub fn migrations(&self) -> &Migrations {
        &self.migrations
    }

    /// Creates what is needed in an empty database, and applies all files. In a database that is set up, the same as
    /// [`update`](Self::update): applications call this when they start.
    ///
    /// # Errors
    /// [`Error::UnknownDatabase`] if there are tables that nothing is recorded about.
    ///
    /// # Cancel safety
    /// If the future is dropped, the next run continues where this one was, once the lease of its lock is over.
    pub async fn setup(&self) -> Result<Summary, Error> {
        if !self.tables.exists(&self.dsql).await? {
            let tables =
                run(&self.dsql, "schema_tables", async |tx| catalog::tables(&tx, PREFIX).await).await?;
            if !tables.is_empty() {
                return Err(Error::UnknownDatabase { tables: tables.into_iter().take(5).collect() });
            }
            self.tables.create(&self.dsql).await?;
        }
        self.run().await
    }

    /// Applies the files that are not applied yet.
    ///
    /// # Errors
    /// [`Error::NotSetUp`] if nothing is recorded about these migrations.
    ///
    /// # Cancel safety
    /// As [`setup`](Self::setup).
    pub async fn update(&self) -> Result<Summary, Error> {
        if !self.tables.exists(&self.dsql).await? {
            return Err(Error::NotSetUp { name: self.migrations.name().to_owned() });
        }
        self.run().await
    }

    pub(crate) async fn records(&self) -> Result<Vec<Record>, Error> {
        let name = self.migrations.name();
        Ok(run(&self.dsql, "schema_records", async |tx| self.tables.records(&tx, name).await).await?)
    }

    /// The files that are left to apply.
    pub(crate) fn pending(&self, records: &[Record]) -> Result<Vec<Pending<'_>>, Error> {
        let mut pending = Vec::new();
        let mut previous = None;
        for file in self.migrations.files() {
            if self.to.as_ref().is_some_and(|to| file.version() > to) {
                break;
            }
            let record = records.iter().find(|record| record.version == file.version().key());
            if record.is_none_or(|record| record.applied.is_none()) {
                let record = record.cloned().unwrap_or_else(|| Record {
                    version: file.version().key(),
                    file: file.path().to_owned(),
                    checksum: file.checksum().to_owned(),
                    done: 0,
                    prefix: file.prefix_checksum(0),
                    applied: None,
                    in_flight: None,
                });
                pending.push(Pending { file, record, previous });
            }
            previous = Some(file);
        }
        Ok(pending)
    }

    async fn run(&self) -> Result<Summary, Error> {
        let records = self.records().await?;
        if self.pending(&records)?.is_empty() {
            return Ok(self.summary(&records));
        }
        let runtime = rt::current().map_err(|error| forebay_dsql::Error::of(Box::new(error)))?;
        let me = format!("process {} {:016x}", std::process::id(), runtime.entropy());
        let terms = Terms {
            runtime: &*runtime,
            me: &me,
            wait: self.wait,
            lease: self.lease,
            stopped: &*self.stopped,
        };
        let lock = Lock::acquire(&self.dsql, &self.tables, terms, &self.observer).await?;
        let outcome = {
            let (work, beat) = (pin!(self.work(&lock, &*runtime)), pin!(lock.beat(&*runtime, self.lease)));
            match select(work, beat).await {
                Either::Left((outcome, _)) => outcome,
                Either::Right((deposed, _)) => Err(deposed),
            }
        };
        // The outcome matters more than a lock that will be free by itself after its lease.
        if let Err(error) = lock.release().await {
            tracing::warn!(%error, "the lock of the migration is not released, and expires");
        }
        outcome
    }

    async fn work(&self, lock: &Lock, runtime: &dyn Runtime) -> Result<Summary, Error> {
        // Another run may have done some of it in the meantime.
        let mut records = self.records().await?;
        let mut summary = Summary::default();
        for Pending { file, mut record, previous } in self.pending(&records)? {
            let apply = Apply { migrator: self, lock, runtime };
            summary.statements += apply.file(file, &mut record, previous).await?;
            summary.applied.push(file.path().to_owned());
            records.retain(|one| one.version != record.version);
            records.push(record);
        }
        Ok(Summary { version: self.summary(&records).version, ..summary })
    }

    fn summary(&self, records: &[Record]) -> Summary {
        let applied = |file: &&MigrationFile| {
            records.iter().any(|record| record.applied.is_some() && record.version == file.version().key())
        };
        let latest = self.migrations.files().iter().rfind(applied);
        Summary { version: latest.map(|file| file.version().to_string()), ..Summary::default() }
    }
}

impl fmt::Debug for Migrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migrator").field("dsql", &self.dsql).field("name", &self.migrations.name()).finish()
    }
}
