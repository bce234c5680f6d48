//! Runs one statement of a transaction.

use super::commit::SIZE_LIMIT;
use super::logged_statement::LoggedStatement;
use super::{OccTransaction, START, WAIT, Work, is_key_violation, is_lock_timeout_or_cancel};
use crate::engine::{Call, Done, Extent, Rows};
use crate::error::SqlError;
use crate::postgres::pipeline::PipelineResponse;
use crate::postgres::request::Request;
use crate::postgres::{catalog, jobs, locking, precheck, rewrite, writes};
use crate::statement::Kind;

/// The largest number of changed rows in a transaction.
const ROW_LIMIT: usize = 3_000;
/// The largest size before a statement fails. All changes are kept in memory.
const KEPT_LIMIT: usize = 8 * SIZE_LIMIT;

impl OccTransaction {
    /// Runs a statement while the work of the transaction is applied.
    pub(super) async fn execute(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        let locking = locking::locking(call.statement)?;
        if let Some(question) = precheck::question(call.statement, self.inner.rules)? {
            self.begin().await?;
            catalog::refuse(&mut self.backend, &question).await?;
        }
        let jobs = jobs::finished_jobs(call.statement, &mut self.backend).await?;
        if self.inner.needs_session_id(call.statement) {
            self.set_session_id().await?;
        }
        let submits = rewrite::submits(call.statement);
        let job = if submits { self.inner.job_id() } else { String::new() };
        let text = rewrite::text(call.statement, &job);
        let mut request = Request::default();
        let mut response = PipelineResponse::of(call);
        // A single read needs no explicit transaction on the server.
        let alone = call.extent == Extent::Alone
            && !response.description.writes
            && !self.inner.has_functions()
            && !self.read_only;
        if !self.begun && !alone {
            self.begun = true;
            request.whole(self.begin_statement());
            request.whole(START);
            response.itself += 2;
        }
        // Before the statement, which may change what the query reads.
        for locking in &locking {
            request.parse(&locking.sql, &response.description.parameters);
            request.bind("", call, &[]);
            request.execute();
        }
        let prefix = response.itself;
        response.itself += locking.len();
        let types = &response.description.parameters;
        let name = match call.description {
            // A prepared statement is likely to run again.
            Some(_) => self.backend.prepared(&mut request, &text, types),
            None => {
                request.parse(&text, types);
                String::new()
            }
        };
        request.bind(&name, call, call.results);
        request.describe_portal();
        request.execute();
        if let Some(data) = call.input {
            request.copy(data);
        }
        request.sync();
        let (before, limit) = (self.log.changes, self.inner.result_limit);
        self.backend
            .request(request, |tag, body| {
                let query = response.answered.checked_sub(prefix).and_then(|index| locking.get(index));
                response.take(tag, body, query.map(|query| query.strength), call, rows)?;
                if before + response.reports.len() > ROW_LIMIT {
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
        self.finished_jobs.extend(jobs);
        if call.statement.kind() == Kind::Ddl {
            catalog::audit(&mut self.backend, self.inner.rules).await?;
            self.inner.note_functions(call.statement);
            self.schema_change = Some(text);
            self.submits = submits;
        }
        catalog::check_results(&response.description)?;
        self.log.next_statement();
        for (table, ctid, strength) in std::mem::take(&mut response.locked) {
            self.log.lock(table, ctid, strength);
        }
        for report in std::mem::take(&mut response.reports) {
            self.log.record(report);
        }
        if self.log.size > KEPT_LIMIT {
            return Err(SqlError::too_large(self.log.size));
        }
        Ok(response.done(call))
    }

    /// Runs a statement of a transaction that has conflicted.
    pub(super) async fn run_on_copies(&mut self, call: &Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        if call.description.is_none() {
            match self.describe_elsewhere(call.statement, &[]).await {
                Err(error) if !is_lock_timeout_or_cancel(&error) => return Err(error),
                _ => {}
            }
        }
        match self.cancel_gate.clone().during(self.replay_on_copies(call, rows, "")).await {
            Err(error) if is_lock_timeout_or_cancel(&error) => self.release_locks().await?,
            outcome => return outcome,
        }
        let (inner, pid) = (self.inner.clone(), self.backend.pid);
        let _priority = inner.locks.priority().await;
        self.check_schema_version()?;
        let outcome =
            inner.locks.run_with_priority(&inner, pid, self.replay_on_copies(call, rows, WAIT)).await;
        // The schema may have changed during the wait.
        self.check_schema_version()?;
        outcome
    }

    /// Runs a statement on copies of the tables, after the logged statements if the copies are gone. `wait`
    /// is an SQL prefix for what takes locks.
    async fn replay_on_copies(
        &mut self,
        call: &Call<'_>,
        rows: &mut Rows,
        wait: &str,
    ) -> Result<Done, SqlError> {
        let Work::Conflicted(copies) = &self.work else { return Err(SqlError::unavailable()) };
        if copies.is_empty() {
            let logged = self.logged.clone();
            for statement in &logged {
                self.run_one_on_copies(&statement.call(), &mut Rows::default(), wait).await?;
            }
        }
        rows.clear();
        let done = self.run_one_on_copies(call, rows, wait).await?;
        if writes(call.statement) {
            self.logged.push(LoggedStatement::of(call));
        }
        Ok(done)
    }

    async fn run_one_on_copies(
        &mut self,
        call: &Call<'_>,
        rows: &mut Rows,
        wait: &str,
    ) -> Result<Done, SqlError> {
        self.backend.apply_settings(&self.settings).await?;
        let Work::Conflicted(copies) = &mut self.work else { return Err(SqlError::unavailable()) };
        let prepared = copies.prepare(&mut self.backend, call, &self.log, wait).await;
        let redirected = prepared.map_err(|error| {
            // The transaction inserted a key that it also sees as deleted by another.
            if is_key_violation(&error) { SqlError::change_conflict() } else { error }
        })?;
        self.backend.apply_settings(&self.settings).await?;
        if self.inner.needs_session_id(call.statement) {
            self.set_session_id().await?;
        }
        let mut response = PipelineResponse::of(call);
        let mut request = Request::default();
        request.parse(&redirected, &response.description.parameters);
        request.bind("", call, call.results);
        request.describe_portal();
        request.execute();
        if let Some(data) = call.input {
            request.copy(data);
        }
        request.sync();
        self.backend.request(request, |tag, body| response.take(tag, body, None, call, rows)).await?;
        Ok(response.done(call))
    }
}
