//! Runs a driver's task, and knows whether it has taken up all that it was told to do.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use super::{AT_WORK, CALLED, StateTracker};

/// A driver's future. A client hands it requests through a queue, and the wire shows nothing of them until the driver
/// has been polled: so this notes each call to the driver at once, on the thread that calls.
pub(crate) struct DriverTask<F> {
    future: F,
    tracking_waker: Arc<TrackingWaker>,
    waker: Waker,
    /// Whom the tracking_waker wakes: nearly always the same, and then it need not be told.
    task: Waker,
}

struct TrackingWaker {
    tracker: Arc<StateTracker>,
    /// The task to wake.
    task: Mutex<Waker>,
}

impl<F> DriverTask<F> {
    /// A driver, and what ends it.
    pub(crate) fn new(future: F, tracker: Arc<StateTracker>) -> (Self, AbortOnDrop) {
        // It has not been polled yet, and what it was told so far it has not looked at.
        tracker.activity.store(CALLED, Ordering::Release);
        let tracking_waker = Arc::new(TrackingWaker { tracker, task: Mutex::new(Waker::noop().clone()) });
        let waker = Waker::from(Arc::clone(&tracking_waker));
        let abort_on_drop = AbortOnDrop(Arc::clone(&tracking_waker));
        (Self { future, tracking_waker, waker, task: Waker::noop().clone() }, abort_on_drop)
    }
}

/// Ends the driver when it is dropped, whatever the driver still waits for.
///
/// A driver whose client is gone says good-bye and ends, but not before every request is answered, which may be never;
/// and then a connection that everybody believes closed would hold its socket for ever.
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
        // After the task to wake is known: whoever lets go later will wake it.
        if tracker.released.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let polled = Pin::new(&mut this.future).poll(&mut Context::from_waker(&this.waker));
        tracker.come_to_rest();
        // Whatever it ends with, those who wait for an answer hear of it from their client.
        polled.map(drop)
    }
}

/// However it ends, a connection without a driver is of no use.
impl<F> Drop for DriverTask<F> {
    fn drop(&mut self) {
        self.tracking_waker.tracker.set_broken();
    }
}
