//! A process on its own machine.

use std::fmt;
use std::time::Duration;

use super::{ProcessId, START, VirtualTime, WALL_START};
use crate::rt::{Runtime, Starved, Task};
use crate::time::Instant;

/// How the clocks of a machine differ from the true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessClock {
    /// How much longer than others this machine has been running. Its monotonic clock is ahead by this.
    pub uptime: Duration,
    /// By how many nanoseconds its time of day is ahead of the true one. Negative: behind.
    pub wall_ahead: i64,
    /// By how many millionths its clocks run too fast. Negative: too slowly.
    pub drift_ppm: i32,
}

/// A [`Runtime`] for one of several processes that share a [`VirtualTime`]. It has its own clocks, and all
/// its tasks can be killed at once.
///
/// ```
/// use forebay::rt::{ProcessClock, Runtime, VirtualTime};
///
/// let time = VirtualTime::new();
/// let process = time.process(ProcessClock::default());
/// process.spawn(Box::pin(async { unreachable!("killed before it ran") }));
/// process.kill();
/// time.settle();
/// ```
#[derive(Clone)]
pub struct VirtualProcess {
    time: VirtualTime,
    id: ProcessId,
    clock: ProcessClock,
}

const MILLION: u64 = 1_000_000;

impl VirtualProcess {
    pub(super) fn new(time: VirtualTime, id: ProcessId, clock: ProcessClock) -> Self {
        Self { time, id, clock }
    }

    /// Drops all tasks of this process. Tasks that it spawns later are dropped before they run.
    pub fn kill(&self) {
        self.time.kill(self.id);
    }

    /// Stops all tasks of this process, as a long garbage collection or a frozen machine does. Its clocks
    /// continue. Events wait until it is [resumed](Self::resume).
    pub fn pause(&self) {
        self.time.0.queue.lock().tasks.pause(self.id);
    }

    /// Ends a [pause](Self::pause).
    pub fn resume(&self) {
        self.time.0.queue.lock().tasks.resume(self.id);
    }

    /// How many nanoseconds this machine's clock counts while `nanos` pass.
    fn count(&self, nanos: u64) -> u64 {
        if self.clock.drift_ppm == 0 {
            return nanos;
        }
        // This runs at each checkout. Computed in parts, 64 bits last for centuries.
        let drift = u64::from(self.clock.drift_ppm.unsigned_abs());
        let gained = nanos / MILLION * drift + nanos % MILLION * drift / MILLION;
        if self.clock.drift_ppm < 0 { nanos.saturating_sub(gained) } else { nanos + gained }
    }

    /// The true time when this machine's monotonic clock reaches `local`.
    fn when(&self, local: Instant) -> Instant {
        if local == Instant::NEVER {
            return local;
        }
        let counted = (local - self.clock.uptime).since(START);
        let counted = u64::try_from(counted.as_nanos()).unwrap_or(u64::MAX);
        if self.clock.drift_ppm == 0 {
            return START + Duration::from_nanos(counted);
        }
        let million = i128::from(MILLION);
        let pace = (million + i128::from(self.clock.drift_ppm)).max(1);
        // Rounded up, so that a sleep does not end early by the local clock.
        let nanos = (i128::from(counted) * million).div_euclid(pace) + 2;
        START + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Runtime for VirtualProcess {
    fn now(&self) -> Instant {
        let passed = self.time.now().as_nanos().saturating_sub(START.as_nanos());
        START + self.clock.uptime + Duration::from_nanos(self.count(passed))
    }

    fn wall(&self) -> Duration {
        let passed = self.time.now().as_nanos().saturating_sub(START.as_nanos());
        let wall = WALL_START + Duration::from_nanos(self.count(passed));
        let ahead = Duration::from_nanos(self.clock.wall_ahead.unsigned_abs());
        if self.clock.wall_ahead < 0 { wall.saturating_sub(ahead) } else { wall + ahead }
    }

    fn sleep_until(&self, at: Instant) -> Task {
        Box::pin(self.time.sleep(self.when(at)))
    }

    fn spawn(&self, task: Task) {
        self.time.spawn_in(self.id, task);
    }

    fn entropy(&self) -> u64 {
        self.time.entropy()
    }

    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved> {
        self.time.block(wait)
    }
}

impl fmt::Debug for VirtualProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualProcess").field("id", &self.id).field("now", &self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_sleep_is_over_when_the_local_clock_says_so() {
        let minute = Duration::from_secs(60);
        for drift_ppm in [-50_000, -7, 0, 3, 250, 50_000] {
            let time = VirtualTime::new();
            let clock =
                ProcessClock { uptime: Duration::from_nanos(12_345_678_901), wall_ahead: 0, drift_ppm };
            let process = time.process(clock);
            let (start, local) = (time.now(), process.now());
            time.run(process.sleep_until(local + minute));
            let slept = process.now().since(local);
            assert!(slept >= minute && slept < minute + Duration::from_micros(1), "{drift_ppm}: {slept:?}");
            let passed = time.now().since(start).as_secs_f64() * (1.0 + f64::from(drift_ppm) / 1e6);
            assert!((passed - 60.0).abs() < 1e-6, "{drift_ppm}: {passed}");
        }
    }

    #[test]
    fn the_time_of_day_can_be_wrong_both_ways() {
        let time = VirtualTime::new();
        let at = |wall_ahead| time.process(ProcessClock { wall_ahead, ..ProcessClock::default() }).wall();
        assert_eq!(at(500_000_000), time.wall() + Duration::from_millis(500));
        assert_eq!(at(-500_000_000), time.wall() - Duration::from_millis(500));
    }

    #[test]
    fn a_paused_process_stands_still_while_its_clock_goes_on() {
        let time = VirtualTime::new();
        let (one, other) = (time.process(ProcessClock::default()), time.process(ProcessClock::default()));
        let (ticks, second) = (Arc::new(AtomicU64::new(0)), Duration::from_secs(1));
        for (process, worth) in [(&one, 1), (&other, 100)] {
            let (ticks, clock) = (Arc::clone(&ticks), process.clone());
            process.spawn(Box::pin(async move {
                loop {
                    clock.sleep_until(clock.now() + second).await;
                    ticks.fetch_add(worth, Ordering::Relaxed);
                }
            }));
        }
        time.advance(second * 2);
        one.pause();
        time.advance(second * 10);
        assert_eq!(ticks.load(Ordering::Relaxed), 1202);
        one.resume();
        time.advance(Duration::ZERO);
        assert_eq!(ticks.load(Ordering::Relaxed), 1203, "one sleep was over long ago");
        one.pause();
        one.kill();
        time.advance(second * 2);
        assert_eq!(ticks.load(Ordering::Relaxed), 1403);
    }

    #[test]
    fn a_killed_process_drops_its_tasks_and_no_one_elses() {
        struct Counts(Arc<AtomicU64>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let time = VirtualTime::new();
        let (one, other) = (time.process(ProcessClock::default()), time.process(ProcessClock::default()));
        let dropped = Arc::new(AtomicU64::new(0));
        for process in [&one, &one, &other] {
            let (task, clock) = (Counts(Arc::clone(&dropped)), process.clone());
            process.spawn(Box::pin(async move {
                let _task = task;
                clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
            }));
        }
        time.settle();
        one.kill();
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
        one.spawn(Box::pin(async { unreachable!("its process is dead") }));
        time.advance(Duration::from_secs(2));
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }
}
