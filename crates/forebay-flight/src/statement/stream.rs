//! A result, batch by batch.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use forebay::rt::Runtime;
use futures_util::Stream;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::fetch::Fetch;
use super::limits::Limits;
use super::result::QueryResult;
use crate::error::{Error, Phase, Result};
use crate::pool::AsyncSessionHandle;
use crate::session::AsyncSession;

/// The rows of a query, as the server sends them: a [`Stream`] of batches in order. The server may be ahead
/// of the reader by [`read_ahead`](crate::ConnectOptions::read_ahead).
///
/// Dropping it before its end cancels the statement on the server. A stream of a pool holds its connection
/// until its end. When its deadline passes or it is cancelled, it ends even if nobody reads it; the reader
/// gets the error with its next call.
pub struct QueryStream<'a> {
    schema: SchemaRef,
    source: Arc<Mutex<Source>>,
    /// Ends the task that watches the limits when it is dropped.
    _watcher: Option<oneshot::Sender<()>>,
    session: PhantomData<&'a mut AsyncSession>,
}

/// What a stream is read from.
#[derive(Default)]
struct Source {
    // Before the connection, and so dropped before it goes back.
    fetch: Option<Fetch>,
    connection: Option<AsyncSessionHandle>,
    /// Why it ended early, until the reader has got it.
    failure: Option<Error>,
    reader: Option<Waker>,
}

impl QueryStream<'_> {
    pub(crate) fn new(fetch: Fetch, connection: Option<AsyncSessionHandle>) -> Self {
        let (schema, limits) = (fetch.schema().clone(), fetch.limits().clone());
        let runtime = Arc::clone(fetch.runtime());
        let source = Source { fetch: Some(fetch), connection, ..Source::default() };
        let source = Arc::new(Mutex::new(source));
        let watcher = limits.are_any().then(|| watch(&source, &limits, &*runtime));
        Self { schema, source, _watcher: watcher, session: PhantomData }
    }

    /// The columns, known before the first batch.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch; none after the last.
    ///
    /// # Errors
    /// What ended the result early. Nothing follows an error.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call returns the batch.
    pub async fn next_batch(&mut self) -> Option<Result<RecordBatch>> {
        poll_fn(|context| self.poll_batch(context)).await
    }

    /// Reads the rest into memory.
    ///
    /// # Errors
    /// What ended the result early.
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement.
    pub async fn read_all(mut self) -> Result<QueryResult> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_batch().await {
            batches.push(batch?);
        }
        Ok(QueryResult::new(self.schema.clone(), batches))
    }

    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        let mut source = self.source.lock();
        if let Some(error) = source.failure.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(fetch) = &mut source.fetch else { return Poll::Ready(None) };
        let polled = fetch.poll_next(context);
        match &polled {
            Poll::Pending => source.reader = Some(context.waker().clone()),
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => {
                // Dropped outside the lock, since that runs other code.
                let (fetch, connection) = (source.fetch.take(), source.connection.take());
                drop(source);
                drop(fetch);
                if connection.is_some() {
                    drop(connection);
                    return polled.map_err(Error::without_session);
                }
            }
        }
        polled
    }
}

/// Ends a stream when its time is up, even if nobody reads it: a slow reader must not hold the statement or
/// the connection.
fn watch(source: &Arc<Mutex<Source>>, limits: &Limits, runtime: &dyn Runtime) -> oneshot::Sender<()> {
    let (held, mut dropped) = oneshot::channel();
    let (source, mut expiry) = (Arc::downgrade(source), limits.expiry());
    runtime.spawn(Box::pin(async move {
        let expired = poll_fn(|context| {
            if Pin::new(&mut dropped).poll(context).is_ready() {
                return Poll::Ready(None);
            }
            expiry.poll(context, &Phase::Fetch).map(Some)
        });
        let Some(error) = expired.await else { return };
        let Some(source) = source.upgrade() else { return };
        let (fetch, connection, reader) = {
            let mut source = source.lock();
            if source.fetch.is_none() {
                return;
            }
            source.failure = Some(error);
            (source.fetch.take(), source.connection.take(), source.reader.take())
        };
        drop(fetch);
        drop(connection);
        if let Some(reader) = reader {
            reader.wake();
        }
    }));
    held
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
