//! A result, batch by batch, for threads.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::error::Result;
use crate::stream::QueryStream;
use crate::sync::engine::Engine;

/// The rows of a query, as the server sends them: an iterator over batches, with the schema known before the first.
///
/// Dropping it before its end cancels the statement on the server. One of a pool holds its connection until then.
#[derive(Debug)]
pub struct QueryReader<'a> {
    // Before the engine, which may end with it.
    stream: QueryStream<'a>,
    engine: Arc<Engine>,
}

impl<'a> QueryReader<'a> {
    pub(super) fn new(stream: QueryStream<'a>, engine: Arc<Engine>) -> Self {
        Self { stream, engine }
    }

    /// The columns.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        self.stream.schema()
    }
}

impl Iterator for QueryReader<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.engine.block_on(self.stream.next())
    }
}
