//! The findings as text and as JSON.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::finding::{Finding, Status};
use crate::output::{self, WIDTH};

/// The version of the JSON. Fields may be added without a new version.
const VERSION: u64 = 1;
/// Where the words begin, after the status.
const INDENT: usize = 9;

/// All findings.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) endpoint: Option<String>,
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    /// The worst of all findings. What was skipped is not bad.
    pub(crate) fn status(&self) -> Status {
        let worst = self.findings.iter().map(|finding| finding.status).max();
        worst.filter(|status| *status != Status::Skipped).unwrap_or(Status::Ok)
    }

    /// 0 if all is well, 1 after warnings, 2 after failures.
    pub(crate) fn exit_status(&self) -> u8 {
        match self.status() {
            Status::Ok | Status::Skipped => 0,
            Status::Warning => 1,
            Status::Failure => 2,
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit_status())
    }

    fn count(&self, status: Status) -> usize {
        self.findings.iter().filter(|finding| finding.status == status).count()
    }

    /// The last lines: how many there are, and what to do first.
    pub(crate) fn summary(&self, colours: bool) -> String {
        let all = [Status::Failure, Status::Warning, Status::Ok, Status::Skipped];
        let counts: Vec<String> = all
            .into_iter()
            .map(|status| (self.count(status), status))
            .filter(|(count, _)| *count > 0)
            .map(|(count, status)| counted(count, status))
            .collect();
        let mut text = format!("\n{}", counts.join(", "));
        let first = self.findings.iter().find(|finding| finding.status == Status::Failure);
        match (first, self.status()) {
            (Some(first), _) => {
                // What fails first often explains the rest.
                let _ = write!(text, "; begin with {}", first.check.name());
            }
            (None, Status::Warning) => text += "; it works, but look at the warnings",
            _ => text += "; nothing is wrong",
        }
        paint(self.status(), &(text + "\n"), colours)
    }

    /// One JSON object.
    pub(crate) fn record(&self) -> Value {
        json!({
            "version": VERSION,
            "endpoint": self.endpoint,
            "status": self.status().name(),
            "exit_status": self.exit_status(),
            "ok": self.count(Status::Ok),
            "warnings": self.count(Status::Warning),
            "failures": self.count(Status::Failure),
            "skipped": self.count(Status::Skipped),
            "findings": self.findings.iter().map(record).collect::<Vec<_>>(),
        })
    }
}

fn record(finding: &Finding) -> Value {
    json!({
        "check": finding.check.name(),
        "status": finding.status.name(),
        "what": finding.what,
        "fault": finding.fault.map(|fault| fault.name),
        "cause": finding.fault.map(|fault| fault.cause),
        "remedy": finding.fault.map(|fault| fault.remedy),
        "details": finding.details,
    })
}

/// One finding, in lines of at most 80 columns where words allow.
pub(crate) fn text(finding: &Finding, colours: bool) -> String {
    let status = paint(finding.status, &format!("{:<INDENT$}", finding.status.name()), colours);
    let what = format!("{}: {}", finding.check.name(), finding.what);
    let mut text = format!("{status}{}\n", block(&what, INDENT));
    let pad = " ".repeat(INDENT + 2);
    for detail in &finding.details {
        let _ = writeln!(text, "{pad}{}", block(detail, INDENT + 2));
    }
    if let Some(fault) = finding.fault {
        for (word, sentence) in [("cause", fault.cause), ("remedy", fault.remedy)] {
            let _ = writeln!(text, "{pad}{}", block(&format!("{word}: {sentence}"), INDENT + 2));
        }
    }
    text
}

/// Wraps `text` that begins in column `indent`.
fn block(text: &str, indent: usize) -> String {
    let wrapped = output::wrap(text, WIDTH - indent);
    let lines: Vec<&str> = wrapped.lines().map(str::trim_end).collect();
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

fn counted(count: usize, status: Status) -> String {
    let plural = if count == 1 { "" } else { "s" };
    match status {
        Status::Ok | Status::Skipped => format!("{count} {}", status.name()),
        Status::Warning | Status::Failure => format!("{count} {}{plural}", status.name()),
    }
}

fn paint(status: Status, text: &str, colours: bool) -> String {
    let colour = match status {
        Status::Ok => 32,
        Status::Skipped => 90,
        Status::Warning => 33,
        Status::Failure => 31,
    };
    if colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Check;
    use crate::doctor::fault;

    fn report(findings: Vec<Finding>) -> Report {
        Report { endpoint: Some("abc".to_owned()), findings }
    }

    #[test]
    fn the_worst_finding_sets_the_status() {
        let ok = || Finding::ok(Check::Dns, "fine");
        let skipped = || Finding::skipped(Check::Tcp, "why");
        let warning = || Finding::warning(fault::NO_TTL, "no ttl");
        let failure = || Finding::failure(fault::CLOSED_PORT, "closed");
        for (findings, status, words) in [
            (vec![], 0, "nothing is wrong"),
            (vec![ok(), skipped()], 0, "1 ok, 1 skipped; nothing is wrong"),
            (vec![ok(), warning(), skipped()], 1, "1 warning, 1 ok, 1 skipped; it works"),
            (vec![warning(), failure(), failure()], 2, "2 failures, 1 warning; begin with tcp"),
        ] {
            let report = report(findings);
            assert_eq!(report.exit_status(), status);
            assert!(report.summary(false).contains(words), "{}", report.summary(false));
            assert_eq!(report.record()["exit_status"], status);
        }
    }

    #[test]
    fn text_fits_the_screen_and_has_cause_and_remedy() {
        for known in fault::ALL {
            let finding = Finding::failure(known, "word ".repeat(40)).detail("detail ".repeat(20));
            let shown = text(&finding, false);
            assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
            assert!(shown.contains("  cause: ") && shown.contains("  remedy: "), "{shown}");
        }
        let painted = text(&Finding::ok(Check::Dns, "fine"), true);
        assert_eq!(painted, "\x1b[32mok       \x1b[0mdns: fine\n");
    }
}
