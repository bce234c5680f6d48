//! The status page of a running service.

use serde_json::Value;

use super::check::Check;
use super::context::Context;
use super::fault;
use super::finding::Finding;
use super::http::{Answer, Url};

/// The version of the page's JSON that this program knows.
const VERSION: u64 = 1;

pub(super) async fn run(context: &Context<'_>) -> Vec<Finding> {
    let Some(given) = &context.request.status else {
        return vec![Finding::skipped(Check::Service, "give --status URL to look at a running service")];
    };
    let url = match Url::parse(given) {
        Ok(url) => url,
        Err(allowed) => {
            return vec![Finding::failure(fault::NOT_A_STATUS, format!("--status must be {allowed}"))];
        }
    };
    match context.bounded(1, url.get()).await {
        Some(Ok(answer)) => findings(&answer),
        Some(Err(error)) => {
            vec![Finding::failure(fault::UNREACHABLE_SERVICE, format!("{given} does not answer: {error}"))]
        }
        None => {
            let what = format!("{given} does not answer in time");
            vec![Finding::failure(fault::UNREACHABLE_SERVICE, what)]
        }
    }
}

fn findings(answer: &Answer) -> Vec<Finding> {
    match answer.status {
        200 => {}
        401 | 403 => {
            let what = format!("the status page asks for a login (HTTP {})", answer.status);
            return vec![Finding::warning(fault::LOCKED_SERVICE, what)];
        }
        status => {
            return vec![Finding::failure(fault::NOT_A_STATUS, format!("the page answers HTTP {status}"))];
        }
    }
    let Ok(status) = serde_json::from_slice::<Value>(&answer.body) else {
        return vec![Finding::failure(fault::NOT_A_STATUS, "the page does not answer in JSON")];
    };
    let Some(version) = status["version"].as_u64() else {
        return vec![Finding::failure(fault::NOT_A_STATUS, "the JSON has no version")];
    };
    let mut findings = Vec::new();
    if version != VERSION {
        let what = format!("the page has version {version}, and this program knows {VERSION}");
        findings.push(Finding::warning(fault::OTHER_VERSION, what));
    }
    let pools = status["pools"].as_array().map(Vec::as_slice).unwrap_or_default();
    if pools.is_empty() {
        findings.push(Finding::ok(Check::Service, "the service runs, and has no pools"));
    }
    findings.extend(pools.iter().map(pool));
    findings
}

fn pool(pool: &Value) -> Finding {
    let word = |field: &str| plain(pool[field].as_str().unwrap_or("unknown"));
    let what = format!("pool {}: {}", word("name"), word("sentence"));
    let finding = match pool["tone"].as_str() {
        Some("bad") => Finding::failure(fault::FAILING_POOL, what),
        Some("good") => Finding::ok(Check::Service, what),
        // Also a tone of a later version.
        _ => Finding::warning(fault::BUSY_POOL, what),
    };
    let counters = &pool["counters"];
    let number = |field: &str| counters[field].as_u64().unwrap_or(0);
    let mut details = Vec::new();
    if counters.is_object() {
        details.push(format!(
            "{} checkouts, {} waited, {} found it empty, {} opened",
            number("checkouts"),
            number("waits"),
            number("empty"),
            number("opened")
        ));
    }
    let failures = counters["open_failures"].as_object().into_iter().flatten();
    let failures: Vec<String> = failures
        .filter(|(_, count)| count.as_u64().is_some_and(|count| count > 0))
        .map(|(reason, count)| format!("{count} {}", plain(reason)))
        .collect();
    if !failures.is_empty() {
        details.push(format!("failed opens: {}", failures.join(", ")));
    }
    if let Some(text) = pool["refill"]["last_failure"]["text"].as_str() {
        details.push(format!("last failure: {}", plain(text)));
    }
    finding.details(details)
}

/// Without what a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Status;
    use super::*;

    fn found(status: u16, body: &Value) -> Vec<Finding> {
        findings(&Answer { status, body: body.to_string().into_bytes() })
    }

    #[test]
    fn each_pool_is_a_finding_by_its_tone() {
        let pool = |tone: &str| {
            json!({
                "name": "default",
                "tone": tone,
                "sentence": "no\u{1b}connection",
                "counters": { "checkouts": 7, "open_failures": { "auth": 3, "throttled": 0 } },
                "refill": { "last_failure": { "text": "denied" } },
            })
        };
        let document = json!({ "version": 1, "pools": [pool("good"), pool("notice"), pool("bad")] });
        let findings = found(200, &document);
        let statuses: Vec<Status> = findings.iter().map(|finding| finding.status).collect();
        assert_eq!(statuses, [Status::Ok, Status::Warning, Status::Failure]);
        assert!(findings[2].what.contains("noconnection"), "{:?}", findings[2].what);
        let details = findings[2].details.join("\n");
        assert!(details.contains("7 checkouts") && details.contains("failed opens: 3 auth"), "{details}");
        assert!(details.contains("last failure: denied") && !details.contains("throttled"), "{details}");
    }

    #[test]
    fn other_answers_are_told_apart() {
        for (status, body, known) in [
            (401, json!({}), fault::LOCKED_SERVICE),
            (403, json!({}), fault::LOCKED_SERVICE),
            (404, json!({}), fault::NOT_A_STATUS),
            (200, json!("x"), fault::NOT_A_STATUS),
            (200, json!({ "version": 2, "pools": [] }), fault::OTHER_VERSION),
        ] {
            assert_eq!(found(status, &body)[0].fault, Some(known), "{status} {body}");
        }
        assert_eq!(
            findings(&Answer { status: 200, body: b"<html>".to_vec() })[0].fault,
            Some(fault::NOT_A_STATUS)
        );
    }
}
