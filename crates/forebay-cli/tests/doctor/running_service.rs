//! The status page of a service that really runs: a pool of the cluster, or a reservoir over a server in memory.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use forebay::memory::{Answer, Memory};
use forebay::rt::TokioRuntime;
use forebay::{Config, Failure, Reservoir};
use forebay_dsql::{
    Dsql, Options, RootCertificates, SignFuture, Signed, Signer, Token, TokenError, TokenRequest,
};
use forebay_status::{Listen, Server, StatusPage};
use tokio::runtime::{Builder, Runtime};

use crate::place::{Diagnosis, Place};

/// One of the secrets that are never printed.
const TOKEN: &str = "hunter2-of-the-status-page";

/// A service with a reservoir of three connections.
struct Service {
    memory: Memory,
    page: Server,
    _reservoir: Reservoir<Memory>,
    _runtime: Runtime,
}

impl Service {
    fn start(token: Option<&str>, answer: Answer) -> Self {
        let runtime = runtime();
        let (memory, reservoir, page) = runtime.block_on(async {
            let memory = Memory::new(TokioRuntime::current().unwrap());
            memory.on_open(answer);
            let config = Config::default()
                .max_open(3)
                .startup_jitter(Duration::ZERO)
                .fill_timeout(Duration::from_millis(100));
            let reservoir = Reservoir::builder(memory.clone()).config(config).start().await.unwrap();
            let page = StatusPage::new();
            page.reservoir("orders", &reservoir);
            let mut listen = Listen::new((Ipv4Addr::LOCALHOST, 0).into());
            if let Some(token) = token {
                listen = listen.token(token.parse().unwrap());
            }
            (memory, reservoir, page.serve(listen).await.unwrap())
        });
        Self { memory, page, _reservoir: reservoir, _runtime: runtime }
    }

