//! The engine with the real SQL: a private PostgreSQL underneath, started and stopped by the emulator.
//!
//! A session holds a connection to it only while it is in a transaction or a statement, so that thousands can be idle.
//! Values, types and errors pass through as they are; transactions are at repeatable read, which is snapshot isolation.
//! What the service adds to that at a commit is not here yet: a write waits for the row that another transaction holds.

mod backend;
mod catalog;
mod jobs;
mod precheck;
mod request;
mod rewrite;
mod roles;
mod server;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;

use crate::clock::{Clock, Moment};
use crate::config::{Config, Rules};
use crate::engine::{Call, Column, Description, Engine, Oid, Rows, Session};
use crate::error::{Error, SqlError};
use crate::race::{self, First};
use crate::statement::{Kind, Statement};
use backend::{Backend, Body, Setting};
use jobs::Jobs;
use request::Request;
use roles::Role;
use server::Server;

/// How many connections are kept for the next session that needs one.
const SPARE: usize = 64;

/// How many rows a transaction may change.
const ROW_LIMIT: u64 = 3_000;
/// How many rows this connection has changed, its transactions before this one included. A command tag would not tell of
/// cascades and common table expressions.
const CHANGED: &str =
    "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_catalog.pg_stat_xact_user_tables";

/// The engine.
pub struct Postgres {
    inner: Arc<Inner>,
}

struct Inner {
    /// Before the server, which it would keep busy.
    spare: Mutex<Vec<Backend>>,
    jobs: Jobs,
    clock: Arc<Clock>,
    rules: Rules,
    result_limit: usize,
    server: Server,
}

impl Postgres {
    /// Who owns everything underneath the rules.
    pub const SUPERUSER: &str = server::SUPERUSER;

    /// Starts a PostgreSQL of its own. Of the configuration it goes by the cache, the rules and the limit of results.
    ///
    /// # Errors
    /// If PostgreSQL is not installed, or does not start.
    pub fn start(config: &Config, clock: Arc<Clock>) -> Result<Self, Error> {
        let server = Server::start(&config.cache)?;
        let inner = Inner {
            spare: Mutex::default(),
            jobs: Jobs::default(),
            clock,
            rules: config.rules,
            result_limit: config.result_limit,
            server,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The directory with its socket, for a look underneath the rules: `psql -h DIRECTORY -U dsql_local postgres`, as
    /// root or as the user it runs as.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.inner.server.directory()
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("directory", &self.directory()).finish_non_exhaustive()
    }
}

impl Engine for Postgres {
    type Session = PostgresSession;

    async fn session(&self, role: &str) -> Result<PostgresSession, SqlError> {
        Ok(PostgresSession {
            inner: self.inner.clone(),
            role: self.inner.role(role).await?,
            backend: None,
            changed_before: None,
            submitted: false,
            settings: Vec::new(),
        })
    }
}

/// A connection's view: a connection of its own to the server while it is in a transaction, or else nothing.
pub struct PostgresSession {
    inner: Arc<Inner>,
    role: Role,
    /// Only in a transaction. Dropped, it is closed, and the server rolls back.
    backend: Option<Backend>,
    /// What [`CHANGED`] was before the transaction's first write.
    changed_before: Option<u64>,
    /// Whether the transaction has submitted a job.
    submitted: bool,
    settings: Vec<Setting>,
}

impl fmt::Debug for PostgresSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSession").field("open", &self.backend.is_some()).finish_non_exhaustive()
    }
}

impl Session for PostgresSession {
    async fn describe(&mut self, statement: &Statement, types: &[Oid]) -> Result<Arc<Description>, SqlError> {
        let mut request = Request::default();
        request.parse(&rewrite::text(statement, ""), types);
        request.describe();
        request.sync();
        let mut description = Description { writes: writes(statement), ..Description::default() };
        let take = |tag: u8, body: Bytes| {
            match tag {
                b't' => description.parameters = Body(body).parameters()?,
                b'T' => description.columns = Some(columns(body)?),
                _ => {}
            }
            Ok(())
        };
        match &mut self.backend {
            Some(backend) => backend.ask(request, take).await?,
            None => {
                let mut backend = self.inner.backend(&self.role, &self.settings).await?;
                let asked = backend.ask(request, take).await;
                self.inner.give_back(backend);
                asked?;
            }
        }
        catalog::check_results(&description)?;
        Ok(Arc::new(description))
    }

