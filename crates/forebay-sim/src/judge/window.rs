//! Disturbances, and how long the fleet may take to be whole again.

use std::time::Duration;

use forebay::Instant;

/// Names a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowId(usize);

/// From the moment something goes wrong until the fleet is whole again, and stays so.
#[derive(Clone, Debug)]
pub(super) struct Window {
    name: String,
    /// Whom it strikes; none: everybody.
    whom: Option<Vec<usize>>,
    began: Instant,
    /// When that was over.
    over: Option<Instant>,
    /// How many connections the fleet lacked then.
    missing: usize,
    /// How long the limiter takes to admit so many.
    bucket: Duration,
    /// How long reservoirs may take to notice.
    patience: Duration,
    /// By when the fleet is to be whole; none while something is wrong still.
    deadline: Option<Instant>,
    whole: Option<Instant>,
    /// It was not whole by then.
    late: bool,
}

impl Window {
    fn new(name: String, whom: Option<Vec<usize>>, began: Instant) -> Self {
        Self {
            name,
            whom,
            began,
            over: None,
            missing: 0,
            bucket: Duration::ZERO,
            patience: Duration::ZERO,
            deadline: None,
            whole: None,
            late: false,
        }
    }

    fn is_open(&self) -> bool {
        self.whole.is_none()
    }
}

/// All disturbances of a run. The first is the cold start.
pub(super) struct Windows {
    list: Vec<Window>,
    /// How many are not closed yet: something is wrong, or the fleet is not whole yet.
    open: usize,
    /// In how many something is wrong still.
    active: usize,
    /// Since when the fleet has been whole; none while it is not.
    whole_since: Option<Instant>,
    /// By when all have noticed that nothing is wrong any more.
    noticed_by: Instant,
    /// When all were last closed.
    closed_at: Instant,
    /// For how long the fleet must stay whole.
    stable_for: Duration,
}

/// What the end of a disturbance leaves to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Damage {
    /// How many connections the fleet lacks.
    pub(super) missing: usize,
    /// How long the limiter takes to admit so many.
    pub(super) bucket: Duration,
    /// How long it may take to open them, once they are noticed to be missing.
    pub(super) allowed: Duration,
    /// How long it may take to notice.
    pub(super) patience: Duration,
}

/// A window that was open for too long.
#[derive(Clone, Debug)]
pub(super) struct Late {
    pub(super) name: String,
    pub(super) is_cold_start: bool,
    pub(super) allowed: Duration,
}

impl Windows {
    /// From the cold start on, which is to be over by `deadline`.
    pub(super) fn new(start: Instant, damage: Damage, stable_for: Duration) -> Self {
        let cold_start = Window {
            over: Some(start),
            missing: damage.missing,
            bucket: damage.bucket,
            deadline: Some(start + damage.allowed),
            ..Window::new("cold_start".to_owned(), None, start)
        };
        Self {
            list: vec![cold_start],
            open: 1,
            active: 0,
            whole_since: None,
            noticed_by: start,
            closed_at: start,
            stable_for,
        }
    }

    /// Whether something is wrong, or has been and the fleet is not whole yet.
    pub(super) fn any_open(&self) -> bool {
        self.open > 0
    }

    /// Whether that is so for the instance at `place`.
    pub(super) fn is_open_for(&self, place: usize) -> bool {
        let struck = |window: &Window| window.whom.as_ref().is_none_or(|whom| whom.contains(&place));
        self.any_open() && self.list.iter().rev().any(|window| window.is_open() && struck(window))
    }

    /// Since when nothing has been wrong; none while something is.
    pub(super) fn quiet_since(&self) -> Option<Instant> {
        (!self.any_open()).then_some(self.closed_at)
    }

    /// Something goes wrong, for these instances or for all.
    pub(super) fn begin(&mut self, name: String, whom: Option<Vec<usize>>, now: Instant) -> WindowId {
        self.list.push(Window::new(name, whom, now));
        self.open += 1;
        self.active += 1;
        WindowId(self.list.len() - 1)
    }

