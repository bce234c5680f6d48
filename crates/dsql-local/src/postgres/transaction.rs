//! One transaction: what it has done, and what it holds of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::backend::{Backend, Body, Setting};
use super::commits::{Mark, Unseen};
use super::journal::{Change, Journal};
use super::locking::locking;
use super::precheck;
use super::record::{Key, key};
use super::replay::replay;
use super::request::Request;
use super::rewrite;
use super::sandbox::Sandbox;
use super::script::Script;
use super::{Inner, catalog};
use crate::engine::{Call, Description, Done, Extent, Oid, Rows};
use crate::error::SqlError;
use crate::statement::{Kind, Statement};

/// How many rows a transaction may change.
const ROW_LIMIT: usize = 3_000;
/// How many bytes it may write. It is told so at its commit.
const SIZE_LIMIT: usize = 10 << 20;
/// How many it may write until then: all of it is kept in memory.
const KEPT_LIMIT: usize = 8 * SIZE_LIMIT;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
/// Everything that is done comes after it, so that all of it can be undone without losing the snapshot.
const START: &str = "SAVEPOINT s0";
const UNDO: &str = "ROLLBACK TO SAVEPOINT s0";
/// Waits for locks for as long as it takes; otherwise a wait ends with 55P03 after a moment.
pub(super) const WAIT: &str = "SET LOCAL lock_timeout = 0";
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
    settings: Vec<Setting>,
    /// What they were when it began: they are so again when all is undone.
    settings_before: Vec<Setting>,
    mark: Mark,
    epoch: u64,
    begun: bool,
    hold: Hold,
    journal: Journal,
    /// The change of the schema that it makes; with it, it makes no other changes.
    schema_change: Option<Arc<str>>,
    /// Whether that is one for a job.
    submits: bool,
}

