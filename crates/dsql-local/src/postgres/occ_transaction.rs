//! One transaction: what it has done, and what it holds of it.

mod commit;
mod execute;
mod logged_statement;

use std::sync::Arc;

use super::backend::{Backend, Setting};
use super::cancel_gate::CancelGate;
use super::change_log::ChangeLog;
use super::commits::CommitMark;
use super::replay::replay;
use super::table_copies::TableCopies;
use super::{Inner, catalog, writes};
use crate::engine::{Call, Description, Done, Extent, Oid, Rows};
use crate::error::SqlError;
use crate::statement::{Kind, Statement};
use logged_statement::LoggedStatement;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
/// Everything that is done comes after it, so that all of it can be undone without losing the snapshot.
const START: &str = "SAVEPOINT s0";
const UNDO: &str = "ROLLBACK TO SAVEPOINT s0";
/// Waits for locks for as long as it takes; otherwise a wait ends with 55P03 after a moment.
const WAIT: &str = "SET LOCAL lock_timeout = 0";
const DO_NOT_WAIT: &str = "SET LOCAL lock_timeout = DEFAULT";

/// What it holds.
#[derive(Debug)]
enum Work {
    /// All that it has done.
    Applied,
    /// Nothing: it was undone, and must be done again.
    Undone,
    /// Nothing, and it never will: another has committed a change to the same row. Until it is told so, at its commit, it goes
    /// on in a world of its own.
    Conflicted(TableCopies),
}

/// A transaction, and the connection that it has for as long as it lasts.
#[derive(Debug)]
pub(super) struct OccTransaction {
    inner: Arc<Inner>,
    backend: Backend,
    cancel_gate: CancelGate,
    settings: Vec<Setting>,
    /// What they were when it began: they are so again when all is undone.
    settings_before: Vec<Setting>,
    mark: CommitMark,
    /// Which tables of tables its snapshot shows.
    version: Option<u64>,
    epoch: u64,
    begun: bool,
    tainted: bool,
    work: Work,
    log: ChangeLog,
    /// What it did in a world of its own, to do it there again.
    logged: Vec<LoggedStatement>,
    /// The change of the schema that it makes; with it, it makes no other changes.
    schema_change: Option<Arc<str>>,
    /// Whether that is one for a job.
    submits: bool,
}

