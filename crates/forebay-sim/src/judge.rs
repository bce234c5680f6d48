//! Watches everything, from the first event to the last, and says what was wrong.
//!
//! It goes by what the cluster counts and by what callers see. Of what a reservoir says of itself it only believes what
//! speaks against it.

use std::sync::Arc;
use std::time::Duration;

use forebay::Instant;
use forebay_fleet::LeaseMode;

use crate::outcome::about;
use crate::scenario::{Scenario, Service};

// What it sees.
mod callers;
mod cluster;
mod reservoirs;
mod shared;

// What it is made of.
mod finding;
mod order;
mod rate;
mod window;

use finding::Findings;
pub use finding::{Assertion, Verdict};
use order::Order;
use rate::Rate;
use shared::{Bucket, Trouble};
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
    /// The bucket that the fleet shares, if it does.
    bucket: Option<Bucket>,
    trouble: Trouble,
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
    /// How many it may own at present,
    max_open: usize,
    /// and since when it has had less than that.
    short_since: Option<Instant>,
    /// Until when it last stood still; for ever, while it does.
    resumed: Instant,
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

impl Judge {
    pub(crate) fn new(scenario: &Arc<Scenario>, start: Instant) -> Self {
        let cap = scenario.leases.map(|leases| usize::try_from(leases.limit).unwrap_or(usize::MAX));
        let cap = cap.filter(|cap| *cap < scenario.target());
        let fleet_goal = cap.map(|cap| share(cap, CAPPED_SHARE));
        #[allow(clippy::cast_precision_loss, reason = "counts below a million")]
        let fair = cap.map_or(1.0, |cap| FAIR_SHARE * cap as f64 / scenario.target() as f64);
        let member = |service: &Service| Member {
            size: 0,
            floor: share(service.target_ready, fair),
            max_open: service.max_open,
            below_until: start,
            short_since: Some(start),
            resumed: start,
            order: Order::default(),
        };
        let goal = fleet_goal.unwrap_or(scenario.target());
        let cold_start = Damage {
            missing: goal,
            bucket: bucket(scenario, goal),
            allowed: scenario.asserts.converge_within,
            patience: Duration::ZERO,
        };
        let members: Vec<Member> = scenario.services.iter().map(member).collect();
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
            bucket: Bucket::of(scenario, start),
            trouble: Trouble::new(start),
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
        let patience = if self.scenario.limiter.mode.is_some() { patience + TURNS } else { patience };
        // A call that is lost is given up after five seconds; a process that begins or ends may lose two.
        let lossy = self.scenario.table.is_some_and(|table| table.error_rate + table.lost_answers > 0.0);
        let patience = if lossy { patience + 2 * LOST_CALL } else { patience };
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
    pub(crate) fn left_over(&mut self, now: Instant, sessions: usize, leases: u64, unfinished: Vec<String>) {
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
            Assertion::WithinBucket => self.bucket.is_some(),
            Assertion::LedgerAddsUp | Assertion::WithinLimit | Assertion::Reaped => {
                self.scenario.leases.is_some_and(|leases| leases.mode == LeaseMode::Ledger)
            }
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

/// Of a rate and burst that are shared, this part goes with the slots; and so many seconds of the rate are kept back.
const BY_SLOTS: f64 = 0.2;
const KEPT_BACK: f64 = 2.5;
/// How long the table may be asked for turns in small bites before the burst is had, and slots with it.
const TURNS: Duration = Duration::from_secs(2);
const LOST_CALL: Duration = Duration::from_secs(5);

/// How long the limiter takes to let so many in.
fn bucket(scenario: &Scenario, connections: usize) -> Duration {
    let limiters = if scenario.limiter.shared { 1 } else { scenario.services.len() };
    let at_once = (scenario.limiter.burst as usize).saturating_mul(limiters);
    let (mut at_once, mut per_second) = (at_once, scenario.fleet_rate());
    if scenario.limiter.mode.is_some() {
        // Of a bucket that is shared, a part goes with the slots and a part is kept back.
        if scenario.leases.is_some() {
            (at_once, per_second) = (share(at_once, 1.0 - BY_SLOTS), per_second * (1.0 - BY_SLOTS));
        }
        at_once = at_once.saturating_sub(share(1, KEPT_BACK * scenario.fleet_rate()));
    }
    #[allow(clippy::cast_precision_loss, reason = "a count below a million")]
    let queued = connections.saturating_sub(at_once) as f64;
    Duration::from_secs_f64(queued / per_second)
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
