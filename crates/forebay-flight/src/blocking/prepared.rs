//! Prepared statements, for threads.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::reader::QueryReader;
use super::runtime_thread::RuntimeThread;
use crate::error::Result;
use crate::statement::{AsyncPreparedQuery, QueryOptions, QueryResult, UpdateResult};

/// A statement that the server has prepared in one session. It may be a query or an update. Each method does
/// the same as that of [`AsyncPreparedQuery`], and blocks.
///
/// # Errors
/// See [`Error`](crate::Error).
#[derive(Debug)]
pub struct PreparedQuery {
    prepared: AsyncPreparedQuery,
    thread: Arc<RuntimeThread>,
}

impl PreparedQuery {
    pub(super) fn new(prepared: AsyncPreparedQuery, thread: Arc<RuntimeThread>) -> Self {
        Self { prepared, thread }
    }

    /// The columns of its result, as far as the server knows them.
    #[must_use]
    pub fn dataset_schema(&self) -> &SchemaRef {
        self.prepared.dataset_schema()
    }

    /// Its parameters, as far as the server knows them.
    #[must_use]
    pub fn parameter_schema(&self) -> &SchemaRef {
        self.prepared.parameter_schema()
    }

    /// Runs it as a query, with the parameters that were set last, if any.
    pub fn query(&mut self) -> Result<QueryResult> {
        self.thread.block_on(self.prepared.query())
    }

    /// Runs it as a query with these parameters.
    pub fn query_with_param(&mut self, params: RecordBatch) -> Result<QueryResult> {
        self.thread.block_on(self.prepared.query_with_param(params))
    }

    /// Runs it as a query, with a timeout, parameters or other options.
    pub fn query_with_options(&mut self, options: QueryOptions) -> Result<QueryResult> {
        self.thread.block_on(self.prepared.query_with_options(options))
    }

    /// Runs it as a query, and returns the result as the server sends it.
    pub fn query_stream(&mut self, options: QueryOptions) -> Result<QueryReader<'_>> {
        let stream = self.thread.block_on(self.prepared.query_stream(options))?;
        Ok(QueryReader::new(stream, Arc::clone(&self.thread)))
    }

    /// Sets the parameters of the next runs.
    pub fn set_parameters(&mut self, params: RecordBatch) -> Result<()> {
        self.thread.block_on(self.prepared.set_parameters(params))
    }

    /// Runs it as an update.
    pub fn update(&mut self) -> Result<UpdateResult> {
        self.thread.block_on(self.prepared.update())
    }

    /// Runs it as an update, once for each row of `batch`, with the columns as parameters.
    pub fn update_with_record_batch(&mut self, batch: RecordBatch) -> Result<UpdateResult> {
        self.thread.block_on(self.prepared.update_with_record_batch(batch))
    }

    /// Runs it as an update, with a timeout, parameters or other options.
    pub fn update_with_options(&mut self, options: QueryOptions) -> Result<UpdateResult> {
        self.thread.block_on(self.prepared.update_with_options(options))
    }
}
