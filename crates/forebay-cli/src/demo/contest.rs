//! Two sides, two servers on the same terms, one load.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use forebay::rt::{Runtime, TokioRuntime};
use forebay::{Instant, Seed};
use parking_lot::Mutex;

use super::backend::Backend;
use super::load::{Arrival, Plan};
use super::pooled::Pooled;
use super::reserved::Reserved;
use super::scenario::Scenario;
use super::side::{Figures, Side};

/// A contest under way. It goes on in the background until its time is up or it is ended.
#[derive(Debug)]
pub(super) struct Contest {
    scenario: Scenario,
    seed: Seed,
    length: Duration,
    runtime: Arc<dyn Runtime>,
    pooled: Arc<Side<Pooled>>,
    reserved: Arc<Side<Reserved>>,
    course: Mutex<Course>,
}

#[derive(Debug)]
struct Course {
    phase: Phase,
    started_at: Option<Instant>,
    elapsed: Duration,
    /// Dropped to stop the load.
    load: Option<Sender<()>>,
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
    /// All is done.
    Over,
}

/// A contest at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) phase: Phase,
    /// For how long callers have come.
    pub(super) elapsed: Duration,
    pub(super) pooled: Figures,
    pub(super) reserved: Figures,
}

impl Contest {
    /// Starts a contest in which callers come for `length`.
    pub(super) fn start(
        scenario: Scenario,
        seed: Seed,
        length: Duration,
        tokio: TokioRuntime,
    ) -> anyhow::Result<Arc<Self>> {
        let runtime: Arc<dyn Runtime> = Arc::new(tokio.clone());
        let backend = || Backend::new(scenario.terms, seed, Arc::clone(&runtime));
        let (one, other) = (backend(), backend());
        let pooled = Pooled::new(&scenario, one.clone(), seed, Arc::clone(&runtime))?;
        let reserved = Reserved::new(&scenario, other.clone(), seed, tokio)?;
        let course = Course { phase: Phase::Filling, started_at: None, elapsed: Duration::ZERO, load: None };
        let contest = Arc::new(Self {
            scenario,
            seed,
            length,
            runtime,
            pooled: Side::new(pooled, one, scenario.slow),
            reserved: Side::new(reserved, other, scenario.slow),
            course: Mutex::new(course),
        });
        contest.runtime.spawn(Box::pin(Arc::clone(&contest).run()));
        Ok(contest)
    }

    async fn run(self: Arc<Self>) {
        // The reservoir fills by itself meanwhile.
        self.pooled.fill().await;
        self.reserved.fill().await;
        let Some(start) = self.send_callers() else { return };
        let end = start + self.length;
        self.runtime.sleep_until(end).await;
        self.pass_to(Phase::Finishing);
        // Whoever came last is served or out of patience by then, unless the machine is very busy.
        let latest = end + 2 * self.scenario.patience;
        while !(self.pooled.is_quiet() && self.reserved.is_quiet()) && self.runtime.now() < latest {
            self.runtime.sleep_until(self.runtime.now() + Duration::from_millis(10)).await;
        }
        self.pass_to(Phase::Over);
    }

    /// Starts the load, unless the contest has been ended.
    fn send_callers(self: &Arc<Self>) -> Option<Instant> {
        let (stop, stopped) = mpsc::channel();
        let start = {
            let mut course = self.course.lock();
            if course.phase == Phase::Over {
                return None;
            }
            let start = self.runtime.now();
            (course.phase, course.started_at, course.load) = (Phase::Running, Some(start), Some(stop));
            start
        };
        self.pooled.start_counting();
        self.reserved.start_counting();
        let this = Arc::clone(self);
        let load = thread::Builder::new().name("load".to_owned()).spawn(move || this.play(start, &stopped));
        if load.is_err() {
            // The system has no thread left: the figures stay at nothing, and say so.
            self.end();
        }
        Some(start)
    }

    fn play(&self, start: Instant, stopped: &Receiver<()>) {
        let mut pooled_first = false;
        let Self { scenario, runtime, pooled, reserved, .. } = self;
        let plan = Plan::new(*scenario, self.seed, self.length);
        plan.play(&**runtime, start, stopped, |due_at, Arrival { query_time, .. }| {
            // In turns, as the one let in first is a little ahead.
            pooled_first = !pooled_first;
            if pooled_first {
                pooled.admit(due_at, query_time, scenario.patience, runtime);
                reserved.admit(due_at, query_time, scenario.patience, runtime);
            } else {
                reserved.admit(due_at, query_time, scenario.patience, runtime);
                pooled.admit(due_at, query_time, scenario.patience, runtime);
            }
        });
    }

    /// Ends the contest ahead of its time.
    pub(super) fn end(&self) {
        self.pass_to(Phase::Over);
    }

    fn pass_to(&self, phase: Phase) {
        let mut course = self.course.lock();
        if course.phase != Phase::Over {
            course.elapsed = self.elapsed(&course);
            course.phase = phase;
            course.load = None;
        }
    }

    fn elapsed(&self, course: &Course) -> Duration {
        match (course.phase, course.started_at) {
            (Phase::Running, Some(start)) => self.runtime.now().since(start).min(self.length),
            _ => course.elapsed,
        }
    }

    /// What the contest looks like now.
    pub(super) fn frame(&self) -> Frame {
        let (phase, elapsed) = {
            let course = self.course.lock();
            (course.phase, self.elapsed(&course))
        };
        Frame { phase, elapsed, pooled: self.pooled.figures(), reserved: self.reserved.figures() }
    }
}