impl Transaction {
    pub(super) fn new(inner: Arc<Inner>, backend: Backend, settings: Vec<Setting>, epoch: u64) -> Self {
        let mark = inner.commits.mark();
        Self {
            inner,
            backend,
            settings_before: settings.clone(),
            settings,
            mark,
            epoch,
            begun: false,
            hold: Hold::All,
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
            return self.describe_elsewhere(statement, types).await;
        }
        // If it was undone, so were its settings.
        self.backend.settle(&self.settings).await?;
        match self.backend.describe(statement, types).await {
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

    /// Runs a statement.
    pub(super) async fn run(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        // A change of the schema wants locks that others are sure to hold.
        if matches!(self.hold, Hold::All) && call.statement.kind() != Kind::Ddl {
            match self.attempt(call, rows).await {
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

    /// Makes all of it durable.
    pub(super) async fn commit(&mut self) -> Result<(), SqlError> {
        if !self.begun {
            return Ok(());
        }
        loop {
            self.check_epoch()?;
            if self.journal.size() > SIZE_LIMIT {
                return Err(SqlError::too_large(self.journal.size()));
            }
            match self.hold {
                Hold::All => {}
                Hold::Nothing => self.restore().await?,
                Hold::Doomed(_) => return Err(SqlError::change_conflict()),
            }
            self.check_unseen().await?;
            match self.seal().await {
                Err(error) if is_dislodged(&error) => self.detach().await?,
                sealed => return sealed,
            }
        }
    }

    /// Undoes it for good.
    pub(super) async fn roll_back(&mut self) -> Result<(), SqlError> {
        if self.begun && !self.backend.is_lost() {
            self.backend.run("ROLLBACK").await?;
            self.backend.settled(&self.settings_before);
        }
        Ok(())
    }

    fn check_epoch(&self) -> Result<(), SqlError> {
        if self.inner.epoch() == self.epoch { Ok(()) } else { Err(SqlError::schema_conflict()) }
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
        let inner = self.inner.clone();
        let _turn = inner.turns.turn().await;
        let pid = self.pid();
        let work = async {
            self.redo().await?;
            let changed = self.attempt(call, rows).await?;
            self.backend.run(DO_NOT_WAIT).await?;
            Ok(changed)
        };
        inner.turns.insist(&inner, pid, work).await
    }

    /// Does all of it again, so that it can be committed.
    async fn restore(&mut self) -> Result<(), SqlError> {
        if self.journal.is_empty() && self.schema_change.is_none() {
            return Ok(());
        }
        let inner = self.inner.clone();
        let _turn = inner.turns.turn().await;
        let pid = self.pid();
        let restored = inner.turns.insist(&inner, pid, self.redo()).await;
        // The schema may have changed while it waited.
        self.check_epoch()?;
        restored.map_err(|error| {
            let conflict = error.code == "40001" || is_in_the_way(&error);
            if conflict { SqlError::change_conflict() } else { error }
        })
    }

    async fn redo(&mut self) -> Result<(), SqlError> {
        self.begin().await?;
        if matches!(self.hold, Hold::Nothing) {
            // Values were written by the defaults, and are read by them.
            self.backend.settle(&[]).await?;
            self.backend.run(WAIT).await?;
            replay(&mut self.backend, &mut self.journal, &self.inner.shapes).await?;
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

    /// Runs a statement on what is held.
    async fn attempt(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        let locking = locking(call.statement)?;
        if let Some(question) = precheck::question(call.statement, self.inner.rules)? {
            self.begin().await?;
            catalog::refuse(&mut self.backend, &question).await?;
        }
        let submits = rewrite::submits(call.statement);
        let job = if submits { self.inner.name_job() } else { String::new() };
        let text = rewrite::text(call.statement, &job);
        let mut request = Request::default();
        let mut script = Script::of(call);
        // What only reads and stands alone is a transaction of its own for the server, too.
        let alone = call.extent == Extent::Alone && !script.description.writes;
        if !self.begun && !alone {
            self.begun = true;
            request.whole(BEGIN);
            request.whole(START);
            script.itself += 2;
        }
        // Before the statement, which may change what the query looks at.
        for locking in &locking {
            request.parse(&locking.sql, &script.description.parameters);
            request.bind("", call, &[]);
            request.execute();
        }
        let prefix = script.itself;
        script.itself += locking.len();
        let types = &script.description.parameters;
        let name = match call.description {
            // What was prepared is meant to be run again.
            Some(_) => self.backend.prepared(&mut request, &text, types),
            None => {
                request.parse(&text, types);
                String::new()
            }
        };
        request.bind(&name, call, call.results);
        request.describe_portal();
        request.execute();
        request.sync();
        let (before, limit) = (self.journal.changes(), self.inner.result_limit);
        self.backend
            .ask(request, |tag, body| {
                let query = script.answered.checked_sub(prefix).and_then(|index| locking.get(index));
                script.take(tag, body, query.map(|query| query.strength), call, rows)?;
                if before + script.reports.len() > ROW_LIMIT {
                    return Err(SqlError::new("54000", "transaction row limit exceeded"));
                }
                if rows.size() > limit {
                    let detail = format!("a statement gives at most {limit} bytes of rows here");
                    return Err(SqlError::new("53200", "out of memory").detail(detail));
                }
                Ok(())
            })
            .await?;
        if call.statement.kind() == Kind::Ddl {
            catalog::audit(&mut self.backend, self.inner.rules).await?;
            self.schema_change = Some(text);
            self.submits = submits;
        }
        catalog::check_results(&script.description)?;
        for (table, place, strength) in std::mem::take(&mut script.locked) {
            self.journal.lock(table, place, strength);
        }
        for report in std::mem::take(&mut script.reports) {
            self.journal.note(report);
        }
        if self.journal.size() > KEPT_LIMIT {
            return Err(SqlError::too_large(self.journal.size()));
        }
        Ok(script.done(call))
    }

    /// Runs a statement where it does no harm.
    async fn pretend(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        rows.clear();
        if call.description.is_none() {
            self.describe_elsewhere(call.statement, &[]).await?;
        }
        let inner = self.inner.clone();
        let pid = self.pid();
        let Hold::Doomed(sandbox) = &mut self.hold else { return Err(SqlError::unavailable()) };
        let redirected = {
            let _turn = inner.turns.turn().await;
            let prepared = async {
                self.backend.settle(&self.settings).await?;
                self.backend.run(WAIT).await?;
                sandbox.prepare(&mut self.backend, call, &self.journal).await
            };
            inner.turns.insist(&inner, pid, prepared).await?
        };
        self.backend.settle(&self.settings).await?;
        let mut script = Script::of(call);
        let mut request = Request::default();
        request.parse(&redirected, &script.description.parameters);
        request.bind("", call, call.results);
        request.describe_portal();
        request.execute();
        request.sync();
        self.backend.ask(request, |tag, body| script.take(tag, body, None, call, rows)).await?;
        Ok(script.done(call))
    }

    /// The keys of rows to which that was done.
    async fn keys(
        &mut self,
        done: impl Fn(&Change) -> Option<&Bytes>,
    ) -> Result<BTreeSet<(Oid, Key)>, SqlError> {
        let mut keys = BTreeSet::new();
        for entry in self.journal.entries() {
            if let Some(values) = done(&entry.change) {
                let shape = self.inner.shapes.of(entry.table, &mut self.backend).await?;
                if !shape.key.is_empty() {
                    keys.insert((entry.table, key(values, &shape.key)));
                }
            }
        }
        Ok(keys)
    }

    /// Whether one that its snapshot does not show did something to the same rows of which no trace is left.
    async fn check_unseen(&mut self) -> Result<(), SqlError> {
        let inner = self.inner.clone();
        if !inner.commits.left_traces(self.mark) {
            return Ok(());
        }
        let made = self.keys(Change::inserted).await?;
        let rivals = inner.commits.rivals(&self.journal, &made, self.mark);
        if rivals.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SELECT bool_and(pg_visible_in_snapshot(xid::xid8, pg_current_snapshot())) FROM unnest('{{{}}}'::text[]) xid",
            rivals.join(",")
        );
        if self.backend.value(&sql).await? == "t" { Ok(()) } else { Err(SqlError::change_conflict()) }
    }

    async fn seal(&mut self) -> Result<(), SqlError> {
        let inner = self.inner.clone();
        if self.schema_change.is_some() {
            self.epoch = inner.schema_changes();
        }
        let mut unseen = Unseen::of(&self.journal);
        unseen.gone = self.keys(Change::deleted).await?;
        let xid = match unseen.is_empty() {
            true => String::new(),
            false => self.backend.value("SELECT pg_current_xact_id()").await?,
        };
        let under_way = inner.commits.begin(unseen, xid, inner.turns.oldest());
        let mut committed = false;
        let take = |tag: u8, Body(body): Body| {
            committed |= tag == b'C' && body.starts_with(b"COMMIT");
            Ok(())
        };
        let asked = self.backend.ask(Request::query("COMMIT"), take).await;
        if asked.is_ok() && committed {
            return Ok(());
        }
        under_way.failed();
        asked.and(Err(SqlError::unavailable()))
    }
}

/// Whether it had to wait for another, or was made to stop for another.
pub(super) fn is_dislodged(error: &SqlError) -> bool {
    matches!(error.code, "55P03" | "57014")
}

/// Whether there was a row that must not be there, or was none that must.
fn is_in_the_way(error: &SqlError) -> bool {
    matches!(error.code, "23503" | "23505" | "23P01")
}
