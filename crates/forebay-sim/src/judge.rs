//! Checks the assertions during the whole run.
//!
//! It relies on what the cluster counts and what callers see. It uses a reservoir's own figures only as
//! evidence against that reservoir.
//!
//! The fleet is *at target* when every instance owns its target; where leases leave less than that, when the
//! fleet uses nearly all leases and no instance has much less than its share.

use std::sync::Arc;
use std::time::Duration;

use forebay::Instant;
use forebay_fleet::{LeaseMode, RateMode};

use crate::latency::share;
use crate::outcome::about;
use crate::scenario::{Scenario, Service};

// Inputs.
mod callers;
mod cluster;
mod reservoirs;
mod shared;

// Parts.
mod disturbance;
mod finding;
mod order;
mod rate;

pub(crate) use disturbance::DisturbanceId;
pub use disturbance::Recovery;
use disturbance::{Allowance, Disturbances, LateRecovery};
use finding::Findings;
pub use finding::{Assertion, Verdict};
use order::ServingOrder;
use rate::SlidingSecond;
use shared::{Bucket, TableAccess};

pub(crate) struct Judge {
    scenario: Arc<Scenario>,
    start: Instant,
    instances: Vec<InstanceState>,
    /// The fleet's target where leases leave less than the sum of all targets.
    capped_target: Option<usize>,
    /// How many instances are below their floor.
    below: usize,
    /// The usable connections of the fleet.
    total: usize,
    leases_held: u64,
    disturbances: Disturbances,
    connects: SlidingSecond,
    closures: SlidingSecond,
    /// The bucket or the window that the fleet shares, if it shares one.
    bucket: Option<Bucket>,
    table_access: TableAccess,
    peaks: Peaks,
    findings: Findings,
    /// The run is over, and the shutdown follows.
    finished: bool,
}

struct InstanceState {
    /// Its usable connections, by the cluster's count.
    size: usize,
    /// The fleet is not at target while `size` is below this: the target, or less where leases limit the
    /// fleet.
    floor: usize,
    /// When it was last below its floor.
    below_until: Instant,
    /// How many connections it may own at present.
    max_open: usize,
    /// Since when `size` has been below `max_open`.
    short_since: Option<Instant>,
    /// When its last pause ended; `NEVER` during a pause.
    resumed: Instant,
    order: ServingOrder,
}

/// The highest counts of any one second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peaks {
    pub(crate) connects: u64,
    pub(crate) closures: u64,
    /// Connects without a disturbance.
    pub(crate) renewals: u64,
}

/// Where leases leave less than all targets, the fleet uses at least this share of them. Each instance may
/// lack one connection, because it must close a connection before it can open the next.
const CAPPED_SHARE: f64 = 0.98;
/// There, no instance has less than this share of its fair share.
const FAIR_SHARE: f64 = 0.5;

impl Judge {
    pub(crate) fn new(scenario: &Arc<Scenario>, start: Instant) -> Self {
        let cap = scenario.leases.map(|leases| usize::try_from(leases.limit).unwrap_or(usize::MAX));
        let cap = cap.filter(|cap| *cap < scenario.target());
        let capped_target = cap.map(|cap| share(cap, CAPPED_SHARE));
        let fair = cap.map_or(1.0, |cap| FAIR_SHARE * cap as f64 / scenario.target() as f64);
        let instance = |service: &Service| InstanceState {
            size: 0,
            floor: share(service.target_ready, fair),
            max_open: service.max_open,
            below_until: start,
            short_since: Some(start),
            resumed: start,
            order: ServingOrder::default(),
        };
        let target = capped_target.unwrap_or(scenario.target());
        let cold_start = Allowance {
            missing: target,
            limiter_time: limiter_time(scenario, target),
            allowed: scenario.asserts.converge_within,
            patience: Duration::ZERO,
        };
        let instances: Vec<InstanceState> = scenario.services.iter().map(instance).collect();
        Self {
            start,
            capped_target,
            below: instances.iter().filter(|state| state.floor > 0).count(),
            instances,
            total: 0,
            leases_held: 0,
            disturbances: Disturbances::new(start, cold_start, scenario.asserts.stable_for),
            connects: SlidingSecond::default(),
            closures: SlidingSecond::default(),
            bucket: Bucket::of(scenario, start),
            table_access: TableAccess::new(start),
            peaks: Peaks::default(),
            findings: Findings::new(),
            finished: false,
            scenario: Arc::clone(scenario),
        }
    }

    fn find(&mut self, assertion: Assertion, now: Instant, what: impl FnOnce() -> String) {
        self.findings.add(assertion, now.since(self.start), what);
    }

    fn target(&self) -> usize {
        self.capped_target.unwrap_or(self.scenario.target())
    }

    /// Adds a finding about one instance; `what` gets its name.
    fn find_for(
        &mut self,
        assertion: Assertion,
        instance: usize,
        now: Instant,
        what: impl FnOnce(&str) -> String,
    ) {
        let name = &self.scenario.services[instance].name;
        self.findings.add(assertion, now.since(self.start), || what(name));
    }

    /// The longest true time in which a clock of the fleet can measure `time`.
    fn stretched(&self, time: Duration) -> Duration {
        time.mul_f64(1.0 + f64::from(self.scenario.clocks.drift_ppm) / 1e6)
    }

    // Disturbances.

