//! Time that passes when a test says so, with real sockets.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use forebay::Instant;
use forebay::rt::{Runtime, Starved, Task, TokioRuntime};

/// Runs tasks on tokio, by a clock that stands still until it is moved.
#[derive(Clone, Debug)]
pub(crate) struct HandTime {
    tokio: TokioRuntime,
    clock: Arc<Mutex<Clock>>,
}

#[derive(Debug)]
struct Clock {
    now: Instant,
    sleepers: Vec<(Instant, Waker)>,
}

impl HandTime {
    pub(crate) fn new() -> Self {
        let clock = Clock { now: Instant::from_nanos(3_600_000_000_000), sleepers: Vec::new() };
        Self { tokio: TokioRuntime::current().unwrap(), clock: Arc::new(Mutex::new(clock)) }
    }

    /// Lets this time pass at once.
    pub(crate) fn advance(&self, time: Duration) {
        let mut clock = self.clock.lock().unwrap();
        clock.now = clock.now + time;
        let now = clock.now;
        let due: Vec<_> = clock.sleepers.extract_if(.., |(at, _)| *at <= now).collect();
        drop(clock);
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl HandTime {
    /// Lets time pass until the future is done.
    pub(crate) async fn passing<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            // Real time, for the tasks that need none of this one.
            match tokio::time::timeout(Duration::from_millis(5), future.as_mut()).await {
                Ok(output) => return output,
                Err(_) => self.advance(Duration::from_millis(100)),
            }
        }
    }
}

impl Runtime for HandTime {
    fn now(&self) -> Instant {
        self.clock.lock().unwrap().now
    }

    fn wall(&self) -> Duration {
        self.tokio.wall()
    }

    fn sleep_until(&self, at: Instant) -> Task {
        let clock = Arc::clone(&self.clock);
        Box::pin(poll_fn(move |context| {
            let mut clock = clock.lock().unwrap();
            if clock.now >= at {
                return Poll::Ready(());
            }
            clock.sleepers.push((at, context.waker().clone()));
            Poll::Pending
        }))
    }

    fn spawn(&self, task: Task) {
        self.tokio.spawn(task);
    }

    fn entropy(&self) -> u64 {
        7
    }

    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved> {
        self.tokio.block(wait)
    }
}
