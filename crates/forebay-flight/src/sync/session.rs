//! A session, for threads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use forebay::BoxError;

use crate::actions::OptionValue;
use crate::catalog::TableFilter;
use crate::error::Result;
use crate::ingest::Ingest;
use crate::pooled::AsyncSessionHandle;
use crate::query_options::QueryOptions;
use crate::result::{QueryResult, UpdateResult};
use crate::session::AsyncSession;
use crate::sync::engine::Engine;
use crate::sync::pipe::piped;
use crate::sync::prepared::PreparedQuery;
use crate::sync::reader::QueryReader;
use crate::sync::transaction::Transaction;

/// One session on the server, for one thread at a time: what [`FlightSQLClient`](crate::FlightSQLClient) and
/// [`SessionHandle`](crate::SessionHandle) deref to. Each method does what that of [`AsyncSession`] does, and blocks.
///
/// # Errors
/// See [`Error`](crate::Error).
pub struct Session {
    // Before the engine, which may end with it.
    session: Kind,
    engine: Arc<Engine>,
}

enum Kind {
    Own(AsyncSession),
    Pooled(AsyncSessionHandle),
}

#[allow(clippy::missing_errors_doc, reason = "the same for all, and told above")]
impl Session {
    pub(super) fn own(session: AsyncSession, engine: Arc<Engine>) -> Self {
        Self { session: Kind::Own(session), engine }
    }

    pub(super) fn pooled(handle: AsyncSessionHandle, engine: Arc<Engine>) -> Self {
        Self { session: Kind::Pooled(handle), engine }
    }

    pub(super) fn into_own(self) -> Option<(AsyncSession, Arc<Engine>)> {
        match self.session {
            Kind::Own(session) => Some((session, self.engine)),
            Kind::Pooled(_) => None,
        }
    }

    /// What its pool lent, if it is of a pool.
    pub(super) fn lent(&self) -> Option<&AsyncSessionHandle> {
        match &self.session {
            Kind::Own(_) => None,
            Kind::Pooled(handle) => Some(handle),
        }
    }

    /// The same, to be changed.
    pub(super) fn lent_mut(&mut self) -> Option<&mut AsyncSessionHandle> {
        match &mut self.session {
            Kind::Own(_) => None,
            Kind::Pooled(handle) => Some(handle),
        }
    }

    fn parts(&mut self) -> (&mut AsyncSession, &Arc<Engine>) {
        let session = match &mut self.session {
            Kind::Own(session) => session,
            Kind::Pooled(handle) => handle,
        };
        (session, &self.engine)
    }

