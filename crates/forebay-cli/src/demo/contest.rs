//! Two sides, two servers with the same limits, the same callers.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Instant, Seed};
use parking_lot::Mutex;

use super::scenario::{ACQUIRE_TIMEOUT, callers};
use super::side::{Figures, Side};

/// A contest under way. It goes on in the background until its time is up or it is ended.
#[derive(Debug)]
pub(super) struct Contest {
    seed: Seed,
    length: Duration,
    runtime: Arc<dyn Runtime>,
    sides: [Arc<Side>; 2],
    progress: Mutex<Progress>,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    phase: Phase,
    started_at: Instant,
    elapsed: Duration,
}

/// How far a contest has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Both sides open their connections.
    Filling,
    /// Callers come.
    Running,
    /// No more callers come, and the last ones are still there.
    Finishing,
    Over,
}

/// A contest at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) phase: Phase,
    /// For how long callers have come.
    pub(super) elapsed: Duration,
    /// For how long callers are to come.
    pub(super) length: Duration,
    pub(super) sides: [Figures; 2],
}

impl Contest {
    /// Starts a contest in which callers come for `length`.
    pub(super) fn start(
        seed: Seed,
        length: Duration,
        runtime: Arc<dyn Runtime>,
    ) -> anyhow::Result<Arc<Self>> {
        let deadpool = Side::deadpool(seed, Arc::clone(&runtime))?;
        let reservoir = Side::reservoir(seed, Arc::clone(&runtime))?;
        let progress = Progress { phase: Phase::Filling, started_at: Instant::ZERO, elapsed: Duration::ZERO };
        let sides = [deadpool, reservoir];
        let contest = Arc::new(Self { seed, length, runtime, sides, progress: Mutex::new(progress) });
        let this = Arc::clone(&contest);
        contest.runtime.spawn(Box::pin(async move {
            // The reservoir fills by itself while deadpool fills.
            for side in &this.sides {
                side.fill().await;
            }
            let load = Arc::clone(&this);
            if thread::Builder::new().name("load".to_owned()).spawn(move || load.run()).is_err() {
                // The system has no thread left: the figures stay at zero.
                this.end();
            }
        }));
        Ok(contest)
    }

    /// Runs on a thread of its own: tokio's timers are good to a millisecond, and that would be most of what
    /// is measured here.
    fn run(&self) {
        self.sides.iter().for_each(|side| side.start_counting());
        let start = self.runtime.now();
        self.progress.lock().started_at = start;
        self.pass_to(Phase::Running);
        let end = start + self.length;
        let mut first = 0;
        let played = play(callers(self.seed, self.length), &*self.runtime, start, |due_at, query_time| {
            // In turns, as the side that is first is a little ahead.
            first = 1 - first;
            for side in [first, 1 - first] {
                self.sides[side].admit(due_at, query_time);
            }
            match self.progress.lock().phase {
                Phase::Over => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        if played.is_break() {
            return;
        }
        park_until(end, &*self.runtime);
        self.pass_to(Phase::Finishing);
        // The last callers are served or have given up by then, unless the machine is very busy.
        let latest = end + 2 * ACQUIRE_TIMEOUT;
        while !self.sides.iter().all(|side| side.is_quiet()) && self.runtime.now() < latest {
            park_until(self.runtime.now() + Duration::from_millis(10), &*self.runtime);
        }
        self.end();
    }

    /// Ends the contest early.
    pub(super) fn end(&self) {
        self.pass_to(Phase::Over);
    }

    /// Nothing follows [`Phase::Over`].
    fn pass_to(&self, phase: Phase) {
        let mut progress = self.progress.lock();
        if progress.phase != Phase::Over {
            *progress = Progress { phase, elapsed: self.elapsed(*progress), ..*progress };
        }
    }

    fn elapsed(&self, progress: Progress) -> Duration {
        match progress.phase {
            Phase::Running => self.runtime.now().since(progress.started_at).min(self.length),
            _ => progress.elapsed,
        }
    }

    /// What the contest looks like now.
    pub(super) fn frame(&self) -> Frame {
        let progress = *self.progress.lock();
        let sides = [self.sides[0].figures(), self.sides[1].figures()];
        Frame { phase: progress.phase, elapsed: self.elapsed(progress), length: self.length, sides }
    }
}

/// Calls `arrive` with each caller when it is due, until it breaks.
fn play(
    callers: impl Iterator<Item = (Duration, Duration)>,
    runtime: &dyn Runtime,
    start: Instant,
    mut arrive: impl FnMut(Instant, Duration) -> ControlFlow<()>,
) -> ControlFlow<()> {
    for (at, query_time) in callers {
        park_until(start + at, runtime);
        arrive(start + at, query_time)?;
    }
    ControlFlow::Continue(())
}

fn park_until(at: Instant, runtime: &dyn Runtime) {
    while runtime.now() < at {
        thread::park_timeout(at.since(runtime.now()));
    }
}

#[cfg(test)]
mod tests {
    use forebay::rt::VirtualTime;

    use super::*;

    #[test]
    fn callers_come_until_the_last_one_or_until_it_is_over() {
        // In virtual time the start lies so far back that every caller is due.
        let time = VirtualTime::new();
        let plan = || callers(Seed::new(1), Duration::from_secs(10));
        let mut came = Vec::new();
        let played = play(plan(), &time, Instant::ZERO, |due_at, query_time| {
            came.push((due_at.since(Instant::ZERO), query_time));
            ControlFlow::Continue(())
        });
        assert!(played.is_continue() && plan().eq(came));
        let mut came = 0;
        let _ = play(plan(), &time, Instant::ZERO, |_, _| {
            came += 1;
            ControlFlow::Break(())
        });
        assert_eq!(came, 1);
    }
}
