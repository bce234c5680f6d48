//! Runs a driver's task, and knows whether it has taken up all that it was told to do.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use super::{AT_WORK, CALLED, Watch};

/// A driver's future. A client hands it requests through a queue, and the wire shows nothing of them until the driver
/// has been polled: so this notes each call to the driver at once, on the thread that calls.
pub(crate) struct Driver<F> {
    future: F,
    bell: Arc<Bell>,
    waker: Waker,
    /// Whom the bell wakes: nearly always the same, and then it need not be told.
    task: Waker,
}

struct Bell {
    watch: Arc<Watch>,
    /// The task to wake.
    task: Mutex<Waker>,
}

impl<F> Driver<F> {
    /// A driver, and what ends it.
    pub(crate) fn new(future: F, watch: Arc<Watch>) -> (Self, Leash) {
        // It has not been polled yet, and what it was told so far it has not looked at.
        watch.activity.store(CALLED, Ordering::Release);
        let bell = Arc::new(Bell { watch, task: Mutex::new(Waker::noop().clone()) });
        let waker = Waker::from(Arc::clone(&bell));
        let leash = Leash(Arc::clone(&bell));
        (Self { future, bell, waker, task: Waker::noop().clone() }, leash)
    }
}

/// Ends the driver when it is dropped, whatever the driver still waits for.
///
/// A driver whose client is gone says good-bye and ends, but not before every request is answered, which may be never;
/// and then a connection that everybody believes closed would hold its socket for ever.
pub(crate) struct Leash(Arc<Bell>);

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.watch.released.store(true, Ordering::Release);
        self.0.wake_by_ref();
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.watch.activity.store(CALLED, Ordering::Release);
        self.task.lock().wake_by_ref();
    }
}

impl<F: Future + Unpin> Future for Driver<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if !this.task.will_wake(context.waker()) {
            this.task.clone_from(context.waker());
            this.bell.task.lock().clone_from(context.waker());
        }
        let watch = &this.bell.watch;
        watch.activity.store(AT_WORK, Ordering::Release);
        // After the task to wake is known: whoever lets go later will wake it.
        if watch.released.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let polled = Pin::new(&mut this.future).poll(&mut Context::from_waker(&this.waker));
        watch.come_to_rest();
        // Whatever it ends with, those who wait for an answer hear of it from their client.
        polled.map(drop)
    }
}

/// However it ends, a connection without a driver is of no use.
impl<F> Drop for Driver<F> {
    fn drop(&mut self) {
        self.bell.watch.set_broken();
    }
}
