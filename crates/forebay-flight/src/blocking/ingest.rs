//! Passes batches from an iterator on the caller's thread to a connection on another.

use arrow_array::RecordBatch;
use forebay::BoxError;
use futures_util::{Stream, stream};
use tokio::sync::mpsc;

use super::runtime_thread::RuntimeThread;
use crate::error::Result;

/// How many batches may wait for the connection.
const QUEUED: usize = 2;

/// Runs `load` with a stream of the iterator's batches. The iterator runs on this thread, and may block it.
/// `load` runs on another, where its deadline is kept.
pub(super) fn ingest_from<B, E, T, F>(
    thread: &RuntimeThread,
    batches: B,
    load: impl FnOnce(Receiver) -> F,
) -> Result<T>
where
    B: IntoIterator<Item = Result<RecordBatch, E>>,
    E: Into<BoxError>,
    T: Send,
    F: Future<Output = Result<T>> + Send,
{
    let (send, receive) = mpsc::channel(QUEUED);
    // The closure owns the sender, which is dropped if the iterator panics.
    thread.run_beside(load(receiver(receive)), move || {
        let batches = batches.into_iter().map(|batch| Some(batch.map_err(Into::into)));
        for batch in batches.chain([None]) {
            if thread.block_on(send.send(batch)).is_err() {
                // The load has ended.
                return;
            }
        }
    })
}

/// The batches that a connection reads.
pub(super) type Receiver = std::pin::Pin<Box<dyn Stream<Item = Result<RecordBatch, BoxError>> + Send>>;

/// The end of the iterator is sent as none. If that is missing, the iterator has panicked.
fn receiver(mut receive: mpsc::Receiver<Option<Result<RecordBatch, BoxError>>>) -> Receiver {
    Box::pin(stream::poll_fn(move |context| {
        let last = || Some(Err("their iterator panicked".into()));
        receive.poll_recv(context).map(|sent| sent.unwrap_or_else(last))
    }))
}
