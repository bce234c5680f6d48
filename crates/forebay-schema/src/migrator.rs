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
use crate::definition::{self, CreatedTable};
use crate::error::Error;
use crate::event::{Event, Observer};
use crate::files::{MigrationFile, Migrations};
use crate::finding::Finding;
use crate::hook::Hook;
use crate::lock::{LEASE, Lock, Terms};
use crate::pending::{Pending, Tolerance, changed, exists, pending};
use crate::rules::{self, Known, Rules};
use crate::snapshot;
use crate::version::Version;

/// How long a run waits for another one, unless the caller says otherwise.
const WAIT: Duration = Duration::from_secs(600);
/// How many tables an error names.
const SHOWN: usize = 5;

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
    rules: Rules,
    tolerance: Tolerance,
}

/// What a run has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The files that were applied, or whose rest was.
    pub applied: Vec<String>,
    /// The files that were recorded as applied, and not run: those of a baseline, and those whose text was changed.
    pub recorded: Vec<String>,
    /// How many statements were applied.
    pub statements: usize,
    /// The last version that is applied now.
    pub version: Option<String>,
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
            rules: Rules::default(),
            tolerance: Tolerance::default(),
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
        self.tolerance.changed = accept;
        self
    }

    /// Applies new files also if a later version is applied.
    #[must_use]
    pub fn out_of_order(mut self, accept: bool) -> Self {
        self.tolerance.out_of_order = accept;
        self
    }

    /// Applies no later version than this one.
    #[must_use]
    pub fn to(mut self, version: Version) -> Self {
        self.tolerance.to = Some(version);
        self
    }

    /// The files.
    #[must_use]
    pub fn migrations(&self) -> &Migrations {
        &self.migrations
    }

    /// What the cluster accepts: statements are checked by these rules before anything runs.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
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
        let records = self.records_or_none().await?;
        self.preflight(&self.pending(&records)?).await?;
        self.tables.create(&self.dsql).await?;
        self.run(None).await
    }

    /// Records that the database is what the files up to `baseline` make, without running them, and applies the others.
    ///
    /// # Errors
    /// [`Error::NoVersion`] if there is no such file.
    ///
    /// # Cancel safety
    /// As [`setup`](Self::setup).
    pub async fn setup_from(&self, baseline: &Version) -> Result<Summary, Error> {
        let records = self.records_from(baseline).await?;
        let declared = self.declared(&records, Some(baseline));
        self.preflight(&self.pending(&with(records, &declared))?).await?;
        self.tables.create(&self.dsql).await?;
        self.run(Some(baseline)).await
    }

    /// Applies the files that are not applied yet.
    ///
    /// # Errors
    /// [`Error::NotSetUp`] if nothing is recorded about these migrations.
    ///
    /// # Cancel safety
    /// As [`setup`](Self::setup).
    pub async fn update(&self) -> Result<Summary, Error> {
        self.known_records().await?;
        self.run(None).await
    }

    /// What Aurora DSQL will refuse of all files, whether they are applied or not. The database is not asked.
    #[must_use]
    pub fn check(migrations: &Migrations, rules: Rules) -> Vec<Finding> {
        let mut known = Known::default();
        migrations.files().iter().flat_map(|file| rules::check(file, 0, rules, &mut known)).collect()
    }

    pub(crate) async fn records(&self) -> Result<Vec<Record>, Error> {
        let name = self.migrations.name();
        Ok(run(&self.dsql, "schema_records", async |tx| self.tables.records(&tx, name).await).await?)
    }

    /// The records of a database that is set up.
    pub(crate) async fn known_records(&self) -> Result<Vec<Record>, Error> {
        let unknown = || Error::NotSetUp { name: self.migrations.name().to_owned() };
        if !self.tables.exists(&self.dsql).await? {
            return Err(unknown());
        }
        let records = self.records().await?;
        if records.is_empty() { Err(unknown()) } else { Ok(records) }
    }

    /// The records of a database that is what the files up to `baseline` make; none if nothing is recorded.
    pub(crate) async fn records_from(&self, baseline: &Version) -> Result<Vec<Record>, Error> {
        exists(&self.migrations, baseline)?;
        if self.tables.exists(&self.dsql).await? { self.records().await } else { Ok(Vec::new()) }
    }

    /// The records of files up to `baseline` that are not applied, or not as a whole, as if they were.
    pub(crate) fn declared(&self, records: &[Record], baseline: Option<&Version>) -> Vec<Record> {
        let Some(baseline) = baseline else { return Vec::new() };
        let is_applied = |file: &MigrationFile| {
            records.iter().any(|record| record.applied.is_some() && record.version == file.version().key())
        };
        let files = self.migrations.files().iter();
        files.filter(|file| file.version() <= baseline && !is_applied(file)).map(applied).collect()
    }

    /// The records, or none in a database where these migrations may begin.
    pub(crate) async fn records_or_none(&self) -> Result<Vec<Record>, Error> {
        let name = self.migrations.name();
        // One snapshot: another run may be creating tables.
        let (records, is_used, mut tables) = run(&self.dsql, "schema_records", async |tx| {
            let exists = self.tables.is_there(&tx).await?;
            Ok((
                if exists { self.tables.records(&tx, name).await? } else { Vec::new() },
                exists && self.tables.is_used(&tx).await?,
                catalog::tables(&tx, PREFIX).await?,
            ))
        })
        .await?;
        if !records.is_empty() {
            return Ok(records);
        }
        if is_used {
            // The tables of other applications are none of its business, but for those that it creates itself.
            let statements = self.migrations.files().iter().flat_map(MigrationFile::statements);
            let created: Vec<_> = statements
                .filter(|statement| statement.key(2) != "IF")
                .filter_map(definition::created_table)
                .collect();
            tables.retain(|table| {
                let is_same = |one: &CreatedTable| {
                    one.plain == table.name
                        && one.schema.as_ref().is_none_or(|schema| *schema == table.schema)
                };
                created.iter().any(is_same)
            });
        }
        if tables.is_empty() {
            return Ok(records);
        }
        Err(Error::UnknownDatabase {
            tables: tables.into_iter().take(SHOWN).map(|table| table.full_name).collect(),
        })
    }

    pub(crate) fn pending(&self, records: &[Record]) -> Result<Vec<Pending<'_>>, Error> {
        pending(&self.migrations, records, &self.tolerance)
    }

    /// Looks for statements that will be refused. Returns what is written otherwise instead.
    pub(crate) async fn preflight(&self, pending: &[Pending<'_>]) -> Result<Vec<Finding>, Error> {
        let domains = run(&self.dsql, "schema_domains", async |tx| catalog::domains(&tx).await).await?;
        let mut known = Known::with_domains(domains);
        let mut findings = Vec::new();
        for file in self.migrations.files() {
            let one = pending.iter().find(|one| one.file.version() == file.version());
            let done = one.map_or(file.statements().len(), |one| one.record.done);
            let found = rules::check(file, done, self.rules, &mut known);
            findings.extend(found.into_iter().filter(|_| one.is_some()));
        }
        let (fixed, refused): (Vec<Finding>, Vec<Finding>) =
            findings.into_iter().partition(|finding| self.fix && finding.fixable);
        if refused.is_empty() { Ok(fixed) } else { Err(Error::Refused(refused)) }
    }

    pub(crate) fn tell_fixes(&self, fixed: &[Finding]) {
        for finding in fixed {
            self.observer.tell(&Event::Fixed(finding.clone()));
        }
    }

    async fn run(&self, baseline: Option<&Version>) -> Result<Summary, Error> {
        let records = self.records().await?;
        let declared = self.declared(&records, baseline);
        let records = with(records, &declared);
        let pending = self.pending(&records)?;
        self.tell_fixes(&self.preflight(&pending).await?);
        let is_changed = !changed(&self.migrations, &records).is_empty();
        if pending.is_empty() && baseline.is_none() && !is_changed && snapshot::is_complete(self).await? {
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
            let work = pin!(self.work(&lock, &*runtime, baseline));
            let beat = pin!(lock.beat(&*runtime, self.lease));
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

    async fn work(
        &self,
        lock: &Lock,
        runtime: &dyn Runtime,
        baseline: Option<&Version>,
    ) -> Result<Summary, Error> {
        // Another run may have done some of it in the meantime.
        let mut records = self.records().await?;
        let recorded = self.record_texts(lock, &mut records, baseline).await?;
        let mut summary = Summary { recorded, ..Summary::default() };
        for Pending { file, mut record, previous } in self.pending(&records)? {
            let apply = Apply { migrator: self, lock, runtime };
            summary.statements += apply.file(file, &mut record, previous).await?;
            summary.applied.push(file.path().to_owned());
            records.retain(|one| one.version != record.version);
            records.push(record);
        }
        snapshot::record(self, lock).await?;
        Ok(Summary { version: self.summary(&records).version, ..summary })
    }

    /// Records the text of files that are applied already: those of a baseline, and those that were changed.
    async fn record_texts(
        &self,
        lock: &Lock,
        records: &mut Vec<Record>,
        baseline: Option<&Version>,
    ) -> Result<Vec<String>, Error> {
        let name = self.migrations.name();
        let mut declared = self.declared(records, baseline);
        let changed = if self.tolerance.changed { changed(&self.migrations, records) } else { Vec::new() };
        declared.extend(changed.into_iter().map(applied));
        for next in &declared {
            // A file that was changed stays applied since the time when it was.
            let known = records.iter().find(|record| record.version == next.version);
            let at = known.and_then(|record| record.applied.clone());
            let is_new = at.is_none();
            let next = Record { applied: at, ..next.clone() };
            lock.run("schema_text", async |tx| {
                self.tables.write(&tx, name, &next).await?;
                snapshot::outdate(&tx, &self.tables, name).await?;
                if is_new { self.tables.mark_applied(&tx, name, &next.version).await } else { Ok(()) }
            })
            .await?;
        }
        *records = with(std::mem::take(records), &declared);
        Ok(declared.into_iter().map(|record| record.file).collect())
    }

    fn summary(&self, records: &[Record]) -> Summary {
        let applied = |file: &&MigrationFile| {
            records.iter().any(|record| record.applied.is_some() && record.version == file.version().key())
        };
        let latest = self.migrations.files().iter().rfind(applied);
        Summary { version: latest.map(|file| file.version().to_string()), ..Summary::default() }
    }
}

/// The record of a file that is applied. The server knows the time.
fn applied(file: &MigrationFile) -> Record {
    let done = file.statements().len();
    let prefix = file.prefix_checksum(done);
    Record { done, prefix, applied: Some(String::new()), ..Record::new(file) }
}

/// The records with others in the place of those of the same versions.
pub(crate) fn with(mut records: Vec<Record>, others: &[Record]) -> Vec<Record> {
    records.retain(|record| !others.iter().any(|other| other.version == record.version));
    records.extend(others.iter().cloned());
    records
}

impl fmt::Debug for Migrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migrator").field("dsql", &self.dsql).field("name", &self.migrations.name()).finish()
    }
}
