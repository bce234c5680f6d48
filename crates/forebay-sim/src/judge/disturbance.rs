//! Disturbances, and the time that the fleet has to recover from each.

use std::time::Duration;

use forebay::Instant;

/// The index of a disturbance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DisturbanceId(usize);

/// Lasts from the begin of a fault until the fleet is at target again and stays there.
#[derive(Clone, Debug)]
pub(super) struct Disturbance {
    name: String,
    /// None: all instances.
    instances: Option<Vec<usize>>,
    began: Instant,
    /// When the fault was over.
    over: Option<Instant>,
    /// The allowance since then. Its `allowed` is part of `deadline`.
    allowance: Allowance,
    /// None while a fault goes on.
    deadline: Option<Instant>,
    /// When the fleet was at target again.
    recovered: Option<Instant>,
    /// It was not at target by the deadline.
    late: bool,
}

impl Disturbance {
    fn new(name: String, instances: Option<Vec<usize>>, began: Instant) -> Self {
        let allowance = Allowance::default();
        Self { name, instances, began, over: None, allowance, deadline: None, recovered: None, late: false }
    }

    fn is_open(&self) -> bool {
        self.recovered.is_none()
    }
}

/// All disturbances of a run. The first is the cold start.
pub(super) struct Disturbances {
    list: Vec<Disturbance>,
    /// How many are open: the fault goes on, or the fleet has not recovered.
    open: usize,
    /// How many faults go on.
    active: usize,
    at_target_since: Option<Instant>,
    /// By then all reservoirs have noticed the end of the last fault.
    noticed_by: Instant,
    /// When all were last closed.
    closed_at: Instant,
    /// How long the fleet must stay at target.
    stable_for: Duration,
}

/// The work that a fault leaves, and the time for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    /// How many connections the fleet lacks.
    pub(super) missing: usize,
    /// How long the limiter takes to admit them.
    pub(super) limiter_time: Duration,
    /// How long the fleet may take to open them.
    pub(super) allowed: Duration,
    /// How long reservoirs may take to notice the end of the fault before that.
    pub(super) patience: Duration,
}

/// A recovery that missed its deadline.
#[derive(Clone, Debug)]
pub(super) struct LateRecovery {
    pub(super) name: String,
    pub(super) is_cold_start: bool,
    pub(super) allowed: Duration,
}

impl Disturbances {
    pub(super) fn new(start: Instant, allowance: Allowance, stable_for: Duration) -> Self {
        let cold_start = Disturbance {
            over: Some(start),
            allowance,
            deadline: Some(start + allowance.allowed),
            ..Disturbance::new("cold_start".to_owned(), None, start)
        };
        Self {
            list: vec![cold_start],
            open: 1,
            active: 0,
            at_target_since: None,
            noticed_by: start,
            closed_at: start,
            stable_for,
        }
    }

    /// Whether a fault goes on, or the fleet has not recovered from one.
    pub(super) fn any_open(&self) -> bool {
        self.open > 0
    }

    /// The same for one instance.
    pub(super) fn is_open_for(&self, instance: usize) -> bool {
        let affects = |one: &Disturbance| one.instances.as_ref().is_none_or(|all| all.contains(&instance));
        self.any_open() && self.list.iter().rev().any(|one| one.is_open() && affects(one))
    }

    /// Since when no disturbance is open.
    pub(super) fn quiet_since(&self) -> Option<Instant> {
        (!self.any_open()).then_some(self.closed_at)
    }

    /// A fault begins, for these instances or for all.
    pub(super) fn begin(
        &mut self,
        name: String,
        instances: Option<Vec<usize>>,
        now: Instant,
    ) -> DisturbanceId {
        self.list.push(Disturbance::new(name, instances, now));
        self.open += 1;
        self.active += 1;
        DisturbanceId(self.list.len() - 1)
    }

    /// The fault is over. Once no other goes on, the fleet must recover.
    pub(super) fn over(&mut self, id: DisturbanceId, now: Instant, allowance: Allowance) {
        let Some(disturbance) = self.list.get_mut(id.0).filter(|disturbance| disturbance.over.is_none())
        else {
            return;
        };
        disturbance.over = Some(now);
        disturbance.allowance = allowance;
        self.active -= 1;
        if self.active > 0 {
            return;
        }
        let open = self.list.iter_mut().filter(|disturbance| disturbance.is_open());
        let patience = open.map(|disturbance| disturbance.allowance.patience).max().unwrap_or_default();
        self.noticed_by = now + patience;
        let deadline = now + patience + allowance.allowed;
        for disturbance in self.list.iter_mut().filter(|disturbance| disturbance.is_open()) {
            // Never earlier than before: the deadline of the cold start stays.
            disturbance.deadline =
                Some(disturbance.deadline.map_or(deadline, |promised| promised.max(deadline)));
        }
    }

