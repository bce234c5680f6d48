//! A transaction with optimistic concurrency control, on a PostgreSQL that has locks.

mod commit;
mod execute;
mod logged_statement;

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::backend::{Backend, Setting};
use super::cancel_gate::CancelGate;
use super::change_log::ChangeLog;
use super::commits::CommitMark;
use super::jobs::FinishedJob;
use super::replay::replay;
use super::schema_versions::{Freshness, RelationName, SchemaVersion};
use super::table_copies::TableCopies;
use super::{Inner, catalog, is_named, writes};
use crate::engine::{Call, CopyFormat, Description, Done, Extent, Oid, Rows};
use crate::error::SqlError;
use crate::statement::{Kind, Statement, names};
use logged_statement::LoggedStatement;

/// The mode is named, because the session may have set another default.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE";
const BEGIN_READ_ONLY: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// All work comes after this savepoint, so that it can be undone without losing the snapshot.
const START: &str = "SAVEPOINT s0";
const UNDO: &str = "ROLLBACK TO SAVEPOINT s0";
/// Waits for locks without a limit. Otherwise a wait fails with 55P03 after 2 ms.
const WAIT: &str = "SET LOCAL lock_timeout = 0";
const DO_NOT_WAIT: &str = "SET LOCAL lock_timeout = DEFAULT";

/// Whether the work of a transaction is applied on the server, and its locks are held.
#[derive(Debug)]
enum Work {
    Applied,
    /// It was rolled back, and must be done again.
    Undone,
    /// It was rolled back, and another transaction has committed a change of the same row. Until its COMMIT
    /// fails, the transaction continues on copies of its tables.
    Conflicted(TableCopies),
}

/// A transaction and its connection.
#[derive(Debug)]
pub(super) struct OccTransaction {
    inner: Arc<Inner>,
    pub(super) backend: Backend,
    /// The id of its session.
    session: Uuid,
    pub(super) cancel_gate: CancelGate,
    settings: Vec<Setting>,
    /// The settings at its beginning, which a rollback restores.
    settings_before: Vec<Setting>,
    pub(super) mark: CommitMark,
    /// The version of the schema that its snapshot shows.
    version: Option<u64>,
    /// The version of the catalog that it has read; after the commit, with its own change.
    pub(super) schema: SchemaVersion,
    /// The version of the schema when it began.
    schema_at_begin: SchemaVersion,
    /// All names in its statements.
    names: BTreeSet<String>,
    pub(super) read_only: bool,
    begun: bool,
    /// Whether its connection may have unknown settings.
    pub(super) tainted: bool,
    work: Work,
    log: ChangeLog,
    /// The writes since the conflict, to repeat them on new copies.
    logged: Vec<LoggedStatement>,
    /// Its DDL statement; then it has no other changes.
    schema_change: Option<Arc<str>>,
    /// Whether that statement submits a job.
    pub(super) submits: bool,
    /// The jobs to list once it has committed.
    pub(super) finished_jobs: Vec<FinishedJob>,
}

impl OccTransaction {
    pub(super) fn new(
        inner: Arc<Inner>,
        backend: Backend,
        session: Uuid,
        settings: Vec<Setting>,
        schema: SchemaVersion,
    ) -> Self {
        let (mark, version) = (inner.commits.mark(), inner.tables.version());
        let schema_at_begin = inner.schema.version();
        Self {
            inner,
            backend,
            session,
            cancel_gate: CancelGate::default(),
            settings_before: settings.clone(),
            settings,
            mark,
            version,
            schema,
            schema_at_begin,
            names: BTreeSet::new(),
            read_only: false,
            begun: false,
            tainted: false,
            work: Work::Applied,
            logged: Vec::new(),
            log: ChangeLog::default(),
            schema_change: None,
            submits: false,
            finished_jobs: Vec::new(),
        }
    }

    pub(super) async fn configure(&mut self, settings: Vec<Setting>) -> Result<(), SqlError> {
        self.begin().await?;
        self.backend.apply_settings(&settings).await?;
        self.settings = settings;
        Ok(())
    }

    /// Rolls back the work, which releases the locks. The work is done again when it is needed.
    pub(super) async fn release_locks(&mut self) -> Result<(), SqlError> {
        self.undo().await?;
        match &mut self.work {
            Work::Applied => self.work = Work::Undone,
            Work::Undone => {}
            Work::Conflicted(copies) => *copies = TableCopies::default(),
        }
        Ok(())
    }

