//! How a transaction runs one statement.

use super::commit::SIZE_LIMIT;
use super::deed::Deed;
use super::{BEGIN, Hold, START, Transaction, WAIT, is_dislodged, is_in_the_way};
use crate::engine::{Call, Done, Extent, Rows};
use crate::error::SqlError;
use crate::postgres::request::Request;
use crate::postgres::script::Script;
use crate::postgres::{catalog, locking, precheck, rewrite, writes};
use crate::statement::Kind;

/// How many rows a transaction may change.
const ROW_LIMIT: usize = 3_000;
/// How many bytes it may write until it is told that it has written too many: all of it is kept in memory.
const KEPT_LIMIT: usize = 8 * SIZE_LIMIT;

impl Transaction {
    /// Runs a statement on what is held.
    pub(super) async fn attempt(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        let locking = locking::locking(call.statement)?;
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
        let alone = call.extent == Extent::Alone && !script.description.writes && !self.inner.has_functions();
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
            .await
            .map_err(|error| if locking.is_empty() { error } else { locking::explained(error) })?;
        if call.statement.kind() == Kind::Ddl {
            catalog::audit(&mut self.backend, self.inner.rules).await?;
            self.inner.saw_definition(call.statement);
            self.schema_change = Some(text);
            self.submits = submits;
        }
        catalog::check_results(&script.description)?;
        self.journal.next_statement();
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
    pub(super) async fn pretend(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        if call.description.is_none() {
            match self.describe_elsewhere(call.statement, &[]).await {
                Err(error) if !is_dislodged(&error) => return Err(error),
                _ => {}
            }
        }
        match self.stoppable().during(self.play(call, rows, "")).await {
            Err(error) if is_dislodged(&error) => self.detach().await?,
            outcome => return outcome,
        }
        let (inner, pid) = (self.inner.clone(), self.pid());
        let _turn = inner.turns.turn().await;
        self.check_epoch()?;
        let outcome = inner.turns.insist(&inner, pid, self.play(call, rows, WAIT)).await;
        // The schema may have changed while it waited.
        self.check_epoch()?;
        outcome
    }

    /// Runs a statement on copies, after all that came before if they are gone. `wait` is said ahead of what takes locks.
    async fn play(&mut self, call: &Call<'_>, rows: &mut Rows, wait: &str) -> Result<Done, SqlError> {
        let Hold::Doomed(sandbox) = &self.hold else { return Err(SqlError::unavailable()) };
        if sandbox.is_empty() {
            let deeds = self.deeds.clone();
            for deed in &deeds {
                self.act(&deed.call(), &mut Rows::default(), wait).await?;
            }
        }
        rows.clear();
        let done = self.act(call, rows, wait).await?;
        if writes(call.statement) {
            self.deeds.push(Deed::of(call));
        }
        Ok(done)
    }

    async fn act(&mut self, call: &Call<'_>, rows: &mut Rows, wait: &str) -> Result<Done, SqlError> {
        self.backend.settle(&self.settings).await?;
        let Hold::Doomed(sandbox) = &mut self.hold else { return Err(SqlError::unavailable()) };
        let prepared = sandbox.prepare(&mut self.backend, call, &self.journal, wait).await;
        let redirected = prepared.map_err(|error| {
            // What it sees cannot be: it has made a key that another took away.
            if is_in_the_way(&error) { SqlError::change_conflict() } else { error }
        })?;
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
}
