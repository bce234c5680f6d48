//! A cluster for each side with the same limits, the same callers and the same incidents.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use forebay::rt::{Runtime, TokioRuntime};
use forebay::{Instant, Seed};
use parking_lot::Mutex;

use super::contender::{Contender, SIDES};
use super::incident::{PERIODS, Period, Script, Step};
use super::page::Page;
use super::scenario::{ACQUIRE_TIMEOUT, Caller, callers};
use super::side::{Side, Snapshot};

/// How often the counters of the clusters are read, at least.
const SAMPLE: Duration = Duration::from_millis(50);
/// How long all sides may take to open their connections.
const PATIENCE: Duration = Duration::from_secs(60);

/// A contest under way. It goes on in the background until its time is up or it is ended.
#[derive(Debug)]
pub(super) struct Contest {
    seed: Seed,
    length: Duration,
    script: Script,
    runtime: TokioRuntime,
    /// As in [`Contender::ALL`].
    sides: Vec<Arc<Side>>,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    phase: Phase,
    started_at: Instant,
    elapsed: Duration,
    /// Why it ended before its time.
    failure: Option<anyhow::Error>,
}

/// How far a contest has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// All sides open their connections.
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
    /// As in [`Contender::ALL`].
    pub(super) sides: [Snapshot; SIDES],
}

impl Frame {
    pub(super) fn periods(&self) -> [Period; PERIODS] {
        Script::new(self.length).periods()
    }

    /// Whether this machine was so busy that the waits tell more about it than about the pools.
    pub(super) fn is_too_busy(&self) -> bool {
        self.sides.iter().any(|side| side.figures.is_too_busy())
    }

    /// The period that it is in.
    pub(super) fn period(&self) -> Period {
        self.periods()[Script::new(self.length).period_at(self.elapsed)]
    }
}

impl Contest {
    /// Starts a contest in which callers come for `length`.
    pub(super) fn start(
        seed: Seed,
        length: Duration,
        page: Page,
        runtime: TokioRuntime,
    ) -> anyhow::Result<Arc<Self>> {
        let page = Arc::new(page);
        let side = |contender| Side::new(contender, seed, &page, runtime.clone());
        let sides = Contender::ALL.into_iter().map(side).collect::<anyhow::Result<_>>()?;
        let progress = Progress {
            phase: Phase::Filling,
            started_at: Instant::ZERO,
            elapsed: Duration::ZERO,
            failure: None,
        };
        let (script, progress) = (Script::new(length), Mutex::new(progress));
        let contest = Arc::new(Self { seed, length, script, runtime, sides, progress });
        let this = Arc::clone(&contest);
        thread::Builder::new().name("load".to_owned()).spawn(move || this.run())?;
        Ok(contest)
    }

    /// Runs on a thread of its own: tokio's timers are good to a millisecond, and that would be most of what is
    /// measured here.
    fn run(&self) {
        if let Err(error) = self.fill() {
            self.progress.lock().failure = Some(error);
            return self.end();
        }
        self.sides.iter().for_each(|side| side.start_counting());
        let start = self.runtime.now();
        self.progress.lock().started_at = start;
        self.pass_to(Phase::Running);
        let mut first = 0;
        let mut sampled_at = start;
        let mut arrive = |arrival: Arrival| {
            match arrival {
                Arrival::Caller(caller) => {
                    // In turns, as the side that is first is a little ahead.
                    first = (first + 1) % SIDES;
                    let (due_at, period) = (start + caller.at, self.script.period_at(caller.at));
                    for side in self.sides.iter().cycle().skip(first).take(SIDES) {
                        side.admit(caller, due_at, period);
                    }
                }
                Arrival::Step(step) => self.sides.iter().for_each(|side| side.take(step)),
            }
            let now = self.runtime.now();
            if now.since(sampled_at) >= SAMPLE {
                sampled_at = now;
                self.sides.iter().for_each(|side| side.sample());
            }
            self.go_on()
        };
        let callers = callers(self.seed, self.length);
        let played =
            play(callers, self.script.steps(), |at| park_until(start + at, &self.runtime), &mut arrive);
        if played.is_break() {
            return;
        }
        let end = start + self.length;
        park_until(end, &self.runtime);
        self.pass_to(Phase::Finishing);
        // The last callers are served or have given up by then, unless the machine is very busy.
        let latest = end + 2 * ACQUIRE_TIMEOUT;
        while !self.sides.iter().all(|side| side.is_quiet()) && self.runtime.now() < latest {
            park_until(self.runtime.now() + Duration::from_millis(10), &self.runtime);
        }
        self.end();
    }