    /// Whether a disturbance of this instance goes on, or the fleet has not recovered from one.
    fn is_disturbed(&self, instance: usize) -> bool {
        self.finished || self.disturbances.is_open_for(instance)
    }

    /// A fault disturbs these instances, or all.
    pub(crate) fn begin(
        &mut self,
        name: String,
        instances: Option<Vec<usize>>,
        now: Instant,
    ) -> DisturbanceId {
        self.tick(now);
        self.disturbances.begin(name, instances, now)
    }

    /// The fault is over. The fleet recovers once no other goes on. `patience` is the time that its recovery
    /// may take besides the limiter's.
    pub(crate) fn over(&mut self, id: DisturbanceId, now: Instant, patience: Duration) {
        let missing = self.missing();
        let limiter_time = limiter_time(&self.scenario, missing);
        let open = self.scenario.cluster.open_time.longest();
        let allowed = (limiter_time + open).mul_f64(self.scenario.asserts.recover_within);
        // An instance that starts later cannot be at target before.
        let started = self.scenario.services.iter().map(|service| self.start + service.start_delay).max();
        let patience = patience.max(started.unwrap_or(now).since(now));
        let patience = if self.scenario.limiter.mode.is_some() { patience + RATE_SHARES } else { patience };
        // A process that starts or stops may lose two calls.
        let patience = if self.is_lossy() { patience + 2 * LOST_CALL } else { patience };
        self.disturbances.over(id, now, Allowance { missing, limiter_time, allowed, patience });
    }

    /// Whether the table loses calls.
    fn is_lossy(&self) -> bool {
        self.scenario.table.is_some_and(|table| table.error_rate + table.lost_answers > 0.0)
    }

    // Time.

    /// Checks what the passage of time can break.
    pub(crate) fn tick(&mut self, now: Instant) {
        if !self.finished {
            let late = self.disturbances.tick(now);
            self.report(now, late);
        }
    }

    fn report(&mut self, now: Instant, late: Vec<LateRecovery>) {
        for LateRecovery { name, is_cold_start, allowed } in late {
            let assertion = if is_cold_start { Assertion::Converges } else { Assertion::Recovers };
            let (missing, target) = (self.missing(), self.target());
            self.find(assertion, now, || {
                let allowed = about(allowed);
                format!("not at target {allowed} after the end of {name}; {missing} of {target} are missing")
            });
        }
    }

    /// The run is over; the shutdown follows.
    pub(crate) fn finish(&mut self, now: Instant) {
        let late = self.disturbances.finish(now);
        self.report(now, late);
        if self.disturbances.converged().is_none() {
            let (missing, target) = (self.missing(), self.target());
            self.find(Assertion::Converges, now, || {
                format!("never at target; {missing} of {target} are missing at the end")
            });
        }
        self.finished = true;
    }

    /// Everything has been shut down: reports what is left.
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

    // Results.

    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let asserts = &self.scenario.asserts;
        self.findings.verdicts(|assertion| match assertion {
            Assertion::ZeroEmpty => asserts.zero_empty_events,
            Assertion::MaxRenewals => asserts.max_renewals_per_sec.is_some(),
            Assertion::Leased => self.scenario.leases.is_some(),
            Assertion::WithinBucket | Assertion::WithinWindow => {
                self.bucket.is_some_and(|bucket| bucket.assertion() == assertion)
            }
            Assertion::LedgerAddsUp | Assertion::WithinLimit | Assertion::Reaped => {
                self.scenario.leases.is_some_and(|leases| leases.mode == LeaseMode::Ledger)
            }
            _ => true,
        })
    }

    /// The time until the fleet was at target for the first time and stayed there.
    pub(crate) fn converged(&self) -> Option<Duration> {
        self.disturbances.converged().map(|at| at.since(self.start))
    }

    /// The recovery from each disturbance, without the cold start.
    pub(crate) fn recoveries(&self) -> Vec<Recovery> {
        self.disturbances.recoveries(self.start)
    }

    pub(crate) fn peaks(&self) -> Peaks {
        self.peaks
    }
}

/// The part of a shared rate and burst that the fleet hands out with slots.
const BY_SLOTS: f64 = 0.2;
/// The reserve of a shared rate, in seconds of that rate.
const RESERVE: f64 = 2.5;
/// How long the fleet may take to get the burst, and slots, from the table in small batches.
const RATE_SHARES: Duration = Duration::from_secs(2);
/// The timeout of a call whose answer is lost.
const LOST_CALL: Duration = Duration::from_secs(5);

/// How long the limiter takes to admit so many connections.
fn limiter_time(scenario: &Scenario, connections: usize) -> Duration {
    let limiters = if scenario.limiter.shared { 1 } else { scenario.services.len() };
    let at_once = (scenario.limiter.burst as usize).saturating_mul(limiters);
    let (mut at_once, mut per_second) = (at_once, scenario.fleet_rate());
    if scenario.limiter.mode == Some(RateMode::Window) {
        // The permits of one second. There is no burst, and slots have no part.
        at_once = share(1, per_second);
    } else if scenario.limiter.mode.is_some() {
        if scenario.leases.is_some() {
            (at_once, per_second) = (share(at_once, 1.0 - BY_SLOTS), per_second * (1.0 - BY_SLOTS));
        }
        at_once = at_once.saturating_sub(share(1, RESERVE * scenario.fleet_rate()));
    }
    let queued = connections.saturating_sub(at_once) as f64;
    Duration::from_secs_f64(queued / per_second)
}
