//! Batches from an iterator of the caller's thread to a connection of another.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use arrow_array::RecordBatch;
use forebay::BoxError;
use futures_util::{Stream, stream};
use tokio::sync::mpsc;

/// How many batches wait for the connection.
const AHEAD: usize = 2;

/// A stream of what the iterator gives, and the future that asks it: an iterator may block, which a connection must not.
pub(super) fn piped<B, E>(
    batches: B,
) -> (impl Stream<Item = Result<RecordBatch, BoxError>> + Send + 'static, impl Future<Output = ()>)
where
    B: IntoIterator<Item = Result<RecordBatch, E>>,
    E: Into<BoxError>,
{
    let (send, mut receive) = mpsc::channel(AHEAD);
    let pump = async move {
        for batch in batches {
            if send.send(batch.map_err(Into::into)).await.is_err() {
                // Nobody wants more of them.
                return;
            }
        }
    };
    (stream::poll_fn(move |context| receive.poll_recv(context)), pump)
}

/// Runs `main` to its end, and `side` for as long as there is something to do.
pub(super) async fn both<T>(main: impl Future<Output = T>, side: impl Future<Output = ()>) -> T {
    let (mut main, mut side) = (pin!(main), pin!(side));
    let mut is_done = false;
    poll_fn(|context| {
        if let Poll::Ready(output) = main.as_mut().poll(context) {
            return Poll::Ready(output);
        }
        if !is_done {
            is_done = side.as_mut().poll(context).is_ready();
        }
        Poll::Pending
    })
    .await
}