    pub(super) fn is_at_target(&self) -> bool {
        self.at_target_since.is_some()
    }

    pub(super) fn reached_target(&mut self, now: Instant) {
        self.at_target_since = Some(now);
    }

    pub(super) fn fell_below_target(&mut self, now: Instant) -> Vec<LateRecovery> {
        let late = self.tick(now);
        self.at_target_since = None;
        late
    }

    /// Closes all disturbances if it is time to, and tells which turn out to be late.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<LateRecovery> {
        let Some(since) = self.at_target_since else {
            let overdue =
                |disturbance: &Disturbance| disturbance.deadline.is_some_and(|deadline| now > deadline);
            return if self.active == 0 { self.note_late(overdue) } else { Vec::new() };
        };
        // A reservoir that has not noticed the end of the fault may still act on it.
        if self.open == 0 || self.active > 0 || now.since(since) < self.stable_for || now < self.noticed_by {
            return Vec::new();
        }
        self.close(since, now)
    }

    /// The run is over: the fleet need not stay at target any longer.
    pub(super) fn finish(&mut self, now: Instant) -> Vec<LateRecovery> {
        match self.at_target_since {
            Some(since) if self.active == 0 => self.close(since, now),
            _ => self.tick(now),
        }
    }

    fn close(&mut self, since: Instant, now: Instant) -> Vec<LateRecovery> {
        if self.open == 0 {
            return Vec::new();
        }
        let late =
            self.note_late(|disturbance| disturbance.deadline.is_some_and(|deadline| since > deadline));
        for disturbance in self.list.iter_mut().filter(|disturbance| disturbance.is_open()) {
            // It may have been at target before this fault was over.
            disturbance.recovered = Some(disturbance.over.map_or(since, |over| since.max(over)));
        }
        self.open = 0;
        self.closed_at = now;
        late
    }

    /// Notes each late disturbance once.
    fn note_late(&mut self, is_late: impl Fn(&Disturbance) -> bool) -> Vec<LateRecovery> {
        let mut late = Vec::new();
        for (instance, disturbance) in self.list.iter_mut().enumerate() {
            if disturbance.is_open() && !disturbance.late && is_late(disturbance) {
                disturbance.late = true;
                let (Some(deadline), Some(over)) = (disturbance.deadline, disturbance.over) else { continue };
                let allowed = deadline.since(over);
                late.push(LateRecovery {
                    name: disturbance.name.clone(),
                    is_cold_start: instance == 0,
                    allowed,
                });
            }
        }
        late
    }

    /// When the fleet was at target for the first time and stayed there.
    pub(super) fn converged(&self) -> Option<Instant> {
        self.list[0].recovered
    }

    /// The recovery from each disturbance, without the cold start.
    pub(super) fn recoveries(&self, start: Instant) -> Vec<Recovery> {
        self.list[1..].iter().map(|disturbance| Recovery::of(disturbance, start)).collect()
    }
}

/// The recovery from one disturbance.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Recovery {
    /// The fault and its details.
    pub disturbance: String,
    /// When the fault began, since the start of the run.
    pub began: Duration,
    /// When the fault was over; `None` if the run ended first.
    pub over: Option<Duration>,
    /// How many connections the fleet lacked at that time.
    pub deficit: usize,
    /// How long the limiter takes to admit them.
    pub limiter_time: Duration,
    /// The time allowed for the recovery, since `over`; `None` if the run ended during a fault.
    pub allowed: Option<Duration>,
    /// The time it took, since `over`; `None` if the run ended first.
    pub took: Option<Duration>,
    /// It took longer than allowed.
    pub late: bool,
}

