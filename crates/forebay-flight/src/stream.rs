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

use crate::error::{Error, Phase, Result};
use crate::fetch::Fetch;
use crate::limits::Limits;
use crate::pooled::PooledConnection;
use crate::result::QueryResult;
use crate::session::AsyncSession;

/// The rows of a query, as the server sends them: in order, schema first, and no more ahead of the reader than
/// [`read_ahead`](crate::ConnectOptions::read_ahead) allows.
///
/// Dropping it before its end cancels the statement on the server. One of a pool holds its connection until then. Its deadline, or a
/// cancellation, does the same, also while nobody reads; the reader hears of it when it comes back.
pub struct QueryStream<'a> {
    schema: SchemaRef,
    source: Arc<Mutex<Source>>,
    /// Whoever watches the deadline hears when it is dropped.
    _held: Option<oneshot::Sender<()>>,
    session: PhantomData<&'a mut AsyncSession>,
}

/// What a stream is read from.
#[derive(Default)]
struct Source {
    // Before the connection, and so dropped before it goes back.
    fetch: Option<Fetch>,
    connection: Option<PooledConnection>,
    /// Why it was given up, until the reader has heard of it.
    given_up: Option<Error>,
    reader: Option<Waker>,
}

impl QueryStream<'_> {
    pub(crate) fn of_session(fetch: Fetch) -> Self {
        Self::new(fetch, None)
    }

    pub(crate) fn of_pool(fetch: Fetch, connection: PooledConnection) -> Self {
        Self::new(fetch, Some(connection))
    }

    fn new(fetch: Fetch, connection: Option<PooledConnection>) -> Self {
        let (schema, limits) = (fetch.schema().clone(), fetch.limits().clone());
        let runtime = Arc::clone(fetch.runtime());
        let source = Source { fetch: Some(fetch), connection, ..Source::default() };
        let source = Arc::new(Mutex::new(source));
        let held = limits.are_any().then(|| guard(&source, &limits, &*runtime));
        Self { schema, source, _held: held, session: PhantomData }
    }

    /// The columns.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
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
        Ok(QueryResult::new(self.schema.clone(), batches))
    }

    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        let mut source = self.source.lock();
        if let Some(error) = source.given_up.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(fetch) = &mut source.fetch else { return Poll::Ready(None) };
        let polled = fetch.poll_next(context);
        match &polled {
            Poll::Pending => source.reader = Some(context.waker().clone()),
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => {
                // Of no more use here. Let go of outside the lock, since others hear of that.
                let (fetch, connection) = (source.fetch.take(), source.connection.take());
                drop(source);
                drop(fetch);
                if connection.is_some() {
                    drop(connection);
                    return polled.map_err(Error::stateless);
                }
            }
        }
        polled
    }
}

/// Gives a stream up when its time is over, also if nobody reads it: neither the statement nor the connection is to be held by a
/// reader that stands still.
fn guard(source: &Arc<Mutex<Source>>, limits: &Limits, runtime: &dyn Runtime) -> oneshot::Sender<()> {
    let (held, mut dropped) = oneshot::channel();
    let (source, mut watch) = (Arc::downgrade(source), limits.watch());
    runtime.spawn(Box::pin(async move {
        let over = poll_fn(|context| {
            if Pin::new(&mut dropped).poll(context).is_ready() {
                return Poll::Ready(None);
            }
            watch.poll(context, &Phase::Fetch).map(Some)
        });
        let Some(error) = over.await else { return };
        let Some(source) = source.upgrade() else { return };
        let given_up = {
            let mut source = source.lock();
            if source.fetch.is_none() {
                return;
            }
            source.given_up = Some(error);
            (source.fetch.take(), source.connection.take(), source.reader.take())
        };
        let (fetch, connection, reader) = given_up;
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
