//! Runs a driver's future, and tracks whether it has handled all requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use super::state_tracker::{AT_WORK, CALLED, StateTracker};

/// A driver's future. A client hands it requests through a queue, and the wire shows nothing of them until the driver is
/// polled. So each wake-up of the driver is noted at once, on the thread that wakes it.
pub(crate) struct DriverTask<F> {
    future: F,
    tracking_waker: Arc<TrackingWaker>,
    waker: Waker,
    /// The waker that `tracking_waker` has, kept here to compare without its lock.
    task: Waker,
}

struct TrackingWaker {
    tracker: Arc<StateTracker>,
    /// The task to wake.
    task: Mutex<Waker>,
}

impl<F> DriverTask<F> {
    /// A driver, and the guard that ends it.
    pub(crate) fn new(future: F, tracker: Arc<StateTracker>) -> (Self, AbortOnDrop) {
        // It has not been polled yet, so it has not seen the requests so far.
        tracker.activity.store(CALLED, Ordering::Release);
        let tracking_waker = Arc::new(TrackingWaker { tracker, task: Mutex::new(Waker::noop().clone()) });
        let waker = Waker::from(Arc::clone(&tracking_waker));
        let abort_on_drop = AbortOnDrop(Arc::clone(&tracking_waker));
        (Self { future, tracking_waker, waker, task: Waker::noop().clone() }, abort_on_drop)
    }
}

/// Ends the driver when it is dropped, whatever the driver still waits for.
///
/// A driver whose client is gone says good-bye and ends, but only after every request is answered, which may never happen.
/// Its socket would then stay open although the connection counts as closed.
pub(crate) struct AbortOnDrop(Arc<TrackingWaker>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.tracker.released.store(true, Ordering::Release);
        self.0.wake_by_ref();
    }
}

impl Wake for TrackingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.tracker.activity.store(CALLED, Ordering::Release);
        self.task.lock().wake_by_ref();
    }
}

impl<F: Future + Unpin> Future for DriverTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if !this.task.will_wake(context.waker()) {
            this.task.clone_from(context.waker());
            this.tracking_waker.task.lock().clone_from(context.waker());
        }
        let tracker = &this.tracking_waker.tracker;
        tracker.activity.store(AT_WORK, Ordering::Release);
        // Checked after the waker is registered: a later release wakes this task.
        if tracker.released.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let polled = Pin::new(&mut this.future).poll(&mut Context::from_waker(&this.waker));
        tracker.come_to_rest();
        // The outcome is dropped: callers that wait for an answer get it from their client.
        polled.map(drop)
    }
}

/// However it ends, a connection without a driver is useless.
impl<F> Drop for DriverTask<F> {
    fn drop(&mut self) {
        self.tracking_waker.tracker.set_broken();
    }
}
