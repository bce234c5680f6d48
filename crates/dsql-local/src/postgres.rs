//! An engine on a private PostgreSQL, which runs real SQL. The emulator starts and stops it.
//!
//! A session has a connection to it only while it is in a transaction or a statement, so that thousands can be
//! idle. Values, types and errors pass through. Transactions run at repeatable read, which is snapshot isolation.
//! Conflicts appear at the commit, as in the service. PostgreSQL alone would wait for locks, and report a conflict
//! at the statement:
//!
//! ```text
//!   a trigger reports each changed row        ─▶ change_log      the work of a transaction, to repeat it
//!   another transaction needs a locked row    ─▶ lock_scheduler  rolls the holder back, so that nobody waits
//!   its next statement, or its commit         ─▶ replay          repeats the work: same rows, same values
//!   another has committed a change of a row   ─▶ table_copies    it continues on copies until its COMMIT fails
//! ```

mod backend;
mod cancel_gate;
mod catalog;
mod change_log;
mod commits;
mod jobs;
mod lock_scheduler;
mod locking;
mod occ_transaction;
mod pipeline;
mod precheck;
mod quoting;
mod record;
mod replay;
mod request;
mod rewrite;
mod roles;
mod schema_versions;
mod server;
mod table_copies;
mod table_info;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex as AsyncMutex;
use uuid::Uuid;

use crate::clock::{Clock, Moment};
use crate::config::{Config, Rules};
use crate::engine::{Call, CopyFormat, Description, Done, Engine, Oid, Rows, Session};
use crate::error::{Error, SqlError};
use crate::race::{self, First};
use crate::settings::default_value;
use crate::statement::{Kind, Statement, names};
use backend::{Backend, Setting};
use commits::Commits;
use jobs::Jobs;
use lock_scheduler::{LockScheduler, OpenTransaction};
use occ_transaction::OccTransaction;
use roles::Role;
use schema_versions::{Freshness, RelationName, SchemaVersion, SchemaVersions};
use server::Server;
use table_info::TableCache;

/// How many idle connections are kept.
const MAX_IDLE: usize = 64;

/// The PostgreSQL engine.
pub struct Postgres {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Declared before the server, so that they are closed first.
    idle: Mutex<Vec<Backend>>,
    locks: LockScheduler,
    jobs: Jobs,
    clock: Arc<Clock>,
    rules: Rules,
    result_limit: usize,
    commits: Commits,
    tables: TableCache,
    schema: SchemaVersions,
    /// Whether a function was ever created.
    functions: AtomicBool,
    /// Whether DDL has ever named `sys.current_session_id`.
    session_ids: AtomicBool,
    /// The number of unique ids that were made.
    ids: AtomicU64,
    server: Server,
}

impl Postgres {
    /// The role that owns the private server.
    pub const SUPERUSER: &str = server::SUPERUSER;

    /// Starts a private PostgreSQL. It uses `cache`, `rules` and `result_limit` of the configuration.
    ///
    /// # Errors
    /// If PostgreSQL is not installed, or does not start.
    pub fn start(config: &Config, clock: Arc<Clock>) -> Result<Self, Error> {
        let server = Server::start(&config.cache)?;
        let inner = Inner {
            idle: Mutex::default(),
            locks: LockScheduler::default(),
            jobs: Jobs::default(),
            clock,
            rules: config.rules,
            result_limit: config.result_limit,
            commits: Commits::default(),
            tables: TableCache::default(),
            schema: SchemaVersions::default(),
            functions: AtomicBool::new(false),
            session_ids: AtomicBool::new(false),
            ids: AtomicU64::new(0),
            server,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The directory with its socket, to connect without the rules: `psql -h DIRECTORY -U dsql_local
    /// postgres`, as root or as the user that it runs as.
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
        let (inner, role) = (self.inner.clone(), self.inner.role(role).await?);
        let (schema, id) = (inner.schema.version(), inner.unique_id());
        let (began, read_only, settings) = (false, false, Vec::new());
        Ok(PostgresSession { inner, id, role, open: None, began, read_only, settings, schema })
    }
}

/// A session. It has a connection to the server only while it is in a transaction.
pub struct PostgresSession {
    inner: Arc<Inner>,
    /// What `sys.current_session_id()` returns.
    id: Uuid,
    role: Role,
    began: bool,
    /// Whether the transaction is read-only, if one has begun.
    read_only: bool,
    /// Set from the first statement of a transaction. If dropped, its connection is closed, and the server
    /// rolls back.
    open: Option<Open>,
    settings: Vec<Setting>,
    /// The version of the catalog that it has read.
    schema: SchemaVersion,
}

struct Open {
    pid: i32,
    holder: Arc<OpenTransaction>,
    inner: Arc<Inner>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.inner.locks.unregister(self.pid);
    }
}

impl fmt::Debug for PostgresSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSession").field("open", &self.open.is_some()).finish_non_exhaustive()
    }
}