impl OccTransaction {
    pub(super) fn new(inner: Arc<Inner>, backend: Backend, settings: Vec<Setting>, epoch: u64) -> Self {
        let (mark, version) = (inner.commits.mark(), inner.tables.version());
        Self {
            inner,
            backend,
            cancel_gate: CancelGate::default(),
            settings_before: settings.clone(),
            settings,
            mark,
            version,
            epoch,
            begun: false,
            tainted: false,
            work: Work::Applied,
            logged: Vec::new(),
            log: ChangeLog::default(),
            schema_change: None,
            submits: false,
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.backend.pid()
    }

    pub(super) fn mark(&self) -> CommitMark {
        self.mark
    }

    pub(super) fn cancel_gate(&self) -> CancelGate {
        self.cancel_gate.clone()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.backend.is_lost()
    }

    /// The schema that it knows; after its commit, with its own change.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether there is a job to do once it is committed.
    pub(super) fn has_submitted(&self) -> bool {
        self.submits
    }

    pub(super) fn into_backend(self) -> Backend {
        self.backend
    }

    pub(super) async fn configure(&mut self, settings: Vec<Setting>) -> Result<(), SqlError> {
        self.begin().await?;
        self.backend.apply_settings(&settings).await?;
        self.settings = settings;
        Ok(())
    }

    /// Gives back what it holds. What it has done is done again when that is needed.
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
        // If it was undone, so were its settings.
        self.backend.apply_settings(&self.settings).await?;
        match self.cancel_gate.during(self.backend.describe(statement, types)).await {
            Err(error) if is_lock_timeout_or_cancel(&error) => {}
            described => return described,
        }
        self.release_locks().await?;
        let inner = self.inner.clone();
        let _priority = inner.locks.priority().await;
        let pid = self.pid();
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

    /// Of the tables as they are: copies do not have all that they have.
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

    /// Whether its connection may go by settings that nobody knows of.
    pub(super) fn is_tainted(&self) -> bool {
        self.tainted
    }

    /// Runs a statement.
    pub(super) async fn run(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        let outcome = self.run_somewhere(call, rows).await;
        if outcome.is_err() {
            // Whatever else went wrong, it may have gone wrong because of that.
            self.check_epoch()?;
        }
        outcome
    }

    async fn run_somewhere(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        self.tainted |= taints(call.statement);
        if matches!(self.work, Work::Applied) && call.statement.kind() == Kind::Ddl {
            // It wants locks that others are sure to hold; and nobody waits for the turn who holds anything.
            self.release_locks().await?;
        }
        if matches!(self.work, Work::Applied) {
            match self.cancel_gate().during(self.execute(call, rows)).await {
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

    /// Undoes it for good.
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
            self.backend.run(&format!("{BEGIN}; {START}")).await?;
        }
        Ok(())
    }

    /// Back to its beginning.
    async fn undo(&mut self) -> Result<(), SqlError> {
        if self.begun && !self.backend.is_lost() {
            self.backend.run(UNDO).await?;
            self.backend.settings_restored(&self.settings_before);
        }
        Ok(())
    }

    /// Whether it may have failed because of another transaction, which the client must not see before its commit.
    fn is_conflict(&self, error: &SqlError) -> bool {
        match error.code {
            "40001" | "40P01" => *error != SqlError::schema_conflict(),
            // The key may be one that it cannot see.
            _ => is_key_violation(error) && self.inner.commits.any_since(self.mark),
        }
    }

    async fn mark_conflicted(&mut self, call: &Call<'_>, error: SqlError) -> Result<(), SqlError> {
        if call.extent != Extent::Open && error.code == "40001" {
            // It would be told right after the statement.
            return Err(SqlError::change_conflict());
        }
        self.undo().await?;
        self.work = Work::Conflicted(TableCopies::default());
        Ok(())
    }

    /// Does all of it again, and then this.
    async fn redo_and_run(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        rows.clear();
        let (inner, pid) = (self.inner.clone(), self.pid());
        if !writes(call.statement) {
            // What only reads wants no row of anybody's, and may take its time: others shall have the turn.
            self.reapply().await?;
            self.backend.run(DO_NOT_WAIT).await?;
            match self.cancel_gate().during(self.execute(call, rows)).await {
                Err(error) if is_lock_timeout_or_cancel(&error) => self.release_locks().await?,
                outcome => return outcome,
            }
            rows.clear();
        }
        let _priority = inner.locks.priority().await;
        self.check_epoch()?;
        let work = async {
            self.redo().await?;
            let changed = self.execute(call, rows).await?;
            self.backend.run(DO_NOT_WAIT).await?;
            Ok(changed)
        };
        let outcome = inner.locks.run_with_priority(&inner, pid, work).await;
        // The schema may have changed while it waited.
        self.check_epoch()?;
        outcome
    }

    /// Does all of it again, so that it holds what it has done.
    async fn reapply(&mut self) -> Result<(), SqlError> {
        let inner = self.inner.clone();
        let _priority = inner.locks.priority().await;
        let pid = self.pid();
        let restored = inner.locks.run_with_priority(&inner, pid, self.redo()).await;
        // The schema may have changed while it waited.
        self.check_epoch()?;
        restored
    }

    fn check_epoch(&self) -> Result<(), SqlError> {
        // It may have begun while the schema changed, with a snapshot from before.
        let current = self.inner.epoch() == self.epoch && self.inner.tables.is_current(self.version);
        if current { Ok(()) } else { Err(SqlError::schema_conflict()) }
    }

    async fn redo(&mut self) -> Result<(), SqlError> {
        self.begin().await?;
        if matches!(self.work, Work::Undone) {
            // Values were written by the defaults, and are read by them.
            self.backend.apply_settings(&[]).await?;
            self.backend.run(WAIT).await?;
            replay(&mut self.backend, &mut self.log, (&self.inner.tables, self.version)).await?;
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

/// Whether a statement can change settings unseen.
fn taints(statement: &Statement) -> bool {
    statement.contains_ignore_case("set_config")
}

/// Whether it had to wait for another, or was made to stop for another.
pub(super) fn is_lock_timeout_or_cancel(error: &SqlError) -> bool {
    matches!(error.code, "55P03" | "57014")
}

/// Whether there was a row that must not be there, or was none that must.
fn is_key_violation(error: &SqlError) -> bool {
    matches!(error.code, "23503" | "23505" | "23P01")
}
