//! Watches everything, from the first event to the last, and says what was wrong.
//!
//! It goes by what the cluster counts and by what callers see. Of what a reservoir says of itself it only believes what
//! speaks against it.

use std::sync::Arc;
use std::time::Duration;

use forebay::{CheckoutError, Discard, Instant, Status};

use crate::books::{Loan, Plight};
use crate::outcome::about;
use crate::scenario::{Refusal, Scenario};
use crate::world::Refused;

mod finding;
mod order;
mod rate;
mod window;

use finding::Findings;
pub use finding::{Assertion, Verdict};
use order::Order;
use rate::Rate;
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
    /// How many leases are held, if they are limited.
    leases_held: u64,
    windows: Windows,
    connects: Rate,
    closures: Rate,
    peaks: Peaks,
    findings: Findings,
    /// What follows is the shutting down.
    finished: bool,
}

struct Member {
    /// How many connections it can use, as the cluster counts.
    size: usize,
    /// With less than this the fleet is not whole: its target, where nothing caps the fleet.
    floor: usize,
    /// When it last had less than that.
    below_until: Instant,
    /// Since when it has had less than it may own.
    short_since: Option<Instant>,
    order: Order,
}

/// The most in any one second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peaks {
    pub(crate) connects: u64,
    pub(crate) closures: u64,
    /// Connects while nothing was wrong.
    pub(crate) renewals: u64,
}

/// Where leases leave less than all targets, so much of them is in use at least: what is closed first and opened then
/// is missing in between, one for each instance.
const CAPPED_SHARE: f64 = 0.98;
/// And no instance has less than this share of what would be fair.
const FAIR_SHARE: f64 = 0.5;
/// What a reservoir promises callers who bring no limit of their own: so long when it is short of connections, and so long
/// when all are in use. Spelled out, and not asked of the reservoir.
const EMPTY_WAIT: Duration = Duration::from_millis(100);
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// What is late by less is not.
const SLACK: Duration = Duration::from_millis(10);
/// How much later than its life a connection may be closed: a slow open counts towards its age at the cluster.
const LINGERING: Duration = Duration::from_secs(15);

impl Judge {
    pub(crate) fn new(scenario: &Arc<Scenario>, start: Instant) -> Self {
        let cap = scenario.leases.map(|leases| usize::try_from(leases.limit).unwrap_or(usize::MAX));
        let cap = cap.filter(|cap| *cap < scenario.target());
        let fleet_goal = cap.map(|cap| share(cap, CAPPED_SHARE));
        #[allow(clippy::cast_precision_loss, reason = "counts below a million")]
        let fair = cap.map_or(1.0, |cap| FAIR_SHARE * cap as f64 / scenario.target() as f64);
        let member = |target| Member {
            size: 0,
            floor: share(target, fair),
            below_until: start,
            short_since: Some(start),
            order: Order::default(),
        };
        let goal = fleet_goal.unwrap_or(scenario.target());
        let cold_start = Damage {
            missing: goal,
            bucket: bucket(scenario, goal),
            allowed: scenario.asserts.converge_within,
            patience: Duration::ZERO,
        };
        let members: Vec<Member> =
            scenario.services.iter().map(|service| member(service.target_ready)).collect();
        Self {
            start,
            fleet_goal,
            below: members.iter().filter(|member| member.floor > 0).count(),
            members,
            total: 0,
            leases_held: 0,
            windows: Windows::new(start, cold_start, scenario.asserts.stable_for),
            connects: Rate::default(),
            closures: Rate::default(),
            peaks: Peaks::default(),
            findings: Findings::new(),
            finished: false,
            scenario: Arc::clone(scenario),
        }
    }

    fn find(&mut self, assertion: Assertion, now: Instant, what: impl FnOnce() -> String) {
        self.findings.add(assertion, now.since(self.start), what);
    }

    fn name(&self, place: usize) -> String {
        self.scenario.services[place].name.clone()
    }

    /// A time by a true clock that is at most `time` by one of the fleet's.
    fn stretched(&self, time: Duration) -> Duration {
        time.mul_f64(1.0 + f64::from(self.scenario.clocks.drift_ppm) / 1e6)
    }

    // The cluster.

