//! One transaction: what it has done, and what it holds of it.

mod attempt;
mod commit;
mod deed;

use std::sync::Arc;

use super::backend::{Backend, Setting};
use super::commits::Mark;
use super::journal::Journal;
use super::replay::replay;
use super::sandbox::Sandbox;
use super::stoppable::Stoppable;
use super::{Inner, catalog, writes};
use crate::engine::{Call, Description, Done, Extent, Oid, Rows};
use crate::error::SqlError;
use crate::statement::{Kind, Statement};
use deed::Deed;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
/// Everything that is done comes after it, so that all of it can be undone without losing the snapshot.
const START: &str = "SAVEPOINT s0";
const UNDO: &str = "ROLLBACK TO SAVEPOINT s0";
/// Waits for locks for as long as it takes; otherwise a wait ends with 55P03 after a moment.
const WAIT: &str = "SET LOCAL lock_timeout = 0";
const DO_NOT_WAIT: &str = "SET LOCAL lock_timeout = DEFAULT";

/// What it holds.
#[derive(Debug)]
enum Hold {
    /// All that it has done.
    All,
    /// Nothing: it was undone, and must be done again.
    Nothing,
    /// Nothing, and it never will: another has committed a change to the same row. Until it is told so, at its commit, it goes
    /// on in a world of its own.
    Doomed(Sandbox),
}

/// A transaction, and the connection that it has for as long as it lasts.
#[derive(Debug)]
pub(super) struct Transaction {
    inner: Arc<Inner>,
    backend: Backend,
    stoppable: Stoppable,
    settings: Vec<Setting>,
    /// What they were when it began: they are so again when all is undone.
    settings_before: Vec<Setting>,
    mark: Mark,
    /// Which shapes of tables its snapshot shows.
    version: Option<u64>,
    epoch: u64,
    begun: bool,
    tainted: bool,
    hold: Hold,
    journal: Journal,
    /// What it did in a world of its own, to do it there again.
    deeds: Vec<Deed>,
    /// The change of the schema that it makes; with it, it makes no other changes.
    schema_change: Option<Arc<str>>,
    /// Whether that is one for a job.
    submits: bool,
}