    async fn execute(&mut self, call: Call<'_>, rows: &mut Rows) -> Result<u64, SqlError> {
        if let Some(job) = jobs::awaited(&call) {
            let ended = jobs::ended(&self.inner, job);
            if let First::Right(()) = race::first(ended, self.inner.until(call.deadline)).await {
                return Err(SqlError::overdue());
            }
        }
        let job = if rewrite::submits(call.statement) { self.inner.name_job() } else { String::new() };
        self.submitted |= !job.is_empty();
        let Some(backend) = &mut self.backend else { return Err(SqlError::unavailable()) };
        catalog::precheck(backend, call.statement, self.inner.rules).await?;
        let kind = call.statement.kind();
        let counted = call.description.writes && matches!(kind, Kind::Dml | Kind::Select);
        let mut request = Request::default();
        let mut stage = Stage::Running;
        if counted && self.changed_before.is_none() {
            request.whole(CHANGED);
            stage = Stage::Before;
        }
        request.parse(&rewrite::text(call.statement, &job), &call.description.parameters);
        request.bind(&call);
        request.describe_portal();
        request.execute();
        if counted {
            request.whole(CHANGED);
        }
        request.sync();
        let (mut changed, limit, before) = (0, self.inner.result_limit, &mut self.changed_before);
        let run = backend.ask(request, |tag, body| {
            match (tag, stage) {
                (b'C', Stage::Before) => stage = Stage::Running,
                (b'C', Stage::Running) => (stage, changed) = (Stage::After, affected(&body)),
                (b'D', Stage::Before) => *before = Some(number(body)?),
                (b'D', Stage::After)
                    if number(body.clone())?.saturating_sub(before.unwrap_or(0)) > ROW_LIMIT =>
                {
                    return Err(SqlError::new("54000", "transaction row limit exceeded"));
                }
                (b'T', Stage::Running) if Some(columns(body.clone())?) != call.description.columns => {
                    return Err(SqlError::unsupported("cached plan must not change result type"));
                }
                (b'D', Stage::Running) => {
                    rows.whole(&body);
                    if rows.size() > limit {
                        let detail = format!("a statement gives at most {limit} bytes of rows here");
                        return Err(SqlError::new("53200", "out of memory").detail(detail));
                    }
                }
                _ => {}
            }
            Ok(())
        });
        let outcome = match race::first(run, self.inner.until(call.deadline)).await {
            First::Left(outcome) => outcome,
            First::Right(()) => Err(SqlError::overdue()),
        };
        let outcome = match outcome {
            Ok(()) if kind == Kind::Ddl => catalog::audit(backend, self.inner.rules).await,
            outcome => outcome,
        };
        if backend.is_lost() {
            // Closed, it is rolled back by the server, which also stops what it still runs.
            self.backend = None;
        }
        outcome.map(|()| changed)
    }

    async fn configure(&mut self, settings: Vec<Setting>) -> Result<(), SqlError> {
        match &mut self.backend {
            Some(backend) => {
                let settled = backend.settle(&settings).await;
                // A rollback would undo it.
                backend.unsettle();
                settled?;
            }
            // Only to see whether they are good.
            None => {
                let backend = self.inner.backend(&self.role, &settings).await?;
                self.inner.give_back(backend);
            }
        }
        self.settings = settings;
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), SqlError> {
        let mut backend = self.inner.backend(&self.role, &self.settings).await?;
        backend.ask(Request::query("BEGIN ISOLATION LEVEL REPEATABLE READ"), |_, _| Ok(())).await?;
        self.backend = Some(backend);
        self.changed_before = None;
        self.submitted = false;
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), SqlError> {
        // Without a connection there is nothing left that could be kept.
        let backend = self.backend.take().filter(|backend| !backend.is_lost());
        self.end(backend.ok_or_else(SqlError::unavailable)?, "COMMIT").await?;
        if self.submitted {
            jobs::submitted(&self.inner);
        }
        Ok(())
    }

