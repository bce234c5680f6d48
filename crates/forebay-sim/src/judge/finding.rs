//! The assertions, and the findings against them.

use std::fmt;
use std::time::Duration;

use forebay::duration;

/// Defines [`Assertion`] with the name and the meaning of each.
macro_rules! assertions {
    ($($variant:ident $name:literal $meaning:literal)*) => {
        /// A property that the judge checks during the whole run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Assertion {
            $(#[doc = $meaning] $variant,)*
        }

        impl Assertion {
            /// All assertions, in the order of their declaration.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name in output: the scenario key, if there is one.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// A sentence for readers who do not know the name.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

assertions! {
    MaxConnects "assertMaxConnectsPerSec" "The cluster never sees more connects in one second than allowed."
    Converges "assertConvergeWithin" "After the cold start, the fleet is at target in time."
    Stable "assertStableFor" "Once at target, the fleet stays there unless a fault disturbs it."
    MaxClosures "assertMaxClosurePerSec" "Reservoirs never close more connections in one second than allowed."
    ZeroEmpty "assertZeroEmptyEvents" "No caller finds the reservoir empty, even if it is served later."
    MaxRenewals "assertMaxRenewalsPerSec" "Without a disturbance, no second has more connects than allowed."
    Recovers "assertRecoverWithin" "After each disturbance the fleet is at target again in time."
    NoRefusals "clusterNeverRefuses" "The cluster’s own limits never refuse a connect."
    Bound "neverAboveBound" "No instance owns more connections than its bound."
    Lives "nothingLentPastItsLife" "No connection is lent dead, past its life or in its guard window."
    NoAgedSessions "noSessionEndedByAge" "The cluster never has to end a session because of its age."
    FirstComeFirstServed "firstComeFirstServed" "Callers are served in the order of their arrival."
    NoFailedCheckouts "noFailedCheckouts" "No checkout fails, unless a disturbance leaves the instance short."
    Answered "everyCallerAnswered" "Every caller gets a connection or an error in time."
    Leased "everyConnectionLeased" "No connection is open without a lease."
    LedgerAddsUp "ledgerAddsUp" "Each ledger item is consistent after every write."
    WithinLimit "neverAboveLimit" "The fleet never exceeds its limit, except by connections of instances that were cut off."
    Reaped "theDeadAreReaped" "The slots of dead instances are free again in time."
    WithinBucket "neverAboveBucket" "The fleet never connects faster than its shared bucket."
    WithinWindow "neverAboveWindow" "The fleet never connects faster than its shared window."
    NoLeaks "nothingLeaked" "At the end no connection is open and no lease is held."
}

impl fmt::Display for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The result of one assertion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The assertion.
    pub assertion: Assertion,
    /// How often it failed.
    pub broken: u64,
    /// Descriptions of the first few failures.
    pub findings: Vec<String>,
}

impl Verdict {
    /// Whether it holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.broken == 0
    }
}

/// How many findings are described.
const KEPT: usize = 5;

pub(super) struct Findings(Vec<Verdict>);

impl Findings {
    pub(super) fn new() -> Self {
        let holds = |assertion| Verdict { assertion, broken: 0, findings: Vec::new() };
        Self(Assertion::ALL.map(holds).into())
    }

    /// Adds a finding at this time after the start.
    pub(super) fn add(&mut self, assertion: Assertion, at: Duration, what: impl FnOnce() -> String) {
        let verdict = &mut self.0[assertion as usize];
        verdict.broken += 1;
        if verdict.findings.len() < KEPT {
            let at = Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
            verdict.findings.push(format!("at {}: {}", duration::show(at), what()));
        }
    }

    /// The verdicts on the assertions that apply.
    pub(super) fn verdicts(&self, applies: impl Fn(Assertion) -> bool) -> Vec<Verdict> {
        self.0.iter().filter(|verdict| applies(verdict.assertion)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_indexed_by_assertion() {
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