    /// Somebody connected to the cluster, and it may have refused.
    pub(crate) fn connected(&mut self, place: usize, now: Instant, refused: Option<&Refused>) {
        self.tick(now);
        let asserts = self.scenario.asserts;
        let count = self.connects.add(now);
        self.peaks.connects = self.peaks.connects.max(count);
        if count > asserts.max_connects_per_sec {
            let most = asserts.max_connects_per_sec;
            self.find(Assertion::MaxConnects, now, || {
                format!("{count} connects in one second, where {most} are allowed")
            });
        }
        if self.windows.quiet_since().is_some_and(|since| now.since(since) >= Duration::from_secs(1)) {
            self.peaks.renewals = self.peaks.renewals.max(count);
            if let Some(most) = asserts.max_renewals_per_sec.filter(|most| count > *most) {
                self.find(Assertion::MaxRenewals, now, || {
                    format!("{count} opened in one quiet second, where {most} are allowed")
                });
            }
        }
        if let Some(refused) = refused.filter(|refused| refused.by_limits) {
            let (name, with) = (self.name(place), refused.with);
            let remedy = match with {
                Refusal::TooManyConnections => {
                    "the cluster is full: keep leases.limit within cluster.maxConnections"
                }
                Refusal::AccessDenied => "it had no token that is still good",
                _ => "the bucket is empty: share one limiter, or lower limiterPerSec and limiterBurst",
            };
            self.find(Assertion::NoRefusals, now, || {
                format!("{name} was refused with {}; {remedy}", with.name())
            });
        }
    }

    /// An instance that has just connected knows of so many connections, and holds so many leases.
    pub(crate) fn leased(&mut self, place: usize, now: Instant, connections: usize, leases: usize) {
        if connections > leases {
            let name = self.name(place);
            self.find(Assertion::Leased, now, || {
                format!("{name} has {connections} connections and {leases} leases")
            });
        }
    }

    /// The cluster ended a session because of its age.
    pub(crate) fn outlived(&mut self, place: usize, now: Instant) {
        if !self.is_disturbed(place) {
            let name = self.name(place);
            self.find(Assertion::NoAgedSessions, now, || {
                format!("a connection of {name} was never retired, and the cluster ended it")
            });
        }
    }

    /// How old a connection of this instance may be at the cluster: as long as it lives, and is held at the end of that.
    pub(crate) fn oldest(&self, place: usize) -> Duration {
        let service = &self.scenario.services[place];
        self.stretched(service.base_lifetime + service.jitter / 2)
            + service.workload.longest_hold()
            + LINGERING
    }

    /// A connection is older than that.
    pub(crate) fn aged(&mut self, place: usize, now: Instant, age: Duration) {
        let name = self.name(place);
        self.find(Assertion::NoAgedSessions, now, || format!("a connection of {name} is {} old", about(age)));
    }

    // The reservoirs.

    /// A reservoir closed a connection.
    pub(crate) fn discarded(&mut self, now: Instant, reason: Discard) {
        // What the world or an operator ends is not the reservoir's decision.
        if matches!(reason, Discard::Died | Discard::Bad | Discard::Draining) {
            return;
        }
        let count = self.closures.add(now);
        self.peaks.closures = self.peaks.closures.max(count);
        let most = self.scenario.asserts.max_closures_per_sec;
        if count > most {
            self.find(Assertion::MaxClosures, now, || {
                format!("{count} closed in one second, where {most} are allowed")
            });
        }
    }

    /// How an instance stands by its own account, and how many sessions the cluster counts.
    pub(crate) fn look(&mut self, place: usize, now: Instant, status: &Status, sessions: usize) {
        let service = &self.scenario.services[place];
        let (max_open, overlap) = (service.max_open, service.overlap);
        let bound = max_open + overlap.min(status.retiring);
        if status.owned() > bound || sessions > max_open + overlap + status.closing {
            let (name, owned, closing) = (self.name(place), status.owned(), status.closing);
            self.find(Assertion::Bound, now, || {
                format!(
                    "{name} owns {owned} and the cluster counts {sessions}, {closing} closing, where {bound} are allowed"
                )
            });
        }
    }

    /// An instance is gone, or has begun anew: nobody stands in its line.
    pub(crate) fn vanished(&mut self, place: usize) {
        self.members[place].order = Order::default();
    }