impl Transaction {
    pub(super) fn new(inner: Arc<Inner>, backend: Backend, settings: Vec<Setting>, epoch: u64) -> Self {
        let (mark, version) = (inner.commits.mark(), inner.shapes.version());
        Self {
            inner,
            backend,
            stoppable: Stoppable::default(),
            settings_before: settings.clone(),
            settings,
            mark,
            version,
            epoch,
            begun: false,
            tainted: false,
            hold: Hold::All,
            deeds: Vec::new(),
            journal: Journal::default(),
            schema_change: None,
            submits: false,
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.backend.pid()
    }

    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    pub(super) fn stoppable(&self) -> Stoppable {
        self.stoppable.clone()
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
        self.backend.settle(&settings).await?;
        self.settings = settings;
        Ok(())
    }

    /// Gives back what it holds. What it has done is done again when that is needed.
    pub(super) async fn detach(&mut self) -> Result<(), SqlError> {
        self.undo().await?;
        match &mut self.hold {
            Hold::All => self.hold = Hold::Nothing,
            Hold::Nothing => {}
            Hold::Doomed(sandbox) => *sandbox = Sandbox::default(),
        }
        Ok(())
    }

    pub(super) async fn describe(
        &mut self,
        statement: &Statement,
        types: &[Oid],
    ) -> Result<Description, SqlError> {
        if matches!(self.hold, Hold::Doomed(_)) {
            match self.describe_elsewhere(statement, types).await {
                Err(error) if is_dislodged(&error) => {}
                described => return described,
            }
        }
        // If it was undone, so were its settings.
        self.backend.settle(&self.settings).await?;
        match self.stoppable.during(self.backend.describe(statement, types)).await {
            Err(error) if is_dislodged(&error) => {}
            described => return described,
        }
        self.detach().await?;
        let inner = self.inner.clone();
        let _turn = inner.turns.turn().await;
        let pid = self.pid();
        let described = async {
            self.begin().await?;
            self.backend.settle(&self.settings).await?;
            self.backend.run(WAIT).await?;
            let description = self.backend.describe(statement, types).await?;
            self.undo().await?;
            Ok(description)
        };
        inner.turns.insist(&inner, pid, described).await
    }

    /// Of the tables as they are: copies do not have all that they have.
    async fn describe_elsewhere(
        &self,
        statement: &Statement,
        types: &[Oid],
    ) -> Result<Description, SqlError> {
        let mut backend = self.inner.backend(&self.backend.role, &self.settings).await?;
        let described = backend.describe(statement, types).await;
        self.inner.give_back(backend);
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
        if matches!(self.hold, Hold::All) && call.statement.kind() == Kind::Ddl {
            // It wants locks that others are sure to hold; and nobody waits for the turn who holds anything.
            self.detach().await?;
        }
        if matches!(self.hold, Hold::All) {
            match self.stoppable().during(self.attempt(call, rows)).await {
                Err(error) if is_dislodged(&error) => self.detach().await?,
                Err(error) if self.is_conflict(&error) => self.doom(call, error).await?,
                outcome => return outcome,
            }
        }
        if !matches!(self.hold, Hold::Doomed(_)) {
            match self.insist(call, rows).await {
                Err(error) if self.is_conflict(&error) => self.doom(call, error).await?,
                outcome => return outcome,
            }
        }
        self.pretend(call, rows).await
    }

    /// Undoes it for good.
    pub(super) async fn roll_back(&mut self) -> Result<(), SqlError> {
        if self.begun && !self.backend.is_lost() {
            self.backend.run("ROLLBACK").await?;
            self.backend.settled(&self.settings_before);
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
            self.backend.settled(&self.settings_before);
        }
        Ok(())
    }

    /// Whether it may have failed because of another transaction, which the client must not see before its commit.
    fn is_conflict(&self, error: &SqlError) -> bool {
        match error.code {
            "40001" | "40P01" => *error != SqlError::schema_conflict(),
            // The key may be one that it cannot see.
            _ => is_in_the_way(error) && self.inner.commits.any_since(self.mark),
        }
    }

    async fn doom(&mut self, call: &Call<'_>, error: SqlError) -> Result<(), SqlError> {
        if call.extent != Extent::Open && error.code == "40001" {
            // It would be told right after the statement.
            return Err(SqlError::change_conflict());
        }
        self.undo().await?;
        self.hold = Hold::Doomed(Sandbox::default());
        Ok(())
    }

    /// Does all of it again, and then this.
    async fn insist(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        rows.clear();
        let (inner, pid) = (self.inner.clone(), self.pid());
        if !writes(call.statement) {
            // What only reads wants no row of anybody's, and may take its time: others shall have the turn.
            self.restore().await?;
            self.backend.run(DO_NOT_WAIT).await?;
            match self.stoppable().during(self.attempt(call, rows)).await {
                Err(error) if is_dislodged(&error) => self.detach().await?,
                outcome => return outcome,
            }
            rows.clear();
        }
        let _turn = inner.turns.turn().await;
        self.check_epoch()?;
        let work = async {
            self.redo().await?;
            let changed = self.attempt(call, rows).await?;
            self.backend.run(DO_NOT_WAIT).await?;
            Ok(changed)
        };
        let outcome = inner.turns.insist(&inner, pid, work).await;
        // The schema may have changed while it waited.
        self.check_epoch()?;
        outcome
    }

    /// Does all of it again, so that it holds what it has done.
    async fn restore(&mut self) -> Result<(), SqlError> {
        let inner = self.inner.clone();
        let _turn = inner.turns.turn().await;
        let pid = self.pid();
        let restored = inner.turns.insist(&inner, pid, self.redo()).await;
        // The schema may have changed while it waited.
        self.check_epoch()?;
        restored
    }

    fn check_epoch(&self) -> Result<(), SqlError> {
        // It may have begun while the schema changed, with a snapshot from before.
        let current = self.inner.epoch() == self.epoch && self.inner.shapes.is_current(self.version);
        if current { Ok(()) } else { Err(SqlError::schema_conflict()) }
    }

    async fn redo(&mut self) -> Result<(), SqlError> {
        self.begin().await?;
        if matches!(self.hold, Hold::Nothing) {
            // Values were written by the defaults, and are read by them.
            self.backend.settle(&[]).await?;
            self.backend.run(WAIT).await?;
            replay(&mut self.backend, &mut self.journal, (&self.inner.shapes, self.version)).await?;
        }
        self.backend.settle(&self.settings).await?;
        self.backend.run(WAIT).await?;
        if matches!(self.hold, Hold::Nothing) {
            if let Some(sql) = &self.schema_change {
                self.backend.run(sql).await?;
                catalog::audit(&mut self.backend, self.inner.rules).await?;
            }
            self.hold = Hold::All;
        }
        Ok(())
    }
}

/// Whether a statement can change settings unseen.
fn taints(statement: &Statement) -> bool {
    statement.has_letters("set_config")
}

/// Whether it had to wait for another, or was made to stop for another.
pub(super) fn is_dislodged(error: &SqlError) -> bool {
    matches!(error.code, "55P03" | "57014")
}

/// Whether there was a row that must not be there, or was none that must.
fn is_in_the_way(error: &SqlError) -> bool {
    matches!(error.code, "23503" | "23505" | "23P01")
}
