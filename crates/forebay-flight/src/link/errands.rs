//! What goes on over a connection in the background.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use forebay::rt;
use futures_util::future::maybe_done;
use tokio::task::unconstrained;

use super::Link;
use crate::error::Error;

impl Link {
    /// Does `errand` in the background. It says whether the session is in order afterwards.
    pub(crate) fn errand(self: &Arc<Self>, errand: impl Future<Output = bool> + Send + 'static) {
        self.errands.fetch_add(1, Ordering::AcqRel);
        let token = Errand { link: Arc::clone(self), well_done: false };
        let mut lane = Box::pin(maybe_done(unconstrained(Arc::clone(&self.lane).lock_owned())));
        // In line from here on: a runtime need not begin tasks in the order they were spawned in.
        let _ = lane.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.server.runtime.spawn(Box::pin(async move {
            lane.as_mut().await;
            let _lane = lane.as_mut().take_output();
            // The whole of it, or only its flag would move in here.
            let mut token = token;
            token.well_done = errand.await;
        }));
    }

    /// Waits until nothing goes on in the background. Whether the session can be used then.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn settled(&self) -> bool {
        self.quiet(|link| link.errands.load(Ordering::Acquire) == 0).await;
        !self.is_stuck()
    }

    /// As [`settled`](Self::settled), and no statement of a former borrower runs any more.
    pub(crate) async fn deserted(&self) -> bool {
        self.quiet(|link| {
            link.errands.load(Ordering::Acquire) == 0 && link.running.load(Ordering::SeqCst) == 0
        })
        .await;
        !self.is_stuck()
    }

    async fn quiet(&self, is_quiet: impl Fn(&Self) -> bool) {
        while !is_quiet(self) {
            let mut done = pin!(self.errand_done.notified());
            // Asked to be told before looking again, so that nothing ends in between.
            done.as_mut().enable();
            if is_quiet(self) {
                return;
            }
            done.await;
        }
    }

    /// Waits, for as long as the quarantine lasts, for a stuck session to answer, and undoes what could not be undone before. Whether
    /// it can be used then.
    ///
    /// # Cancel safety
    /// Dropping it leaves the session stuck.
    pub(crate) async fn recover(self: &Arc<Self>) -> bool {
        // Whoever comes second finds it done.
        let _lane = self.lane.lock().await;
        if !self.is_stuck() || !self.is_usable() {
            return !self.is_stuck();
        }
        let answer = rt::within(&*self.server.runtime, self.server.quarantine, self.ping()).await;
        let answers = matches!(answer, Some(Ok(()) | Err(Error::Server { .. })));
        let recovered = answers && self.undone().await;
        if recovered {
            self.is_stuck.store(false, Ordering::Release);
        }
        recovered
    }
}

/// An errand under way. If it ends early, the session is not in order.
struct Errand {
    link: Arc<Link>,
    well_done: bool,
}

impl Drop for Errand {
    fn drop(&mut self) {
        if !self.well_done {
            self.link.is_stuck.store(true, Ordering::Release);
        }
        self.link.errands.fetch_sub(1, Ordering::AcqRel);
        self.link.errand_done.notify_waiters();
    }
}
