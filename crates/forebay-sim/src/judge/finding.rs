//! What is asserted, and what was found against it.

use std::fmt;
use std::time::Duration;

use forebay::duration;

/// Something that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Assertion {
    /// The cluster's connects in one second stay within `assertMaxConnectsPerSec`.
    MaxConnects,
    /// The fleet is whole within `assertConvergeWithin`.
    Converges,
    /// Once whole, and outside disturbances, it stays so; and for `assertStableFor` after the first time.
    Stable,
    /// Closes in one second stay within `assertMaxClosurePerSec`.
    MaxClosures,
    /// No caller finds nothing ready in an instance that lacks connections, served later or not, if `assertZeroEmptyEvents` is set.
    ZeroEmpty,
    /// Opens in one undisturbed second stay within `assertMaxRenewalsPerSec`, if it is set.
    MaxRenewals,
    /// After each disturbance the fleet is whole within `assertRecoverWithin` times what the limiter allows.
    Recovers,
    /// The cluster's own limits never make it refuse a connect.
    NoRefusals,
    /// No instance owns more than its bound.
    Bound,
    /// No connection is lent inside its guard window, past its life or dead.
    Lives,
    /// The cluster never has to end a session for its age.
    NoAgedSessions,
    /// Callers are served in the order they came.
    FirstComeFirstServed,
    /// No checkout fails, but where an instance lacks connections in a disturbance.
    NoFailedCheckouts,
    /// Every caller is answered, one way or the other, by the time it was promised.
    Answered,
    /// No connection is open without a lease, where there are leases.
    Leased,
    /// Each item of the ledger adds up, after every write, where there is one.
    LedgerAddsUp,
    /// The fleet never has more connections than its limit and what those have who were cut off from the table.
    WithinLimit,
    /// What the dead held is free again in time.
    Reaped,
    /// The fleet never connects faster than the bucket that it shares, where it shares one.
    WithinBucket,
    /// At the end nothing is open and no lease is held.
    NoLeaks,
}

impl Assertion {
    /// Every one.
    pub const ALL: [Self; 20] = [
        Self::MaxConnects,
        Self::Converges,
        Self::Stable,
        Self::MaxClosures,
        Self::ZeroEmpty,
        Self::MaxRenewals,
        Self::Recovers,
        Self::NoRefusals,
        Self::Bound,
        Self::Lives,
        Self::NoAgedSessions,
        Self::FirstComeFirstServed,
        Self::NoFailedCheckouts,
        Self::Answered,
        Self::Leased,
        Self::LedgerAddsUp,
        Self::WithinLimit,
        Self::Reaped,
        Self::WithinBucket,
        Self::NoLeaks,
    ];

    /// Its name in output: that of its key, where it has one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxConnects => "assertMaxConnectsPerSec",
            Self::Converges => "assertConvergeWithin",
            Self::Stable => "assertStableFor",
            Self::MaxClosures => "assertMaxClosurePerSec",
            Self::ZeroEmpty => "assertZeroEmptyEvents",
            Self::MaxRenewals => "assertMaxRenewalsPerSec",
            Self::Recovers => "assertRecoverWithin",
            Self::NoRefusals => "clusterNeverRefuses",
            Self::Bound => "neverAboveBound",
            Self::Lives => "nothingLentPastItsLife",
            Self::NoAgedSessions => "noSessionEndedByAge",
            Self::FirstComeFirstServed => "firstComeFirstServed",
            Self::NoFailedCheckouts => "noFailedCheckouts",
            Self::Answered => "everyCallerAnswered",
            Self::Leased => "everyConnectionLeased",
            Self::LedgerAddsUp => "ledgerAddsUp",
            Self::WithinLimit => "neverAboveLimit",
            Self::Reaped => "theDeadAreReaped",
            Self::WithinBucket => "neverAboveBucket",
            Self::NoLeaks => "nothingLeaked",
        }
    }
}

impl fmt::Display for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How one assertion came out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// Which.
    pub assertion: Assertion,
    /// How often it was broken.
    pub broken: u64,
    /// What happened the first few times.
    pub findings: Vec<String>,
}

impl Verdict {
    /// Whether it holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.broken == 0
    }
}

/// How many findings are kept in words.
const KEPT: usize = 5;

/// All verdicts so far.
pub(super) struct Findings(Vec<Verdict>);

impl Findings {
    pub(super) fn new() -> Self {
        let holds = |assertion| Verdict { assertion, broken: 0, findings: Vec::new() };
        Self(Assertion::ALL.map(holds).into())
    }

    /// Something was found, at this time after the start.
    pub(super) fn add(&mut self, assertion: Assertion, at: Duration, what: impl FnOnce() -> String) {
        let verdict = &mut self.0[assertion as usize];
        verdict.broken += 1;
        if verdict.findings.len() < KEPT {
            let at = Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
            verdict.findings.push(format!("at {}: {}", duration::show(at), what()));
        }
    }

    /// The verdicts on those assertions that were asked for.
    pub(super) fn verdicts(&self, asked: impl Fn(Assertion) -> bool) -> Vec<Verdict> {
        self.0.iter().filter(|verdict| asked(verdict.assertion)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_are_found_at_their_place() {
        assert!(Assertion::ALL.iter().enumerate().all(|(i, assertion)| *assertion as usize == i));
        let mut findings = Findings::new();
        for _ in 0..7 {
            findings.add(Assertion::Bound, Duration::from_micros(61_234_567), || "too many".to_owned());
        }
        let verdicts = findings.verdicts(|assertion| assertion == Assertion::Bound);
        assert_eq!((verdicts[0].broken, verdicts[0].findings.len()), (7, KEPT));
        assert_eq!(verdicts[0].findings[0], "at 1m1.234s: too many");
        assert!(!verdicts[0].holds());
    }
}
