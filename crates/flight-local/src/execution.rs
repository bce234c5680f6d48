//! One execution of a statement: its cancellation, progress and end.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::counters::{Tally, add};
use crate::runtime::now;

/// The interval after which `sleep_ms` counts a step.
const INTERVAL: Duration = Duration::from_millis(5);

thread_local! {
    /// What this thread executes. SQLite's callbacks do not get the statement, but a statement stays on its
    /// thread.
    static CURRENT: RefCell<Option<Arc<Execution>>> = const { RefCell::new(None) };
}

#[derive(Debug)]
pub(crate) struct Execution {
    tally: Arc<Tally>,
    /// How long it waits for another session's transaction.
    busy_timeout: Duration,
    cancelled: AtomicBool,
    over: AtomicBool,
    /// Wakes tasks that wait for one of the two.
    changed: Notify,
    /// Wakes the sleeping thread that executes it.
    sleeper: (Mutex<()>, Condvar),
    /// The bits of an `f64`; NaN if unknown.
    progress: AtomicU64,
    /// Whether the statement reports its progress; then `sleep_ms` does not.
    reports_progress: AtomicBool,
    /// Whether its result is discarded.
    discard: AtomicBool,
}

impl Execution {
    pub(crate) fn new(tally: Arc<Tally>, busy_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            tally,
            busy_timeout,
            cancelled: AtomicBool::new(false),
            over: AtomicBool::new(false),
            changed: Notify::new(),
            sleeper: (Mutex::new(()), Condvar::new()),
            progress: AtomicU64::new(f64::NAN.to_bits()),
            reports_progress: AtomicBool::new(false),
            discard: AtomicBool::new(false),
        })
    }

    /// Requests cancellation; the statement stops at its next step.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        // The lock orders this after a check of the flag that is about to sleep.
        drop(self.sleeper.0.lock());
        self.sleeper.1.notify_all();
        self.changed.notify_waiters();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub(crate) fn discard_output(&self) {
        self.discard.store(true, Ordering::SeqCst);
    }

    pub(crate) fn discards_output(&self) -> bool {
        self.discard.load(Ordering::SeqCst)
    }

    pub(crate) async fn cancelled(&self) {
        self.wait_for(&self.cancelled).await;
    }

    pub(crate) async fn ended(&self) {
        self.wait_for(&self.over).await;
    }

    async fn wait_for(&self, flag: &AtomicBool) {
        loop {
            // Created before the check, so that no notification is missed.
            let changed = self.changed.notified();
            if flag.load(Ordering::SeqCst) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn steps(&self, more: u64) {
        add(&self.tally.steps, more);
    }

    /// The progress from 0 to 1, if known.
    pub(crate) fn progress(&self) -> Option<f64> {
        let progress = f64::from_bits(self.progress.load(Ordering::Relaxed));
        (!progress.is_nan()).then_some(progress)
    }

    pub(crate) fn report_progress(&self, progress: f64) {
        self.reports_progress.store(true, Ordering::Relaxed);
        self.set_progress(progress);
    }

    fn set_progress(&self, progress: f64) {
        self.progress.store(progress.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
    }

    /// Sleeps on this thread and counts steps. Returns false if it was cancelled.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let start = now();
        loop {
            let slept = now().duration_since(start);
            if !time.is_zero() && !self.reports_progress.load(Ordering::Relaxed) {
                self.set_progress(slept.as_secs_f64() / time.as_secs_f64());
            }
            if slept >= time {
                return !self.is_cancelled();
            }
            if !self.wait(INTERVAL.min(time.saturating_sub(slept))) {
                return false;
            }
            self.steps(1);
        }
    }

    /// Waits a moment. Returns whether to wait longer for another session's transaction.
    fn wait_for_writer(&self, before: i32) -> bool {
        let moment = Duration::from_millis(1);
        let waited = moment.saturating_mul(u32::try_from(before).unwrap_or(u32::MAX));
        waited < self.busy_timeout && self.wait(moment)
    }

    /// Sleeps until the time is over or it is cancelled. Returns false if it was cancelled.
    fn wait(&self, time: Duration) -> bool {
        let mut guard = self.sleeper.0.lock();
        if !self.is_cancelled() {
            self.sleeper.1.wait_for(&mut guard, time);
        }
        !self.is_cancelled()
    }

    /// Makes it the current execution of this thread.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered {
        CURRENT.set(Some(self.clone()));
        Entered
    }
}

/// Resets the current execution of this thread when it is dropped.
#[derive(Debug)]
pub(crate) struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

pub(crate) fn current() -> Option<Arc<Execution>> {
    CURRENT.with_borrow(Clone::clone)
}

/// SQLite calls this every few steps. True stops the statement.
pub(crate) fn on_progress(steps: u64) -> bool {
    CURRENT.with_borrow(|run| {
        run.as_ref().is_some_and(|run| {
            run.steps(steps);
            run.is_cancelled()
        })
    })
}

/// SQLite calls this while another session writes. False gives up.
pub(crate) fn on_busy(before: i32) -> bool {
    match current() {
        Some(run) => run.wait_for_writer(before),
        None => false,
    }
}

/// Cancels a statement when its client is gone.
#[derive(Debug)]
pub(crate) struct CancelOnDrop {
    run: Arc<Execution>,
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
    fn only_the_execution_of_this_thread_is_cancelled() {
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
    fn cancel_on_drop_cancels_only_if_enabled() {
        let run = run();
        drop(CancelOnDrop::new(run.clone(), false));
        assert!(!run.is_cancelled());
        drop(CancelOnDrop::new(run.clone(), true));
        assert!(run.is_cancelled());
    }
}
