//! The incidents: what happens, when, and what it is called.

use std::time::Duration;

/// Something that goes wrong for both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incident {
    /// Every session of the cluster reaches the end of its life.
    Expiry,
    /// Every socket is closed without a message.
    Cut,
    /// One instance ends without a word, and is started again.
    Kill,
    /// The fleet's table answers no call, and half of the sockets are cut.
    Outage,
}

impl Incident {
    /// In the order in which they come.
    pub(super) const ALL: [Self; 4] = [Self::Expiry, Self::Cut, Self::Kill, Self::Outage];

    /// In a word, for records.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Expiry => "expiry",
            Self::Cut => "cut",
            Self::Kill => "kill",
            Self::Outage => "outage",
        }
    }

    /// In a few words, for a table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Expiry => "all sessions expire",
            Self::Cut => "all sockets are cut",
            Self::Kill => "an instance killed",
            Self::Outage => "table unavailable",
        }
    }

    /// In a sentence, for those who watch.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::Expiry => "all sessions expire at once",
            Self::Cut => "all sockets are cut",
            Self::Kill => "instance 2 is killed; its callers go to the others until it is back",
            Self::Outage => "the fleet's table is unavailable, and half of the sockets are cut",
        }
    }
}

/// One step of an incident.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Expire,
    /// Cuts this fraction of the sockets.
    Cut(f64),
    Kill,
    Restart,
    TableDown,
    TableUp,
}

impl Step {
    /// For the events of the live page.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::Expire => "incident: all sessions expire at once",
            Self::Cut(fraction) if fraction < 1.0 => "incident: half of the sockets are cut",
            Self::Cut(_) => "incident: all sockets are cut",
            Self::Kill => "incident: instance 2 is killed",
            Self::Restart => "instance 2 is started again",
            Self::TableDown => "incident: the fleet's table is unavailable",
            Self::TableUp => "the fleet's table is available again",
        }
    }
}

/// A part of the run, up to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) from: Duration,
    pub(super) to: Duration,
    /// None in the quiet time at the start.
    pub(super) incident: Option<Incident>,
}

/// A quiet time and one for each incident.
pub(super) const PERIODS: usize = 1 + Incident::ALL.len();

/// When what happens, in a run of this length. A tenth of it is quiet; the incidents share the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Script {
    length: Duration,
}

impl Script {
    pub(super) fn new(length: Duration) -> Self {
        Self { length }
    }

    fn quiet(self) -> Duration {
        self.length / 10
    }

    /// How much of the run each incident has.
    fn share(self) -> Duration {
        (self.length - self.quiet()) / 4
    }

    fn start(self, incident: usize) -> Duration {
        self.quiet() + self.share() * u32::try_from(incident).unwrap_or(u32::MAX)
    }

    pub(super) fn periods(self) -> [Period; PERIODS] {
        std::array::from_fn(|period| {
            let Some(incident) = period.checked_sub(1) else {
                return Period { from: Duration::ZERO, to: self.quiet(), incident: None };
            };
            let last = incident + 1 == Incident::ALL.len();
            let to = if last { self.length } else { self.start(incident + 1) };
            Period { from: self.start(incident), to, incident: Some(Incident::ALL[incident]) }
        })
    }

    /// The period that a caller who comes at this time belongs to.
    pub(super) fn period_at(self, at: Duration) -> usize {
        self.periods().iter().rposition(|period| period.from <= at).unwrap_or(0)
    }

    /// Whether a rush of callers comes at this time: one after each incident, once the reservoirs have had time to
    /// recover. Users who were turned away come back.
    pub(super) fn is_rush(self, at: Duration) -> bool {
        let Some(after) = at.checked_sub(self.quiet()) else { return false };
        let (share, lasts) = (self.share().as_nanos().max(1), self.rush_lasts().as_nanos());
        let since = after.as_nanos() % share;
        (share * 3 / 4..share * 3 / 4 + lasts).contains(&since)
    }

    pub(super) fn rush_lasts(self) -> Duration {
        self.share() / 5
    }

    /// Every step, in the order of time.
    pub(super) fn steps(self) -> Vec<(Duration, Step)> {
        let [expiry, cut, kill, outage] = std::array::from_fn(|incident| self.start(incident));
        let share = self.share();
        vec![
            (expiry, Step::Expire),
            (cut, Step::Cut(1.0)),
            (kill, Step::Kill),
            (kill + share / 4, Step::Restart),
            (outage, Step::TableDown),
            // By then each instance has noticed, or does when it needs its next permit.
            (outage + share / 8, Step::Cut(0.5)),
            (outage + share * 5 / 8, Step::TableUp),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_incidents_share_the_run_and_leave_no_gap() {
        for length in [secs(12), secs(20), secs(40), secs(3_600), Duration::from_nanos(12_345_678_901)] {
            let script = Script::new(length);
            let periods = script.periods();
            assert_eq!((periods[0].from, periods[PERIODS - 1].to), (Duration::ZERO, length));
            for pair in periods.windows(2) {
                assert_eq!(pair[0].to, pair[1].from);
            }
            let incidents: Vec<_> = periods.iter().filter_map(|period| period.incident).collect();
            assert_eq!(incidents, Incident::ALL);
        }
        let periods = Script::new(secs(40)).periods();
        assert_eq!(periods.map(|period| period.from), [0, 4, 13, 22, 31].map(secs));
    }

    #[test]
    fn a_caller_belongs_to_the_period_in_which_it_comes() {
        let script = Script::new(secs(40));
        let period = |millis| script.period_at(Duration::from_millis(millis));
        assert_eq!(
            [0, 3_999, 4_000, 12_999, 13_000, 30_999, 31_000, 99_000].map(period),
            [0, 0, 1, 1, 2, 3, 4, 4]
        );
    }

    #[test]
    fn a_rush_follows_each_incident() {
        let script = Script::new(secs(40));
        let on = |millis| script.is_rush(Duration::from_millis(millis));
        assert!(!on(0) && !on(4_000) && !on(10_749) && on(10_750) && on(12_549) && !on(12_550));
        assert!(on(19_750) && on(28_750) && on(37_750) && !on(39_999));
    }

    #[test]
    fn each_step_is_within_its_incident_and_in_order() {
        let script = Script::new(secs(20));
        let steps = script.steps();
        assert!(steps.is_sorted_by_key(|(at, _)| *at));
        let during = |step: Step| {
            let (at, _) = steps.iter().find(|(_, one)| *one == step).unwrap();
            script.periods()[script.period_at(*at)].incident
        };
        assert_eq!(during(Step::Expire), Some(Incident::Expiry));
        assert_eq!(during(Step::Cut(1.0)), Some(Incident::Cut));
        assert_eq!((during(Step::Kill), during(Step::Restart)), (Some(Incident::Kill), Some(Incident::Kill)));
        for step in [Step::TableDown, Step::Cut(0.5), Step::TableUp] {
            assert_eq!(during(step), Some(Incident::Outage));
        }
    }
}
