//! The findings as text and as JSON.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::check::Check;
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
    /// The checks without a result although somebody has asked for them, or because the time was up.
    pub(crate) unchecked: Vec<Check>,
    /// How many of the checks that were asked for have ended.
    pub(crate) ended: usize,
    /// All of them have.
    pub(crate) is_complete: bool,
}

impl Report {
    /// The worst of all findings. What was skipped is not bad, unless it was asked for, or nothing else was looked at.
    pub(crate) fn status(&self) -> Status {
        let worst = self.findings.iter().map(|finding| finding.status).max();
        match worst {
            Some(status @ (Status::Warning | Status::Failure)) => status,
            _ if !self.unchecked.is_empty() || self.count(Status::Ok) == 0 => Status::Skipped,
            _ => Status::Ok,
        }
    }

    /// 0 if all is well, 1 after warnings or if something could not be checked, 2 after failures.
    pub(crate) fn exit_status(&self) -> u8 {
        match self.status() {
            Status::Ok => 0,
            Status::Skipped | Status::Warning => 1,
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
            (None, Status::Warning) => text += "; nothing fails, but look at the warnings",
            (None, Status::Skipped) if self.count(Status::Ok) == 0 => text += "; nothing was checked",
            (None, Status::Skipped) => text += "; what was checked is fine",
            _ => text += "; nothing is wrong",
        }
        // If nothing was checked, that is all of them.
        if !self.unchecked.is_empty() && self.findings.iter().any(|finding| finding.status != Status::Skipped)
        {
            let names: Vec<&str> = self.unchecked.iter().map(|check| check.name()).collect();
            let _ = write!(text, "; not checked: {}", names.join(", "));
        }
        paint(self.status(), &(text + "\n"), colours)
    }

    /// One JSON object.
    pub(crate) fn record(&self) -> Value {
        json!({
            "version": VERSION,
            "endpoint": self.endpoint,
            "status": self.status().name(),
            "exit_status": self.is_complete.then(|| self.exit_status()),
            "ok": self.count(Status::Ok),
            "warnings": self.count(Status::Warning),
            "failures": self.count(Status::Failure),
            "skipped": self.count(Status::Skipped),
            "unchecked": self.unchecked.iter().map(|check| check.name()).collect::<Vec<_>>(),
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
        "remedy": finding.remedy,
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
    for (word, sentence) in [("cause", finding.fault.map(|fault| fault.cause)), ("remedy", finding.remedy)] {
        if let Some(sentence) = sentence {
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
    use crate::doctor::fault;

    fn report(findings: Vec<Finding>) -> Report {
        Report { findings, is_complete: true, ..Report::default() }
    }

    #[test]
    fn the_worst_finding_sets_the_status() {
        let ok = || Finding::ok(Check::Dns, "fine");
        let skipped = || Finding::skipped(Check::Tcp, "why");
        let warning = || Finding::warning(fault::NO_TTL, "no ttl");
        let failure = || Finding::failure(fault::CLOSED_PORT, "closed");
        for (findings, status, words) in [
            (vec![], 1, "nothing was checked"),
            (vec![skipped()], 1, "1 skipped; nothing was checked"),
            (vec![ok(), skipped()], 0, "1 ok, 1 skipped; nothing is wrong"),
            (vec![ok(), warning(), skipped()], 1, "1 warning, 1 ok, 1 skipped; nothing fails, but"),
            (vec![warning(), failure(), failure()], 2, "2 failures, 1 warning; begin with tcp"),
        ] {
            let report = report(findings);
            assert_eq!(report.exit_status(), status);
            assert!(report.summary(false).contains(words), "{}", report.summary(false));
            assert_eq!(report.record()["exit_status"], status);
        }
    }

    #[test]
    fn what_was_asked_for_and_not_checked_is_not_fine() {
        let mut asked = report(vec![Finding::ok(Check::Dns, "fine"), Finding::skipped(Check::Tables, "off")]);
        asked.unchecked.push(Check::Tables);
        assert_eq!((asked.status(), asked.exit_status()), (Status::Skipped, 1));
        let words = "1 ok, 1 skipped; what was checked is fine; not checked: tables";
        assert!(asked.summary(false).contains(words), "{}", asked.summary(false));
        assert_eq!(asked.record()["unchecked"], json!(["tables"]));
        asked.is_complete = false;
        assert_eq!(asked.record()["exit_status"], Value::Null, "a signal has ended it");
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
