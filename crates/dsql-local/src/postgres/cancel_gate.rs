//! When a statement may be stopped so that another gets its locks.
//!
//! PostgreSQL stops whatever a connection runs when it hears of it, be it the statement that was meant, what comes after it,
//! or the next transaction's. So whoever stops one says that it is at it, and the one who is stopped does nothing else before
//! that is over.

use std::sync::Arc;

use tokio::sync::Mutex;

/// Whether a connection runs something that may be stopped.
#[derive(Clone, Debug, Default)]
pub(super) struct CancelGate(Arc<Mutex<bool>>);

impl CancelGate {
    /// Does `work`, which ends with 57014 if it is stopped. What follows cannot be stopped by the same word.
    ///
    /// # Cancel safety
    /// If dropped, the connection is lost, and may be stopped for as long as it lasts.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        *self.0.lock().await = true;
        let done = work.await;
        *self.0.lock().await = false;
        done
    }

    /// Does `stop` if there is something to stop: whether there was.
    ///
    /// # Cancel safety
    /// Must not be dropped: the word may be on its way.
    pub(super) async fn stop(&self, stop: impl Future<Output = ()>) -> bool {
        let cancel_gate = self.0.lock().await;
        if *cancel_gate {
            stop.await;
        }
        *cancel_gate
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn nothing_is_stopped_that_may_not_be() {
        let cancel_gate = CancelGate::default();
        assert!(!cancel_gate.stop(async { panic!("there is nothing to stop") }).await);
        cancel_gate.during(async {}).await;
        assert!(!cancel_gate.stop(async { panic!("it is over") }).await);
    }

    #[tokio::test]
    async fn what_follows_waits_until_stopping_is_over() {
        let cancel_gate = CancelGate::default();
        let ((end, ended), (stop, stopping)) = (oneshot::channel::<()>(), oneshot::channel::<()>());
        let over = AtomicBool::new(false);
        let work = async {
            cancel_gate.during(ended).await.unwrap();
            assert!(over.load(Ordering::SeqCst), "it goes on while it is being stopped");
        };
        let stopper = cancel_gate.stop(async {
            // It ends by itself, just now.
            end.send(()).unwrap();
            tokio::task::yield_now().await;
            stopping.await.unwrap();
            over.store(true, Ordering::SeqCst);
        });
        let later = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            stop.send(()).unwrap();
        };
        let ((), stopped, ()) = tokio::join!(work, stopper, later);
        assert!(stopped);
        assert!(over.into_inner());
    }
}