    /// Waits until all sides have opened their connections.
    fn fill(&self) -> anyhow::Result<()> {
        self.sides.iter().for_each(|side| side.start_all());
        let latest = self.runtime.now() + PATIENCE;
        while !self.sides.iter().all(|side| side.is_full()) && self.go_on().is_continue() {
            if let Some(failure) = self.sides.iter().find_map(|side| side.failure()) {
                return Err(failure);
            }
            if self.runtime.now() >= latest {
                anyhow::bail!("the first connections took longer than {} s to open", PATIENCE.as_secs());
            }
            park_until(self.runtime.now() + Duration::from_millis(10), &self.runtime);
        }
        Ok(())
    }

    fn go_on(&self) -> ControlFlow<()> {
        match self.progress.lock().phase {
            Phase::Over => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Ends the contest early.
    pub(super) fn end(&self) {
        self.pass_to(Phase::Over);
    }

    /// Ends every instance and every cluster. The figures stay.
    pub(super) fn stop(&self) -> Option<anyhow::Error> {
        self.end();
        self.sides.iter().for_each(|side| side.stop());
        self.progress.lock().failure.take().or_else(|| self.sides.iter().find_map(|side| side.failure()))
    }

    /// Nothing follows [`Phase::Over`].
    fn pass_to(&self, phase: Phase) {
        let mut progress = self.progress.lock();
        if progress.phase != Phase::Over {
            (progress.elapsed, progress.phase) = (self.elapsed(&progress), phase);
        }
    }

    fn elapsed(&self, progress: &Progress) -> Duration {
        match progress.phase {
            Phase::Running => self.runtime.now().since(progress.started_at).min(self.length),
            _ => progress.elapsed,
        }
    }

    /// What the contest looks like now.
    pub(super) fn frame(&self) -> Frame {
        let (phase, elapsed) = {
            let progress = self.progress.lock();
            (progress.phase, self.elapsed(&progress))
        };
        let sides = std::array::from_fn(|side| self.sides[side].snapshot());
        Frame { phase, elapsed, length: self.length, sides }
    }
}

/// What comes next in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arrival {
    Caller(Caller),
    Step(Step),
}

/// Calls `arrive` with each caller and each step when it is due, until it breaks.
fn play(
    callers: impl Iterator<Item = Caller>,
    steps: Vec<(Duration, Step)>,
    mut wait_until: impl FnMut(Duration),
    mut arrive: impl FnMut(Arrival) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut steps = steps.into_iter().peekable();
    for caller in callers {
        while let Some((at, step)) = steps.next_if(|(at, _)| *at <= caller.at) {
            wait_until(at);
            arrive(Arrival::Step(step))?;
        }
        wait_until(caller.at);
        arrive(Arrival::Caller(caller))?;
    }
    ControlFlow::Continue(())
}

fn park_until(at: Instant, runtime: &impl Runtime) {
    while runtime.now() < at {
        thread::park_timeout(at.since(runtime.now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers() -> impl Iterator<Item = Caller> {
        super::callers(Seed::new(1), Duration::from_secs(20))
    }

    #[test]
    fn callers_and_steps_come_in_the_order_of_time() {
        let steps = Script::new(Duration::from_secs(20)).steps();
        let (mut came, mut taken, mut clock) = (Vec::new(), Vec::new(), Vec::new());
        let played = play(
            callers(),
            steps.clone(),
            |at| clock.push(at),
            |arrival| {
                match arrival {
                    Arrival::Caller(caller) => came.push(caller),
                    Arrival::Step(step) => taken.push(step),
                }
                ControlFlow::Continue(())
            },
        );
        assert!(played.is_continue() && callers().eq(came));
        assert!(steps.iter().map(|(_, step)| *step).eq(taken));
        assert!(clock.is_sorted() && steps.iter().all(|(at, _)| clock.contains(at)));
    }

    #[test]
    fn none_come_after_the_end() {
        let mut came = 0;
        let played = play(
            callers(),
            Vec::new(),
            |_| (),
            |_| {
                came += 1;
                if came == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!((played, came), (ControlFlow::Break(()), 3));
    }
}
