//! A session, for threads.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use forebay::BoxError;

use super::ingest::ingest_from;
use super::prepared::PreparedQuery;
use super::reader::QueryReader;
use super::runtime_thread::RuntimeThread;
use super::transaction::Transaction;
use crate::error::Result;
use crate::pool::AsyncSessionHandle;
use crate::session::{AsyncSession, OptionValue, TableFilter, TableName};
use crate::statement::{Ingest, QueryOptions, QueryResult, UpdateResult};

/// One session on the server, for one thread at a time. [`FlightSQLClient`](crate::FlightSQLClient) and
/// [`SessionHandle`] deref to it. Each method does the same as that of [`AsyncSession`], and blocks.
///
/// # Errors
/// See [`Error`](crate::Error).
pub struct Session {
    // Before the thread, which may end with it.
    session: Kind,
    thread: Arc<RuntimeThread>,
}

enum Kind {
    Own(AsyncSession),
    Pooled(AsyncSessionHandle),
}

impl Session {
    pub(super) fn own(session: AsyncSession, thread: Arc<RuntimeThread>) -> Self {
        Self { session: Kind::Own(session), thread }
    }

    pub(super) fn into_own(self) -> Option<(AsyncSession, Arc<RuntimeThread>)> {
        match self.session {
            Kind::Own(session) => Some((session, self.thread)),
            Kind::Pooled(_) => None,
        }
    }

    fn inner(&self) -> &AsyncSession {
        match &self.session {
            Kind::Own(session) => session,
            Kind::Pooled(handle) => handle,
        }
    }

    fn parts(&mut self) -> (&mut AsyncSession, &Arc<RuntimeThread>) {
        let session = match &mut self.session {
            Kind::Own(session) => session,
            Kind::Pooled(handle) => handle,
        };
        (session, &self.thread)
    }

    fn block_on<T>(&mut self, run: impl AsyncFnOnce(&mut AsyncSession) -> T) -> T {
        let (session, thread) = self.parts();
        thread.block_on(run(session))
    }

    /// Runs a query and reads its whole result.
    pub fn query(&mut self, sql: &str) -> Result<QueryResult> {
        self.block_on(async |session| session.query(sql).await)
    }

    /// Runs a query with a timeout, parameters or other options.
    pub fn query_with_options(&mut self, sql: &str, options: QueryOptions) -> Result<QueryResult> {
        self.block_on(async |session| session.query_with_options(sql, options).await)
    }

    /// Runs a statement that changes something and returns rows.
    pub fn execute(&mut self, sql: &str) -> Result<QueryResult> {
        self.block_on(async |session| session.execute(sql).await)
    }

