//! Batches from an iterator of the caller's thread to a connection of another.

use arrow_array::RecordBatch;
use forebay::BoxError;
use futures_util::{Stream, stream};
use tokio::sync::mpsc;

use crate::error::Result;
use crate::sync::engine::Engine;

/// How many batches wait for the connection.
const AHEAD: usize = 2;

/// Runs `load` on a stream of what the iterator gives. The iterator is asked on this thread, and may block it; `load` runs on
/// another, where its deadline passes all the same.
pub(super) fn piped<B, E, T, F>(engine: &Engine, batches: B, load: impl FnOnce(Receiver) -> F) -> Result<T>
where
    B: IntoIterator<Item = Result<RecordBatch, E>>,
    E: Into<BoxError>,
    T: Send,
    F: Future<Output = Result<T>> + Send,
{
    let (send, receive) = mpsc::channel(AHEAD);
    // The sender goes with the closure, and so with the iterator if that panics.
    engine.beside(load(receiver(receive)), move || {
        let batches = batches.into_iter().map(|batch| Some(batch.map_err(Into::into)));
        for batch in batches.chain([None]) {
            if engine.block_on(send.send(batch)).is_err() {
                // Nobody wants more of them.
                return;
            }
        }
    })
}

/// What a connection reads.
pub(super) type Receiver = std::pin::Pin<Box<dyn Stream<Item = Result<RecordBatch, BoxError>> + Send>>;

/// Without its last word, none, an iterator has not come to its end: it has panicked.
fn receiver(mut receive: mpsc::Receiver<Option<Result<RecordBatch, BoxError>>>) -> Receiver {
    Box::pin(stream::poll_fn(move |context| {
        let last = || Some(Err("their iterator panicked".into()));
        receive.poll_recv(context).map(|sent| sent.unwrap_or_else(last))
    }))
}
