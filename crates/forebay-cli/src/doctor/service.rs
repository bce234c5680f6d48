//! The status page of a running service.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use forebay::duration::show;
use forebay_dsql::Options;
use forebay_fleet::StoreOutagePolicy;
use serde_json::Value;

use super::check::Check;
use super::context::Context;
use super::fault::{self, Fault};
use super::finding::Finding;
use super::http::{Answer, Url};
use super::page_token::PageToken;

/// The version of the page's JSON that this program knows.
const VERSION: u64 = 1;
/// Of a service with more pools than anybody has, not every one is listed.
const MOST_LISTED: usize = 50;
/// Of what a page says instead of its status, this much is read.
const LONGEST_WORDS: usize = 300;

pub(super) async fn run(context: &Context<'_>) -> Vec<Finding> {
    let Some(given) = &context.request.status else {
        let url = context.options().and_then(page_of).unwrap_or_else(|| "URL".to_owned());
        let why = format!("give --status {url} to look at a running service");
        return vec![Finding::skipped(Check::Service, why)];
    };
    let url = match Url::parse(given) {
        Ok(url) => url,
        Err(allowed) => {
            return vec![Finding::failure(fault::NOT_A_STATUS, format!("--status must be {allowed}"))];
        }
    };
    let token = match &context.request.page_token {
        Ok(token) => token.as_ref(),
        Err(why) => {
            return vec![Finding::failure(fault::UNUSABLE_TOKEN, format!("the token of the page: {why}"))];
        }
    };
    match context.bounded(1, url.get(token.map(PageToken::expose_secret))).await {
        Some(Ok(answer)) => {
            let policy = context.options().map(|options| options.settings().outage_policy);
            findings(&answer, token, policy)
        }
        Some(Err(error)) if error.kind() == ErrorKind::InvalidData => {
            vec![Finding::failure(fault::NOT_A_STATUS, format!("{url}: {error}"))]
        }
        Some(Err(error)) => {
            vec![Finding::failure(fault::UNREACHABLE_SERVICE, format!("{url} does not answer: {error}"))]
        }
        None => {
            let what = format!("{url} does not answer in time");
            vec![Finding::failure(fault::UNREACHABLE_SERVICE, what)]
        }
    }
}