    /// Runs a query and reads its whole result.
    pub fn query(&mut self, sql: &str) -> Result<QueryResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.query(sql))
    }

    /// As [`query`](Self::query), with options.
    pub fn query_with_options(&mut self, sql: &str, options: QueryOptions) -> Result<QueryResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.query_with_options(sql, options))
    }

    /// Runs a statement that changes something and gives rows.
    pub fn execute(&mut self, sql: &str) -> Result<QueryResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.execute(sql))
    }

    /// Runs a query, and gives its result as the server sends it.
    pub fn query_stream(&mut self, sql: &str) -> Result<QueryReader<'_>> {
        self.query_stream_with_options(sql, QueryOptions::new())
    }

    /// As [`query_stream`](Self::query_stream), with options.
    pub fn query_stream_with_options(&mut self, sql: &str, options: QueryOptions) -> Result<QueryReader<'_>> {
        let (session, engine) = self.parts();
        let stream = engine.block_on(session.query_stream_with_options(sql, options))?;
        Ok(QueryReader::new(stream, Arc::clone(engine)))
    }

    /// Runs a statement that changes something.
    pub fn update(&mut self, sql: &str) -> Result<UpdateResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.update(sql))
    }

    /// As [`update`](Self::update), with options.
    pub fn update_with_options(&mut self, sql: &str, options: QueryOptions) -> Result<UpdateResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.update_with_options(sql, options))
    }

    /// Runs a query with parameters, one row of them for each time it is to be run.
    pub fn query_with_param(&mut self, sql: &str, params: RecordBatch) -> Result<QueryResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.query_with_param(sql, params))
    }

    /// Runs a statement once for each row of `batch`, with its columns as parameters.
    pub fn update_with_record_batch(&mut self, sql: &str, batch: RecordBatch) -> Result<UpdateResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.update_with_record_batch(sql, batch))
    }

    /// Loads batches into a table, as fast as the server takes them. They are asked for on this thread.
    ///
    /// The deadline, or a cancellation, stops the load on the server whatever the iterator does. This returns its error as soon as
    /// the iterator has given its next batch, and not before: nothing can take a thread out of an iterator that blocks. One that
    /// may block for long should look at the time itself, or at [`CancelHandle::is_cancelled`](crate::CancelHandle::is_cancelled).
    pub fn ingest<B, E>(&mut self, ingest: Ingest, batches: B) -> Result<UpdateResult>
    where
        B: IntoIterator<Item = Result<RecordBatch, E>>,
        E: Into<BoxError>,
    {
        let (session, engine) = self.parts();
        piped(engine, batches, |stream| session.ingest(ingest, stream))
    }

    /// Prepares a statement. It is good for as long as this session is held.
    pub fn prepare(&mut self, sql: &str) -> Result<PreparedQuery> {
        let (session, engine) = self.parts();
        let prepared = engine.block_on(session.prepare(sql))?;
        Ok(PreparedQuery::new(prepared, Arc::clone(engine)))
    }

    /// As [`prepare`](Self::prepare).
    pub fn prepare_query(&mut self, sql: &str) -> Result<PreparedQuery> {
        self.prepare(sql)
    }

    /// Begins a transaction, which rolls back when it is dropped.
    pub fn begin(&mut self) -> Result<Transaction<'_>> {
        self.begin_transaction()?;
        Ok(Transaction::new(self))
    }

    /// Begins a transaction. [`begin`](Self::begin) does the same, and cannot forget to end it.
    pub fn begin_transaction(&mut self) -> Result<()> {
        let (session, engine) = self.parts();
        engine.block_on(session.begin_transaction())
    }

    /// Commits the transaction.
    pub fn commit(&mut self) -> Result<()> {
        let (session, engine) = self.parts();
        engine.block_on(session.commit())
    }

    /// Undoes the transaction.
    pub fn rollback(&mut self) -> Result<()> {
        let (session, engine) = self.parts();
        engine.block_on(session.rollback())
    }

    pub(super) fn abandon_transaction(&mut self) {
        self.parts().0.abandon_transaction();
    }

    /// The catalogs.
    pub fn catalogs(&mut self) -> Result<QueryResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.catalogs())
    }

    /// The schemas, of a catalog and with names like a pattern.
    pub fn schemas(&mut self, catalog: Option<&str>, pattern: Option<&str>) -> Result<QueryResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.schemas(catalog, pattern))
    }

    /// The tables.
    pub fn tables(&mut self, filter: TableFilter) -> Result<QueryResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.tables(filter))
    }

    /// The types of tables.
    pub fn table_types(&mut self) -> Result<QueryResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.table_types())
    }

    /// The columns of a table's primary key.
    pub fn primary_keys(
        &mut self,
        catalog: Option<&str>,
        schema: Option<&str>,
        table: &str,
    ) -> Result<QueryResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.primary_keys(catalog, schema, table))
    }

    /// What the server says of itself: all of it, or the entries with these numbers.
    pub fn sql_info(&mut self, entries: &[u32]) -> Result<QueryResult> {
        let (session, engine) = self.parts();
        engine.block_on(session.sql_info(entries))
    }

    /// Sets options of this session.
    pub fn set_options(&mut self, options: impl IntoIterator<Item = (String, OptionValue)>) -> Result<()> {
        let (session, engine) = self.parts();
        engine.block_on(session.set_options(options))
    }

    /// The options of this session.
    pub fn options(&mut self) -> Result<BTreeMap<String, OptionValue>> {
        let (session, engine) = self.parts();
        engine.block_on(session.options())
    }

    /// Asks the server whether the session answers.
    pub fn ping(&mut self) -> Result<()> {
        let (session, engine) = self.parts();
        engine.block_on(session.ping())
    }

    /// Whether its connection lives, as far as is known without asking.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        match &self.session {
            Kind::Own(session) => session.is_connected(),
            Kind::Pooled(handle) => handle.is_connected(),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session: &AsyncSession = match &self.session {
            Kind::Own(session) => session,
            Kind::Pooled(handle) => handle,
        };
        f.debug_tuple("Session").field(session).finish()
    }
}
