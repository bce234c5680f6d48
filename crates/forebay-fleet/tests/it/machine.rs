//! A machine for each process, with its own clock. It can stop for a while, and it can crash.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay::Instant;
use forebay::rt::{Runtime, Starved, Task, VirtualProcess};
use parking_lot::Mutex;

/// A process that can be suspended and resumed, as in a debugger or in a long garbage collection.
#[derive(Clone)]
pub(crate) struct Machine {
    process: VirtualProcess,
    stopped: Arc<Mutex<Stopped>>,
}

#[derive(Default)]
struct Stopped {
    now: bool,
    wakers: Vec<Waker>,
}

impl Machine {
    pub(crate) fn new(process: VirtualProcess) -> Self {
        Self { process, stopped: Arc::default() }
    }

    /// Stops all tasks of this machine until it is resumed.
    pub(crate) fn stop(&self) {
        self.stopped.lock().now = true;
    }

    pub(crate) fn go_on(&self) {
        let wakers = {
            let mut stopped = self.stopped.lock();
            stopped.now = false;
            std::mem::take(&mut stopped.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn kill(&self) {
        self.process.kill();
    }
}

/// A task that does not run while its machine is stopped.
struct Gated(Task, Arc<Mutex<Stopped>>);

impl Future for Gated {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut stopped = self.1.lock();
        if stopped.now {
            stopped.wakers.push(context.waker().clone());
            return Poll::Pending;
        }
        drop(stopped);
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.process.fmt(f)
    }
}

impl Runtime for Machine {
    fn now(&self) -> Instant {
        self.process.now()
    }

    fn wall(&self) -> Duration {
        self.process.wall()
    }

    fn sleep_until(&self, at: Instant) -> Task {
        self.process.sleep_until(at)
    }

    fn spawn(&self, task: Task) {
        self.process.spawn(Box::pin(Gated(task, Arc::clone(&self.stopped))));
    }

    fn entropy(&self) -> u64 {
        self.process.entropy()
    }

    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved> {
        self.process.block(wait)
    }
}
