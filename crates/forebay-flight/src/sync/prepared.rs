//! Prepared statements, for threads.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::error::Result;
use crate::prepared::AsyncPreparedQuery;
use crate::query_options::QueryOptions;
use crate::result::{QueryResult, UpdateResult};
use crate::sync::engine::Engine;
use crate::sync::reader::QueryReader;

/// A statement that the server has prepared, for the session it was made in. Each method does what that of
/// [`AsyncPreparedQuery`] does, and blocks.
///
/// # Errors
/// See [`Error`](crate::Error).
#[derive(Debug)]
pub struct PreparedQuery {
    prepared: AsyncPreparedQuery,
    engine: Arc<Engine>,
}

#[allow(clippy::missing_errors_doc, reason = "the same for all, and told above")]
impl PreparedQuery {
    pub(super) fn new(prepared: AsyncPreparedQuery, engine: Arc<Engine>) -> Self {
        Self { prepared, engine }
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

    /// Runs it as a query, with the parameters bound last, if any.
    pub fn query(&mut self) -> Result<QueryResult> {
        self.engine.block_on(self.prepared.query())
    }

    /// Runs it as a query with these parameters.
    pub fn query_with_param(&mut self, params: RecordBatch) -> Result<QueryResult> {
        self.engine.block_on(self.prepared.query_with_param(params))
    }

    /// Runs it as a query, and gives the result as the server sends it.
    pub fn query_stream(&mut self, options: QueryOptions) -> Result<QueryReader<'_>> {
        let stream = self.engine.block_on(self.prepared.query_stream(options))?;
        Ok(QueryReader::new(stream, Arc::clone(&self.engine)))
    }

    /// Sets parameters for the runs to come.
    pub fn set_parameters(&mut self, params: RecordBatch) -> Result<()> {
        self.engine.block_on(self.prepared.set_parameters(params))
    }

    /// Runs it for what it changes.
    pub fn update(&mut self) -> Result<UpdateResult> {
        self.engine.block_on(self.prepared.update())
    }

    /// Runs it once for each row of `batch`, with its columns as parameters.
    pub fn update_with_record_batch(&mut self, batch: RecordBatch) -> Result<UpdateResult> {
        self.engine.block_on(self.prepared.update_with_record_batch(batch))
    }
}
