//! Guards `pg_cancel_backend`.
//!
//! PostgreSQL cancels whatever a connection runs when the signal arrives: the intended statement, the one
//! after it, or the next transaction's. So a connection starts nothing new while a cancel request for it is
//! on its way.

use std::sync::Arc;

use tokio::sync::Mutex;

/// Whether a connection runs something that may be cancelled.
#[derive(Clone, Debug, Default)]
pub(super) struct CancelGate(Arc<Mutex<bool>>);

impl CancelGate {
    /// Runs `work`, which fails with 57014 if it is cancelled. The same cancel request cannot hit what
    /// follows.
    ///
    /// # Cancel safety
    /// If dropped, the connection is lost, and may be cancelled as long as it exists.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        *self.0.lock().await = true;
        let done = work.await;
        *self.0.lock().await = false;
        done
    }

    /// Runs `stop` if there is something to cancel. Returns whether there was.
    ///
    /// # Cancel safety
    /// Must not be dropped: the cancel request may be on its way.
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
    async fn only_running_work_is_cancelled() {
        let cancel_gate = CancelGate::default();
        assert!(!cancel_gate.stop(async { panic!("there is nothing to stop") }).await);
        cancel_gate.during(async {}).await;
        assert!(!cancel_gate.stop(async { panic!("it is over") }).await);
    }

    #[tokio::test]
    async fn later_work_waits_for_a_pending_cancel_request() {
        let cancel_gate = CancelGate::default();
        let ((end, ended), (stop, stopping)) = (oneshot::channel::<()>(), oneshot::channel::<()>());
        let over = AtomicBool::new(false);
        let work = async {
            cancel_gate.during(ended).await.unwrap();
            assert!(over.load(Ordering::SeqCst), "it goes on while it is being stopped");
        };
        let stopper = cancel_gate.stop(async {
            // The work ends by itself at this moment.
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