impl Recovery {
    fn of(disturbance: &Disturbance, start: Instant) -> Self {
        let since_over = |at: Option<Instant>| Some(at?.since(disturbance.over?));
        Self {
            disturbance: disturbance.name.clone(),
            began: disturbance.began.since(start),
            over: disturbance.over.map(|over| over.since(start)),
            deficit: disturbance.allowance.missing,
            limiter_time: disturbance.allowance.limiter_time,
            allowed: since_over(disturbance.deadline),
            took: since_over(disturbance.recovered),
            late: disturbance.late,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn allowance(missing: usize, allowed: u64, patience: u64) -> Allowance {
        Allowance {
            missing,
            limiter_time: Duration::ZERO,
            allowed: seconds(allowed),
            patience: seconds(patience),
        }
    }

    /// At target since second 10, with no disturbance.
    fn calm() -> Disturbances {
        let mut disturbances = Disturbances::new(at(0), allowance(100, 60, 0), seconds(5));
        disturbances.reached_target(at(10));
        assert!(disturbances.tick(at(14)).is_empty() && disturbances.any_open(), "not yet stable");
        assert!(disturbances.tick(at(15)).is_empty() && !disturbances.any_open());
        disturbances
    }

    #[test]
    fn convergence_is_the_time_of_reaching_the_target() {
        assert_eq!(calm().converged(), Some(at(10)));
    }

    #[test]
    fn a_relapse_starts_the_time_again() {
        let mut disturbances = Disturbances::new(at(0), allowance(100, 12, 0), seconds(5));
        disturbances.reached_target(at(10));
        assert!(disturbances.fell_below_target(at(12)).is_empty());
        disturbances.reached_target(at(13));
        let late = disturbances.tick(at(18));
        assert_eq!((late.len(), late[0].is_cold_start), (1, true), "at target after 13 s, not after 10");
        assert_eq!(disturbances.converged(), Some(at(13)));
    }

    #[test]
    fn a_fault_without_effect_closes_once_it_is_noticed() {
        let mut disturbances = calm();
        let id = disturbances.begin("outage".to_owned(), None, at(100));
        disturbances.over(id, at(120), allowance(0, 1, 10));
        disturbances.tick(at(129));
        assert!(disturbances.any_open(), "a reservoir may not have noticed");
        disturbances.tick(at(130));
        let recovery = &disturbances.recoveries(at(0))[0];
        assert_eq!((recovery.took, recovery.late, disturbances.any_open()), (Some(seconds(0)), false, false));
    }

    #[test]
    fn overlapping_disturbances_recover_together() {
        let mut disturbances = calm();
        let first = disturbances.begin("first".to_owned(), Some(vec![1]), at(100));
        disturbances.fell_below_target(at(100));
        let second = disturbances.begin("second".to_owned(), Some(vec![2]), at(105));
        assert!(disturbances.is_open_for(1) && disturbances.is_open_for(2) && !disturbances.is_open_for(3));
        disturbances.over(first, at(110), allowance(40, 10, 0));
        assert!(disturbances.tick(at(150)).is_empty(), "not while another fault goes on");
        disturbances.over(second, at(160), allowance(70, 20, 0));
        disturbances.reached_target(at(175));
        assert!(disturbances.tick(at(180)).is_empty());
        let recoveries = disturbances.recoveries(at(0));
        let figures = |recovery: &Recovery| (recovery.deficit, recovery.took, recovery.allowed);
        assert_eq!(figures(&recoveries[0]), (40, Some(seconds(65)), Some(seconds(70))));
        assert_eq!(figures(&recoveries[1]), (70, Some(seconds(15)), Some(seconds(20))));
    }

    #[test]
    fn a_late_recovery_is_reported_once() {
        let mut disturbances = calm();
        let id = disturbances.begin("drop".to_owned(), None, at(100));
        disturbances.fell_below_target(at(100));
        disturbances.over(id, at(100), allowance(50, 3, 0));
        assert!(disturbances.tick(at(103)).is_empty());
        assert_eq!(disturbances.tick(at(104)).len(), 1);
        assert!(disturbances.tick(at(105)).is_empty());
        // Another disturbance gives more time, but the first stays late.
        let id = disturbances.begin("again".to_owned(), None, at(106));
        disturbances.over(id, at(106), allowance(50, 100, 0));
        disturbances.reached_target(at(110));
        disturbances.finish(at(111));
        let recoveries = disturbances.recoveries(at(0));
        assert_eq!((recoveries[0].late, recoveries[1].late), (true, false));
    }

    #[test]
    fn a_fault_that_outlasts_the_run_is_not_judged() {
        let mut disturbances = calm();
        disturbances.begin("failover".to_owned(), None, at(100));
        disturbances.fell_below_target(at(100));
        assert!(disturbances.finish(at(200)).is_empty());
        let recovery = &disturbances.recoveries(at(0))[0];
        assert_eq!((recovery.over, recovery.allowed, recovery.took), (None, None, None));
    }
}
