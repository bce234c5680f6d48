//! What may end a statement early: one deadline from the call to the last batch, and a `CancelHandle`.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay::rt::{Runtime, Task};
use forebay::{CheckoutError, Instant};

use super::cancel_handle::CancelHandle;
use crate::error::{Error, Phase, Result};

/// The limits of one statement, fixed when it is called.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    runtime: Arc<dyn Runtime>,
    /// The statement's timeout, and when it ends.
    timeout: Option<(Duration, Instant)>,
    cancel: Option<CancelHandle>,
}

impl Limits {
    pub(crate) fn new(
        runtime: &Arc<dyn Runtime>,
        timeout: Option<Duration>,
        cancel: Option<CancelHandle>,
    ) -> Self {
        let timeout = timeout.map(|timeout| (timeout, runtime.now() + timeout));
        Self { runtime: Arc::clone(runtime), timeout, cancel }
    }

    /// Whether there is any limit.
    pub(crate) fn are_any(&self) -> bool {
        self.timeout.is_some() || self.cancel.is_some()
    }

    /// How much time is left, if it is limited.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.timeout.map(|(_, at)| at.since(self.runtime.now()))
    }

    pub(crate) fn timeout_error(&self, phase: Phase) -> Error {
        Error::QueryTimeout { after: self.timeout.map_or(Duration::ZERO, |(timeout, _)| timeout), phase }
    }

    /// The error of a statement that got no connection.
    pub(crate) fn checkout_error(&self, error: CheckoutError) -> Error {
        match Error::from(error) {
            Error::PoolTimeout { cause, .. } if self.remaining() == Some(Duration::ZERO) => {
                self.timeout_error(Phase::Acquire { cause })
            }
            other => other,
        }
    }

    /// Without the deadline, for a future that keeps the deadline by itself.
    pub(crate) fn without_deadline(&self) -> Self {
        Self { timeout: None, ..self.clone() }
    }

    /// Fails if the time is already up or the statement cancelled. To be called before anything is sent.
    pub(crate) fn check(&self, phase: Phase) -> Result<()> {
        if self.cancel.as_ref().is_some_and(CancelHandle::is_cancelled) {
            return Err(Error::Cancelled { may_have_run: false });
        }
        if self.remaining() == Some(Duration::ZERO) {
            return Err(self.timeout_error(phase));
        }
        Ok(())
    }

    /// Runs `future` until it ends, the time is up, or it is cancelled. It is not started if the time is up
    /// before.
    pub(crate) async fn run<T>(&self, phase: Phase, future: impl Future<Output = Result<T>>) -> Result<T> {
        if !self.are_any() {
            return future.await;
        }
        self.check(phase.clone())?;
        let (mut expiry, mut future) = (self.expiry(), pin!(future));
        poll_fn(move |context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            expiry.poll(context, &phase).map(Err)
        })
        .await
    }

    pub(crate) fn expiry(&self) -> Expiry {
        Expiry {
            timer: self.timeout.map(|(timeout, at)| (timeout, self.runtime.sleep_until(at))),
            cancelled: self.cancel.clone().map(|cancel| Box::pin(cancel.cancelled()) as Task),
        }
    }
}

/// Becomes ready when the time is up, or the statement is cancelled.
pub(crate) struct Expiry {
    timer: Option<(Duration, Task)>,
    cancelled: Option<Task>,
}

impl Expiry {
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, phase: &Phase) -> Poll<Error> {
        if let Some(cancelled) = &mut self.cancelled
            && Pin::new(cancelled).poll(context).is_ready()
        {
            self.cancelled = None;
            return Poll::Ready(Error::Cancelled { may_have_run: !phase.is_before_sending() });
        }
        if let Some((after, timer)) = &mut self.timer
            && Pin::new(timer).poll(context).is_ready()
        {
            let after = *after;
            self.timer = None;
            return Poll::Ready(Error::QueryTimeout { after, phase: phase.clone() });
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use forebay::rt::VirtualTime;

    use super::*;

    #[test]
    fn the_time_is_counted_from_the_call() {
        let time = VirtualTime::new();
        let runtime: Arc<dyn Runtime> = Arc::new(time.clone());
        let limits = Limits::new(&runtime, Some(Duration::from_secs(2)), None);
        time.run(async {
            runtime.sleep_until(runtime.now() + Duration::from_secs(1)).await;
            assert_eq!(limits.remaining(), Some(Duration::from_secs(1)));
            let error = limits.run(Phase::Fetch, pending::<Result<()>>()).await.unwrap_err();
            assert!(matches!(error, Error::QueryTimeout { phase: Phase::Fetch, .. }), "{error}");
            assert_eq!(limits.remaining(), Some(Duration::ZERO));
            assert!(limits.run(Phase::Fetch, ready(Ok(7))).await.is_err(), "not started");
        });
    }

    #[test]
    fn a_handle_stops_what_runs_and_what_is_started_later() {
        let time = VirtualTime::new();
        let runtime: Arc<dyn Runtime> = Arc::new(time.clone());
        let cancel = CancelHandle::new();
        let limits = Limits::new(&runtime, None, Some(cancel.clone()));
        runtime.spawn(Box::pin({
            let (runtime, cancel) = (Arc::clone(&runtime), cancel.clone());
            async move {
                runtime.sleep_until(runtime.now() + Duration::from_secs(1)).await;
                cancel.cancel();
            }
        }));
        time.run(async {
            let error = limits.run(Phase::Execute, pending::<Result<()>>()).await.unwrap_err();
            assert!(matches!(error, Error::Cancelled { may_have_run: true }), "{error}");
            let error = limits.run(Phase::Execute, pending::<Result<()>>()).await.unwrap_err();
            assert!(matches!(error, Error::Cancelled { may_have_run: false }), "{error}");
            assert!(limits.run(Phase::Execute, ready(Ok(7))).await.is_err(), "not started");
        });
    }
}