    /// An instance can use so many connections now, as the cluster counts.
    pub(crate) fn resize(&mut self, place: usize, now: Instant, size: usize, leases_held: u64) {
        self.tick(now);
        self.leases_held = leases_held;
        let max_open = self.scenario.services[place].max_open;
        let member = &mut self.members[place];
        let (was_below, is_below) = (member.size < member.floor, size < member.floor);
        self.total = self.total - member.size + size;
        self.below = self.below + usize::from(is_below) - usize::from(was_below);
        member.size = size;
        if was_below {
            member.below_until = now;
        }
        member.short_since = (size < max_open).then(|| member.short_since.unwrap_or(now));
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
        if self.is_disturbed(place) {
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

    // Callers.

    /// A caller was given a connection.
    pub(crate) fn lent(&mut self, place: usize, now: Instant, loan: &Loan) {
        let service = &self.scenario.services[place];
        let (oldest, guard) = (self.stretched(service.oldest_lent()), service.guard_window);
        let (age, remaining) = (loan.age, loan.remaining);
        if age > oldest || remaining.is_some_and(|remaining| remaining < guard) {
            let name = self.name(place);
            let left =
                remaining.map_or_else(String::new, |remaining| format!(" with {} left", about(remaining)));
            self.find(Assertion::Lives, now, || {
                format!("{name} lent a connection {} old{left}; {} is the most", about(age), about(oldest))
            });
        }
        if !loan.alive {
            let name = self.name(place);
            self.find(Assertion::Lives, now, || format!("{name} lent a dead connection"));
        }
        if !self.members[place].order.serve(loan.number, now) {
            self.overtaken(place, now, loan.number);
        }
        self.answered(place, now, loan.waited);
    }

    /// A caller got nothing.
    pub(crate) fn checkout_failed(&mut self, place: usize, now: Instant, plight: &Plight<'_>) {
        let error = plight.error;
        if self.scenario.asserts.zero_empty_events && matches!(error, CheckoutError::Empty { .. }) {
            let name = self.name(place);
            self.find(Assertion::ZeroEmpty, now, || format!("{name}: {error}"));
        }
        let member = &self.members[place];
        // While it waited, or until shortly before.
        let lacked = member.size < member.floor || now.since(member.below_until) <= plight.waited + SLACK;
        let excused = self.is_disturbed(place) && lacked && !matches!(error, CheckoutError::Closed);
        if !excused {
            let name = self.name(place);
            self.find(Assertion::NoFailedCheckouts, now, || format!("{name}: {error}"));
        }
        if !self.members[place].order.is_in_order(plight.number, now) {
            self.overtaken(place, now, plight.number);
        }
        self.answered(place, now, plight.waited);
    }

    fn overtaken(&mut self, place: usize, now: Instant, number: u64) {
        let name = self.name(place);
        self.find(Assertion::FirstComeFirstServed, now, || {
            format!("caller {number} of {name} was overtaken")
        });
    }

    /// Whether a caller has waited no longer than it was promised.
    fn answered(&mut self, place: usize, now: Instant, waited: Duration) {
        let workload = &self.scenario.services[place].workload;
        let short = self.members[place].short_since.is_some_and(|since| now.since(since) >= waited);
        let limit = match (workload.max_wait, short) {
            // A reservoir takes what is lent for its own until it comes back, dead or alive.
            (Duration::ZERO, true) => EMPTY_WAIT + workload.longest_hold(),
            (Duration::ZERO, false) => ACQUIRE_TIMEOUT,
            (own, _) => own,
        };
        if waited > self.stretched(limit) + SLACK {
            let name = self.name(place);
            self.find(Assertion::Answered, now, || {
                format!("a caller of {name} waited {}, where {} was promised", about(waited), about(limit))
            });
        }
    }

    // Disturbances.

    /// Whether something is wrong for this instance, or has been and the fleet is not whole yet.
    fn is_disturbed(&self, place: usize) -> bool {
        self.finished || self.windows.is_open_for(place)
    }

    /// Something goes wrong, for these instances or for all.
    pub(crate) fn begin(&mut self, name: String, whom: Option<Vec<usize>>, now: Instant) -> WindowId {
        self.tick(now);
        self.windows.begin(name, whom, now)
    }

    /// It is over. Once nothing else is wrong either, the fleet heals. `patience` is what else than the limiter may keep
    /// it from that for a while.
    pub(crate) fn over(&mut self, id: WindowId, now: Instant, patience: Duration) {
        let missing = self.missing();
        let bucket = bucket(&self.scenario, missing);
        let open = self.scenario.cluster.open_time.longest();
        let allowed = (bucket + open).mul_f64(self.scenario.asserts.recover_within);
        // Who is to start later cannot be whole before.
        let started = self.scenario.services.iter().map(|service| self.start + service.start_delay).max();
        let patience = patience.max(started.unwrap_or(now).since(now));
        self.windows.over(id, now, Damage { missing, bucket, allowed, patience });
    }

    // Time.

    /// Looks at what time alone can break.
    pub(crate) fn tick(&mut self, now: Instant) {
        if !self.finished {
            let late = self.windows.tick(now);
            self.report(now, late);
        }
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
    pub(crate) fn left_over(
        &mut self,
        now: Instant,
        sessions: usize,
        leases: usize,
        unfinished: Vec<String>,
    ) {
        if sessions > 0 || leases > 0 {
            self.find(Assertion::NoLeaks, now, || {
                format!("{sessions} connections are still open and {leases} leases still held")
            });
        }
        for left in unfinished {
            self.find(Assertion::NoLeaks, now, || left);
        }
    }

    // What came of it.

    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let asserts = &self.scenario.asserts;
        self.findings.verdicts(|assertion| match assertion {
            Assertion::ZeroEmpty => asserts.zero_empty_events,
            Assertion::MaxRenewals => asserts.max_renewals_per_sec.is_some(),
            Assertion::Leased => self.scenario.leases.is_some(),
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
