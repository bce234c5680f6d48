//! The engine that needs nothing installed: SQLite, in this process.
//!
//! For connection-level work, demos and load. It has one writer at a time; a transaction's reads see what was last
//! committed until its first write; conflicts come only from faults. The types on the wire are PostgreSQL's.

mod database;
mod dates;
mod functions;
mod infer;
mod numeric;
mod plan;
mod plans;
mod rewrite;
pub(crate) mod syntax;
mod types;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::{ErrorCode, ffi};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;

use crate::clock::Clock;
use crate::engine::{Call, Description, Done, Engine, Oid, Rows, Session};
use crate::error::{Error, SqlError};
use crate::statement::Statement;
use crate::wire::Format;
use database::{Conn, Database, Haste, Writer};
use plan::Plan;
use plans::{Key, LARGE, PARAMETERS, Plans};
use types::Type;

/// The engine.
pub struct Builtin {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    result_limit: usize,
    plans: Mutex<Plans<Known>>,
    /// Large statements are planned one after the other: each takes many times its length, which only one may at a time.
    turns: Semaphore,
}

/// A plan and what it comes to.
struct Known {
    plan: Plan,
    description: Arc<Description>,
    types: Vec<Type>,
    /// Whether it took more than a moment before, or is sure to.
    slow: AtomicBool,
    /// Whether it takes too much to be kept, here and by SQLite.
    large: bool,
}

impl Known {
    /// About how many bytes it takes, with its key.
    fn size(&self, (text, types): &Key) -> usize {
        let columns = self.description.columns.iter().flatten();
        // A name is kept by the plan and by the description, each with some words about it.
        let columns: usize = columns.map(|column| 2 * (column.name.len() + 64)).sum();
        text.len() + 4 * types.len() + self.plan.sql.len() + 8 * self.plan.parameters.len() + columns + 256
    }
}

/// Runs what takes long without keeping a runtime of several threads from its sockets; others do not know how.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        _ => work(),
    }
}

impl Builtin {
    /// An empty database in that directory. A statement may give so many bytes of rows.
    ///
    /// # Errors
    /// If its files cannot be made.
    pub fn open(directory: &Path, clock: Arc<Clock>, result_limit: usize) -> Result<Self, Error> {
        let database = Database::open(directory, &clock, result_limit)?;
        let inner = Inner { database, result_limit, plans: Mutex::default(), turns: Semaphore::new(1) };
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

    /// Every role may connect: all of them may do everything.
    async fn session(&self, _: &str) -> Result<BuiltinSession, SqlError> {
        Ok(BuiltinSession { inner: self.inner.clone(), writer: None, changed_schema: false })
    }
}

/// A connection's view: nothing but the writer, while it has it.
pub struct BuiltinSession {
    inner: Arc<Inner>,
    writer: Option<Box<Writer>>,
    /// Whether it sees another schema than the others, until its end.
    changed_schema: bool,
}

impl fmt::Debug for BuiltinSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinSession").field("writing", &self.writer.is_some()).finish_non_exhaustive()
    }
}

impl Session for BuiltinSession {
    async fn describe(&mut self, statement: &Statement, types: &[Oid]) -> Result<Arc<Description>, SqlError> {
        Ok(self.known(statement, types).await?.description.clone())
    }

    async fn execute(&mut self, call: Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        let types = call.description.map_or(&[][..], |description| &description.parameters);
        let known = self.known(call.statement, types).await?;
        let description = known.description.clone();
        if known.plan.sql.is_empty() {
            return Ok(Done { changed: 0, description });
        }
        if call.description.is_some_and(|described| described.columns != description.columns) {
            return Err(SqlError::unsupported("cached plan must not change result type"));
        }
        if known.plan.writes && self.writer.is_none() {
            self.writer = Some(Box::new(self.inner.database.writer().await?));
        }
        self.changed_schema |= known.plan.ddl;
        let changed = if let Some(writer) = &mut self.writer {
            // In no haste: SQLite undoes the whole transaction if a write is interrupted.
            blocking(|| self.inner.run(writer.conn(), &known, call, rows, Haste::None))?
        } else {
            let reader = self.inner.database.reader().await?;
            self.inner.read(reader.conn()?, &known, call, rows)?
        };
        Ok(Done { changed, description })
    }