impl Session for PostgresSession {
    async fn describe(&mut self, statement: &Statement, types: &[Oid]) -> Result<Arc<Description>, SqlError> {
        self.check_schema_version(statement)?;
        let open = self.open().await?;
        let mut guard = open.holder.transaction.lock().await;
        let transaction = guard.as_mut().ok_or_else(SqlError::unavailable)?;
        let description = transaction.describe(statement, types).await;
        drop(guard);
        if !self.began {
            self.end(async |transaction| transaction.roll_back().await).await?;
        }
        Ok(Arc::new(description?))
    }

    async fn copy_format(&mut self, statement: &Statement) -> Result<CopyFormat, SqlError> {
        self.check_schema_version(statement)?;
        let open = self.open().await?;
        let mut guard = open.holder.transaction.lock().await;
        guard.as_mut().ok_or_else(SqlError::unavailable)?.copy_format(statement).await
    }

    async fn execute(&mut self, call: Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        self.check_schema_version(call.statement)?;
        let inner = self.inner.clone();
        if let Some(job) = jobs::awaited_job(&call) {
            let ended = jobs::wait_for(&inner, job);
            if let First::Right(()) = race::first(ended, inner.until(call.deadline)).await {
                return Err(SqlError::deadline_exceeded());
            }
        }
        let open = self.open().await?;
        let mut guard = open.holder.transaction.lock().await;
        let transaction = guard.as_mut().ok_or_else(SqlError::unavailable)?;
        match race::first(transaction.run(&call, rows), inner.until(call.deadline)).await {
            First::Left(outcome) => {
                if outcome.as_ref().is_err_and(|error| *error == SqlError::schema_conflict()) {
                    drop(guard);
                    self.schema = inner.schema.version();
                }
                outcome
            }
            // The connection is closed, so that the server stops the statement.
            First::Right(()) => Err(SqlError::deadline_exceeded()),
        }
    }

    async fn configure(&mut self, settings: Vec<Setting>) -> Result<(), SqlError> {
        match &self.open {
            Some(open) => {
                let mut guard = open.holder.transaction.lock().await;
                guard.as_mut().ok_or_else(SqlError::unavailable)?.configure(settings.clone()).await?;
            }
            // Only to validate the settings.
            None => {
                let backend = self.inner.backend(&self.role, &settings).await?;
                self.inner.release(backend);
            }
        }
        self.settings = settings;
        Ok(())
    }

    async fn begin(&mut self, read_only: bool) -> Result<(), SqlError> {
        // The first statement begins the transaction on the server.
        (self.began, self.read_only) = (true, read_only);
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), SqlError> {
        let (inner, mut schema) = (self.inner.clone(), self.schema);
        let committed = self
            .end(async |transaction| {
                let committed = transaction.commit().await;
                schema = schema.max(transaction.schema);
                if committed.is_ok() {
                    // On failure, the jobs are missing in the list.
                    drop(inner.record_jobs(&transaction.finished_jobs).await);
                }
                if transaction.submits && committed.is_ok() {
                    jobs::schedule(&inner);
                }
                if committed.is_err() {
                    // The transaction is over either way. If the rollback fails, nothing was done.
                    drop(transaction.roll_back().await);
                }
                committed
            })
            .await;
        // The session has read the catalog again: it has changed the schema, or has got the error.
        let conflict = committed == Err(SqlError::schema_conflict());
        self.schema = if conflict { self.inner.schema.version() } else { schema };
        committed
    }

    async fn rollback(&mut self) -> Result<(), SqlError> {
        self.end(async |transaction| transaction.roll_back().await).await
    }
}

impl PostgresSession {
    /// Fails once if another session has changed what the statement names.
    fn check_schema_version(&mut self, statement: &Statement) -> Result<(), SqlError> {
        let version = self.inner.schema.version();
        if version == self.schema {
            return Ok(());
        }
        let names = names(statement.text()).into_iter().collect();
        let is_named = |relation: &RelationName| is_named(relation, &names, &self.settings, &self.role);
        let freshness = self.inner.schema.freshness(self.schema, is_named);
        if freshness != Freshness::Current {
            self.schema = version;
        }
        if freshness == Freshness::Stale { Err(SqlError::schema_conflict()) } else { Ok(()) }
    }

    async fn open(&mut self) -> Result<&Open, SqlError> {
        if self.open.is_none() {
            let backend = self.inner.backend(&self.role, &self.settings).await?;
            let (inner, settings) = (self.inner.clone(), self.settings.clone());
            let mut transaction = OccTransaction::new(inner.clone(), backend, self.id, settings, self.schema);
            transaction.read_only = self.began && self.read_only;
            let (pid, mark, cancel_gate) =
                (transaction.backend.pid, transaction.mark, transaction.cancel_gate.clone());
            let transaction = Arc::new(AsyncMutex::new(Some(transaction)));
            let holder = Arc::new(OpenTransaction { mark, cancel_gate, transaction });
            inner.locks.register(pid, holder.clone());
            self.open = Some(Open { pid, holder, inner });
        }
        self.open.as_ref().ok_or_else(SqlError::unavailable)
    }

