//! The head of the report.

use std::fmt::Write as _;

use super::escape::Escaped;
use super::scale::{amount, length};
use crate::judge::{Recovery, Verdict};
use crate::outcome::{Outcome, grouped, plural};

/// The result in one line.
pub(super) fn headline(outcome: &Outcome) -> String {
    let all = outcome.verdicts.len();
    match outcome.verdicts.iter().filter(|verdict| !verdict.holds()).count() {
        0 => format!("All {all} assertions hold"),
        failed => format!("{failed} of {all} assertions failed"),
    }
}

pub(super) fn summary(outcome: &Outcome) -> String {
    format!(
        "<header>\n<p class=\"kind\">Forebay simulation</p>\n<h1>{scenario}</h1>\n{verdict}{facts}{replay}</header>\n\
         <section aria-label=\"Key figures\">\n{figures}</section>\n",
        scenario = Escaped(&outcome.scenario),
        verdict = verdict(outcome),
        facts = facts(outcome),
        replay = replay(outcome),
        figures = key_figures(outcome),
    )
}

fn verdict(outcome: &Outcome) -> String {
    let headline = headline(outcome);
    if outcome.passed() {
        return format!(
            "<div class=\"verdict holds\"><p><span aria-hidden=\"true\">✓</span> {headline}</p></div>\n"
        );
    }
    let mut failed = String::new();
    for Verdict { assertion, findings, .. } in outcome.verdicts.iter().filter(|verdict| !verdict.holds()) {
        let first = findings.first().map(String::as_str).unwrap_or_default();
        let _ = writeln!(failed, "<li><a href=\"#{assertion}\">{assertion}</a> {}</li>", Escaped(first));
    }
    format!(
        "<div class=\"verdict failed\"><p><span aria-hidden=\"true\">✗</span> {headline}</p>\n<ul>\n{failed}</ul></div>\n"
    )
}

fn facts(outcome: &Outcome) -> String {
    let facts = [
        ("seed", outcome.seed.to_string()),
        ("virtual time", length(outcome.virtual_time)),
        ("instances", grouped(outcome.instances as u64)),
        ("target", format!("{} connections", grouped(outcome.target as u64))),
        ("events", grouped(outcome.events)),
        ("trace hash", outcome.trace_hash.clone()),
    ];
    let mut list = String::from("<dl class=\"facts\">");
    for (name, value) in facts {
        let _ = write!(list, "<div><dt>{name}</dt><dd>{}</dd></div>", Escaped(&value));
    }
    list.push_str("</dl>\n");
    list
}

fn replay(outcome: &Outcome) -> String {
    format!("<p class=\"replay\">To repeat the run: <code>{}</code></p>\n", Escaped(&outcome.replay()))
}

struct Figure {
    name: &'static str,
    value: String,
    note: String,
}

fn key_figures(outcome: &Outcome) -> String {
    let (counts, waits) = (&outcome.counts, &outcome.waits);
    let figure = |name, value, note| Figure { name, value, note };
    let of_load = |name, value, note| match counts.callers() {
        0 => figure(name, "–".to_owned(), "no load".to_owned()),
        _ => figure(name, value, note),
    };
    let figures = [
        figure(
            "Converged after",
            outcome.time_to_converge.map_or_else(|| "never".to_owned(), length),
            "from the cold start".to_owned(),
        ),
        longest_recovery(&outcome.recoveries),
        figure(
            "Peak connects",
            format!("{}/s", grouped(outcome.max_connects_per_sec)),
            format!(
                "limiter {}/s; {}/s without disturbance",
                amount(outcome.limiter_per_sec),
                grouped(outcome.max_renewals_per_sec)
            ),
        ),
        figure(
            "Peak open",
            grouped(outcome.peak_connections as u64),
            format!("{} opened, {} failed", grouped(counts.opened), grouped(counts.all_open_failures())),
        ),
        figure(
            "Refused by the cluster",
            grouped(counts.refused),
            format!("by its limits; {} by faults", grouped(counts.refused_on_purpose)),
        ),
        of_load("Checkouts", grouped(counts.checkouts), format!("{} after a wait", grouped(counts.waits))),
        of_load(
            "Found the reservoir empty",
            grouped(counts.empties),
            format!("{} failed, {} died in use", grouped(counts.failed()), grouped(counts.broken_work)),
        ),
        of_load(
            "Wait p99",
            length(waits.p99),
            format!("p50 {}, p99.9 {}, longest {}", length(waits.p50), length(waits.p999), length(waits.max)),
        ),
    ];
    let mut list = String::from("<dl class=\"figures\">\n");
    for Figure { name, value, note } in figures {
        let _ = writeln!(list, "<div><dt>{name}</dt><dd>{value}</dd><dd class=\"note\">{note}</dd></div>");
    }
    list.push_str("</dl>\n");
    list
}

fn longest_recovery(recoveries: &[Recovery]) -> Figure {
    let name = "Longest recovery";
    let disturbances = plural(recoveries.len() as u64, "disturbance");
    if recoveries.is_empty() {
        return Figure { name, value: "–".to_owned(), note: "no disturbance".to_owned() };
    }
    if recoveries.iter().any(|recovery| recovery.took.is_none()) {
        return Figure {
            name,
            value: "not recovered".to_owned(),
            note: format!("when the run ended; {disturbances}"),
        };
    }
    let longest = recoveries.iter().max_by_key(|recovery| recovery.took);
    let (took, allowed) = longest
        .map_or_else(Default::default, |it| (it.took.unwrap_or_default(), it.allowed.unwrap_or_default()));
    Figure { name, value: length(took), note: format!("{} allowed; {disturbances}", length(allowed)) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_recovery_that_never_ended_is_the_longest() {
        let recovery = |took: Option<u64>, allowed| Recovery {
            disturbance: "crash".to_owned(),
            began: Duration::ZERO,
            over: None,
            deficit: 0,
            limiter_time: Duration::ZERO,
            allowed: Some(Duration::from_secs(allowed)),
            took: took.map(Duration::from_secs),
            late: false,
        };
        let shown = |recoveries: &[Recovery]| {
            let figure = longest_recovery(recoveries);
            (figure.value, figure.note)
        };
        let text = |value: &str, note: &str| (value.to_owned(), note.to_owned());
        assert_eq!(shown(&[]), text("–", "no disturbance"));
        assert_eq!(shown(&[recovery(Some(90), 120)]), text("1m30s", "2m allowed; 1 disturbance"));
        let two = [recovery(Some(5), 6), recovery(Some(7), 60)];
        assert_eq!(shown(&two), text("7s", "1m allowed; 2 disturbances"));
        assert_eq!(
            shown(&[recovery(Some(5), 6), recovery(None, 0)]),
            text("not recovered", "when the run ended; 2 disturbances")
        );
    }
}