    pub(super) async fn describe(
        &mut self,
        statement: &Statement,
        types: &[Oid],
    ) -> Result<Description, SqlError> {
        if matches!(self.work, Work::Conflicted(_)) {
            match self.describe_elsewhere(statement, types).await {
                Err(error) if is_lock_timeout_or_cancel(&error) => {}
                described => return described,
            }
        }
        // A rollback has also undone the settings.
        self.backend.apply_settings(&self.settings).await?;
        match self.cancel_gate.during(self.backend.describe(statement, types)).await {
            Err(error) if is_lock_timeout_or_cancel(&error) => {}
            described => return described,
        }
        self.release_locks().await?;
        let inner = self.inner.clone();
        let _priority = inner.locks.priority().await;
        let pid = self.backend.pid;
        let described = async {
            self.begin().await?;
            self.backend.apply_settings(&self.settings).await?;
            self.backend.run(WAIT).await?;
            let description = self.backend.describe(statement, types).await?;
            self.undo().await?;
            Ok(description)
        };
        inner.locks.run_with_priority(&inner, pid, described).await
    }

    /// Describes a statement on the real tables: copies lack some of their properties.
    async fn describe_elsewhere(
        &self,
        statement: &Statement,
        types: &[Oid],
    ) -> Result<Description, SqlError> {
        let mut backend = self.inner.backend(&self.backend.role, &self.settings).await?;
        let described = backend.describe(statement, types).await;
        self.inner.release(backend);
        described
    }

    /// The format of the data of a COPY FROM STDIN. It is read on another connection, because the statement fails
    /// there. The transaction itself cannot have created the table.
    pub(super) async fn copy_format(&mut self, statement: &Statement) -> Result<CopyFormat, SqlError> {
        let mut backend = self.inner.backend(&self.backend.role, &self.settings).await?;
        let mut format = backend.copy_format(statement.text()).await;
        if format.as_ref().is_err_and(is_lock_timeout_or_cancel) {
            self.release_locks().await?;
            let inner = self.inner.clone();
            let _priority = inner.locks.priority().await;
            let pid = backend.pid;
            let waiting = async {
                backend.run("SET lock_timeout = 0").await?;
                let format = backend.copy_format(statement.text()).await;
                backend.run("SET lock_timeout = DEFAULT").await?;
                format
            };
            format = inner.locks.run_with_priority(&inner, pid, waiting).await;
        }
        self.inner.release(backend);
        format
    }

    pub(super) async fn run(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        self.names.extend(names(call.statement.text()));
        let outcome = self.run_somewhere(call, rows).await;
        if outcome.is_err() {
            // A change of the schema may be the real cause of any error.
            self.check_schema_version()?;
        }
        outcome
    }

    async fn run_somewhere(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        self.tainted |= taints(call.statement);
        if matches!(self.work, Work::Applied) && call.statement.kind() == Kind::Ddl {
            // DDL needs locks that others surely hold, and a transaction that waits for priority must hold
            // none.
            self.release_locks().await?;
        }
        if matches!(self.work, Work::Applied) {
            match self.cancel_gate.clone().during(self.execute(call, rows)).await {
                Err(error) if is_lock_timeout_or_cancel(&error) => self.release_locks().await?,
                Err(error) if self.is_conflict(&error) => self.mark_conflicted(call, error).await?,
                outcome => return outcome,
            }
        }
        if !matches!(self.work, Work::Conflicted(_)) {
            match self.redo_and_run(call, rows).await {
                Err(error) if self.is_conflict(&error) => self.mark_conflicted(call, error).await?,
                outcome => return outcome,
            }
        }
        self.run_on_copies(call, rows).await
    }

    pub(super) async fn roll_back(&mut self) -> Result<(), SqlError> {
        if self.begun && !self.backend.is_lost() {
            self.backend.run("ROLLBACK").await?;
            self.backend.settings_restored(&self.settings_before);
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), SqlError> {
        if !self.begun {
            self.begun = true;
            self.backend.run(&format!("{}; {START}", self.begin_statement())).await?;
        }
        Ok(())
    }

    fn begin_statement(&self) -> &'static str {
        if self.read_only { BEGIN_READ_ONLY } else { BEGIN }
    }

    /// Tells the server the id of the session, until the transaction ends: another session may use the connection next.
    async fn set_session_id(&mut self) -> Result<(), SqlError> {
        self.begin().await?;
        let id = self.session;
        self.backend.run(&format!("SET LOCAL dsql_local.session = '{id}'")).await
    }

    /// Rolls back to the savepoint.
    async fn undo(&mut self) -> Result<(), SqlError> {
        if self.begun && !self.backend.is_lost() {
            self.backend.run(UNDO).await?;
            self.backend.settings_restored(&self.settings_before);
        }
        Ok(())
    }