    /// It is over. Once nothing else is wrong either, the fleet is to heal.
    pub(super) fn over(&mut self, id: WindowId, now: Instant, damage: Damage) {
        let Some(window) = self.list.get_mut(id.0).filter(|window| window.over.is_none()) else { return };
        window.over = Some(now);
        (window.missing, window.bucket, window.patience) = (damage.missing, damage.bucket, damage.patience);
        self.active -= 1;
        if self.active > 0 {
            return;
        }
        let open = self.list.iter_mut().filter(|window| window.is_open());
        let patience = open.map(|window| window.patience).max().unwrap_or_default();
        self.noticed_by = now + patience;
        let deadline = now + patience + damage.allowed;
        for window in self.list.iter_mut().filter(|window| window.is_open()) {
            // Never less than before: what was promised of the cold start holds.
            window.deadline = Some(window.deadline.map_or(deadline, |promised| promised.max(deadline)));
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole_since.is_some()
    }

    /// The fleet is whole from now on.
    pub(super) fn mend(&mut self, now: Instant) {
        self.whole_since = Some(now);
    }

    /// The fleet is no longer whole.
    pub(super) fn tear(&mut self, now: Instant) -> Vec<Late> {
        let late = self.tick(now);
        self.whole_since = None;
        late
    }

    /// Closes all windows if it is time to, and tells which turn out to be late.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<Late> {
        let Some(since) = self.whole_since else {
            let overdue = |window: &Window| window.deadline.is_some_and(|deadline| now > deadline);
            return if self.active == 0 { self.note_late(overdue) } else { Vec::new() };
        };
        // Until all have noticed that it is over, what it did is not over.
        if self.open == 0 || self.active > 0 || now.since(since) < self.stable_for || now < self.noticed_by {
            return Vec::new();
        }
        self.close(since, now)
    }

    /// The run is over. What would have to stay whole for longer has stayed so for as long as it could.
    pub(super) fn finish(&mut self, now: Instant) -> Vec<Late> {
        match self.whole_since {
            Some(since) if self.active == 0 => self.close(since, now),
            _ => self.tick(now),
        }
    }

    fn close(&mut self, since: Instant, now: Instant) -> Vec<Late> {
        if self.open == 0 {
            return Vec::new();
        }
        let late = self.note_late(|window| window.deadline.is_some_and(|deadline| since > deadline));
        for window in self.list.iter_mut().filter(|window| window.is_open()) {
            // It may have been whole before this was over.
            window.whole = Some(window.over.map_or(since, |over| since.max(over)));
        }
        self.open = 0;
        self.closed_at = now;
        late
    }

    /// Each is noted once.
    fn note_late(&mut self, is_late: impl Fn(&Window) -> bool) -> Vec<Late> {
        let mut late = Vec::new();
        for (place, window) in self.list.iter_mut().enumerate() {
            if window.is_open() && !window.late && is_late(window) {
                window.late = true;
                let (Some(deadline), Some(over)) = (window.deadline, window.over) else { continue };
                let allowed = deadline.since(over);
                late.push(Late { name: window.name.clone(), is_cold_start: place == 0, allowed });
            }
        }
        late
    }

    /// When the fleet was whole for the first time, and stayed so.
    pub(super) fn converged(&self) -> Option<Instant> {
        self.list[0].whole
    }

    /// How each disturbance went; the cold start is not among them.
    pub(super) fn recoveries(&self, start: Instant) -> Vec<Recovery> {
        self.list[1..].iter().map(|window| Recovery::of(window, start)).collect()
    }
}

/// How a disturbance went, for the reader.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Recovery {
    /// What went wrong.
    pub disturbance: String,
    /// When it began, counted from the start.
    pub began: Duration,
    /// When it was over; none if the run ended first.
    pub over: Option<Duration>,
    /// How many connections the fleet lacked then.
    pub deficit: usize,
    /// How long the limiter takes to admit so many.
    pub bucket: Duration,
    /// How long it was allowed to take from then on; none if the run ended while something was wrong.
    pub allowed: Option<Duration>,
    /// How long it took from then on; none if the run ended first.
    pub took: Option<Duration>,
    /// It took longer than it may.
    pub late: bool,
}

