//! SQLite's connections: several readers and one writer.
//!
//! A statement first runs on the thread that received it, for a short time slice. A longer one runs where it
//! may block, so that it does not keep the runtime from its sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use super::functions;
use crate::clock::{self, Clock};
use crate::error::{Error, SqlError};

/// The number of readers.
const READERS: usize = 4;
/// How many virtual-machine steps SQLite runs between two checks of the clock.
const STEPS: i32 = 10_000;
/// How many prepared statements each connection caches.
const CACHE: usize = 256;
/// How long to wait for the writer, in real time.
const WRITER_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Database {
    readers: Mutex<Vec<Conn>>,
    free: Arc<Semaphore>,
    writer: Arc<tokio::sync::Mutex<Conn>>,
}

/// A connection whose statements stop at their deadline.
pub(super) struct Conn {
    pub(super) sqlite: Connection,
    /// When the running statement must end, in nanoseconds of the emulator's time.
    deadline: Arc<AtomicU64>,
    /// How many more clock checks the running statement may take.
    checks: Arc<AtomicU32>,
}

impl Conn {
    fn open(path: &Path, clock: &Arc<Clock>, uuids: &Arc<AtomicU64>) -> Result<Self, rusqlite::Error> {
        let sqlite = Connection::open(path)?;
        // The data ends with the process, so nothing need reach the disk.
        sqlite.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA foreign_keys = ON; \
             PRAGMA case_sensitive_like = ON; PRAGMA cache_size = -2048;",
        )?;
        // Otherwise SQLite reads a misspelled "column" as a string, and a DELETE that compares it may remove
        // every row.
        sqlite.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        sqlite.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
        sqlite.set_prepared_statement_cache_capacity(CACHE);
        rusqlite::vtab::series::load_module(&sqlite)?;
        functions::register(&sqlite, clock, uuids)?;
        let deadline = Arc::new(AtomicU64::new(u64::MAX));
        let checks = Arc::new(AtomicU32::new(u32::MAX));
        let (clock, limit, left) = (clock.clone(), deadline.clone(), checks.clone());
        let interrupt = move || {
            let left = left.fetch_sub(1, Ordering::Relaxed);
            left <= 1 || clock.now().as_nanos() > u128::from(limit.load(Ordering::Relaxed))
        };
        sqlite.progress_handler(STEPS, Some(interrupt));
        Ok(Self { sqlite, deadline, checks })
    }

    /// Sets the deadline of the next statement, or stops it after a short time slice.
    pub(super) fn until(&self, deadline: Duration, slice: TimeSlice) {
        // SQLite counts steps over all runs of a statement, so the first check may come at once.
        self.checks.store(if slice == TimeSlice::Short { 2 } else { u32::MAX }, Ordering::Relaxed);
        self.deadline.store(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// How long a statement may occupy its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeSlice {
    /// A few thousand steps.
    Short,
    UntilDeadline,
}

/// A reader, lent for one statement.
pub(super) struct Reader<'a> {
    database: &'a Database,
    conn: Option<Conn>,
    _permit: OwnedSemaphorePermit,
}

impl Reader<'_> {
    pub(super) fn conn(&self) -> Result<&Conn, SqlError> {
        self.conn.as_ref().ok_or_else(|| SqlError::new("XX000", "the engine lost a connection"))
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.database.readers.lock().extend(self.conn.take());
    }
}

/// The writer, lent for one transaction. Dropping it rolls back.
pub(super) struct Writer {
    guard: OwnedMutexGuard<Conn>,
}

impl Writer {
    pub(super) fn conn(&self) -> &Conn {
        &self.guard
    }

    pub(super) fn commit(self) -> Result<(), rusqlite::Error> {
        self.guard.until(Duration::MAX, TimeSlice::UntilDeadline);
        self.guard.sqlite.execute_batch("COMMIT")
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.guard.sqlite.is_autocommit() {
            self.guard.until(Duration::MAX, TimeSlice::UntilDeadline);
            // If this fails, the next BEGIN reports it.
            drop(self.guard.sqlite.execute_batch("ROLLBACK"));
        }
    }
}

impl Database {
    pub(super) fn open(directory: &Path, clock: &Arc<Clock>, value_limit: usize) -> Result<Self, Error> {
        let path: PathBuf = directory.join("builtin.sqlite");
        let uuids = Arc::default();
        let limit = i32::try_from(value_limit).unwrap_or(i32::MAX);
        let open = || {
            let conn = Conn::open(&path, clock, &uuids)?;
            // A value that is too large to send need not be computed.
            conn.sqlite.set_limit(Limit::SQLITE_LIMIT_LENGTH, limit)?;
            Ok(conn)
        };
        let open = || open().map_err(|error: rusqlite::Error| Error::Engine(error.to_string()));
        let writer = open()?;
        let reader = || {
            let conn = open()?;
            // A write that is mistaken for a read must fail: it would bypass the transaction, the faults and
            // the counters.
            let barred = conn.sqlite.pragma_update(None, "query_only", true);
            barred.map_err(|error| Error::Engine(error.to_string()))?;
            Ok(conn)
        };
        let readers = (0..READERS).map(|_| reader()).collect::<Result<Vec<_>, Error>>()?;
        Ok(Self {
            free: Arc::new(Semaphore::new(readers.len())),
            readers: Mutex::new(readers),
            writer: Arc::new(tokio::sync::Mutex::new(writer)),
        })
    }

    pub(super) async fn reader(&self) -> Result<Reader<'_>, SqlError> {
        let permit = self.free.clone().acquire_owned().await;
        let permit = permit.map_err(|_| SqlError::new("57P01", "the engine has stopped"))?;
        let conn = self.readers.lock().pop();
        Ok(Reader { database: self, conn, _permit: permit })
    }

    /// Waits for the writer and begins a transaction.
    pub(super) async fn writer(&self) -> Result<Writer, SqlError> {
        let Some(guard) = clock::within(WRITER_TIMEOUT, self.writer.clone().lock_owned()).await else {
            return Err(SqlError::change_conflict().detail(format!(
                "the builtin engine has one writer, and another transaction has kept it for {} s",
                WRITER_TIMEOUT.as_secs()
            )));
        };
        let writer = Writer { guard };
        let begun = writer.guard.sqlite.execute_batch("BEGIN IMMEDIATE");
        begun.map_err(|error| super::translate(&error))?;
        Ok(writer)
    }
}