    /// Ends the transaction and keeps its connection.
    async fn end(
        &mut self,
        how: impl AsyncFnOnce(&mut OccTransaction) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.began = false;
        let Some(open) = self.open.take() else { return Ok(()) };
        // From here on, no other transaction revokes its locks.
        let Some(mut transaction) = open.holder.transaction.lock().await.take() else { return Ok(()) };
        let ended = if transaction.backend.is_lost() {
            Err(SqlError::unavailable())
        } else {
            how(&mut transaction).await
        };
        drop(open);
        if !transaction.tainted {
            self.inner.release(transaction.backend);
        }
        ended
    }
}

impl Inner {
    /// A new id, for a session or a job. It is unique across clusters, because the server's directory has a random
    /// name.
    fn unique_id(&self) -> Uuid {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        let directory = self.server.directory().as_os_str().as_encoded_bytes();
        let digest = Sha256::new().chain_update(directory).chain_update(number.to_be_bytes()).finalize();
        uuid::Builder::from_random_bytes(digest.first_chunk().copied().unwrap_or_default()).into_uuid()
    }

    /// Whether functions may exist, which may do anything.
    fn has_functions(&self) -> bool {
        self.functions.load(Ordering::SeqCst)
    }

    /// Remembers whether functions may exist, and whether any object may ask for the session's id.
    fn note_functions(&self, statement: &Statement) {
        if statement.mentions("FUNCTION") {
            self.functions.store(true, Ordering::SeqCst);
        }
        if statement.contains_ignore_case(SESSION_ID) {
            self.session_ids.store(true, Ordering::SeqCst);
        }
    }

    /// Whether a statement may need the session's id: it names the function, or something does that it may use.
    fn needs_session_id(&self, statement: &Statement) -> bool {
        self.session_ids.load(Ordering::SeqCst) || statement.contains_ignore_case(SESSION_ID)
    }

    /// An idle or new connection for a role, with these settings.
    async fn backend(&self, role: &Role, settings: &[Setting]) -> Result<Backend, SqlError> {
        let mut backend = loop {
            let idle = self.idle(role);
            match idle {
                None => break Backend::connect(self.server.directory(), role.clone()).await?,
                Some(backend) if backend.is_alive() => break backend,
                Some(_) => {}
            }
        };
        match backend.apply_settings(settings).await {
            Ok(()) => Ok(backend),
            Err(error) => {
                self.release(backend);
                Err(error)
            }
        }
    }

    /// The most recently used idle connection of a role.
    fn idle(&self, role: &Role) -> Option<Backend> {
        let mut idle = self.idle.lock();
        let at = idle.iter().rposition(|backend| backend.role == *role)?;
        Some(idle.remove(at))
    }

    /// Keeps a connection, if it can still be used.
    fn release(&self, backend: Backend) {
        let mut idle = self.idle.lock();
        if !backend.is_lost() && idle.len() < MAX_IDLE {
            idle.push(backend);
        }
    }

    async fn until(&self, deadline: Moment) {
        self.clock.sleep_until(deadline).await;
    }
}

/// The function in the schema `sys` that returns the session's id.
const SESSION_ID: &str = "current_session_id";

/// Whether a statement with these names may mean a relation: with its schema, or by the search path.
fn is_named(
    (schema, name): &RelationName,
    names: &BTreeSet<String>,
    settings: &[Setting],
    role: &Role,
) -> bool {
    let on_search_path = || {
        let set = settings.iter().find(|(name, _)| *name == "search_path");
        let path = set.map(|(_, path)| path.as_str()).or(default_value("search_path")).unwrap_or_default();
        path.split(',').map(str::trim).any(|part| match part.trim_matches(['"', '\'']) {
            "$user" => *schema == *role.name,
            quoted if quoted.len() < part.len() => quoted == schema,
            folded => folded.to_lowercase() == *schema,
        })
    };
    names.contains(name) && (names.contains(schema) || on_search_path())
}

/// Whether a statement may write or lock rows, or draws from a sequence.
fn writes(statement: &Statement) -> bool {
    statement.kind() != Kind::Select || statement.modifies() || statement.locks() || statement.draws()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_and_hidden_writes_count_as_writes() {
        for (sql, expected) in [
            ("SELECT 1", false),
            ("SELECT * FROM t FOR UPDATE", true),
            ("WITH w AS (DELETE FROM t RETURNING *) SELECT * FROM w", true),
            ("SELECT nextval('s')", true),
            ("SELECT 1 FROM t FOR NO KEY UPDATE", true),
            ("SELECT 1 FROM t FOR KEY SHARE OF t", true),
            ("WITH w AS NOT MATERIALIZED (UPDATE t SET a = 1 RETURNING a) SELECT a FROM w", true),
            ("SELECT updated_at, \"delete\" FROM t -- for update", false),
            ("SELECT 'nextval(' || $$ FOR UPDATE $$ /* INSERT */", false),
            ("SELECT nextval FROM t WHERE a = 'DELETE'", false),
            ("DROP TABLE t", true),
        ] {
            assert_eq!(writes(&Statement::split(sql)[0]), expected, "{sql}");
        }
    }
}
