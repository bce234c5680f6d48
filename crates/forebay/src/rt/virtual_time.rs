//! A runtime whose time passes only when no task can run.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::{Runtime, Starved, Task};
use crate::seed::Seed;
use crate::sync::Mutex;
use crate::time::Instant;

mod process;
mod tasks;
mod timers;

pub use process::{ProcessClock, VirtualProcess};
use tasks::{Handle, ProcessId, Tasks};
use timers::{Timer, Timers};

/// A single-threaded executor with a virtual clock. Tasks run in the order in which they were woken. When
/// none can run, the clock jumps to the next timer. An hour of a reservoir takes microseconds, and is the
/// same in every run.
///
/// ```
/// use std::time::Duration;
/// use forebay::rt::{Runtime, VirtualTime};
///
/// let time = VirtualTime::new();
/// let start = time.now();
/// time.run(time.sleep_until(start + Duration::from_secs(3600)));
/// assert_eq!(time.now().since(start), Duration::from_secs(3600));
/// ```
///
/// Clones are handles to the same executor. Tasks usually hold one. So a program that creates many executors
/// must [shut down](Self::shut_down) each of them.
#[derive(Clone)]
pub struct VirtualTime(Arc<Inner>);

struct Inner {
    now: AtomicU64,
    seed: Seed,
    drawn: AtomicU64,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    tasks: Tasks,
    timers: Timers,
    /// How many tasks have run since time last passed.
    steps: u64,
}

/// More steps than this in one instant mean that tasks wake each other forever.
const LIVELOCK: u64 = 20_000_000;

/// One hour after the origin, so that "an hour ago" exists.
const START: Instant = Instant::from_nanos(3_600_000_000_000);

/// 2026-01-01 00:00 UTC.
const WALL_START: Duration = Duration::from_secs(1_767_225_600);

impl VirtualTime {
    /// A runtime that draws its entropy from seed 42.
    #[must_use]
    pub fn new() -> Self {
        Self::with_seed(Seed::new(42))
    }

    /// A runtime that draws its entropy from `seed`.
    #[must_use]
    pub fn with_seed(seed: Seed) -> Self {
        let now = AtomicU64::new(START.as_nanos());
        Self(Arc::new(Inner { now, seed, drawn: AtomicU64::new(0), queue: Mutex::default() }))
    }

    /// Returns a runtime for a process on its own machine: its clocks can be wrong, and its tasks can be
    /// killed.
    #[must_use]
    pub fn process(&self, clock: ProcessClock) -> VirtualProcess {
        let id = self.0.queue.lock().tasks.new_process();
        VirtualProcess::new(self.clone(), id, clock)
    }

    /// Runs `future`, and all tasks, until `future` completes. Time jumps whenever no task can run.
    ///
    /// # Panics
    /// Panics if `future` waits for something that no task and no timer provides: a deadlock.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        loop {
            if woken.0.swap(false, Ordering::Relaxed)
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return output;
            }
            if woken.0.load(Ordering::Relaxed) || self.step() {
                continue;
            }
            assert!(self.jump(Instant::NEVER), "deadlock: nothing can run and no timer is set");
        }
    }

    /// Lets `duration` pass, and runs everything that becomes due.
    ///
    /// # Panics
    /// Panics if tasks wake each other forever, so that time cannot pass: a livelock.
    pub fn advance(&self, duration: Duration) {
        let until = self.now() + duration;
        loop {
            self.settle();
            if !self.jump(until) {
                break;
            }
        }
        self.0.now.store(until.as_nanos(), Ordering::Relaxed);
        self.0.queue.lock().steps = 0;
        self.settle();
    }

    /// Runs all tasks that can run now, without letting time pass.
    pub fn settle(&self) {
        while self.step() {}
    }

    /// Moves the clock without running any task, as a suspended machine does.
    pub fn skip(&self, duration: Duration) {
        self.0.now.store((self.now() + duration).as_nanos(), Ordering::Relaxed);
    }

    /// Drops all tasks, and those that are spawned meanwhile. No task runs afterwards.
    pub fn shut_down(&self) {
        let killed = self.0.queue.lock().tasks.close();
        // Outside the lock: dropping a task can wake or spawn others.
        drop(killed);
    }

    /// Runs one task, if any can run.
    fn step(&self) -> bool {
        let (next, steps) = {
            let mut queue = self.0.queue.lock();
            queue.steps += 1;
            (queue.tasks.next(), queue.steps)
        };
        let Some((id, mut running)) = next else { return false };
        assert!(steps < LIVELOCK, "livelock: tasks wake each other forever, at {:?}", self.now());
        // The task is taken out while it runs, so that it can wake and spawn without a deadlock.
        let pending = running.poll().is_pending();
        if pending {
            let died_meanwhile = self.0.queue.lock().tasks.put_back(id, running);
            drop(died_meanwhile);
        } else {
            self.0.queue.lock().tasks.finish(id);
        }
        true
    }

    /// Jumps to the next timer, if it is not after `limit`, and wakes its task.
    fn jump(&self, limit: Instant) -> bool {
        let Some((at, waker)) = self.0.queue.lock().timers.pop(limit) else { return false };
        if self.0.now.fetch_max(at.as_nanos(), Ordering::Relaxed) < at.as_nanos() {
            self.0.queue.lock().steps = 0;
        }
        waker.wake();
        true
    }

    fn spawn_in(&self, process: ProcessId, task: Task) {
        let waker = |id| Waker::from(Arc::new(Handle::new(id, Arc::downgrade(&self.0))));
        let refused = self.0.queue.lock().tasks.spawn(process, task, waker);
        // The process is dead. The task is dropped outside the lock.
        drop(refused);
    }

    fn kill(&self, process: ProcessId) {
        let killed = self.0.queue.lock().tasks.kill(process);
        drop(killed);
    }

    /// The same as [`sleep_until`](Runtime::sleep_until), without a box.
    #[must_use = "a sleep does nothing until it is awaited"]
    pub fn sleep(&self, until: Instant) -> VirtualSleep {
        VirtualSleep { at: until, timer: None, time: self.clone() }
    }
}

