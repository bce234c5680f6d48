//! A cluster to test against, and whoever signs tokens for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dsql_local::{Cluster, Config, Credentials, EngineKind, Fault, Limits, Rules, Speed, TokenClock};
use forebay_dsql::{
    Driver, DsqlPool, Options, OptionsBuilder, RootCertificates, SignFuture, Signed, Signer, Token,
    TokenError, TokenRequest,
};

/// Longer than anything here takes: a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster whose clock stands still.
pub(crate) fn start() -> Arc<Cluster> {
    start_with(Limits::default())
}

pub(crate) fn start_with(limits: Limits) -> Arc<Cluster> {
    start_over(EngineKind::Builtin, limits)
}

/// A cluster of another age.
pub(crate) fn start_by(rules: Rules) -> Arc<Cluster> {
    start_as(Config { rules, ..Config::default() })
}

pub(crate) fn start_over(engine: EngineKind, limits: Limits) -> Arc<Cluster> {
    start_as(Config { engine, limits, ..Config::default() })
}

fn start_as(config: Config) -> Arc<Cluster> {
    let cluster = Cluster::start(Config {
        credentials: vec![Credentials::new("AKIDEXAMPLE", "not-a-secret")],
        speed: Speed::STOPPED,
        token_clock: TokenClock::Emulator,
        ..config
    });
    Arc::new(cluster.unwrap())
}

/// Options for small pools of `cluster`.
pub(crate) fn options(cluster: &Cluster, connections: usize) -> OptionsBuilder {
    bare_options(cluster)
        .variable("DSQL_MAX_CONNS", connections.to_string())
        .variable("DSQL_STAGGERED_STARTUP", "false")
        .variable("DSQL_CONNECTION_RATE_LIMIT", "1000")
}

/// How to reach `cluster`, and no more.
pub(crate) fn bare_options(cluster: &Cluster) -> OptionsBuilder {
    Options::builder(cluster.endpoint())
        .port(cluster.address().port())
        .region(cluster.region())
        .roots(RootCertificates::Pem(cluster.ca_pem().as_bytes().into()))
}

/// A pool of `cluster`, in reservoir mode or not.
pub(crate) async fn pool<C: Driver>(
    cluster: &Arc<Cluster>,
    connections: usize,
    reservoir: bool,
) -> DsqlPool<C> {
    let options = options(cluster, connections).reservoir(reservoir).build().unwrap();
    DsqlPool::connect(options, Keys::of(cluster)).await.unwrap()
}

pub(crate) fn fault(text: &str) -> Fault {
    text.parse().unwrap()
}

/// Waits for something that another task is about to do.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "never: {what}");
}

/// Signs with a cluster's own key, unless told to fail; counts how often it was asked.
#[derive(Clone)]
pub(crate) struct Keys {
    cluster: Arc<Cluster>,
    pub(crate) asked: Arc<AtomicUsize>,
    pub(crate) fails: Arc<AtomicBool>,
}

impl Keys {
    pub(crate) fn of(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster), asked: Arc::default(), fails: Arc::default() }
    }
}

impl Signer for Keys {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.fails.load(Ordering::SeqCst) {
                return Err(TokenError::unavailable("the token service is away"));
            }
            let token = self
                .cluster
                .token(&request.identity.user)
                .ok_or_else(|| TokenError::credentials("the cluster has no key"))?;
            Ok(Signed { token: Token::new(token), credentials_expire: None })
        })
    }
}
