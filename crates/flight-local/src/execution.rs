//! One execution of a statement: how it is stopped, how far it is, how it ended.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::counters::{Tally, add};
use crate::runtime::now;

/// How long `sleep_ms` sleeps before it counts a step.
const NAP: Duration = Duration::from_millis(5);

thread_local! {
    /// What this thread executes. SQLite's callbacks know their connection, not their statement; but a statement
    /// stays on one thread.
    static CURRENT: RefCell<Option<Arc<Execution>>> = const { RefCell::new(None) };
}

/// One execution of a statement.
#[derive(Debug)]
pub(crate) struct Execution {
    tally: Arc<Tally>,
    /// How long it waits for another session's transaction.
    patience: Duration,
    cancelled: AtomicBool,
    over: AtomicBool,
    /// Wakes tasks that wait for either of the two.
    bell: Notify,
    /// Wakes the thread that executes it from its nap.
    nap: (Mutex<()>, Condvar),
    /// The bits of an `f64`; NaN as long as nobody knows.
    progress: AtomicU64,
    /// The statement tells its progress itself; its naps do not.
    tells: AtomicBool,
    /// Nothing of its result is to be seen.
    discard: AtomicBool,
}

impl Execution {
    pub(crate) fn new(tally: Arc<Tally>, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            tally,
            patience,
            cancelled: AtomicBool::new(false),
            over: AtomicBool::new(false),
            bell: Notify::new(),
            nap: (Mutex::new(()), Condvar::new()),
            progress: AtomicU64::new(f64::NAN.to_bits()),
            tells: AtomicBool::new(false),
            discard: AtomicBool::new(false),
        })
    }

    /// Asks it to stop; it does so at its next step.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        // Taking the lock orders this behind a look at the flag that is about to become a nap.
        drop(self.nap.0.lock());
        self.nap.1.notify_all();
        self.bell.notify_waiters();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Nothing of it will be executed any more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.bell.notify_waiters();
    }

    /// Nothing of its result is to be seen from now on.
    pub(crate) fn discard_output(&self) {
        self.discard.store(true, Ordering::SeqCst);
    }

    pub(crate) fn discards_output(&self) -> bool {
        self.discard.load(Ordering::SeqCst)
    }

    pub(crate) async fn cancelled(&self) {
        self.rung(&self.cancelled).await;
    }

    pub(crate) async fn ended(&self) {
        self.rung(&self.over).await;
    }

    async fn rung(&self, flag: &AtomicBool) {
        loop {
            // Made before the look at the flag, so that no bell is missed in between.
            let bell = self.bell.notified();
            if flag.load(Ordering::SeqCst) {
                return;
            }
            bell.await;
        }
    }

    pub(crate) fn steps(&self, more: u64) {
        add(&self.tally.steps, more);
    }

    /// How far it is, if it said so: from 0 to 1.
    pub(crate) fn progress(&self) -> Option<f64> {
        let progress = f64::from_bits(self.progress.load(Ordering::Relaxed));
        (!progress.is_nan()).then_some(progress)
    }

    /// The statement says how far it is.
    pub(crate) fn report_progress(&self, progress: f64) {
        self.tells.store(true, Ordering::Relaxed);
        self.set_progress(progress);
    }

    fn set_progress(&self, progress: f64) {
        self.progress.store(progress.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
    }

    /// Sleeps on this thread, in naps that count as steps. False if it was cancelled meanwhile.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let start = now();
        loop {
            let slept = now().duration_since(start);
            if !time.is_zero() && !self.tells.load(Ordering::Relaxed) {
                self.set_progress(slept.as_secs_f64() / time.as_secs_f64());
            }
            if slept >= time {
                return !self.is_cancelled();
            }
            if !self.doze(NAP.min(time.saturating_sub(slept))) {
                return false;
            }
            self.steps(1);
        }
    }

    /// Whether to go on waiting for another session's transaction; waits a moment.
    fn wait_for_writer(&self, before: i32) -> bool {
        let moment = Duration::from_millis(1);
        let waited = moment.saturating_mul(u32::try_from(before).unwrap_or(u32::MAX));
        waited < self.patience && self.doze(moment)
    }

    /// A nap that a cancellation ends. False if there was one.
    fn doze(&self, time: Duration) -> bool {
        let mut guard = self.nap.0.lock();
        if !self.is_cancelled() {
            self.nap.1.wait_for(&mut guard, time);
        }
        !self.is_cancelled()
    }

    /// Makes this the one that this thread executes.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered {
        CURRENT.set(Some(self.clone()));
        Entered
    }
}

/// Until this is dropped, the thread executes one run.
#[derive(Debug)]
pub(crate) struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// What this thread executes, if anything.
pub(crate) fn current() -> Option<Arc<Execution>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Called by SQLite every so many steps. True stops the statement.
pub(crate) fn on_progress(steps: u64) -> bool {
    CURRENT.with_borrow(|run| {
        run.as_ref().is_some_and(|run| {
            run.steps(steps);
            run.is_cancelled()
        })
    })
}

/// Called by SQLite while another session writes. False gives up.
pub(crate) fn on_busy(before: i32) -> bool {
    match current() {
        Some(run) => run.wait_for_writer(before),
        None => false,
    }
}

/// Ends a statement that nobody waits for any more.
#[derive(Debug)]
pub(crate) struct CancelOnDrop {
    run: Arc<Execution>,
    /// Whether it does so at all.
    enabled: bool,
}

impl CancelOnDrop {
    pub(crate) fn new(run: Arc<Execution>, enabled: bool) -> Self {
        Self { run, enabled }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.enabled {
            self.run.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Arc<Execution> {
        Execution::new(Arc::default(), Duration::from_secs(5))
    }

    #[test]
    fn a_cancelled_run_does_not_sleep() {
        let run = run();
        run.cancel();
        assert!(!run.sleep(Duration::from_secs(3_600)));
        assert_eq!(run.tally.read().steps, 0);
    }

    #[test]
    fn only_the_run_of_this_thread_is_asked() {
        let (run, other) = (run(), run());
        assert!(!on_progress(100));
        let entered = run.enter();
        assert!(!on_progress(100));
        other.cancel();
        assert!(!on_progress(100));
        run.cancel();
        assert!(on_progress(100));
        assert!(!on_busy(0));
        drop(entered);
        assert!(!on_progress(100));
        assert_eq!((run.tally.read().steps, other.tally.read().steps), (300, 0));
    }

    #[test]
    fn a_leash_pulls_only_if_it_is_to() {
        let run = run();
        drop(CancelOnDrop::new(run.clone(), false));
        assert!(!run.is_cancelled());
        drop(CancelOnDrop::new(run.clone(), true));
        assert!(run.is_cancelled());
    }
}
