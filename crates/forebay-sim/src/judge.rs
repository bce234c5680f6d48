//! Watches everything, from the first event to the last, and says what was wrong.
//!
//! It goes by what the cluster counts and by what callers see, not by what the reservoir says of itself; only how many
//! connections an instance owns is asked of its reservoir, and compared with the cluster's count.

use std::sync::Arc;
use std::time::Duration;

use forebay::{CheckoutError, Discard, Instant, Status};

use crate::outcome::about;
use crate::scenario::{Refusal, Scenario};
use crate::world::Refused;

mod finding;
mod order;
mod window;

use finding::Findings;
pub use finding::{Assertion, Verdict};
use order::Order;
pub use window::Recovery;
pub(crate) use window::WindowId;
use window::{Damage, Late, Windows};

pub(crate) struct Judge {
    scenario: Arc<Scenario>,
    start: Instant,
    members: Vec<Member>,
    /// Where leases leave less than all targets: how many connections the fleet is to have.
    fleet_goal: Option<usize>,
    /// How many instances have less than they should.
    below: usize,
    /// How many connections all have together.
    total: usize,
    windows: Windows,
    /// How many leases are held, if they are limited.
    leases_held: u64,
    /// What follows is the shutting down.
    finished: bool,
    second: Second,
    peaks: Peaks,
    findings: Findings,
}

struct Member {
    size: usize,
    /// With less than this the fleet is not whole: its target, where nothing caps the fleet.
    floor: usize,
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
/// And no instance has less than this share of what would be fair.
const FAIR_SHARE: f64 = 0.5;

impl Judge {
    pub(crate) fn new(scenario: &Arc<Scenario>, start: Instant) -> Self {
        let cap = scenario.leases.map(|leases| usize::try_from(leases.limit).unwrap_or(usize::MAX));
        let cap = cap.filter(|cap| *cap < scenario.target());
        let fleet_goal = cap.map(|cap| share(cap, CAPPED_SHARE));
        #[allow(clippy::cast_precision_loss, reason = "counts below a million")]
        let fair = cap.map_or(1.0, |cap| FAIR_SHARE * cap as f64 / scenario.target() as f64);
        let member = |target| Member { size: 0, floor: share(target, fair), order: Order::default() };
        let goal = fleet_goal.unwrap_or(scenario.target());
        let cold_start = Damage {
            missing: goal,
            bucket: bucket(scenario, goal),
            allowed: scenario.asserts.converge_within,
            patience: Duration::ZERO,
        };
        Self {
            start,
            members: scenario.services.iter().map(|service| member(service.target_ready)).collect(),
            fleet_goal,
            below: scenario.services.len(),
            total: 0,
            windows: Windows::new(start, cold_start, scenario.asserts.stable_for),
            leases_held: 0,
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
            let (name, with) = (self.name(place), refused.with);
            let remedy = match with {
                Refusal::TooManyConnections => {
                    "the cluster is full: keep leases.limit within cluster.maxConnections"
                }
                _ => "the bucket is empty: share one limiter, or lower limiterPerSec and limiterBurst",
            };
            self.find(Assertion::NoRefusals, now, || {
                format!("{name} was refused with {}; {remedy}", with.name())
            });
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

    /// How an instance stands now, by its own account and by the cluster's, and how many leases the fleet holds.
    pub(crate) fn look(&mut self, place: usize, now: Instant, status: &Status, sessions: usize, leases: u64) {
        let service = &self.scenario.services[place];
        let bound = service.max_open + service.overlap;
        self.leases_held = leases;
        if status.owned() > bound || sessions > bound + status.closing {
            let (name, owned, closing) = (self.name(place), status.owned(), status.closing);
            self.find(Assertion::Bound, now, || {
                format!(
                    "{name} owns {owned} and the cluster counts {sessions}, {closing} closing, where {bound} are allowed"
                )
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
        let (was_below, is_below) = (member.size < member.floor, size < member.floor);
        self.total = self.total - member.size + size;
        self.below = self.below + usize::from(is_below) - usize::from(was_below);
        member.size = size;
        let whole = self.below == 0 && self.fleet_goal.is_none_or(|goal| self.total >= goal);
        match (whole, self.windows.is_whole()) {
            (true, false) => self.windows.mend(now),
            (false, true) => self.fell_apart(place, now),
            _ => {}
        }
    }

    fn fell_apart(&mut self, place: usize, now: Instant) {
        let late = self.windows.tear(now);
        self.report(now, late);
        if self.is_disturbed() {
            return;
        }
        let (name, size, target) =
            (self.name(place), self.members[place].size, self.scenario.services[place].target_ready);
        let total = self.total;
        let why = match self.scenario.leases {
            Some(leases) if self.leases_held >= leases.limit => {
                format!("all {} leases are held: raise leases.limit, or lower maxOpen", leases.limit)
            }
            _ => "nothing was wrong".to_owned(),
        };
        self.find(Assertion::Stable, now, || {
            format!("{name} fell to {size} of {target}, {total} in the fleet; {why}")
        });
    }

    /// How many connections the fleet lacks.
    fn missing(&self) -> usize {
        match self.fleet_goal {
            Some(goal) => goal.saturating_sub(self.total),
            None => self.members.iter().map(|member| member.floor.saturating_sub(member.size)).sum(),
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
        self.windows.any_open() || self.finished
    }

    /// Something goes wrong.
    pub(crate) fn begin(&mut self, name: String, now: Instant) -> WindowId {
        self.tick(now);
        self.second.disturbed = true;
        self.windows.begin(name, now)
    }

    /// It is over. Once nothing else is wrong either, the fleet heals. `patience` is what else than the limiter may keep
    /// it from that for a while.
    pub(crate) fn over(&mut self, id: WindowId, now: Instant, patience: Duration) {
        // What is over only because everything is shut down has not been seen to the end.
        if self.finished {
            return;
        }
        let missing = self.missing();
        let bucket = bucket(&self.scenario, missing);
        let open = self.scenario.cluster.open_time.longest();
        let allowed = (bucket + open).mul_f64(self.scenario.asserts.recover_within);
        self.windows.over(id, now, Damage { missing, bucket, allowed, patience });
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
        let late = self.windows.tick(now);
        self.report(now, late);
    }

    fn report(&mut self, now: Instant, late: Vec<Late>) {
        for Late { name, is_cold_start, allowed } in late {
            let assertion = if is_cold_start { Assertion::Converges } else { Assertion::Recovers };
            let (missing, goal) = (self.missing(), self.fleet_goal.unwrap_or(self.scenario.target()));
            self.find(assertion, now, || {
                format!(
                    "not whole {} after {name} was over; {missing} of {goal} missing still",
                    about(allowed)
                )
            });
        }
    }

    /// The run is over, before anything is shut down.
    pub(crate) fn finish(&mut self, now: Instant) {
        self.turn_second(now, u64::MAX);
        let late = self.windows.finish(now);
        self.report(now, late);
        if self.windows.converged().is_none() {
            let (missing, goal) = (self.missing(), self.fleet_goal.unwrap_or(self.scenario.target()));
            self.find(Assertion::Converges, now, || {
                format!("never whole; {missing} of {goal} missing at the end")
            });
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
        self.windows.converged().map(|at| at.since(self.start))
    }

    /// How each disturbance went; the cold start is not among them.
    pub(crate) fn recoveries(&self) -> Vec<Recovery> {
        self.windows.recoveries(self.start)
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

/// A share of a count, rounded down.
fn share(of: usize, share: f64) -> usize {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a count below a million"
    )]
    let share = (of as f64 * share) as usize;
    share
}
