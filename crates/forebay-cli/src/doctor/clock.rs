//! This machine's clock against others.

use std::time::Duration;

use forebay::duration::show;

use super::check::Check;
use super::context::Context;
use super::fault;
use super::finding::Finding;

/// AWS refuses signatures that are this far ahead.
const REFUSED: Duration = Duration::from_secs(5 * 60);
/// A clock that is kept in time is never this far off, even if an answer takes long.
const NOTICEABLE: Duration = Duration::from_secs(30);

/// The date that somebody else has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Who has told it.
    source: &'static str,
    /// How far this machine's clock is off.
    off: Duration,
    is_ahead: bool,
}

impl Reading {
    /// The other clock's time, and this machine's at the same moment, since 1970.
    pub(super) fn new(source: &'static str, theirs: Duration, ours: Duration) -> Self {
        Self { source, off: theirs.abs_diff(ours), is_ahead: ours > theirs }
    }
}

pub(super) fn run(context: &Context<'_>) -> Vec<Finding> {
    if context.readings.is_empty() {
        return vec![Finding::skipped(
            Check::Clock,
            "nobody has told the time: see the checks connect and tables",
        )];
    }
    context.readings.iter().map(finding).collect()
}

fn finding(reading: &Reading) -> Finding {
    let Reading { source, off, is_ahead } = *reading;
    let side = if is_ahead { "ahead of" } else { "behind" };
    let rounded = Duration::from_secs(off.as_secs());
    let what = format!("this machine's clock is {} {side} {source}", show(rounded));
    if off >= REFUSED {
        Finding::failure(fault::WRONG_CLOCK, what)
    } else if off >= NOTICEABLE {
        Finding::warning(fault::WRONG_CLOCK, what)
    } else {
        Finding::ok(Check::Clock, format!("this machine's clock agrees with {source}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn minutes_are_a_failure_and_seconds_are_not() {
        let (now, second) = (Duration::from_secs(1_770_000_000), Duration::from_secs(1));
        for (theirs, status, words) in [
            (now + second * 2, Status::Ok, "agrees with"),
            (now - second * 45, Status::Warning, "45s ahead of the cluster"),
            (now + second * 1_200, Status::Failure, "20m0s behind the cluster"),
            (now - second * 1_200, Status::Failure, "20m0s ahead of the cluster"),
        ] {
            let found = finding(&Reading::new("the cluster", theirs, now));
            assert_eq!(found.status, status, "{found:?}");
            assert!(found.what.contains(words), "{found:?}");
        }
    }
}
