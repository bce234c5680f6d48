//! Watches everything, from the first event to the last, and says what was wrong.
//!
//! It goes by what the cluster counts and by what callers see, not by what the reservoir says of itself; only how many
//! connections an instance owns is asked of its reservoir, and compared with the cluster's count.

use std::sync::Arc;
use std::time::Duration;

use forebay::{CheckoutError, Discard, Instant, Status};

use crate::scenario::Scenario;
use crate::world::Refused;

mod finding;
mod order;
mod window;

use finding::Findings;
pub use finding::{Assertion, Verdict};
use order::Order;
pub use window::Recovery;
pub(crate) use window::WindowId;
use window::{Healing, Window};

pub(crate) struct Judge {
    scenario: Arc<Scenario>,
    start: Instant,
    members: Vec<Member>,
    /// Where leases leave less than all targets: how many connections the fleet is to have.
    fleet_goal: Option<usize>,
    /// How many instances have less than their target.
    below: usize,
    /// How many connections all have together.
    total: usize,
    /// Since when the fleet has been whole; none while it is not.
    whole_since: Option<Instant>,
    windows: Vec<Window>,
    /// How many are not closed yet: something is wrong, or the fleet is not whole yet.
    open_windows: usize,
    /// In how many something is wrong still.
    active: usize,
    /// What follows is the shutting down.
    finished: bool,
    second: Second,
    peaks: Peaks,
    findings: Findings,
}

struct Member {
    size: usize,
    target: usize,
    order: Order,
}

/// What happened within the present second.
#[derive(Clone, Copy, Default)]
struct Second {
    number: u64,
    connects: u64,
    closures: u64,
    /// There was a disturbance, or the fleet had never been whole.
    disturbed: bool,
}

/// The most in one second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peaks {
    pub(crate) connects: u64,
    pub(crate) closures: u64,
    pub(crate) renewals: u64,
}

/// Where leases leave less than all targets, so much of them is in use at least: what is closed first and opened then
/// is missing in between, one for each instance.
const CAPPED_SHARE: f64 = 0.98;

