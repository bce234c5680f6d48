//! An engine on SQLite, in this process: nothing to install.
//!
//! It is meant for connection-level tests, demos and load. It has one writer at a time. The reads of a
//! transaction see the latest commit until the transaction writes. Conflicts come only from faults. The types
//! on the wire are PostgreSQL's.

mod database;
mod dates;
mod errors;
mod functions;
mod infer;
mod numeric;
mod plan;
mod plan_cache;
mod prepared;
mod rewrite;
pub(crate) mod syntax;
mod types;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;

use crate::clock::Clock;
use crate::engine::{Call, CopyFormat, Description, Done, Engine, Oid, Rows, Session};
use crate::error::{Error, SqlError};
use crate::statement::Statement;
use crate::wire::Format;
use database::{Conn, Database, TimeSlice, Writer};
use errors::translate;
use plan_cache::{LARGE, PlanCache};
use prepared::Prepared;

/// Why COPY is refused here, though the service has it.
const COPY: &str = "COPY needs the PostgreSQL engine (--engine postgres)";

/// The SQLite engine.
pub struct Builtin {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    result_limit: usize,
    plans: Mutex<PlanCache<Prepared>>,
    /// Large statements are planned one at a time: a plan needs many times the memory of its text.
    large_plans: Semaphore,
}

/// Runs slow work without blocking a multi-threaded runtime. Other runtimes have no way to do that.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        _ => work(),
    }
}

impl Builtin {
    /// Creates an empty database in a directory. `result_limit` is the largest result of a statement, in
    /// bytes.
    ///
    /// # Errors
    /// If the files cannot be created.
    pub fn open(directory: &Path, clock: Arc<Clock>, result_limit: usize) -> Result<Self, Error> {
        let database = Database::open(directory, &clock, result_limit)?;
        let inner = Inner { database, result_limit, plans: Mutex::default(), large_plans: Semaphore::new(1) };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builtin").finish_non_exhaustive()
    }
}

impl Engine for Builtin {
    type Session = BuiltinSession;

    /// Every role may connect and do everything.
    async fn session(&self, _: &str) -> Result<BuiltinSession, SqlError> {
        Ok(BuiltinSession { inner: self.inner.clone(), writer: None, changed_schema: false })
    }
}

/// A session. It keeps nothing but the writer, while it has it.
pub struct BuiltinSession {
    inner: Arc<Inner>,
    writer: Option<Box<Writer>>,
    /// Whether its transaction has changed the schema, which others do not see yet.
    changed_schema: bool,
}

impl fmt::Debug for BuiltinSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinSession").field("writing", &self.writer.is_some()).finish_non_exhaustive()
    }
}

impl Session for BuiltinSession {
    async fn describe(&mut self, statement: &Statement, types: &[Oid]) -> Result<Arc<Description>, SqlError> {
        Ok(self.prepared(statement, types).await?.description.clone())
    }

    async fn execute(&mut self, call: Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        let types = call.description.map_or(&[][..], |description| &description.parameters);
        let prepared = self.prepared(call.statement, types).await?;
        let description = prepared.description.clone();
        if prepared.plan.sql.is_empty() {
            return Ok(Done { changed: 0, description });
        }
        if call.description.is_some_and(|described| described.columns != description.columns) {
            return Err(SqlError::unsupported("cached plan must not change result type"));
        }
        if prepared.plan.writes && self.writer.is_none() {
            self.writer = Some(Box::new(self.inner.database.writer().await?));
        }
        self.changed_schema |= prepared.plan.ddl;
        let changed = if let Some(writer) = &mut self.writer {
            // Without a time slice: SQLite rolls back the whole transaction if a write is interrupted.
            blocking(|| self.inner.run(writer.conn(), &prepared, call, rows, TimeSlice::UntilDeadline))?
        } else {
            let reader = self.inner.database.reader().await?;
            self.inner.read(reader.conn()?, &prepared, call, rows)?
        };
        Ok(Done { changed, description })
    }

    async fn copy_format(&mut self, _: &Statement) -> Result<CopyFormat, SqlError> {
        Err(SqlError::unsupported(COPY))
    }

    async fn begin(&mut self, _: bool) -> Result<(), SqlError> {
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), SqlError> {
        let committed = self.writer.take().map_or(Ok(()), |writer| writer.commit());
        self.forget_plans();
        committed.map_err(|error| translate(&error))
    }

    async fn rollback(&mut self) -> Result<(), SqlError> {
        drop(self.writer.take());
        self.forget_plans();
        Ok(())
    }
}

impl BuiltinSession {
    /// Call this at the end of a transaction: a change of the schema is visible to others from now on.
    fn forget_plans(&mut self) {
        if std::mem::take(&mut self.changed_schema) {
            self.inner.plans.lock().forget();
        }
    }

    async fn prepared(&mut self, statement: &Statement, types: &[Oid]) -> Result<Arc<Prepared>, SqlError> {
        if statement.begins(&["COPY"]) {
            return Err(SqlError::unsupported(COPY));
        }
        let key = (statement.text().clone(), types.to_vec());
        let large = key.0.len() > LARGE;
        // A session that has changed the schema neither uses nor fills the shared cache.
        let shared = !large && !self.changed_schema;
        let generation = {
            let plans = self.inner.plans.lock();
            if shared && let Some(prepared) = plans.get(&key) {
                return Ok(prepared);
            }
            plans.generation
        };
        let permit = if large { self.inner.large_plans.acquire().await.ok() } else { None };
        let planned = |conn: &Conn| {
            if large { blocking(|| Prepared::make(conn, &key)) } else { Prepared::make(conn, &key) }
        };
        // Tables that a transaction created are visible on its own connection only.
        let prepared = if let Some(writer) = &mut self.writer {
            planned(writer.conn())
        } else {
            planned(self.inner.database.reader().await?.conn()?)
        };
        drop(permit);
        let prepared = Arc::new(prepared?);
        if shared && !prepared.large {
            let size = prepared.size(&key);
            self.inner.plans.lock().keep(key, &prepared, size, generation);
        }
        Ok(prepared)
    }
}

