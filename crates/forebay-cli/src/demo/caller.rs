//! One caller: it wants a connection, runs one query on it and leaves.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay::Instant;
use forebay::rt::Runtime;
use parking_lot::Mutex;

use super::backend::{Ended, Session};
use super::tally::Tally;

/// A caller at one of the two sides.
#[derive(Debug)]
pub(super) struct Caller {
    /// When it was to come, by the plan. Its wait counts from then: a load that itself runs late must not make a
    /// slow side look fast.
    due_at: Instant,
    query_time: Duration,
    patience: Duration,
    tally: Arc<Mutex<Tally>>,
    runtime: Arc<dyn Runtime>,
}

impl Caller {
    /// A caller comes, who was due at `due_at`, wants to run a query that takes `query_time`, and waits for no
    /// longer than `patience`.
    pub(super) fn new(
        due_at: Instant,
        query_time: Duration,
        patience: Duration,
        tally: Arc<Mutex<Tally>>,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        tally.lock().came();
        Self { due_at, query_time, patience, tally, runtime }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// The caller's task runs, which is late if the machine is busy.
    pub(super) fn asks(&self) {
        self.tally.lock().asked(self.waited());
    }

    /// Waits for `connection`, but no longer than this caller would.
    pub(super) async fn wait_for<T>(&self, connection: impl Future<Output = T>) -> Option<T> {
        let mut connection = pin!(connection);
        let mut timer = None;
        poll_fn(|context| {
            if let Poll::Ready(connection) = connection.as_mut().poll(context) {
                return Poll::Ready(Some(connection));
            }
            // Only who must wait pays for a timer.
            let timer =
                timer.get_or_insert_with(|| self.runtime.sleep_until(self.runtime.now() + self.patience));
            timer.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    /// The caller has a connection: it runs its query.
    pub(super) async fn runs_on(self, session: &mut Session) -> Result<(), Ended> {
        self.tally.lock().got(self.waited());
        let outcome = session.query(self.query_time).await;
        self.tally.lock().left(outcome.is_err());
        outcome
    }

    /// The caller goes away without a connection.
    pub(super) fn gives_up(self) {
        self.tally.lock().got_none(self.waited());
    }

    fn waited(&self) -> Duration {
        self.runtime.now().since(self.due_at)
    }
}

#[cfg(test)]
mod tests {
    use forebay::rt::VirtualTime;

    use super::*;

    #[test]
    fn a_caller_waits_no_longer_than_it_would() {
        let time = VirtualTime::new();
        let tally = Arc::new(Mutex::new(Tally::new(Duration::ZERO)));
        let (due_at, patience) = (time.now(), Duration::from_secs(1));
        let caller =
            Caller::new(due_at, Duration::ZERO, patience, Arc::clone(&tally), Arc::new(time.clone()));
        time.run(async {
            assert_eq!(caller.wait_for(std::future::ready(7)).await, Some(7));
            assert_eq!(caller.wait_for(std::future::pending::<()>()).await, None);
        });
        assert_eq!(time.now().since(due_at), patience);
        assert_eq!(tally.lock().counts().waiting, 1);
        caller.gives_up();
        let counts = tally.lock().counts();
        assert_eq!((counts.waiting, counts.failed), (0, 1));
    }
}