    async fn begin(&mut self) -> Result<(), SqlError> {
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
    /// At the end of a transaction that changed the schema: others saw the old one until now.
    fn forget_plans(&mut self) {
        if std::mem::take(&mut self.changed_schema) {
            self.inner.plans.lock().forget();
        }
    }

    async fn known(&mut self, statement: &Statement, types: &[Oid]) -> Result<Arc<Known>, SqlError> {
        let key = (statement.text().clone(), types.to_vec());
        let large = key.0.len() > LARGE;
        // What the others keep is not of the schema that this session sees, and its own would be of no use to them.
        let shared = !large && !self.changed_schema;
        let generation = {
            let plans = self.inner.plans.lock();
            if shared && let Some(known) = plans.get(&key) {
                return Ok(known);
            }
            plans.generation()
        };
        let turn = if large { self.inner.turns.acquire().await.ok() } else { None };
        let planned = |conn: &Conn| if large { blocking(|| plan(conn, &key)) } else { plan(conn, &key) };
        // Inside a transaction only its own connection knows the tables it made.
        let known = if let Some(writer) = &mut self.writer {
            planned(writer.conn())
        } else {
            planned(self.inner.database.reader().await?.conn()?)
        };
        drop(turn);
        let known = Arc::new(known.map_err(Unplanned::into_sql)?);
        if shared && !known.large {
            let size = known.size(&key);
            self.inner.plans.lock().keep(key, &known, size, generation);
        }
        Ok(known)
    }
}

/// What can go wrong while planning.
enum Unplanned {
    Sql(SqlError),
    Sqlite(rusqlite::Error),
}

impl Unplanned {
    fn into_sql(self) -> SqlError {
        match self {
            Self::Sql(error) => error,
            Self::Sqlite(error) => translate(&error),
        }
    }
}

fn plan(conn: &Conn, (text, types): &Key) -> Result<Known, Unplanned> {
    let catalog = |table: &str| columns_of(conn, table).unwrap_or_default();
    let given: Vec<Option<Type>> = types.iter().map(|oid| Type::from_oid(*oid)).collect();
    let plan = Plan::make(text, &given, &catalog).map_err(Unplanned::Sql)?;
    let mut description = Description {
        parameters: plan.parameters.iter().map(|of| of.oid()).collect(),
        columns: None,
        writes: plan.writes,
    };
    let mut column_types = Vec::new();
    if let Some(items) = &plan.items {
        let columns = if plan.job {
            items.iter().flatten().map(|(name, _)| (name.clone(), None)).collect()
        } else {
            let statement = conn.sqlite.prepare(&plan.sql).map_err(Unplanned::Sqlite)?;
            let columns = statement.columns();
            let declared = |column: &rusqlite::Column<'_>| column.decl_type().and_then(Type::from_declared);
            columns.iter().map(|column| (column.name().to_owned(), declared(column))).collect::<Vec<_>>()
        };
        let described = merge(columns, items);
        column_types = described.iter().map(|(_, of)| *of).collect();
        description.columns = Some(described.into_iter().map(|(name, of)| of.column(name)).collect());
    }
    let large = text.len().max(plan.sql.len()) > LARGE || plan.parameters.len() > PARAMETERS;
    // Even preparing a large one takes long.
    let slow = AtomicBool::new(large);
    Ok(Known { plan, description: Arc::new(description), types: column_types, slow, large })
}

/// SQLite knows how many columns `*` stands for; the text knows PostgreSQL's names and the types of expressions.
fn merge(columns: Vec<(String, Option<Type>)>, items: &[infer::Item]) -> Vec<(String, Type)> {
    let stars = items.iter().filter(|item| item.is_none()).count();
    let aligned: Vec<infer::Item> = match stars {
        0 => items.to_vec(),
        1 => {
            let width = (columns.len() + 1).saturating_sub(items.len());
            let spread = |item: &infer::Item| match item {
                Some(_) => vec![item.clone()],
                None => vec![None; width],
            };
            items.iter().flat_map(spread).collect()
        }
        _ => vec![None; columns.len()],
    };
    let mut aligned = aligned.into_iter();
    let merged = columns.into_iter().map(|(name, declared)| {
        let (name, inferred) = aligned.next().flatten().unwrap_or((name, None));
        (name, inferred.or(declared).unwrap_or(Type::Text))
    });
    merged.collect()
}

fn columns_of(conn: &Conn, table: &str) -> rusqlite::Result<Vec<(String, Type)>> {
    let mut statement = conn.sqlite.prepare_cached("SELECT name, type FROM pragma_table_info(?1)")?;
    let rows =
        statement.query_map([table], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| row.map(|(name, declared)| (name, Type::from_declared(&declared).unwrap_or(Type::Text))))
        .collect()
}

impl Inner {
    /// Runs a read at once; if that takes more than a moment, once more, where it may block.
    fn read(&self, conn: &Conn, known: &Known, call: Call<'_>, rows: &mut Rows) -> Result<u64, SqlError> {
        if !known.slow.load(Ordering::Relaxed) {
            match self.run(conn, known, call, rows, Haste::Moment) {
                Err(error) if error == SqlError::overdue() => {
                    known.slow.store(true, Ordering::Relaxed);
                    rows.clear();
                }
                other => return other,
            }
        }
        blocking(|| self.run(conn, known, call, rows, Haste::None))
    }