    /// Runs a query, and returns its result as the server sends it.
    pub fn query_stream(&mut self, sql: &str) -> Result<QueryReader<'_>> {
        self.query_stream_with_options(sql, QueryOptions::new())
    }

    /// As [`query_stream`](Self::query_stream), with a timeout, parameters or other options.
    pub fn query_stream_with_options(&mut self, sql: &str, options: QueryOptions) -> Result<QueryReader<'_>> {
        let (session, thread) = self.parts();
        let stream = thread.block_on(session.query_stream_with_options(sql, options))?;
        Ok(QueryReader::new(stream, Arc::clone(thread)))
    }

    /// Runs a statement that changes something.
    pub fn update(&mut self, sql: &str) -> Result<UpdateResult> {
        self.block_on(async |session| session.update(sql).await)
    }

    /// As [`update`](Self::update), with a timeout, parameters or other options.
    pub fn update_with_options(&mut self, sql: &str, options: QueryOptions) -> Result<UpdateResult> {
        self.block_on(async |session| session.update_with_options(sql, options).await)
    }

    /// Runs a query with parameters: the columns of `params`, in order.
    pub fn query_with_param(&mut self, sql: &str, params: RecordBatch) -> Result<QueryResult> {
        self.block_on(async |session| session.query_with_param(sql, params).await)
    }

    /// Runs a statement once for each row of `batch`, with its columns as parameters.
    pub fn update_with_record_batch(&mut self, sql: &str, batch: RecordBatch) -> Result<UpdateResult> {
        self.block_on(async |session| session.update_with_record_batch(sql, batch).await)
    }

    /// Loads batches into a table, as fast as the server takes them. The iterator runs on this thread.
    ///
    /// The deadline or a cancellation stops the load on the server, whatever the iterator does. This call
    /// returns the error once the iterator has returned its next batch: a thread cannot leave an iterator
    /// that blocks. An iterator that may block for long should check the time itself, or
    /// [`CancelHandle::is_cancelled`](crate::CancelHandle::is_cancelled).
    pub fn ingest<B, E>(&mut self, ingest: Ingest, batches: B) -> Result<UpdateResult>
    where
        B: IntoIterator<Item = Result<RecordBatch, E>>,
        E: Into<BoxError>,
    {
        let (session, thread) = self.parts();
        ingest_from(thread, batches, |stream| session.ingest(ingest, stream))
    }

    /// Prepares a statement: a query or an update. It works for as long as this session is held.
    pub fn prepare_query(&mut self, sql: &str) -> Result<PreparedQuery> {
        let (session, thread) = self.parts();
        let prepared = thread.block_on(session.prepare_query(sql))?;
        Ok(PreparedQuery::new(prepared, Arc::clone(thread)))
    }

    /// Begins a transaction, which is rolled back when it is dropped.
    pub fn begin(&mut self) -> Result<Transaction<'_>> {
        self.begin_transaction()?;
        Ok(Transaction::new(self))
    }

    /// Begins a transaction. Prefer [`begin`](Self::begin), whose guard rolls back a transaction that is not
    /// committed.
    pub fn begin_transaction(&mut self) -> Result<()> {
        self.block_on(async |session| session.begin_transaction().await)
    }

    /// Commits the transaction.
    pub fn commit(&mut self) -> Result<()> {
        self.block_on(async |session| session.commit().await)
    }

    /// Rolls back the transaction.
    pub fn rollback(&mut self) -> Result<()> {
        self.block_on(async |session| session.rollback().await)
    }

    pub(super) fn abandon_transaction(&mut self) {
        self.parts().0.abandon_transaction();
    }

    /// The catalogs.
    pub fn catalogs(&mut self) -> Result<QueryResult> {
        self.block_on(async |session| session.catalogs().await)
    }

    /// The schemas of a catalog whose names match a pattern.
    pub fn schemas(&mut self, catalog: Option<&str>, pattern: Option<&str>) -> Result<QueryResult> {
        self.block_on(async |session| session.schemas(catalog, pattern).await)
    }

    /// The tables.
    pub fn tables(&mut self, filter: TableFilter) -> Result<QueryResult> {
        self.block_on(async |session| session.tables(filter).await)
    }

    /// The table types.
    pub fn table_types(&mut self) -> Result<QueryResult> {
        self.block_on(async |session| session.table_types().await)
    }

    /// The columns of a table's primary key.
    pub fn primary_keys<'a>(&mut self, table: impl Into<TableName<'a>>) -> Result<QueryResult> {
        self.block_on(async |session| session.primary_keys(table).await)
    }

    /// The columns of other tables that refer to this table's primary key.
    pub fn exported_keys<'a>(&mut self, table: impl Into<TableName<'a>>) -> Result<QueryResult> {
        self.block_on(async |session| session.exported_keys(table).await)
    }

    /// The columns of this table that refer to the primary keys of others.
    pub fn imported_keys<'a>(&mut self, table: impl Into<TableName<'a>>) -> Result<QueryResult> {
        self.block_on(async |session| session.imported_keys(table).await)
    }

    /// The columns of the table `foreign` that refer to the primary key of the table `parent`.
    pub fn cross_reference<'a>(
        &mut self,
        parent: impl Into<TableName<'a>>,
        foreign: impl Into<TableName<'a>>,
    ) -> Result<QueryResult> {
        self.block_on(async |session| session.cross_reference(parent, foreign).await)
    }

    /// The server's data types: all, or the one with this number.
    pub fn type_info(&mut self, data_type: Option<i32>) -> Result<QueryResult> {
        self.block_on(async |session| session.type_info(data_type).await)
    }

    /// What the server reports about itself: all entries, or those with these numbers.
    pub fn sql_info(&mut self, entries: &[u32]) -> Result<QueryResult> {
        self.block_on(async |session| session.sql_info(entries).await)
    }

    /// Sets options of this session.
    pub fn set_options(&mut self, options: impl IntoIterator<Item = (String, OptionValue)>) -> Result<()> {
        self.block_on(async |session| session.set_options(options).await)
    }

    /// The options of this session.
    pub fn options(&mut self) -> Result<BTreeMap<String, OptionValue>> {
        self.block_on(async |session| session.options().await)
    }

    /// Runs a Flight action of the server that this crate does not know, and returns the bodies of its
    /// results.
    pub fn action(
        &mut self,
        kind: &str,
        body: impl Into<Bytes>,
        options: QueryOptions,
    ) -> Result<Vec<Bytes>> {
        self.block_on(async |session| session.action(kind, body, options).await)
    }

    /// Runs the health check, to see whether the session answers.
    pub fn ping(&mut self) -> Result<()> {
        self.block_on(async |session| session.ping().await)
    }

    /// Whether its connection is open, as far as is known without a call.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.inner().is_connected()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(self.inner()).finish()
    }
}

/// A session of a pool, held by one thread. It derefs to [`Session`], and goes back to the pool when it is
/// dropped. The pool then rolls back an open transaction, and closes a session with changed settings or
/// temporary tables.
#[derive(Debug)]
pub struct SessionHandle(Session);

impl SessionHandle {
    pub(super) fn new(handle: AsyncSessionHandle, thread: Arc<RuntimeThread>) -> Self {
        Self(Session { session: Kind::Pooled(handle), thread })
    }

    /// Makes the pool close it when it comes back, instead of lending it again.
    pub fn mark_bad(&mut self) {
        if let Kind::Pooled(handle) = &mut self.0.session {
            handle.mark_bad();
        }
    }

    /// How long ago it was opened.
    #[must_use]
    pub fn age(&self) -> Duration {
        match &self.0.session {
            Kind::Pooled(handle) => handle.age(),
            Kind::Own(_) => Duration::ZERO,
        }
    }
}

impl Deref for SessionHandle {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl DerefMut for SessionHandle {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0
    }
}