impl Judge {
    pub(crate) fn new(scenario: &Arc<Scenario>, start: Instant) -> Self {
        let member = |target| Member { size: 0, target, order: Order::default() };
        let capped = scenario.leases.map(|leases| usize::try_from(leases.limit).unwrap_or(usize::MAX));
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a count below a million"
        )]
        let fleet_goal =
            capped.filter(|cap| *cap < scenario.target()).map(|cap| (cap as f64 * CAPPED_SHARE) as usize);
        let goal = fleet_goal.unwrap_or(scenario.target());
        let cold_start = Window {
            over: Some(start),
            healing: Some(Healing {
                since: start,
                deficit: goal,
                bucket: bucket(scenario, goal),
                patience: Duration::ZERO,
                allowed: scenario.asserts.converge_within,
            }),
            ..Window::new("cold_start".to_owned(), start)
        };
        Self {
            start,
            members: scenario.services.iter().map(|service| member(service.target_ready)).collect(),
            fleet_goal,
            below: scenario.services.len(),
            total: 0,
            whole_since: None,
            windows: vec![cold_start],
            open_windows: 1,
            active: 0,
            finished: false,
            second: Second { disturbed: true, ..Second::default() },
            peaks: Peaks::default(),
            findings: Findings::new(),
            scenario: Arc::clone(scenario),
        }
    }

    fn find(&mut self, assertion: Assertion, now: Instant, what: impl FnOnce() -> String) {
        self.findings.add(assertion, now.since(self.start), what);
    }

    fn name(&self, place: usize) -> String {
        self.scenario.services[place].name.clone()
    }

    // What happens.

    /// Somebody connected to the cluster, and it may have refused.
    pub(crate) fn connected(&mut self, place: usize, now: Instant, refused: Option<&Refused>) {
        self.tick(now);
        self.second.connects += 1;
        if let Some(refused) = refused.filter(|refused| refused.by_limits) {
            let (name, with) = (self.name(place), refused.with.name());
            self.find(Assertion::NoRefusals, now, || format!("{name} was refused with {with}"));
        }
    }

    /// A reservoir closed a connection.
    pub(crate) fn discarded(&mut self, now: Instant, reason: Discard) {
        self.tick(now);
        // What the world or an operator ends is not the reservoir's decision.
        if !matches!(reason, Discard::Died | Discard::Bad | Discard::Draining) {
            self.second.closures += 1;
        }
    }

    /// The cluster ended a session because of its age.
    pub(crate) fn outlived(&mut self, place: usize, now: Instant) {
        if !self.is_disturbed() {
            let name = self.name(place);
            self.find(Assertion::NoAgedSessions, now, || format!("a session of {name} was never retired"));
        }
    }

    /// How an instance stands now, by its own account and by the cluster's.
    pub(crate) fn look(&mut self, place: usize, now: Instant, status: &Status, sessions: usize) {
        let service = &self.scenario.services[place];
        let bound = service.max_open + service.overlap;
        if status.owned() > bound || sessions > bound + status.closing {
            let (name, owned, closing) = (self.name(place), status.owned(), status.closing);
            self.find(Assertion::Bound, now, || {
                format!("{name} owns {owned} and the cluster counts {sessions}, {closing} closing, where {bound} are allowed")
            });
        }
        self.resize(place, now, status.size());
    }

    /// An instance is gone, or has begun anew.
    pub(crate) fn vanished(&mut self, place: usize, now: Instant) {
        self.members[place].order = Order::default();
        self.resize(place, now, 0);
    }

    fn resize(&mut self, place: usize, now: Instant, size: usize) {
        let member = &mut self.members[place];
        let (was_below, is_below) = (member.size < member.target, size < member.target);
        self.total = self.total - member.size + size;
        self.below = self.below + usize::from(is_below) - usize::from(was_below);
        member.size = size;
        let whole = match self.fleet_goal {
            Some(goal) => self.total >= goal,
            None => self.below == 0,
        };
        match (whole, self.whole_since) {
            (true, None) => self.whole_since = Some(now),
            (false, Some(_)) => self.fell_apart(place, now),
            _ => {}
        }
    }

    /// Closes all windows if nothing is wrong any more and the fleet has been whole for long enough.
    fn settle(&mut self, now: Instant, stable_for: Duration) {
        let Some(since) = self.whole_since else { return };
        if self.active > 0 || self.open_windows == 0 || now.since(since) < stable_for {
            return;
        }
        // Until all have noticed that it is over, what it did is not over.
        let unnoticed = |window: &Window| {
            window.healing.is_some_and(|healing| now.since(healing.since) < healing.patience)
        };
        if self.windows.iter().any(|window| window.is_open() && unnoticed(window)) {
            return;
        }
        for window in self.windows.iter_mut().filter(|window| window.is_open()) {
            // It may have been whole before the last thing that was wrong was over.
            let whole = window.healing.map_or(since, |healing| since.max(healing.since));
            window.late |= window.is_overdue(whole);
            window.whole = Some(whole);
        }
        self.open_windows = 0;
        self.report_late(now);
    }

    fn fell_apart(&mut self, place: usize, now: Instant) {
        self.settle(now, self.scenario.asserts.stable_for);
        self.whole_since = None;
        if !self.is_disturbed() {
            let (name, member) = (self.name(place), &self.members[place]);
            let (size, target, total) = (member.size, member.target, self.total);
            self.find(Assertion::Stable, now, || {
                format!("{name} fell to {size} of {target} ({total} in the fleet) with nothing wrong")
            });
        }
    }

    /// A caller was given a connection of this age, and it was alive or not.
    pub(crate) fn lent(&mut self, place: usize, now: Instant, number: u64, age: Duration, alive: bool) {
        let oldest = self.scenario.services[place].oldest_lent();
        // A clock that runs too slowly lives longer.
        let drift = f64::from(self.scenario.clocks.drift_ppm) / 1e6;
        if age > oldest.mul_f64(1.0 + drift) {
            let name = self.name(place);
            self.find(Assertion::Lives, now, || {
                format!("{name} lent a connection aged {age:?}, where {oldest:?} is the most")
            });
        }
        if !alive {
            let name = self.name(place);
            self.find(Assertion::Lives, now, || format!("{name} lent a dead connection"));
        }
        if !self.members[place].order.serve(number, now) {
            let name = self.name(place);
            self.find(Assertion::FirstComeFirstServed, now, || {
                format!("caller {number} of {name} was overtaken")
            });
        }
    }

    /// A caller got nothing.
    pub(crate) fn checkout_failed(&mut self, place: usize, now: Instant, error: &CheckoutError) {
        if self.scenario.asserts.zero_empty_events && matches!(error, CheckoutError::Empty { .. }) {
            let name = self.name(place);
            self.find(Assertion::ZeroEmpty, now, || format!("{name}: {error}"));
        }
        if !self.is_disturbed() {
            let name = self.name(place);
            self.find(Assertion::NoFailedCheckouts, now, || format!("{name}: {error}"));
        }
    }

    // Disturbances.

    /// Whether something is wrong, or has been and the fleet is not whole yet.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.open_windows > 0 || self.finished
    }

    /// Something goes wrong.
    pub(crate) fn begin(&mut self, name: String, now: Instant) -> WindowId {
        self.tick(now);
        self.second.disturbed = true;
        self.windows.push(Window::new(name, now));
        self.open_windows += 1;
        self.active += 1;
        WindowId(self.windows.len() - 1)
    }

    /// It is over. Once nothing else is wrong either, the fleet heals. `patience` is what else than the limiter may keep
    /// it from that for a while.
    pub(crate) fn over(&mut self, id: WindowId, now: Instant, patience: Duration) {
        let window = &mut self.windows[id.0];
        window.over = Some(now);
        window.patience = patience;
        self.active -= 1;
        if self.active > 0 {
            return;
        }
        let deficit = match self.fleet_goal {
            Some(goal) => goal.saturating_sub(self.total),
            None => self.members.iter().map(|member| member.target.saturating_sub(member.size)).sum(),
        };
        let bucket = bucket(&self.scenario, deficit);
        let open = self.scenario.cluster.open_time.longest();
        let open_windows = self.windows.iter().filter(|window| window.is_open());
        let patience = open_windows.map(|window| window.patience).max().unwrap_or_default();
        let allowed = (bucket + open).mul_f64(self.scenario.asserts.recover_within) + patience;
        for window in self.windows.iter_mut().filter(|window| window.is_open()) {
            window.healing = Some(Healing { since: now, deficit, bucket, patience, allowed });
        }
    }

    // Time.

    /// Looks at what time alone can break.
    pub(crate) fn tick(&mut self, now: Instant) {
        let number = now.since(self.start).as_secs();
        if number != self.second.number {
            self.turn_second(now, number);
        }
    }

    fn turn_second(&mut self, now: Instant, number: u64) {
        let Second { number: last, connects, closures, disturbed } = self.second;
        let end_of_second = self.start + Duration::from_secs(last);
        self.peaks.connects = self.peaks.connects.max(connects);
        self.peaks.closures = self.peaks.closures.max(closures);
        let asserts = self.scenario.asserts;
        if connects > asserts.max_connects_per_sec {
            let most = asserts.max_connects_per_sec;
            self.find(Assertion::MaxConnects, end_of_second, || {
                format!("{connects} connects in one second, where {most} are allowed")
            });
        }
        if closures > asserts.max_closures_per_sec {
            let most = asserts.max_closures_per_sec;
            self.find(Assertion::MaxClosures, end_of_second, || {
                format!("{closures} closed in one second, where {most} are allowed")
            });
        }
        if !disturbed {
            self.peaks.renewals = self.peaks.renewals.max(connects);
            if let Some(most) = asserts.max_renewals_per_sec.filter(|most| connects > *most) {
                self.find(Assertion::MaxRenewals, end_of_second, || {
                    format!("{connects} opened in one quiet second, where {most} are allowed")
                });
            }
        }
        self.second = Second { number, disturbed: self.is_disturbed(), ..Second::default() };
        for window in &mut self.windows {
            window.late |=
                window.is_open() && self.active == 0 && self.whole_since.is_none() && window.is_overdue(now);
        }
        self.settle(now, asserts.stable_for);
        self.report_late(now);
    }

    /// Complains, once each, about windows that are open for too long.
    fn report_late(&mut self, now: Instant) {
        let mut late = Vec::new();
        for (place, window) in self.windows.iter_mut().enumerate() {
            if let (true, false, Some(healing)) = (window.late, window.reported, window.healing) {
                window.reported = true;
                late.push((place, window.name.clone(), healing));
            }
        }
        for (place, name, Healing { deficit, allowed, .. }) in late {
            let assertion = if place == 0 { Assertion::Converges } else { Assertion::Recovers };
            self.find(assertion, now, || {
                format!("not whole within {allowed:?} of {name}, when {deficit} connections were missing")
            });
        }
    }

    /// The run is over, before anything is shut down.
    pub(crate) fn finish(&mut self, now: Instant) {
        self.turn_second(now, u64::MAX);
        let cold = self.windows[0].is_open();
        // What would have to stay whole for longer than the run lasts has stayed so for as long as it could.
        self.settle(now, Duration::ZERO);
        if self.whole_since.is_none() && !self.is_disturbed() {
            self.find(Assertion::Stable, now, || "the fleet is not whole at the end".to_owned());
        }
        if cold {
            let stable_for = self.scenario.asserts.stable_for;
            self.find(Assertion::Converges, now, || format!("never whole for {stable_for:?}"));
        }
        self.finished = true;
    }

    /// Everything has been shut down: what is left?
    pub(crate) fn left_over(&mut self, now: Instant, sessions: usize, leases: usize) {
        if sessions > 0 || leases > 0 {
            self.find(Assertion::NoLeaks, now, || {
                format!("{sessions} connections are still open and {leases} leases still held")
            });
        }
    }

    // What came of it.

    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let asserts = &self.scenario.asserts;
        self.findings.verdicts(|assertion| match assertion {
            Assertion::ZeroEmpty => asserts.zero_empty_events,
            Assertion::MaxRenewals => asserts.max_renewals_per_sec.is_some(),
            _ => true,
        })
    }

    /// How long it took until the fleet was whole for the first time and stayed so.
    pub(crate) fn converged(&self) -> Option<Duration> {
        self.windows[0].whole.map(|at| at.since(self.start))
    }

    /// How each disturbance went; the cold start is not among them.
    pub(crate) fn recoveries(&self) -> Vec<Recovery> {
        self.windows[1..].iter().map(|window| Recovery::of(window, self.start)).collect()
    }

    pub(crate) fn peaks(&self) -> Peaks {
        self.peaks
    }
}

/// How long the limiter takes to let so many in.
fn bucket(scenario: &Scenario, connections: usize) -> Duration {
    let limiters = if scenario.limiter.shared { 1 } else { scenario.services.len() };
    let at_once = (scenario.limiter.burst as usize).saturating_mul(limiters);
    #[allow(clippy::cast_precision_loss, reason = "a count below a million")]
    let queued = connections.saturating_sub(at_once) as f64;
    Duration::from_secs_f64(queued / scenario.fleet_rate())
}