impl Inner {
    /// Runs a read for one time slice. If it needs longer, runs it again where it may block.
    fn read(
        &self,
        conn: &Conn,
        prepared: &Prepared,
        call: Call<'_>,
        rows: &mut Rows,
    ) -> Result<u64, SqlError> {
        if !prepared.slow.load(Ordering::Relaxed) {
            match self.run(conn, prepared, call, rows, TimeSlice::Short) {
                Err(error) if error == SqlError::deadline_exceeded() => {
                    prepared.slow.store(true, Ordering::Relaxed);
                    rows.clear();
                }
                other => return other,
            }
        }
        blocking(|| self.run(conn, prepared, call, rows, TimeSlice::UntilDeadline))
    }

    fn run(
        &self,
        conn: &Conn,
        prepared: &Prepared,
        call: Call<'_>,
        rows: &mut Rows,
        slice: TimeSlice,
    ) -> Result<u64, SqlError> {
        conn.until(call.deadline, slice);
        let fail = |error: rusqlite::Error| translate(&error);
        let (mut once, mut kept);
        let statement: &mut rusqlite::Statement<'_> = if prepared.large {
            once = conn.sqlite.prepare(&prepared.plan.sql).map_err(fail)?;
            &mut once
        } else {
            kept = conn.sqlite.prepare_cached(&prepared.plan.sql).map_err(fail)?;
            &mut kept
        };
        for (index, (value, of)) in call.values.iter().zip(&prepared.plan.parameters).enumerate() {
            let value = match value {
                Some(bytes) => of.decode(bytes, Format::of(call.formats, index))?,
                None => rusqlite::types::Value::Null,
            };
            statement.raw_bind_parameter(index + 1, value).map_err(fail)?;
        }
        let mut fetched = statement.raw_query();
        let mut changed = 0;
        while let Some(row) = fetched.next().map_err(fail)? {
            changed += 1;
            if prepared.plan.job {
                continue;
            }
            rows.begin();
            for (index, of) in prepared.types.iter().enumerate() {
                match row.get_ref(index).map_err(fail)? {
                    rusqlite::types::ValueRef::Null => rows.null(),
                    value => rows.field(|out| of.encode(value, Format::of(call.results, index), out))?,
                }
            }
            rows.end();
            if rows.size() > self.result_limit {
                return Err(SqlError::new("53200", "out of memory").detail(format!(
                    "the builtin engine gives at most {} bytes of rows for a statement",
                    self.result_limit
                )));
            }
        }
        drop(fetched);
        if prepared.plan.job {
            rows.texts(&["builtin-done"]);
        }
        Ok(if prepared.plan.items.is_none() || changed == 0 { conn.sqlite.changes() } else { changed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Speed;
    use std::future::Future;
    use std::task::{Context, Waker};

    fn engine(directory: &Path) -> Builtin {
        Builtin::open(directory, Arc::new(Clock::new(Speed::STOPPED)), 1 << 20).unwrap()
    }

    fn statement(sql: &str) -> Statement {
        Statement::split(sql).remove(0)
    }

    #[tokio::test]
    async fn readers_cannot_write_and_a_busy_database_is_a_conflict() {
        let directory = tempfile::tempdir().unwrap();
        let engine = engine(directory.path());
        let reader = engine.inner.database.reader().await.unwrap();
        let written = reader.conn().unwrap().sqlite.execute_batch("CREATE TABLE x (n int)");
        assert_eq!(translate(&written.unwrap_err()).code, "25006");
        let busy =
            rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None);
        assert_eq!(translate(&busy).code, "40001");
    }

    // On a single-threaded runtime, nothing may be handed over to another thread.
    #[tokio::test]
    async fn large_plans_are_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let engine = engine(directory.path());
        let mut session = engine.session("admin").await.unwrap();
        for large in [
            format!("SELECT '{}'", "x".repeat(LARGE)),
            format!("SELECT {}", vec!["''::bool"; 1_600].join(", ")),
            "SELECT $30000".to_owned(),
        ] {
            let large = statement(&large);
            session.describe(&large, &[]).await.unwrap();
            assert_eq!(engine.inner.plans.lock().len(), 0);
        }
        session.describe(&statement("SELECT 1"), &[]).await.unwrap();
        assert_eq!(engine.inner.plans.lock().len(), 1);
    }

    #[tokio::test]
    async fn large_statements_are_planned_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let engine = engine(directory.path());
        let permit = engine.inner.large_plans.acquire().await.unwrap();
        let mut session = engine.session("admin").await.unwrap();
        let large = statement(&format!("SELECT '{}'", "x".repeat(LARGE)));
        let mut waiting = std::pin::pin!(session.describe(&large, &[]));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        engine.session("admin").await.unwrap().describe(&statement("SELECT 1"), &[]).await.unwrap();
        drop(permit);
        waiting.await.unwrap();
    }
}
