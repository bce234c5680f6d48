//! A call that sends data, and how it ends if its caller gives it up.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrow_flight::FlightData;
use bytes::Bytes;
use forebay::rt::{self, Runtime};
use futures_util::Stream;
use tonic::Status;

use super::abortable_body::AbortHandle;
use super::{Connection, first_of, timed};

/// How long an aborted call may take to end: its body fails once the server has read what is already on its
/// way.
const ABORT_TIMEOUT: Duration = Duration::from_secs(30);

impl Connection {
    /// Sends data. Returns the server's first answer once it has sent all of them.
    ///
    /// # Cancel safety
    /// Dropping it aborts the call. If all of the data is sent, the call is cancelled. Otherwise its body
    /// fails, which no server mistakes for the end of the data.
    pub(crate) fn put(
        &self,
        data: impl Stream<Item = FlightData> + Send + 'static,
        limit: Option<Duration>,
    ) -> Upload {
        let abort = AbortHandle::default();
        let mut request = timed(data, limit);
        request.extensions_mut().insert(abort.clone());
        let mut client = self.client.clone();
        let call = async move {
            let answer = first_of(client.do_put(request).await?.into_inner()).await?;
            Ok(answer.map(|answer| answer.app_metadata))
        };
        let runtime = Arc::clone(&self.server.runtime);
        Upload { call: Some(Box::pin(call)), is_begun: false, abort, runtime }
    }
}

/// The server's first answer, if there was any.
type Answer = Result<Option<Bytes>, Status>;

/// A call in progress.
pub(crate) struct Upload {
    /// There until it is answered.
    call: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    is_begun: bool,
    abort: AbortHandle,
    runtime: Arc<dyn Runtime>,
}

impl Future for Upload {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        self.is_begun = true;
        let Some(call) = &mut self.call else { return Poll::Ready(Ok(None)) };
        let answer = ready!(call.as_mut().poll(context));
        self.call = None;
        Poll::Ready(answer)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(call) = self.call.take().filter(|_| self.is_begun) else { return };
        if !self.abort.abort() {
            // The server has all of the data. Dropping the call resets it.
            return;
        }
        // If the call were dropped here, it would be cancelled before its body could fail.
        let runtime = Arc::clone(&self.runtime);
        self.runtime.spawn(Box::pin(async move {
            rt::within(&*runtime, ABORT_TIMEOUT, call).await;
        }));
    }
}
