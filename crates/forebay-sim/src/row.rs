//! One row of the CSV file: one instance at one sample.

use std::fmt;
use std::time::Duration;

use forebay::Discard;

use crate::date::rfc3339;
use crate::events::WorkCounts;
use crate::fleet::InstanceStatus;
use crate::scenario::Service;

/// One instance at one sample. Counts run from the start, over all restarts.
pub struct Row<'a> {
    pub(crate) wall: Duration,
    pub(crate) service: &'a Service,
    pub(crate) status: &'a InstanceStatus,
    pub(crate) work: &'a WorkCounts,
}

impl Row<'_> {
    /// The column names, as the first line of the file.
    pub const HEADER: &'static str = "t_rfc3339,service,size,target,in_use,checkouts,empty_events,discards,\
        discard_expired,discard_guard,discard_full,refills,refill_failures,scan_evictions,limiter_denies,\
        work_started,work_completed";
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({self})")
    }
}

/// Writes a CSV line without the line break.
impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.status.tally;
        let discards = |reasons: &[Discard]| -> u64 {
            reasons.iter().map(|reason| tally.discards[reason.index()]).sum()
        };
        let expired =
            discards(&[Discard::ExpiredOnCheckout, Discard::ExpiredOnReturn, Discard::ExpiredOnScan]);
        let guard = discards(&[Discard::GuardWindow, Discard::ExpiringOnScan]);
        let scanned = discards(&[Discard::ExpiredOnScan, Discard::ExpiringOnScan, Discard::Retired]);
        write!(
            f,
            "{},{},{},{},{},{},{},{},{expired},{guard},{},{},{},{scanned},{},{},{}",
            rfc3339(self.wall),
            quoted(&self.service.name),
            self.status.size,
            self.service.target_ready,
            self.status.in_use,
            tally.checkouts,
            tally.empty,
            discards(&Discard::ALL),
            discards(&[Discard::Full]),
            tally.refills,
            tally.refill_failures,
            self.work.limiter_denies,
            self.work.started,
            self.work.completed,
        )
    }
}

/// A CSV field.
fn quoted(name: &str) -> String {
    if name.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_a_line() {
        assert_eq!(quoted("history-1"), "history-1");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