    /// Whether another transaction may be the cause. The client must not see that before its commit.
    fn is_conflict(&self, error: &SqlError) -> bool {
        match error.code {
            "40001" | "40P01" => *error != SqlError::schema_conflict(),
            // The key may belong to a row outside of the snapshot.
            _ => is_key_violation(error) && self.inner.commits.any_since(self.mark),
        }
    }

    async fn mark_conflicted(&mut self, call: &Call<'_>, error: SqlError) -> Result<(), SqlError> {
        if call.extent != Extent::Open && error.code == "40001" {
            // The client would get this error right after the statement.
            return Err(SqlError::change_conflict());
        }
        self.undo().await?;
        self.work = Work::Conflicted(TableCopies::default());
        Ok(())
    }

    /// Does all work again, and then runs a statement.
    async fn redo_and_run(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        rows.clear();
        let (inner, pid) = (self.inner.clone(), self.backend.pid);
        if !writes(call.statement) {
            // A read needs no locks of others and may take long, so it does not keep the priority.
            self.reapply().await?;
            self.backend.run(DO_NOT_WAIT).await?;
            match self.cancel_gate.clone().during(self.execute(call, rows)).await {
                Err(error) if is_lock_timeout_or_cancel(&error) => self.release_locks().await?,
                outcome => return outcome,
            }
            rows.clear();
        }
        let _priority = inner.locks.priority().await;
        self.check_schema_version()?;
        let work = async {
            self.redo().await?;
            let changed = self.execute(call, rows).await?;
            self.backend.run(DO_NOT_WAIT).await?;
            Ok(changed)
        };
        let outcome = inner.locks.run_with_priority(&inner, pid, work).await;
        // The schema may have changed during the wait.
        self.check_schema_version()?;
        outcome
    }

    /// Does all work again, so that it is applied.
    async fn reapply(&mut self) -> Result<(), SqlError> {
        let inner = self.inner.clone();
        let _priority = inner.locks.priority().await;
        let pid = self.backend.pid;
        let restored = inner.locks.run_with_priority(&inner, pid, self.redo()).await;
        // The schema may have changed during the wait.
        self.check_schema_version()?;
        restored
    }

    /// Fails if another session has changed what a statement of the transaction names. After DDL, it fails if another
    /// session has changed anything.
    fn check_schema_version(&self) -> Result<(), SqlError> {
        let schema = &self.inner.schema;
        let names =
            |relation: &RelationName| is_named(relation, &self.names, &self.settings, &self.backend.role);
        let stale = match self.schema_change {
            Some(_) => schema.version() != self.schema_at_begin,
            None => schema.freshness(self.schema, names) == Freshness::Stale,
        };
        if stale { Err(SqlError::schema_conflict()) } else { Ok(()) }
    }

    /// The work has succeeded before. If it fails now, and not because of a lock or a row, the schema has changed.
    fn as_schema_conflict(&self, error: SqlError) -> SqlError {
        let explained = matches!(error.code, "40001" | "40P01" | "XX000")
            || is_lock_timeout_or_cancel(&error)
            || is_key_violation(&error);
        let changed = self.inner.schema.version() != self.schema_at_begin;
        if changed && !explained { SqlError::schema_conflict() } else { error }
    }

    async fn redo(&mut self) -> Result<(), SqlError> {
        self.begin().await?;
        if matches!(self.work, Work::Undone) {
            // The log has values in the default formats.
            self.backend.apply_settings(&[]).await?;
            self.backend.run(WAIT).await?;
            let replayed = replay(&mut self.backend, &mut self.log, (&self.inner.tables, self.version)).await;
            replayed.map_err(|error| self.as_schema_conflict(error))?;
        }
        self.backend.apply_settings(&self.settings).await?;
        self.backend.run(WAIT).await?;
        if matches!(self.work, Work::Undone) {
            if let Some(sql) = &self.schema_change {
                self.backend.run(sql).await?;
                catalog::audit(&mut self.backend, self.inner.rules).await?;
            }
            self.work = Work::Applied;
        }
        Ok(())
    }
}

/// Whether a statement may change settings without SET.
fn taints(statement: &Statement) -> bool {
    statement.contains_ignore_case("set_config")
}

/// Whether a statement failed because of a lock of another transaction, or was cancelled for one.
pub(super) fn is_lock_timeout_or_cancel(error: &SqlError) -> bool {
    matches!(error.code, "55P03" | "57014")
}

/// Whether a key exists that must not, or is missing.
fn is_key_violation(error: &SqlError) -> bool {
    matches!(error.code, "23503" | "23505" | "23P01")
}
