//! Background tasks of a connection.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use forebay::rt;
use futures_util::future::maybe_done;
use tokio::task::unconstrained;

use super::Connection;
use crate::error::Error;

impl Connection {
    /// Runs `task` in the background, after those spawned before it. It returns whether the session can be
    /// used afterwards.
    pub(crate) fn spawn_background(self: &Arc<Self>, task: impl Future<Output = bool> + Send + 'static) {
        self.background_tasks.fetch_add(1, Ordering::AcqRel);
        let guard = BackgroundTask { connection: Arc::clone(self), succeeded: false };
        let mut lock = Box::pin(maybe_done(unconstrained(Arc::clone(&self.background_lock).lock_owned())));
        // Queued here: a runtime need not start tasks in the order they were spawned in.
        let _ = lock.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.server.runtime.spawn(Box::pin(async move {
            lock.as_mut().await;
            let _lock = lock.as_mut().take_output();
            // Moves the whole guard in here, not only its flag.
            let mut guard = guard;
            guard.succeeded = task.await;
        }));
    }

    /// Waits until no background task is left. Returns whether the session can be used.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn background_done(&self) -> bool {
        self.wait_until(|this| this.background_tasks.load(Ordering::Acquire) == 0).await;
        !self.is_stuck()
    }

    /// As [`background_done`](Self::background_done), and no statement permit is in use.
    pub(crate) async fn all_done(&self) -> bool {
        self.wait_until(|this| {
            this.background_tasks.load(Ordering::Acquire) == 0 && this.permits.load(Ordering::SeqCst) == 0
        })
        .await;
        !self.is_stuck()
    }

    async fn wait_until(&self, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            let mut changed = pin!(self.changed.notified());
            // Registered before the second look, so that no change is missed.
            changed.as_mut().enable();
            if holds(self) {
                return;
            }
            changed.await;
        }
    }

    /// Waits, at most for the quarantine, until a stuck session answers, and rolls back what could not be
    /// rolled back before. Returns whether the session can be used.
    ///
    /// # Cancel safety
    /// Dropping it leaves the session stuck.
    pub(crate) async fn recover(self: &Arc<Self>) -> bool {
        let _lock = self.background_lock.lock().await;
        // Another caller may have recovered it meanwhile.
        if !self.is_stuck() || !self.is_usable() {
            return !self.is_stuck();
        }
        let answer = rt::within(&*self.server.runtime, self.server.quarantine, self.ping()).await;
        let answers = matches!(answer, Some(Ok(()) | Err(Error::Server { .. })));
        let recovered = answers && self.roll_back_abandoned().await;
        if recovered {
            self.is_stuck.store(false, Ordering::Release);
        }
        recovered
    }
}

/// A background task that runs. If it ends early, the session is stuck.
struct BackgroundTask {
    connection: Arc<Connection>,
    succeeded: bool,
}

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        if !self.succeeded {
            self.connection.is_stuck.store(true, Ordering::Release);
        }
        self.connection.background_tasks.fetch_sub(1, Ordering::AcqRel);
        self.connection.changed.notify_waiters();
    }
}
