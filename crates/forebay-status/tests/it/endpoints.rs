//! What each endpoint answers.

use axum::Router;
use axum::routing::get as route;
use forebay_status::{FleetSnapshot, PoolSnapshot, PoolSource, StatusPage, TokenSnapshot};

use crate::http::get;
use crate::{pool, serve};

#[tokio::test]
async fn each_endpoint_answers_as_its_kind() {
    let (_, reservoir) = pool().await;
    let page = StatusPage::new().metrics(|| "ready 10\n".into());
    page.reservoir("orders", &reservoir);
    let server = serve(&page).await;
    for (path, status, kind, part) in [
        ("/", 200, "text/html; charset=utf-8", "<title>"),
        ("/status.json", 200, "application/json", "\"version\":1"),
        ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "ready 10"),
        ("/healthz", 200, "text/plain; charset=utf-8", "ok"),
        ("/readyz", 200, "text/plain; charset=utf-8", "ready"),
        ("/nothing", 404, "text/plain; charset=utf-8", "/status.json"),
        ("/nothing/at/all", 404, "text/plain; charset=utf-8", "/status.json"),
    ] {
        let answer = get(server.address(), path).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("content-type"), kind, "{path}");
        assert!(answer.body.contains(part), "{path}: {}", answer.body);
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
        assert!(answer.header("content-security-policy").starts_with("default-src 'none'"), "{path}");
    }
}

#[tokio::test]
async fn the_policy_allows_nothing_inline_but_the_page_itself() {
    let server = serve(&StatusPage::new()).await;
    let answer = get(server.address(), "/").await;
    let policy = answer.header("content-security-policy");
    assert!(policy.contains("connect-src 'self'") && policy.contains("script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
}

#[tokio::test]
async fn without_a_renderer_the_answer_says_what_to_do() {
    let server = serve(&StatusPage::new()).await;
    let answer = get(server.address(), "/metrics").await;
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("forebay_status::prometheus()"), "{}", answer.body);
    assert_eq!(answer.body.lines().count(), 1);
}

#[tokio::test]
async fn a_program_may_decide_itself_whether_it_is_ready() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let page = StatusPage::new();
    let server = serve(&page).await;
    let reasons = Arc::new(AtomicUsize::new(2));
    let count = Arc::clone(&reasons);
    page.ready_when(move || match count.load(Ordering::Relaxed) {
        9 => panic!("a defect of the program"),
        count => vec!["draining".to_owned(); count],
    });
    let answer = get(server.address(), "/readyz").await;
    assert_eq!((answer.status, answer.body.as_str()), (503, "draining\ndraining\n"));
    assert!(page.status_json().contains("\"unready\":[\"draining\",\"draining\"]"));
    reasons.store(0, Ordering::Relaxed);
    assert_eq!(get(server.address(), "/readyz").await.status, 200, "although there is no pool");
    assert!(page.status_json().contains("\"ready\":true"));
    reasons.store(9, Ordering::Relaxed);
    assert_eq!(get(server.address(), "/readyz").await.status, 503);
}

#[tokio::test]
async fn a_process_is_ready_once_its_pools_were_filled_and_until_one_drains() {
    let page = StatusPage::new();
    let server = serve(&page).await;
    let answer = get(server.address(), "/readyz").await;
    assert_eq!((answer.status, answer.body.as_str()), (503, "no pool is on the page yet\n"));

    let (memory, reservoir) = pool().await;
    page.reservoir("orders", &reservoir);
    assert_eq!(get(server.address(), "/readyz").await.status, 200);
    memory.on_open(forebay::memory::Answer::Hang);
    memory.kill_all();
    assert_eq!(get(server.address(), "/readyz").await.status, 200, "it was filled once");

    let late = forebay::Reservoir::builder(memory.clone()).config(
        forebay::Config::default()
            .max_open(3)
            .fill_timeout(std::time::Duration::from_millis(1))
            .startup_jitter(std::time::Duration::ZERO),
    );
    let late = late.start().await.expect("a reservoir");
    page.reservoir("stock", &late);
    let answer = get(server.address(), "/readyz").await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.starts_with("stock: starting, 0 of 3 usable"), "{}", answer.body);

    drop(late);
    drop(reservoir);
    let answer = get(server.address(), "/readyz").await;
    assert_eq!(answer.status, 503);
    let mut lines: Vec<_> = answer.body.lines().filter_map(|line| line.split_once(": ")).collect();
    lines.sort_unstable();
    let pools: Vec<_> = lines.iter().map(|(pool, _)| *pool).collect();
    assert_eq!(pools, ["orders", "stock"], "{lines:?}");
    assert!(matches!(lines[0].1, "draining" | "closed: the pool is gone"), "{lines:?}");
    assert_eq!(get(server.address(), "/healthz").await.status, 200, "the process still answers");
}

/// A reservoir with what a pool for Aurora DSQL knows beside.
struct Dressed(forebay::WeakReservoir<forebay::memory::Memory>);

