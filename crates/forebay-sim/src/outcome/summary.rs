//! The outcome as text: what `forebay sim` prints.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use forebay::{Discard, Failure};

use super::format::{about, cause, grouped, plural};
use super::{Outcome, Totals};
use crate::judge::Recovery;

/// How many disturbances are listed.
const LISTED: usize = 5;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, seed {}: {}, {}, {} of virtual time",
            self.scenario,
            self.seed,
            plural(self.instances as u64, "instance"),
            plural(self.target as u64, "connection"),
            about(self.virtual_time)
        )?;
        let mut line = |label: &str, text: &str| writeln!(f, "  {label:<13} {text}");
        for note in &self.notes {
            line("note", note)?;
        }
        line(
            "converged",
            &self
                .time_to_converge
                .map_or_else(|| "never".to_owned(), |after| format!("after {}", about(after))),
        )?;
        line("opened", &self.opened())?;
        line("discarded", &discarded(&self.counts))?;
        if self.counts.callers() > 0 {
            line("callers", &self.callers())?;
            line("waits", &self.waited())?;
        }
        // Late recoveries come first, then the slowest.
        let mut recoveries: Vec<&Recovery> = self.recoveries.iter().collect();
        recoveries.sort_by_key(|recovery| (!recovery.late, Reverse(recovery.took)));
        for recovery in recoveries.iter().take(LISTED) {
            line("disturbed", &recovered(recovery))?;
        }
        if recoveries.len() > LISTED {
            line("", &format!("and {} more, none of them slower", recoveries.len() - LISTED))?;
        }
        line("trace", &format!("{} over {}", self.trace_hash, plural(self.events, "event")))?;
        for verdict in self.verdicts.iter().filter(|verdict| !verdict.holds()) {
            line("FAILED", &format!("{}, {}", verdict.assertion, plural(verdict.broken, "time")))?;
            for finding in &verdict.findings {
                line("", finding)?;
            }
        }
        let held = self.verdicts.iter().filter(|verdict| verdict.holds()).count();
        line("assertions", &format!("{held} of {} hold", self.verdicts.len()))?;
        if self.passed() { Ok(()) } else { line("replay", &self.replay()) }
    }
}

impl Outcome {
    fn opened(&self) -> String {
        let counts = &self.counts;
        let failures = listed(
            Failure::ALL.iter().map(|failure| (counts.open_failures[failure.index()], cause(*failure))),
        );
        let failed =
            if failures.is_empty() { "none failed".to_owned() } else { format!("failed: {failures}") };
        format!(
            "{} ({failed}); at most {} connects per second, {} without a disturbance; at most {} open",
            grouped(counts.opened),
            self.max_connects_per_sec,
            self.max_renewals_per_sec,
            grouped(self.peak_connections as u64)
        )
    }

    fn callers(&self) -> String {
        let counts = &self.counts;
        let mut text = format!(
            "{}; {} waited, {} found the reservoir empty",
            grouped(counts.callers()),
            grouped(counts.waits),
            if counts.empties == 0 { "none".to_owned() } else { grouped(counts.empties) }
        );
        if counts.failed() == 0 {
            text += ", none failed";
        } else {
            let share = 100.0 * counts.failed() as f64 / counts.callers() as f64;
            text += &format!(
                ", {} failed ({share:.2} %): {} while connections were missing, {} while all were in use",
                grouped(counts.failed()),
                grouped(counts.failed_short),
                grouped(counts.exhausted)
            );
        }
        if counts.broken_work > 0 {
            text += &format!("; the connection of {} died in use", grouped(counts.broken_work));
        }
        text
    }

    fn waited(&self) -> String {
        let waits = &self.waits;
        if waits.max.is_zero() {
            return "nobody waited".to_owned();
        }
        let [p50, p99, p999, max] = [waits.p50, waits.p99, waits.p999, waits.max].map(about);
        format!("p50 {p50}, p99 {p99}, p99.9 {p999}, longest {max}")
    }
}

fn discarded(counts: &Totals) -> String {
    let mut list =
        listed(Discard::ALL.iter().map(|reason| (counts.discards[reason.index()], reason.label())));
    if list.is_empty() {
        list = "none".to_owned();
    }
    if counts.lost_in_crashes > 0 {
        list += &format!("; {} more were lost in crashes", grouped(counts.lost_in_crashes));
    }
    list
}

/// Counts with their names, without those of zero.
fn listed<'a>(counts: impl Iterator<Item = (u64, &'a str)>) -> String {
    let counts = counts.filter(|(count, _)| *count > 0);
    counts.map(|(count, what)| format!("{} {what}", grouped(count))).collect::<Vec<_>>().join(", ")
}

fn recovered(recovery: &Recovery) -> String {
    let began = format!("at {}: {}", about(recovery.began), recovery.disturbance);
    let Some(over) = recovery.over else {
        return format!("{began}; the run ended first, so it was not judged");
    };
    let lasted = match over.saturating_sub(recovery.began) {
        Duration::ZERO => String::new(),
        lasted => format!(" for {}", about(lasted)),
    };
    let missing = plural(recovery.deficit as u64, "connection");
    let recovered = match (recovery.took, recovery.allowed) {
        (Some(took), Some(allowed)) => format!("recovered after {}, {} allowed", about(took), about(allowed)),
        (None, Some(allowed)) => format!("not recovered when the run ended, {} allowed", about(allowed)),
        (_, None) => "another disturbance came before the recovery".to_owned(),
    };
    let late = if recovery.late { "TOO LATE: " } else { "" };
    format!("{late}{began}{lasted}; {missing} missing at its end, {recovered}")
}