    fn url(&self) -> String {
        format!("http://{}", self.page.address())
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn look(place: &Place, url: &str) -> Diagnosis {
    place.examine(&["--only", "service", "--status", url])
}

/// Looks until the exit status is this one: the page looks at its pools twice a second.
fn look_until(place: &Place, url: &str, status: i32) {
    while place.run(&["--only", "service", "--status", url]).status.code() != Some(status) {}
}

#[test]
fn a_healthy_service_is_ok() {
    let (place, service) = (Place::new(), Service::start(None, Answer::Well));
    // As people paste it: with the page's own path, and without http://.
    for url in [service.url(), format!("{}/status.json", service.url()), service.page.address().to_string()] {
        let found = look(&place, &url);
        assert_eq!((found.status, found.statuses("service")), (0, vec!["ok"]), "{}", found.text);
        assert!(found.text.contains("pool orders: full: 3 of 3 ready"), "{}", found.text);
        assert!(found.text.contains("0 checkouts, 0 waited, 0 found it empty, 3 opened"), "{}", found.text);
    }
}

#[test]
fn a_page_with_a_token_needs_it() {
    let (mut place, service) = (Place::new(), Service::start(Some(TOKEN), Answer::Well));
    let found = look(&place, &service.url());
    found.names("service", "locked-service", "asks for its token (HTTP 401)");
    assert_eq!(found.status, 1, "{}", found.text);
    // As the service has it.
    place.set("DSQL_DESK_TOKEN", TOKEN);
    assert_eq!(look(&place, &service.url()).status, 0);
    place.set("DSQL_DESK_TOKEN", "hunter2-of-another-page");
    look(&place, &service.url()).names(
        "service",
        "locked-service",
        "refuses the token of DSQL_DESK_TOKEN (HTTP 401)",
    );
    // A file has priority.
    let file = std::env::temp_dir().join(format!("forebay-doctor-{}-token", std::process::id()));
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let path = file.to_str().unwrap();
    let with_file = |path: &str| {
        place.examine(&["--only", "service", "--status", &service.url(), "--status-token-file", path])
    };
    let found = with_file(path);
    assert_eq!((found.status, found.statuses("service")), (0, vec!["ok"]), "{}", found.text);
    std::fs::write(&file, "hunter2\nhunter3\n").unwrap();
    with_file(path).names("service", "unusable-token", "visible ASCII");
    std::fs::remove_file(&file).unwrap();
    with_file(path).names("service", "unusable-token", "No such file");
    let refused = place.run(&["--status-token-file", path]);
    assert_eq!(refused.status.code(), Some(2), "a token is for a page");
}

#[test]
fn a_page_without_a_token_answers_only_to_this_machine() {
    let (place, service) = (Place::new(), Service::start(None, Answer::Well));
    // What the page sees if it is asked by another name.
    let proxy = crate::proxy::Proxy::renaming(service.page.address(), "status.example.org");
    let found = look(&place, &proxy.url());
    found.names("service", "other-name", "refuses the request (HTTP 403)");
    assert!(found.record.to_string().contains("answers only requests to localhost"), "{}", found.text);
}

#[test]
fn a_pool_that_cannot_connect_is_a_failure() {
    let (place, service) = (Place::new(), Service::start(None, Answer::Fail(Failure::Auth)));
    let found = look(&place, &service.url());
    found.names("service", "locked-out-pool", "pool orders: ");
    assert_eq!(found.status, 2, "{}", found.text);
    assert!(found.text.contains("failed opens: "), "{}", found.text);
    // And one that has lost its connections later.
    let service = Service::start(None, Answer::Well);
    assert_eq!(look(&place, &service.url()).status, 0);
    service.memory.on_open(Answer::Fail(Failure::Throttled));
    service.memory.kill_all();
    look_until(&place, &service.url(), 2);
    look(&place, &service.url()).names("service", "throttled-pool", "pool orders: ");
    service.memory.on_open(Answer::Well);
    look_until(&place, &service.url(), 0);
}

#[test]
fn a_page_without_pools_is_worth_a_warning() {
    let place = Place::new();
    let runtime = runtime();
    let page = StatusPage::new();
    let listen = Listen::new((Ipv4Addr::LOCALHOST, 0).into());
    let server = runtime.block_on(page.serve(listen)).unwrap();
    let found = look(&place, &format!("http://{}", server.address()));
    found.names("service", "no-pools", "no pool is on its page");
    assert_eq!(found.status, 1, "{}", found.text);
}

/// Signs with a token that is good for a quarter of an hour.
#[derive(Clone)]
struct OneToken(String);

impl Signer for OneToken {
    fn sign<'a>(&'a self, _: &'a TokenRequest) -> SignFuture<'a> {
        let token = Token::new(self.0.clone());
        Box::pin(async { Ok::<_, TokenError>(Signed { token, credentials_expire: None }) })
    }
}

/// The variables of a service serve its page, and the doctor finds it with the same ones.
#[test]
fn the_page_of_a_service_on_the_cluster() {
    let mut place = Place::new();
    let signer = OneToken(place.cluster.token("admin").unwrap());
    let options = |more: &[(&str, &str)]| {
        let mut options = Options::builder(place.cluster.endpoint())
            .address(place.cluster.address().ip().to_string())
            .port(place.cluster.address().port())
            .region(place.cluster.region())
            .roots(RootCertificates::Pem(place.cluster.ca_pem().as_bytes().into()))
            .variable("DSQL_MAX_CONNS", "2")
            .variable("DSQL_STAGGERED_STARTUP", "false")
            .variable("DSQL_DESK_LISTEN", "127.0.0.9:0")
            .variable("DSQL_DESK_TOKEN", TOKEN);
        for (name, value) in more {
            options = options.variable(*name, *value);
        }
        options.build().unwrap()
    };
    let runtime = runtime();
    let reservoir = options(&[("DSQL_RESERVOIR_ENABLED", "true"), ("DSQL_SERVICE_NAME", "orders")]);
    let standard = options(&[("DSQL_SERVICE_NAME", "reports")]);
    let one = runtime.block_on(Dsql::connect(reservoir, signer.clone())).unwrap();
    let other = runtime.block_on(Dsql::connect(standard, signer)).unwrap();
    let address: SocketAddr = one.status_page().unwrap();
    assert_eq!(other.status_page(), Some(address));

    place.set("DSQL_DESK_LISTEN", address.to_string()).set("DSQL_DESK_TOKEN", TOKEN);
    let found = place.examine(&["--only", "configuration,service"]);
    assert_eq!(found.record["unchecked"], serde_json::json!(["service"]), "{}", found.text);
    let proposal = format!("give --status http://{address} to look at a running service");
    let seen = found.text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(seen.contains(&proposal), "{}", found.text);
    assert!(seen.contains("DSQL_DESK_TOKEN = (not shown)"), "{}", found.text);

    look_until(&place, &address.to_string(), 0);
    let found = place.examine(&["--status", &format!("http://{address}")]);
    assert_eq!(found.status, 0, "{}", found.text);
    for pool in ["pool orders/default: full: 2 of 2 ready", "pool reports/default: "] {
        assert!(found.text.contains(pool), "{pool} is missing:\n{}", found.text);
    }
    // Nobody is there any more.
    runtime.block_on(one.drain(Duration::from_secs(60)));
    drop((one, other));
    look_until(&place, &address.to_string(), 2);
    look(&place, &address.to_string()).names("service", "unreachable-service", "does not answer");
}