impl PoolSource for Dressed {
    fn snapshot(&self) -> Option<PoolSnapshot> {
        let mut snapshot = PoolSnapshot::of(&self.0.upgrade()?);
        snapshot.mode = Some("reservoir".into());
        let fleet = FleetSnapshot {
            instance: "i-1".into(),
            slots: 20,
            leases: 10,
            active: 400,
            limit: 10_000,
            outage: None,
        };
        snapshot.fleet = Some(fleet);
        snapshot.token =
            Some(TokenSnapshot { good_for: std::time::Duration::from_secs(600), ..TokenSnapshot::default() });
        Some(snapshot)
    }
}

#[tokio::test]
async fn the_status_has_all_fields() {
    let (_, reservoir) = pool().await;
    let _held = reservoir.checkout().await.expect("a connection");
    let page = StatusPage::new();
    page.pool("dressed", Dressed(reservoir.downgrade()));
    page.reservoir("plain", &reservoir);
    page.note("deployed <b>2.4</b>");
    let server = serve(&page).await;
    let status = get(server.address(), "/status.json").await.json();

    // Every field that docs/status-page.md lists, and no other.
    let manual = include_str!("../../../../docs/status-page.md");
    let (_, fields) = manual.split_once("## The fields of status.json").expect("the section");
    let listed = |path: &str| fields.contains(&format!("| `{path}` |"));
    let mut found = Vec::new();
    paths("", &status, &mut found);
    for path in &found {
        assert!(listed(path), "{path} is not documented");
    }
    let documented =
        fields.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |").map(|(path, _)| path));
    for path in documented {
        assert!(found.iter().any(|found| found == path), "{path} is documented, and is not there");
    }

    let [dressed, plain] = [0, 1].map(|index| &status["pools"][index]);
    assert_eq!((&dressed["fleet"]["limit"], &dressed["mode"]), (&10_000.into(), &"reservoir".into()));
    assert_eq!((&plain["fleet"], &plain["token"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    assert_eq!((&plain["levels"]["in_use"], &plain["levels"]["ready"]), (&1.into(), &9.into()));
    assert_eq!(plain["ages"]["ready"][0], 9);
    assert_eq!(plain["sentence"], "full: 9 of 10 ready, 1 in use, replacing about one every 66 s");
    assert_eq!(status["events"][0]["text"], "deployed <b>2.4</b>");
}

/// The paths of all fields: those of the first element for arrays, and one for all reasons of a counter.
fn paths(above: &str, value: &serde_json::Value, found: &mut Vec<String>) {
    let add = |path: &str, found: &mut Vec<String>| {
        if !found.iter().any(|known| known == path) {
            found.push(path.to_owned());
        }
    };
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let reasons = ["checkout_failures", "discards", "open_failures"];
                let name = if reasons.iter().any(|reason| above.ends_with(reason)) { "*" } else { name };
                let path = if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") };
                paths(&path, value, found);
            }
        }
        serde_json::Value::Array(elements) if elements.first().is_some_and(serde_json::Value::is_object) => {
            for element in elements {
                paths(&format!("{above}[]"), element, found);
            }
        }
        // A part that only some pools have.
        serde_json::Value::Null
            if above.ends_with(".fleet") || above.ends_with(".token") || above.ends_with(".ages") => {}
        _ => add(above, found),
    }
}

#[tokio::test]
async fn a_page_can_be_nested_with_and_without_a_slash() {
    let page = StatusPage::new();
    let app = Router::new()
        .route("/", route(|| async { "the service" }))
        .nest("/forebay", page.router())
        // axum's `nest` does not route the path with a slash at its end; `nest_service` does.
        .nest_service("/status", page.router());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    #[allow(clippy::disallowed_methods, reason = "as a service does it")]
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    for path in ["/forebay", "/status", "/status/"] {
        let answer = get(address, path).await;
        assert_eq!((answer.status, answer.body.contains("<title>")), (200, true), "{path}");
    }
    assert_eq!(get(address, "/forebay/status.json").await.status, 200);
    assert_eq!(get(address, "/status/readyz").await.status, 503);
    assert_eq!(get(address, "/forebay/nothing").await.status, 404);
    assert_eq!(get(address, "/").await.body, "the service");
    serving.abort();
}

#[tokio::test]
async fn a_pool_with_the_same_name_is_replaced() {
    let ((_, first), (_, second)) = (pool().await, pool().await);
    second.resize(7).expect("resized");
    let page = StatusPage::new();
    page.reservoir("orders", &first);
    let server = serve(&page).await;
    page.reservoir("orders", &second);
    let status = get(server.address(), "/status.json").await.json();
    assert_eq!(status["pools"].as_array().map(Vec::len), Some(1));
    assert_eq!(status["pools"][0]["config"]["max_open"], 7);
}

#[cfg(feature = "prometheus")]
#[test]
fn another_recorder_is_not_replaced() {
    // The only test of this program that sets the recorder, of which there is one for each process.
    metrics::set_global_recorder(metrics::NoopRecorder).expect("the first recorder");
    let Err(error) = forebay_status::prometheus() else { panic!("it was replaced") };
    assert!(matches!(error, forebay_status::PrometheusError::OtherRecorder));
    assert!(error.to_string().contains("that recorder's render function"), "{error}");
}
