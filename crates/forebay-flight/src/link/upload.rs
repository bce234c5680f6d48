//! A call that sends data, and how it ends when nobody wants its answer any more.

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

use super::{Link, first, timed};
use crate::valve::Valve;

/// How long a call that is broken off may take to end: its body fails when the server has taken what is on its way.
const BREAKING_OFF: Duration = Duration::from_secs(30);

impl Link {
    /// Sends data, and returns the server's first answer when the last has come.
    ///
    /// # Cancel safety
    /// If dropped, the call is broken off: if all of the data is sent, by a cancellation; else in a way that no server takes for the end
    /// of the data, and as soon as it takes more of it, if not at once.
    pub(crate) fn put(
        &self,
        data: impl Stream<Item = FlightData> + Send + 'static,
        limit: Option<Duration>,
    ) -> Upload {
        let valve = Valve::default();
        let mut request = timed(data, limit);
        request.extensions_mut().insert(valve.clone());
        let mut client = self.client.clone();
        let call = async move {
            let answer = first(client.do_put(request).await?.into_inner()).await?;
            Ok(answer.map(|answer| answer.app_metadata))
        };
        Upload {
            call: Some(Box::pin(call)),
            is_begun: false,
            valve,
            runtime: Arc::clone(&self.server.runtime),
        }
    }
}

/// The first of the server's answers, if there was any.
type Answer = Result<Option<Bytes>, Status>;

/// A call on its way.
pub(crate) struct Upload {
    /// There until it is answered.
    call: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    is_begun: bool,
    valve: Valve,
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
        if !self.valve.close() {
            // The server has it all. Dropped, it is reset.
            return;
        }
        // Dropped right here, it would be cancelled before its body could fail.
        let runtime = Arc::clone(&self.runtime);
        self.runtime.spawn(Box::pin(async move {
            rt::within(&*runtime, BREAKING_OFF, call).await;
        }));
    }
}