    async fn rollback(&mut self) -> Result<(), SqlError> {
        match self.backend.take().filter(|backend| !backend.is_lost()) {
            Some(backend) => self.end(backend, "ROLLBACK").await,
            // The server undoes what was done on a connection that is closed.
            None => Ok(()),
        }
    }
}

impl PostgresSession {
    async fn end(&mut self, mut backend: Backend, how: &str) -> Result<(), SqlError> {
        let ended = backend.ask(Request::query(how), |_, _| Ok(())).await;
        self.inner.give_back(backend);
        ended
    }
}

/// Which of the statements that are sent together is being answered.
#[derive(Clone, Copy)]
enum Stage {
    /// The count before the first write.
    Before,
    Running,
    /// The count behind it.
    After,
}

impl Inner {
    /// A connection of that role that is in no transaction and goes by these settings.
    async fn backend(&self, role: &Role, settings: &[Setting]) -> Result<Backend, SqlError> {
        let mut backend = loop {
            let spare = self.spare(role);
            match spare {
                None => break Backend::connect(self.server.directory(), role.clone()).await?,
                Some(backend) if backend.is_alive() => break backend,
                Some(_) => {}
            }
        };
        match backend.settle(settings).await {
            Ok(()) => Ok(backend),
            Err(error) => {
                self.give_back(backend);
                Err(error)
            }
        }
    }

    /// The spare connection of that role that was used last.
    fn spare(&self, role: &Role) -> Option<Backend> {
        let mut spare = self.spare.lock();
        let at = spare.iter().rposition(|backend| backend.role == *role)?;
        Some(spare.remove(at))
    }

    /// Keeps it for others, if it can still be used.
    fn give_back(&self, backend: Backend) {
        let mut spare = self.spare.lock();
        if !backend.is_lost() && spare.len() < SPARE {
            spare.push(backend);
        }
    }

    async fn until(&self, deadline: Moment) {
        self.clock.sleep_until(deadline).await;
    }
}

/// Whether a statement may change something or lock rows: told from its words, and rather once too often.
fn writes(statement: &Statement) -> bool {
    const WORDS: [&str; 6] = ["INSERT", "UPDATE", "DELETE", "FOR KEY SHARE", "NEXTVAL", "SETVAL"];
    let text = statement.text().to_ascii_uppercase();
    statement.kind() != Kind::Select || WORDS.iter().any(|word| text.contains(word))
}

fn columns(body: Bytes) -> Result<Vec<Column>, SqlError> {
    Body(body).columns()
}

/// The only value of a row.
fn number(mut row: Bytes) -> Result<u64, SqlError> {
    row.advance(2.min(row.len()));
    Ok(Body(row).value()?.parse().unwrap_or(0))
}

/// The number at the end of a command tag, such as `INSERT 0 3`.
fn affected(tag: &[u8]) -> u64 {
    let tag = std::str::from_utf8(tag).unwrap_or_default().trim_end_matches('\0');
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_at_the_end_of_the_tag() {
        for (tag, expected) in [("INSERT 0 3\0", 3), ("UPDATE 12\0", 12), ("CREATE TABLE\0", 0), ("", 0)] {
            assert_eq!(affected(tag.as_bytes()), expected, "{tag}");
        }
    }

    #[test]
    fn what_locks_or_hides_a_write_counts_as_one() {
        for (sql, expected) in [
            ("SELECT 1", false),
            ("SELECT * FROM t FOR UPDATE", true),
            ("WITH w AS (DELETE FROM t RETURNING *) SELECT * FROM w", true),
            ("SELECT nextval('s')", true),
            ("DROP TABLE t", true),
        ] {
            assert_eq!(writes(&Statement::split(sql)[0]), expected, "{sql}");
        }
    }
}