/// Where the service with this configuration serves its page.
fn page_of(options: &Options) -> Option<String> {
    let mut listen = options.settings().status_page.as_ref()?.listen;
    if listen.ip().is_unspecified() {
        listen.set_ip(if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    Some(format!("http://{listen}"))
}

/// `policy` is that of this environment, if it is known.
fn findings(answer: &Answer, token: Option<&PageToken>, policy: Option<StoreOutagePolicy>) -> Vec<Finding> {
    match answer.status {
        200 => {}
        401 => {
            let what = match token {
                Some(token) => format!("the status page refuses the token of {} (HTTP 401)", token.source()),
                None => "the status page asks for its token (HTTP 401)".to_owned(),
            };
            return vec![Finding::warning(fault::LOCKED_SERVICE, what)];
        }
        403 => {
            let what = "the status page refuses the request (HTTP 403)";
            let said = String::from_utf8_lossy(&answer.body[..answer.body.len().min(LONGEST_WORDS)]);
            let said = Some(said.trim()).filter(|said| !said.is_empty() && !said.starts_with('<'));
            let finding = Finding::warning(fault::OTHER_NAME, what);
            return vec![finding.details(said.map(|said| format!("it says: {said}")))];
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
    let Some(pools) = status["pools"].as_array() else {
        findings.push(Finding::failure(fault::NOT_A_STATUS, "the JSON has no list of pools"));
        return findings;
    };
    if pools.is_empty() {
        findings.push(Finding::warning(fault::NO_POOLS, "the service runs, but no pool is on its page"));
    }
    findings.extend(pools.iter().take(MOST_LISTED).map(|one| pool(one, policy)));
    if pools.len() > MOST_LISTED {
        let why = format!("{} more pools are not listed", pools.len() - MOST_LISTED);
        findings.push(Finding::skipped(Check::Service, why));
    }
    findings
}

fn pool(pool: &Value, policy: Option<StoreOutagePolicy>) -> Finding {
    let word = |field: &str| pool[field].as_str().unwrap_or("unknown");
    let outage = outage(pool, policy).map(|outage| format!("{outage}; ")).unwrap_or_default();
    let what = format!("pool {}: {outage}{}", word("name"), word("sentence"));
    let finding = match pool["tone"].as_str() {
        Some("bad") => Finding::failure(cause(pool), what),
        // It serves its callers, but nobody counts what it opens, or it cannot open.
        Some("good") if !outage.is_empty() => Finding::warning(fault::CUT_OFF_POOL, what),
        Some("good") => Finding::ok(Check::Service, what),
        // Also a tone of a later version.
        _ => Finding::warning(cause(pool), what),
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
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    if !failures.is_empty() {
        details.push(format!("failed opens: {}", failures.join(", ")));
    }
    let last = &pool["refill"]["last_failure"];
    if let Some(text) = last["text"].as_str() {
        details.push(format!("last failure: {text}"));
    }
    if last["reason"] == "lease_acquire" {
        let words = "no lease since: connections that end are not replaced, see check tables";
        details.push(words.to_owned());
    }
    finding.details(details)
}

/// Why a pool is not well. What it does comes first, then why its last open failed, then what its opens wait for.
fn cause(pool: &Value) -> &'static Fault {
    let (state, refill) = (pool["state"].as_str(), &pool["refill"]);
    let waiting = |field: &str| refill[field].as_u64().unwrap_or(0) > 0;
    match (state, refill["last_failure"]["reason"].as_str()) {
        (Some("exhausted"), _) => fault::EXHAUSTED_POOL,
        (Some("draining" | "closed"), _) => fault::CLOSED_POOL,
        // Some opens succeed.
        (Some("refilling" | "starting"), _) => fault::BUSY_POOL,
        (_, Some("auth" | "token_provider")) => fault::LOCKED_OUT_POOL,
        (_, Some("throttled" | "too_many_connections")) => fault::THROTTLED_POOL,
        (_, Some("lease_acquire" | "rate_limit")) => fault::LEASELESS_POOL,
        (_, Some(_)) => fault::FAILING_POOL,
        (_, None) if waiting("waiting_for_token") => fault::LOCKED_OUT_POOL,
        (_, None) if waiting("waiting_for_lease") => fault::LEASELESS_POOL,
        (Some("empty"), None) => fault::BUSY_POOL,
        (_, None) => fault::FAILING_POOL,
    }
}

/// How long the table of the fleet has not answered, and what the instance does meanwhile.
fn outage(pool: &Value, policy: Option<StoreOutagePolicy>) -> Option<String> {
    let seconds = pool["fleet"]["outage_seconds"].as_f64()?;
    let time = Duration::try_from_secs_f64(seconds.round()).ok()?;
    let policy = match policy {
        Some(StoreOutagePolicy::Local) => " (policy local)",
        Some(StoreOutagePolicy::Closed) => " (policy closed)",
        Some(StoreOutagePolicy::Strict) => " (policy strict)",
        None => "",
    };
    Some(format!("the fleet's table has not answered for {}{policy}", show(time)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Status;
    use super::*;

    fn found(status: u16, body: &Value) -> Vec<Finding> {
        findings(
            &Answer { status, body: body.to_string().into_bytes() },
            None,
            Some(StoreOutagePolicy::Local),
        )
    }

    #[test]
    fn each_pool_is_a_finding_by_its_tone() {
        let pool = |tone: &str| {
            json!({
                "name": "default",
                "tone": tone,
                "sentence": "no connection",
                "counters": { "checkouts": 7, "open_failures": { "auth": 3, "throttled": 0 } },
                "refill": { "last_failure": { "text": "denied" } },
            })
        };
        let document = json!({ "version": 1, "pools": [pool("good"), pool("notice"), pool("bad")] });
        let findings = found(200, &document);
        let statuses: Vec<Status> = findings.iter().map(|finding| finding.status).collect();
        assert_eq!(statuses, [Status::Ok, Status::Warning, Status::Failure]);
        assert!(findings[2].what.contains("no connection"), "{:?}", findings[2].what);
        let details = findings[2].details.join("\n");
        assert!(details.contains("7 checkouts") && details.contains("failed opens: 3 auth"), "{details}");
        assert!(details.contains("last failure: denied") && !details.contains("throttled"), "{details}");
    }

    #[test]
    fn the_remedy_depends_on_what_the_pool_lacks() {
        for (state, reason, waiting_for, known) in [
            ("failing", json!("connection_open"), "", fault::FAILING_POOL),
            ("empty", json!("connect_timeout"), "", fault::FAILING_POOL),
            ("empty", json!("auth"), "", fault::LOCKED_OUT_POOL),
            ("failing", json!("token_provider"), "", fault::LOCKED_OUT_POOL),
            ("empty", Value::Null, "waiting_for_token", fault::LOCKED_OUT_POOL),
            ("failing", json!("throttled"), "", fault::THROTTLED_POOL),
            ("failing", json!("too_many_connections"), "", fault::THROTTLED_POOL),
            ("failing", json!("lease_acquire"), "", fault::LEASELESS_POOL),
            ("failing", json!("rate_limit"), "", fault::LEASELESS_POOL),
            ("empty", Value::Null, "waiting_for_lease", fault::LEASELESS_POOL),
            ("empty", Value::Null, "waiting_for_permit", fault::BUSY_POOL),
            ("exhausted", json!("auth"), "", fault::EXHAUSTED_POOL),
            ("refilling", json!("throttled"), "", fault::BUSY_POOL),
            ("starting", Value::Null, "", fault::BUSY_POOL),
            ("draining", Value::Null, "", fault::CLOSED_POOL),
            ("closed", json!("auth"), "", fault::CLOSED_POOL),
            ("a later state", Value::Null, "", fault::FAILING_POOL),
        ] {
            let mut pool = json!({ "state": state, "refill": { "last_failure": { "reason": reason } } });
            pool["refill"][waiting_for] = 3.into();
            assert_eq!(cause(&pool), known, "{state} {reason} {waiting_for}");
        }
    }

    #[test]
    fn a_full_pool_tells_that_the_table_is_away() {
        let pool = |outage: Value, reason: &str, tone: &str| {
            json!({
                "name": "default",
                "tone": tone,
                "sentence": "full",
                "refill": { "last_failure": { "text": "x", "reason": reason } },
                "fleet": { "outage_seconds": outage },
            })
        };
        let document = json!({ "version": 1, "pools": [
            pool(json!(180.2), "lease_acquire", "good"),
            pool(json!(1), "auth", "bad"),
            pool(Value::Null, "lease_acquire", "good"),
        ] });
        let findings = found(200, &document);
        assert_eq!(findings[0].fault, Some(fault::CUT_OFF_POOL));
        let what = "pool default: the fleet's table has not answered for 3m0s (policy local); full";
        assert_eq!((findings[0].what.as_str(), findings[0].status), (what, Status::Warning));
        assert!(findings[0].details.join("\n").contains("not replaced"), "{:?}", findings[0]);
        assert_eq!(findings[1].fault, Some(fault::LOCKED_OUT_POOL));
        assert!(findings[1].what.contains("for 1s") && findings[1].details.len() == 1, "{:?}", findings[1]);
        assert_eq!(findings[2].status, Status::Ok);
        assert!(findings[2].details.join("\n").contains("not replaced"), "{:?}", findings[2]);
    }

    #[test]
    fn other_answers_are_told_apart() {
        for (status, body, known) in [
            (401, json!({}), fault::LOCKED_SERVICE),
            (403, json!({}), fault::OTHER_NAME),
            (404, json!({}), fault::NOT_A_STATUS),
            (200, json!("x"), fault::NOT_A_STATUS),
            (200, json!({ "version": 1 }), fault::NOT_A_STATUS),
            (200, json!({ "version": 1, "pools": {} }), fault::NOT_A_STATUS),
            (200, json!({ "version": 1, "pools": [] }), fault::NO_POOLS),
            (200, json!({ "version": 2, "pools": [] }), fault::OTHER_VERSION),
        ] {
            assert_eq!(found(status, &body)[0].fault, Some(known), "{status} {body}");
        }
        assert_eq!(
            findings(&Answer { status: 200, body: b"<html>".to_vec() }, None, None)[0].fault,
            Some(fault::NOT_A_STATUS)
        );
    }
    #[test]
    fn a_page_of_garbage_does_not_fill_the_screen() {
        let many: Vec<Value> = (0..1_000).map(|number| json!({ "name": number.to_string() })).collect();
        let findings = found(200, &json!({ "version": 1, "pools": many }));
        assert_eq!(findings.len(), MOST_LISTED + 1);
        assert!(findings[MOST_LISTED].what.contains("950 more pools"), "{:?}", findings[MOST_LISTED]);
    }

    #[test]
    fn the_page_of_this_environment_is_proposed() {
        for (listen, expected) in [
            ("127.0.0.1:9464", "http://127.0.0.1:9464"),
            ("[::]:9464", "http://[::1]:9464"),
            ("0.0.0.0:1", "http://127.0.0.1:1"),
        ] {
            let options = Options::builder("abc.dsql.us-east-1.on.aws")
                .variable("DSQL_DESK_LISTEN", listen)
                .variable("DSQL_DESK_TOKEN", "0123456789abcdef");
            assert_eq!(page_of(&options.build().unwrap()).as_deref(), Some(expected));
        }
        assert_eq!(page_of(&Options::builder("abc.dsql.us-east-1.on.aws").build().unwrap()), None);
    }
}
