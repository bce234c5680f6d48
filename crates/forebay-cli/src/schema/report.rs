//! What the commands print.

use std::fmt::Write;

use forebay_schema::{
    Error, FileState, FileStatus, Finding, Migrations, Plan, Status, Summary, Verification,
};
use serde_json::{Value, json};

use super::Answer;

pub(super) fn summary(migrations: &Migrations, summary: &Summary) -> Answer {
    let Summary { applied, recorded, statements, version, .. } = summary;
    let version_text = version.as_deref().unwrap_or("none");
    let mut done = Vec::new();
    if !recorded.is_empty() {
        done.push(format!("{} recorded, and not run", count(recorded.len(), "file")));
    }
    if !applied.is_empty() {
        done.push(format!(
            "{} and {} applied",
            count(applied.len(), "file"),
            count(*statements, "statement")
        ));
    }
    if done.is_empty() {
        done.push("no change".to_owned());
    }
    let text = format!("{}: {}; version {version_text}\n", migrations.name(), done.join(", "));
    let json = json!({
        "name": migrations.name(), "applied": applied, "recorded": recorded, "statements": statements, "version": version,
    });
    Answer::good(json, text)
}

pub(super) fn plan(plan: &Plan) -> Answer {
    let mut text = String::new();
    if let Some(statement) = &plan.in_flight {
        let _ = write!(
            text,
            "-- an earlier run ended in this statement: it runs again only if it took no effect\n-- {}\n\n",
            statement.replace('\n', "\n-- ")
        );
    }
    for file in &plan.recorded {
        let _ = writeln!(text, "-- {file} would be recorded as applied, and not run\n");
    }
    let mut transactions = Vec::new();
    for one in &plan.transactions {
        let _ = write!(text, "-- {}:{}\nBEGIN;\n", one.file, one.line);
        for statement in &one.statements {
            let _ = writeln!(text, "{statement};");
        }
        text += if one.has_job { "COMMIT; -- and wait for its job\n\n" } else { "COMMIT;\n\n" };
        transactions.push(json!({ "file": one.file, "line": one.line, "statements": one.statements, "has_job": one.has_job }));
    }
    let _ = writeln!(text, "-- {} would run", count(plan.transactions.len(), "transaction"));
    let json =
        json!({ "recorded": plan.recorded, "transactions": transactions, "in_flight": plan.in_flight });
    Answer { is_sql: true, ..Answer::good(json, text) }
}

pub(super) fn findings(migrations: &Migrations, findings: &[Finding]) -> Answer {
    let mut text = String::new();
    for finding in findings {
        let _ = writeln!(text, "{finding}");
    }
    let files = count(migrations.files().len(), "file");
    let _ = match findings.len() {
        0 => writeln!(text, "{files}: nothing that Aurora DSQL is known to refuse"),
        number => writeln!(text, "{files}: {} that Aurora DSQL refuses", count(number, "problem")),
    };
    let json = json!({ "files": migrations.files().len(), "findings": json_findings(findings) });
    Answer { is_good: findings.is_empty(), ..Answer::good(json, text) }
}

fn json_findings(findings: &[Finding]) -> Vec<Value> {
    let finding = |one: &Finding| json!({ "file": one.file, "line": one.line, "message": one.message, "remedy": one.remedy, "fixable": one.fixable });
    findings.iter().map(finding).collect()
}

pub(super) fn status(status: &Status) -> Answer {
    let width = status.files.iter().map(|file| file.file.len()).max().unwrap_or_default();
    let mut text = String::new();
    let mut files = Vec::new();
    for file in &status.files {
        let _ = writeln!(text, "{:<width$}  {}", file.file, words(file));
        let (state, at, done) = match &file.state {
            FileState::Applied { at } => ("applied", Some(at), None),
            FileState::Partial { done, .. } => ("partial", None, Some(done)),
            _ => ("pending", None, None),
        };
        files.push(json!({
            "version": file.version, "file": file.file, "state": state, "applied_at": at, "statements_done": done,
            "changed": file.is_changed, "missing": file.is_missing,
        }));
    }
    if !status.is_set_up {
        let _ = writeln!(text, "the database has no record of the migrations `{}`", status.name);
    }
    if let Some(holder) = &status.holder {
        let _ = writeln!(text, "the lock is held: {holder}");
    }
    let is_good = status.is_up_to_date();
    let json = json!({
        "name": status.name, "set_up": status.is_set_up, "up_to_date": is_good, "lock_holder": status.holder, "files": files,
    });
    Answer { is_good, ..Answer::good(json, text) }
}

fn words(file: &FileStatus) -> String {
    let mut words = match &file.state {
        FileState::Applied { at } => format!("applied {at}"),
        FileState::Partial { done, of, in_flight } => {
            let doubt = if in_flight.is_some() { "; the outcome of the next one is unknown" } else { "" };
            format!("{done} of {} applied{doubt}", count(*of, "statement"))
        }
        _ => "pending".to_owned(),
    };
    if file.is_changed {
        words += ", changed since";
    }
    if file.is_missing {
        words += ", its file is gone";
    }
    words
}

pub(super) fn verification(found: &Verification, strict: bool) -> Answer {
    let mut text = String::new();
    let mut list = |what: &str, items: &[String]| {
        for item in items {
            let _ = writeln!(text, "{item}: {what}");
        }
    };
    list("not applied", &found.pending);
    list("changed after being applied", &found.changed);
    list("applied, but its file is gone", &found.missing);
    list("an index that is not valid", &found.invalid_indexes);
    list("a constraint that is not validated", &found.unvalidated_constraints);
    let others = if strict {
        "no migration has made it"
    } else {
        "no migration has made it (not counted without --strict)"
    };
    list(others, &found.other_tables);
    if found.unrecorded {
        text += "the last run ended before it recorded the schema: run `forebay schema update`\n";
    }
    let mut differences = Vec::new();
    for one in &found.differences {
        let _ = writeln!(text, "{}: not as the last run has left it", one.object);
        for line in &one.missing {
            let _ = writeln!(text, "  - {line}");
        }
        for line in &one.extra {
            let _ = writeln!(text, "  + {line}");
        }
        differences.push(json!({ "object": one.object, "missing": one.missing, "extra": one.extra }));
    }
    let is_good = found.is_clean() && (!strict || found.other_tables.is_empty());
    if is_good {
        text += "the database is as the files say\n";
    }
    let json = json!({
        "same": is_good, "pending": found.pending, "changed": found.changed, "missing": found.missing,
        "differences": differences, "invalid_indexes": found.invalid_indexes,
        "unvalidated_constraints": found.unvalidated_constraints, "unrecorded": found.unrecorded,
        "other_tables": found.other_tables,
    });
    Answer { is_good, ..Answer::good(json, text) }
}

/// An error, for programs.
pub(super) fn failure(error: &anyhow::Error) -> Value {
    let findings = match error.downcast_ref() {
        Some(Error::Refused(findings)) => json_findings(findings),
        _ => Vec::new(),
    };
    json!({ "error": format!("{error:#}"), "findings": findings })
}

pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
