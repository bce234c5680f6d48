//! A cluster with the schema, and stores on it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use dsql_local::{Cluster, Config, Credentials, EngineKind, Limits, Rules, Speed, TokenClock};
use forebay::rt::TokioRuntime;
use forebay_dsql::{
    Dsql, DsqlPool, Ids, Node, Options, RetryPolicy, RootCertificates, SignFuture, Signed, Signer, Token,
    TokenError, TokenRequest, Uuid,
};
use forebay_schema::Migrator;
use forebay_temporal::{Blob, Persistence, schema};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// The cluster that most tests share. Each has shards and namespaces of its own, so none notices another. Whoever injects faults
/// starts a cluster of its own.
///
/// It is as unpleasant as a cluster may be: it has the narrower rules of the specification, and a neighbour changes the schema all the
/// time, which every session hears of as a conflict (OC001).
pub(crate) async fn shared() -> Arc<Cluster> {
    static SHARED: OnceCell<Arc<Cluster>> = OnceCell::const_new();
    let start = async || {
        let cluster = own(Rules::Spec).await;
        cluster.inject("stale-schema:after=ddl".parse().unwrap());
        let neighbour = Arc::clone(&cluster);
        std::thread::spawn(move || change_the_schema(&neighbour));
        cluster
    };
    Arc::clone(SHARED.get_or_init(start).await)
}

/// For tests that count on an attempt that does not fail by accident.
pub(crate) async fn quiet() -> Arc<Cluster> {
    static QUIET: OnceCell<Arc<Cluster>> = OnceCell::const_new();
    Arc::clone(QUIET.get_or_init(|| own(Rules::Today)).await)
}

/// A cluster that nobody else uses until this is dropped: for tests that inject faults, count what the server counts, or look at whole
/// tables.
pub(crate) struct Alone {
    cluster: Arc<Cluster>,
    _turn: MutexGuard<'static, ()>,
}

pub(crate) async fn alone() -> Alone {
    static CLUSTER: OnceCell<Arc<Cluster>> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    Alone { cluster: Arc::clone(CLUSTER.get_or_init(|| own(Rules::Today)).await), _turn: turn }
}

impl Deref for Alone {
    type Target = Arc<Cluster>;

    fn deref(&self) -> &Arc<Cluster> {
        &self.cluster
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.cluster.heal_all();
    }
}

/// Changes the schema, until the end of the tests. What fails has failed because of a fault, and is of no interest.
pub(crate) fn change_the_schema(cluster: &Arc<Cluster>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let pool = pool(cluster, 1, eager()).await;
        loop {
            if let Ok(connection) = pool.acquire().await {
                drop(connection.batch_execute("CREATE TABLE neighbour (id bigint)").await);
                drop(connection.batch_execute("DROP TABLE neighbour").await);
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    });
}

/// A cluster of one's own, with the schema.
pub(crate) async fn own(rules: Rules) -> Arc<Cluster> {
    let cluster = start(rules);
    set_up(&cluster).await;
    cluster
}

/// A cluster without tables, whose clock stands still. Its bucket of connections does not refill either, so it is full.
pub(crate) fn start(rules: Rules) -> Arc<Cluster> {
    let cluster = Cluster::start(Config {
        engine: EngineKind::Postgres,
        rules,
        credentials: vec![Credentials::new("AKIDEXAMPLE", "not-a-secret")],
        limits: Limits { burst: 1_000_000, ..Limits::default() },
        speed: Speed::STOPPED,
        token_clock: TokenClock::Emulator,
        ..Config::default()
    });
    Arc::new(cluster.unwrap())
}

/// Creates all tables, as a server does when it starts.
pub(crate) async fn set_up(cluster: &Arc<Cluster>) {
    let migrator = Migrator::new(pool(cluster, 4, eager()).await, schema::migrations());
    migrator.hook(schema::hook("temporal")).setup().await.unwrap();
}

pub(crate) async fn pool(cluster: &Arc<Cluster>, connections: usize, policy: RetryPolicy) -> Dsql {
    pool_at(cluster, cluster.address().port(), connections, policy).await
}

/// A pool that reaches the cluster through another port.
pub(crate) async fn pool_at(
    cluster: &Arc<Cluster>,
    port: u16,
    connections: usize,
    policy: RetryPolicy,
) -> Dsql {
    let options = Options::builder(cluster.endpoint())
        .port(port)
        .region(cluster.region())
        .roots(RootCertificates::Pem(cluster.ca_pem().as_bytes().into()))
        .variable("DSQL_MAX_CONNS", connections.to_string())
        .variable("DSQL_STAGGERED_STARTUP", "false")
        .variable("DSQL_CONNECTION_RATE_LIMIT", "1000")
        .reservoir(true)
        .build()
        .unwrap();
    DsqlPool::builder(options, Keys(Arc::clone(cluster))).retry(policy).connect().await.unwrap()
}

/// Retries at once and often: tests make conflicts on purpose, and need not wait for them.
pub(crate) fn eager() -> RetryPolicy {
    RetryPolicy::default()
        .retries(20)
        .base(Duration::from_millis(2))
        .cap(Duration::from_millis(50))
        .full_jitter()
}

/// A store with so many connections, as one process of a fleet has it.
pub(crate) async fn store_of(cluster: &Arc<Cluster>, connections: usize) -> Persistence {
    // No two processes share a number, and what is simulated here as one does not either.
    static NODES: AtomicI32 = AtomicI32::new(1);
    let node = u16::try_from(NODES.fetch_add(1, Ordering::Relaxed)).unwrap();
    let ids = Ids::new(Node::new(node).unwrap(), TokioRuntime::current().unwrap());
    Persistence::new(pool(cluster, connections, eager()).await, ids)
}

/// A store on the cluster that tests share.
pub(crate) async fn store() -> Persistence {
    store_of(&shared().await, 4).await
}

/// A shard that no other test uses.
pub(crate) fn new_shard_id() -> i32 {
    static NEXT: AtomicI32 = AtomicI32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A UUID that no other test uses.
pub(crate) fn new_uuid() -> Uuid {
    static NEXT: AtomicI32 = AtomicI32::new(1);
    Uuid::from_u128(
        0x1234_5678_0000_4000_8000_0000_0000_0000
            + u128::from(NEXT.fetch_add(1, Ordering::Relaxed).unsigned_abs()),
    )
}

pub(crate) fn blob(text: &str) -> Blob {
    Blob::proto3(text)
}

struct Keys(Arc<Cluster>);

impl Signer for Keys {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(async {
            let token = self.0.token(&request.identity.user);
            let token = token.ok_or_else(|| TokenError::credentials("the cluster has no key"))?;
            Ok(Signed { token: Token::new(token), credentials_expire: None })
        })
    }
}
