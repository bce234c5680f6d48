//! A result, batch by batch.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures_util::Stream;

use crate::error::{Error, Result};
use crate::fetch::Fetch;
use crate::pooled::PooledConnection;
use crate::result::QueryResult;
use crate::session::AsyncSession;

/// The rows of a query, as the server sends them: in order, schema first, and no more ahead of the reader than
/// [`read_ahead`](crate::ConnectOptions::read_ahead) allows.
///
/// Dropping it before its end cancels the statement on the server. One of a pool holds its connection until then. Its deadline is
/// looked at whenever it is polled: what is not read on should be dropped.
pub struct QueryStream<'a> {
    // Before the connection, and so dropped before it goes back.
    fetch: Fetch,
    connection: Option<PooledConnection>,
    session: PhantomData<&'a mut AsyncSession>,
}

impl QueryStream<'_> {
    pub(crate) fn of_session(fetch: Fetch) -> Self {
        Self { fetch, connection: None, session: PhantomData }
    }

    pub(crate) fn of_pool(fetch: Fetch, connection: PooledConnection) -> Self {
        Self { fetch, connection: Some(connection), session: PhantomData }
    }

    /// The columns.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        self.fetch.schema()
    }

    /// The next batch; none after the last.
    ///
    /// # Errors
    /// Whatever ended the result early. There is no more after it.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the batch comes with the next call.
    pub async fn next(&mut self) -> Option<Result<RecordBatch>> {
        poll_fn(|context| self.poll_batch(context)).await
    }

    /// Reads all that is left.
    ///
    /// # Errors
    /// Whatever ended the result early.
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement.
    pub async fn collect(mut self) -> Result<QueryResult> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await {
            batches.push(batch?);
        }
        Ok(QueryResult::new(self.schema().clone(), batches))
    }

    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        let polled = self.fetch.poll_next(context);
        if self.connection.is_none() {
            return polled;
        }
        if let Poll::Ready(None | Some(Err(_))) = &polled {
            // It is of no more use here.
            self.connection = None;
        }
        polled.map_err(Error::stateless)
    }
}

impl Stream for QueryStream<'_> {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_batch(context)
    }
}

impl std::fmt::Debug for QueryStream<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryStream").field("schema", self.schema()).finish_non_exhaustive()
    }
}