impl Default for VirtualTime {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for VirtualTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualTime({:?})", self.now())
    }
}

impl Runtime for VirtualTime {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.now.load(Ordering::Relaxed))
    }

    fn wall(&self) -> Duration {
        WALL_START + self.now().since(START)
    }

    fn sleep_until(&self, at: Instant) -> Task {
        Box::pin(self.sleep(at))
    }

    fn spawn(&self, task: Task) {
        self.spawn_in(ProcessId::NONE, task);
    }

    fn entropy(&self) -> u64 {
        let count = self.0.drawn.fetch_add(1, Ordering::Relaxed);
        self.0.seed.fork("entropy").fork(&count.to_string()).number()
    }

    fn block(&self, _wait: &mut dyn FnMut()) -> Result<(), Starved> {
        // This thread makes time pass, so it cannot park.
        Err(Starved)
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A future that completes once virtual time has reached a point.
///
/// # Cancel safety
/// Dropping the future cancels its timer.
#[derive(Debug)]
pub struct VirtualSleep {
    at: Instant,
    timer: Option<Timer>,
    time: VirtualTime,
}

impl Future for VirtualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.time.now() >= self.at {
            return Poll::Ready(());
        }
        if self.at == Instant::NEVER {
            // No timer is set: if nothing else can happen, this is a deadlock and is reported as one.
            return Poll::Pending;
        }
        let this = &mut *self;
        let mut queue = this.time.0.queue.lock();
        match this.timer {
            None => this.timer = Some(queue.timers.set(this.at, context.waker().clone())),
            Some(timer) => queue.timers.set_waker(timer, context.waker()),
        }
        Poll::Pending
    }
}

impl Drop for VirtualSleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let waker = self.time.0.queue.lock().timers.cancel(timer);
            // Outside the lock: this may be the last reference to a task.
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn timers_fire_in_order_of_time_and_then_of_asking() {
        let time = VirtualTime::new();
        let log = Arc::new(Mutex::new(Vec::new()));
        for (name, delay) in [("late", 3), ("first", 1), ("second", 1)] {
            let (log, clock) = (Arc::clone(&log), time.clone());
            let at = time.now() + seconds(delay);
            time.spawn(Box::pin(async move {
                clock.sleep_until(at).await;
                log.lock().push(name);
            }));
        }
        time.advance(seconds(2));
        assert_eq!(*log.lock(), ["first", "second"]);
        time.advance(seconds(2));
        assert_eq!(*log.lock(), ["first", "second", "late"]);
    }

    #[test]
    fn advance_leaves_the_clock_where_it_was_told() {
        let time = VirtualTime::new();
        let start = time.now();
        time.advance(seconds(90));
        assert_eq!(time.now().since(start), seconds(90));
        assert_eq!(time.wall(), Duration::from_secs(1_767_225_690));
    }

    #[test]
    fn a_dropped_sleep_wakes_no_one() {
        let time = VirtualTime::new();
        let mut sleep = time.sleep_until(time.now() + seconds(1));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(sleep);
        time.advance(seconds(2));
        assert!(!woken.0.load(Ordering::Relaxed));
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn a_deadlock_is_named() {
        let time = VirtualTime::new();
        time.run(time.sleep_until(Instant::NEVER));
    }

    #[test]
    fn entropy_repeats_with_the_seed_and_not_within_it() {
        let (a, b) = (VirtualTime::new(), VirtualTime::new());
        let first = a.entropy();
        assert_eq!(first, b.entropy());
        assert_ne!(first, a.entropy());
    }

    #[test]
    fn what_is_shut_down_is_dropped_and_takes_no_more() {
        struct Respawns(VirtualTime, Arc<AtomicU64>);
        impl Drop for Respawns {
            fn drop(&mut self) {
                self.1.fetch_add(1, Ordering::Relaxed);
                let dropped = Arc::clone(&self.1);
                self.0.spawn(Box::pin(async move {
                    dropped.fetch_add(100, Ordering::Relaxed);
                }));
            }
        }
        let (time, dropped) = (VirtualTime::new(), Arc::new(AtomicU64::new(0)));
        let task = Respawns(time.clone(), Arc::clone(&dropped));
        time.spawn(Box::pin(async move {
            let _task = task;
            std::future::pending().await
        }));
        time.settle();
        time.shut_down();
        time.settle();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert_eq!(Arc::strong_count(&time.0), 1, "no task holds on to the time");
    }
}