impl Recovery {
    fn of(window: &Window, start: Instant) -> Self {
        let since_over = |at: Option<Instant>| Some(at?.since(window.over?));
        Self {
            disturbance: window.name.clone(),
            began: window.began.since(start),
            over: window.over.map(|over| over.since(start)),
            deficit: window.missing,
            bucket: window.bucket,
            allowed: since_over(window.deadline),
            took: since_over(window.whole),
            late: window.late,
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

    fn damage(missing: usize, allowed: u64, patience: u64) -> Damage {
        Damage { missing, bucket: Duration::ZERO, allowed: seconds(allowed), patience: seconds(patience) }
    }

    /// Whole since second 10, with nothing wrong.
    fn calm() -> Windows {
        let mut windows = Windows::new(at(0), damage(100, 60, 0), seconds(5));
        windows.mend(at(10));
        assert!(windows.tick(at(14)).is_empty() && windows.any_open(), "not yet stable");
        assert!(windows.tick(at(15)).is_empty() && !windows.any_open());
        windows
    }

    #[test]
    fn the_time_of_being_whole_counts_not_that_of_staying_so() {
        assert_eq!(calm().converged(), Some(at(10)));
    }

    #[test]
    fn a_relapse_starts_anew() {
        let mut windows = Windows::new(at(0), damage(100, 12, 0), seconds(5));
        windows.mend(at(10));
        assert!(windows.tear(at(12)).is_empty());
        windows.mend(at(13));
        let late = windows.tick(at(18));
        assert_eq!((late.len(), late[0].is_cold_start), (1, true), "whole after 13 s, not after 10");
        assert_eq!(windows.converged(), Some(at(13)));
    }

    #[test]
    fn a_disturbance_that_tears_nothing_is_over_once_it_is_noticed() {
        let mut windows = calm();
        let id = windows.begin("outage".to_owned(), None, at(100));
        windows.over(id, at(120), damage(0, 1, 10));
        windows.tick(at(129));
        assert!(windows.any_open(), "somebody may not have noticed");
        windows.tick(at(130));
        let recovery = &windows.recoveries(at(0))[0];
        assert_eq!((recovery.took, recovery.late, windows.any_open()), (Some(seconds(0)), false, false));
    }

    #[test]
    fn overlapping_disturbances_heal_together_and_are_told_apart() {
        let mut windows = calm();
        let first = windows.begin("first".to_owned(), Some(vec![1]), at(100));
        windows.tear(at(100));
        let second = windows.begin("second".to_owned(), Some(vec![2]), at(105));
        assert!(windows.is_open_for(1) && windows.is_open_for(2) && !windows.is_open_for(3));
        windows.over(first, at(110), damage(40, 10, 0));
        assert!(windows.tick(at(150)).is_empty(), "not while something else is wrong");
        windows.over(second, at(160), damage(70, 20, 0));
        windows.mend(at(175));
        assert!(windows.tick(at(180)).is_empty());
        let recoveries = windows.recoveries(at(0));
        let told = |recovery: &Recovery| (recovery.deficit, recovery.took, recovery.allowed);
        assert_eq!(told(&recoveries[0]), (40, Some(seconds(65)), Some(seconds(70))));
        assert_eq!(told(&recoveries[1]), (70, Some(seconds(15)), Some(seconds(20))));
    }

    #[test]
    fn what_is_late_is_said_once_and_remembered() {
        let mut windows = calm();
        let id = windows.begin("drop".to_owned(), None, at(100));
        windows.tear(at(100));
        windows.over(id, at(100), damage(50, 3, 0));
        assert!(windows.tick(at(103)).is_empty());
        assert_eq!(windows.tick(at(104)).len(), 1);
        assert!(windows.tick(at(105)).is_empty());
        // Another disturbance gives more time, but does not undo it.
        let id = windows.begin("again".to_owned(), None, at(106));
        windows.over(id, at(106), damage(50, 100, 0));
        windows.mend(at(110));
        windows.finish(at(111));
        let recoveries = windows.recoveries(at(0));
        assert_eq!((recoveries[0].late, recoveries[1].late), (true, false));
    }

    #[test]
    fn what_the_run_cuts_short_is_not_judged() {
        let mut windows = calm();
        windows.begin("failover".to_owned(), None, at(100));
        windows.tear(at(100));
        assert!(windows.finish(at(200)).is_empty());
        let recovery = &windows.recoveries(at(0))[0];
        assert_eq!((recovery.over, recovery.allowed, recovery.took), (None, None, None));
    }
}
