//! Both sides' figures in a table, and what they mean.

use std::time::Duration;

use super::contest::Frame;
use super::side::Figures;
use super::wording::{count, millis, seconds};
use super::{Outcome, pooled, reserved};

const NEXT: &str = "Next: README.md shows the reservoir in a program of your own; docs/ is the manual.";

/// The table, and two lines on what one just saw and where to go next.
pub(super) fn comparison(outcome: &Outcome) -> String {
    let Outcome { run, frame, .. } = outcome;
    let callers = count(frame.reserved.callers.acquires);
    let (length, seed) = (seconds(round(frame.elapsed)), run.seed.number());
    let mut text = format!("\n  {callers} callers to each side in {length}, seed {seed}\n\n");
    table(outcome, &mut text);
    let late = frame.pooled.waits.latest.max(frame.reserved.waits.latest);
    if late >= run.scenario.slow {
        let late = millis(late);
        text += &format!("\n  This machine is busy: it let callers ask up to {late} late, on both sides.\n");
    }
    text += &format!("\n{}\n{NEXT}\n", meaning(outcome));
    text
}

fn table(outcome: &Outcome, text: &mut String) {
    let Frame { pooled, reserved, .. } = &outcome.frame;
    let scenario = &outcome.run.scenario;
    let mut line = |name: &str, one: &str, other: &str, note: &str| {
        *text += format!("  {name:<26}{one:>15}{other:>13}   {note}").trim_end();
        text.push('\n');
    };
    line("", pooled::NAME, reserved::NAME, "");
    let mut row = |name: &str, figure: fn(&Figures) -> String, note: &str| {
        line(name, &figure(pooled), &figure(reserved), note);
    };
    let slow = format!("slow acquires, over {} ms", scenario.slow.as_millis());
    let terms = &scenario.terms;
    let allowed = format!("limit {}, burst {}", terms.opens_per_second, terms.burst);
    row("failed acquires", |side| count(side.callers.failed), "");
    row(&slow, |side| count(side.callers.slow), "");
    row("acquire p50", |side| millis(side.waits.p50), "");
    row("acquire p99", |side| millis(side.waits.p99), "");
    row("acquire max", |side| millis(side.waits.max), "");
    row("peak opens in a second", |side| count(side.traffic.peak_attempts as u64), &allowed);
    row("refused opens", |side| count(side.traffic.refused), "");
    // What is not expected is told only if it happened.
    if pooled.callers.failed_queries + reserved.callers.failed_queries > 0 {
        row("failed queries", |side| count(side.callers.failed_queries), "");
    }
    if pooled.callers.waiting + reserved.callers.waiting > 0 {
        row("still waiting at the end", |side| count(side.callers.waiting as u64), "");
    }
}

/// What one just saw, in one line.
fn meaning(outcome: &Outcome) -> String {
    let (run, frame) = (&outcome.run, &outcome.frame);
    let scenario = &run.scenario;
    if frame.elapsed < scenario.telling() {
        return format!(
            "Too short to tell: sessions end after {}, and a rush finds that out at {}. Let it run for 30 s.",
            seconds(scenario.terms.session_life),
            seconds(scenario.rush.first + scenario.rush.every),
        );
    }
    "What you saw: sessions end, and a pool opens new ones only when a rush needs them; the reservoir had them open."
        .to_owned()
}

/// To a tenth of a second.
fn round(length: Duration) -> Duration {
    Duration::from_millis(u64::try_from(length.as_millis() / 100 * 100).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::tests::outcome;

    #[test]
    fn the_table_reads_at_a_glance() {
        let text = comparison(&outcome());
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default();
        assert!(line("deadpool").ends_with("forebay"), "{text}");
        assert!(
            line("failed acquires").split_whitespace().eq(["failed", "acquires", "1,015", "0"]),
            "{text}"
        );
        assert!(line("p99").contains("191 ms") && line("p99").contains("0.40 ms"), "{text}");
        assert!(line("peak opens").ends_with("limit 25, burst 10"), "{text}");
        assert!(text.contains("What you saw") && text.contains("README.md"), "{text}");
        assert!(!text.contains("busy") && !text.contains("failed queries"), "{text}");
        assert!(
            line("still waiting").split_whitespace().eq(["still", "waiting", "at", "the", "end", "312", "0"])
        );
        assert!(
            text.lines().take_while(|line| !line.starts_with("What")).all(|line| line.len() < 80),
            "{text}"
        );
    }

    #[test]
    fn a_short_run_says_that_it_was() {
        let mut outcome = outcome();
        outcome.frame.elapsed = Duration::from_millis(2_049);
        let text = comparison(&outcome);
        assert!(text.contains("in 2 s, seed 42") && text.contains("Too short to tell"), "{text}");
    }

    #[test]
    fn a_busy_machine_is_owned_up_to() {
        let mut outcome = outcome();
        outcome.frame.pooled.waits.latest = Duration::from_millis(21);
        assert!(comparison(&outcome).contains("up to 21.0 ms late"));
    }
}