    fn run(
        &self,
        conn: &Conn,
        known: &Known,
        call: Call<'_>,
        rows: &mut Rows,
        haste: Haste,
    ) -> Result<u64, SqlError> {
        conn.until(call.deadline, haste);
        let fail = |error: rusqlite::Error| translate(&error);
        let (mut once, mut kept);
        let statement: &mut rusqlite::Statement<'_> = if known.large {
            once = conn.sqlite.prepare(&known.plan.sql).map_err(fail)?;
            &mut once
        } else {
            kept = conn.sqlite.prepare_cached(&known.plan.sql).map_err(fail)?;
            &mut kept
        };
        for (index, (value, of)) in call.values.iter().zip(&known.plan.parameters).enumerate() {
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
            if known.plan.job {
                continue;
            }
            rows.begin();
            for (index, of) in known.types.iter().enumerate() {
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
        if known.plan.job {
            rows.begin();
            rows.field::<SqlError>(|out| {
                out.extend_from_slice(b"builtin-done");
                Ok(())
            })?;
            rows.end();
        }
        Ok(if known.plan.items.is_none() || changed == 0 { conn.sqlite.changes() } else { changed })
    }
}

/// SQLite's complaints as PostgreSQL would word them.
fn translate(error: &rusqlite::Error) -> SqlError {
    let rusqlite::Error::SqliteFailure(failure, message) = error else {
        return match error {
            rusqlite::Error::SqlInputError { msg, .. } => worded(msg),
            // It was planned for a schema that had more columns.
            rusqlite::Error::InvalidColumnIndex(_) => SqlError::schema_conflict(),
            other => SqlError::new("XX000", other.to_string()),
        };
    };
    let message = message.clone().unwrap_or_else(|| failure.to_string());
    let code = match (failure.code, failure.extended_code) {
        (ErrorCode::OperationInterrupted, _) => return SqlError::overdue(),
        // As when the writer is not to be had in time.
        (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => {
            return SqlError::change_conflict().detail(message);
        }
        (ErrorCode::ReadOnly, _) => "25006",
        (_, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
            return SqlError::new("23505", "duplicate key value violates unique constraint").detail(message);
        }
        (_, ffi::SQLITE_CONSTRAINT_NOTNULL) => "23502",
        (_, ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => "23503",
        (_, ffi::SQLITE_CONSTRAINT_CHECK) => match message.split_once(": ").and_then(|(_, name)| coded(name))
        {
            Some(error) => return error,
            None => "23514",
        },
        (ErrorCode::ConstraintViolation, _) => "23000",
        (ErrorCode::DiskFull, _) => "53100",
        (ErrorCode::OutOfMemory | ErrorCode::TooBig, _) => "53200",
        _ => return worded(&message),
    };
    SqlError::new(code, message)
}

/// The error of a function or a check of this engine, which tells its code in its text.
fn coded(message: &str) -> Option<SqlError> {
    const CODES: [&str; 6] = ["22001", "22003", "22012", "22023", "22P02", "42704"];
    let (code, message) = message.split_once(": ")?;
    CODES.into_iter().find(|own| *own == code).map(|code| SqlError::new(code, message))
}

fn worded(message: &str) -> SqlError {
    if let Some(error) = coded(message) {
        return error;
    }
    let rest = |prefix: &str| message.strip_prefix(prefix);
    if let Some(table) = rest("no such table: ") {
        return SqlError::new("42P01", format!("relation \"{table}\" does not exist"));
    }
    if let Some(column) = rest("no such column: ") {
        // SQLite quotes a quoted name, and has advice for those who meant a text.
        let column = column.split(" - should this be").next().unwrap_or(column).trim_matches('"');
        return SqlError::new("42703", format!("column \"{column}\" does not exist"));
    }
    if let Some(function) = rest("no such function: ") {
        return SqlError::new("42883", format!("function {function} does not exist"));
    }
    if let Some((table, _)) = rest("table ").and_then(|rest| rest.split_once(" already exists")) {
        return SqlError::new("42P07", format!("relation \"{}\" already exists", table.trim_matches('"')));
    }
    if message == "integer overflow" {
        return Type::Int8.out_of_range();
    }
    if rest("Expression tree is too large").is_some() || rest("parser stack overflow").is_some() {
        return SqlError::new("54001", "the statement is nested too deeply");
    }
    if rest("too many columns in").is_some() {
        return syntax::too_many_columns();
    }
    SqlError::new("42601", message)
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
        let busy = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None);
        assert_eq!(translate(&busy).code, "40001");
    }

    // The runtime of one thread: nothing may be handed over to another there.
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
    async fn large_statements_wait_for_their_turn_and_others_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let engine = engine(directory.path());
        let turn = engine.inner.turns.acquire().await.unwrap();
        let mut session = engine.session("admin").await.unwrap();
        let large = statement(&format!("SELECT '{}'", "x".repeat(LARGE)));
        let mut waiting = std::pin::pin!(session.describe(&large, &[]));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        engine.session("admin").await.unwrap().describe(&statement("SELECT 1"), &[]).await.unwrap();
        drop(turn);
        waiting.await.unwrap();
    }
}
