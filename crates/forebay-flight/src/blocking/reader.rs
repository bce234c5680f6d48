//! A result, batch by batch, for threads.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::runtime_thread::RuntimeThread;
use crate::error::Result;
use crate::statement::QueryStream;

/// The rows of a query, as the server sends them: an iterator over batches. The schema is known before the
/// first.
///
/// Dropping it before its end cancels the statement on the server. A reader of a pool holds its connection
/// until its end.
#[derive(Debug)]
pub struct QueryReader<'a> {
    // Before the thread, which may end with it.
    stream: QueryStream<'a>,
    thread: Arc<RuntimeThread>,
}

impl<'a> QueryReader<'a> {
    pub(super) fn new(stream: QueryStream<'a>, thread: Arc<RuntimeThread>) -> Self {
        Self { stream, thread }
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
        self.thread.block_on(self.stream.next_batch())
    }
}
