//! A local cluster, a gateway in front of it, and clients.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use dsql_local::{Cluster, Config, Credentials, EngineKind, TokenClock};
use forebay::rt::TokioRuntime;
use forebay_dsql::{
    DsqlPool, Error, Options, OptionsBuilder, RootCertificates, SignFuture, Signed, Signer, Token,
    TokenError, TokenRequest,
};
use forebay_gateway::config::{ConfigBuilder, GatewayConfig};
use forebay_gateway::{Gateway, RawPool, StartError, WorkerThreads};
use tokio_postgres::{Client, NoTls};

/// Longer than anything here takes: a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster and a gateway.
pub(crate) struct World {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) gateway: Gateway,
    /// Behind the gateway, so that it ends first.
    _workers: Option<WorkerThreads>,
    config: GatewayConfig,
    files: Arc<tempfile::TempDir>,
    /// Where the next pools can be held up.
    pub(crate) gate: Arc<Gate>,
}

/// Holds up those that open pools. Each passes it twice: before a pool is open, and behind it.
pub(crate) struct Gate {
    passed: AtomicUsize,
    shut_behind: AtomicUsize,
    held: AtomicUsize,
}

impl Default for Gate {
    fn default() -> Self {
        let [passed, held] = [0; 2].map(AtomicUsize::new);
        Self { passed, shut_behind: AtomicUsize::new(usize::MAX), held }
    }
}

impl Gate {
    /// From now on, so many may pass. Those that come later wait for ever.
    pub(crate) fn let_pass(&self, count: usize) {
        self.shut_behind.store(self.passed.load(Relaxed).saturating_add(count), Relaxed);
    }

    /// How many have been held up.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    async fn pass(&self) {
        if self.passed.load(Relaxed) >= self.shut_behind.load(Relaxed) {
            self.held.fetch_add(1, Relaxed);
            std::future::pending::<()>().await;
        }
        self.passed.fetch_add(1, Relaxed);
    }
}

/// How to make a world.
pub(crate) struct Plan {
    pub(crate) engine: EngineKind,
    pub(crate) connections: usize,
    pub(crate) mode: &'static str,
    /// Threads of their own for clients; none: all run on the test's.
    pub(crate) workers: usize,
    /// The users file.
    pub(crate) users: String,
    pub(crate) settings: Vec<(&'static str, String)>,
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Default for Plan {
    fn default() -> Self {
        let users = "[[user]]\nname = 'app'\nrole = 'admin'\n".to_owned();
        let (engine, settings, variables) = (EngineKind::Builtin, Vec::new(), Vec::new());
        Self { engine, connections: 4, mode: "session", workers: 0, users, settings, variables }
    }
}

impl Plan {
    pub(crate) fn elastic(connections: usize) -> Self {
        Self { mode: "elastic", connections, ..Self::default() }
    }

    pub(crate) async fn start(self) -> World {
        let cluster = Cluster::start(Config {
            engine: self.engine,
            credentials: vec![Credentials::new("AKIDEXAMPLE", "not-a-secret")],
            token_clock: TokenClock::Emulator,
            ..Config::default()
        });
        let files = tempfile::tempdir().unwrap();
        std::fs::write(files.path().join("users.toml"), &self.users).unwrap();
        self.start_beside(Arc::new(cluster.unwrap()), Arc::new(files), Arc::default()).await.unwrap()
    }

    /// A gateway to this cluster, with the users of these files.
    async fn start_beside(
        self,
        cluster: Arc<Cluster>,
        files: Arc<tempfile::TempDir>,
        gate: Arc<Gate>,
    ) -> Result<World, StartError> {
        let mut config = ConfigBuilder::default()
            .flag("listen", "127.0.0.1:0")
            .flag("unix_socket_dir", "")
            .flag("auth", "trust")
            .flag("mode", self.mode)
            .flag("users_file", &files.path().join("users.toml").display().to_string());
        for (name, value) in self.settings {
            config = config.flag(name, &value);
        }
        let Self { connections, variables, .. } = self;
        let local = Local { cluster: Arc::clone(&cluster), gate: Arc::clone(&gate), connections, variables };
        let runtime = Arc::new(TokioRuntime::current().unwrap());
        let config = config.build().unwrap();
        let workers = (self.workers > 0).then(|| WorkerThreads::start(self.workers).unwrap());
        let gateway = match &workers {
            None => Gateway::start(config.clone(), local, runtime).await,
            Some(workers) => Gateway::start_on(config.clone(), local, runtime, workers.runtimes()).await,
        };
        Ok(World { cluster, gateway: gateway?, _workers: workers, config, files, gate })
    }
}

impl World {
    /// Another gateway, to the same cluster and with the same users.
    pub(crate) async fn beside(&self, plan: Plan) -> Result<Self, StartError> {
        self.beside_held_at(plan, Arc::default()).await
    }

    /// The same, held up at this gate.
    pub(crate) async fn beside_held_at(&self, plan: Plan, gate: Arc<Gate>) -> Result<Self, StartError> {
        plan.start_beside(Arc::clone(&self.cluster), Arc::clone(&self.files), gate).await
    }

    /// The configuration that the gateway was started with.
    pub(crate) fn gateway_config(&self) -> GatewayConfig {
        self.config.clone()
    }

    /// Writes the users file again.
    pub(crate) fn write_users(&self, text: &str) {
        std::fs::write(self.files.path().join("users.toml"), text).unwrap();
    }

    /// How to reach the gateway.
    pub(crate) fn config(&self) -> tokio_postgres::Config {
        let address = self.gateway.addresses()[0];
        let mut config = tokio_postgres::Config::new();
        config.host(address.ip().to_string()).port(address.port()).user("app").dbname("postgres");
        config
    }

    /// A client that is connected.
    pub(crate) async fn client(&self) -> Client {
        let (client, connection) = self.config().connect(NoTls).await.unwrap();
        tokio::spawn(async move {
            // How it ends is told to the client.
            let _ = connection.await;
        });
        client
    }

    /// Cuts every connection to the cluster, and waits until the gateway has noticed. An idle session may have another connection by then, if
    /// one was ready: that one is cut, too.
    pub(crate) async fn cut(&self) {
        assert!(self.cluster.sever(1.0) > 0);
        let mut looks = 0;
        eventually("the gateway has noticed", || {
            looks += 1;
            if looks % 100 == 0 {
                self.cluster.sever(1.0);
            }
            self.in_use() == 0
        })
        .await;
    }

    /// Connections that the pool lends now.
    pub(crate) fn in_use(&self) -> usize {
        self.gateway.backends()[0].1.pool().status().in_use
    }
}

struct Local {
    cluster: Arc<Cluster>,
    connections: usize,
    variables: Vec<(&'static str, String)>,
    gate: Arc<Gate>,
}

impl forebay_gateway::Cluster for Local {
    fn open<'a>(
        &'a self,
        role: &'a str,
        database: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<RawPool, Error>> + Send + 'a>> {
        Box::pin(async move {
            let mut options: OptionsBuilder = Options::builder(self.cluster.endpoint())
                .port(self.cluster.address().port())
                .region(self.cluster.region())
                .roots(RootCertificates::Pem(self.cluster.ca_pem().as_bytes().into()))
                .user(role)
                .database(database)
                .reservoir(true)
                .variable("DSQL_MAX_CONNS", self.connections.to_string())
                .variable("DSQL_STAGGERED_STARTUP", "false")
                .variable("DSQL_CONNECTION_RATE_LIMIT", "1000");
            for (name, value) in &self.variables {
                options = options.variable(*name, value);
            }
            self.gate.pass().await;
            let pool = DsqlPool::connect(options.build()?, Keys(Arc::clone(&self.cluster))).await?;
            self.gate.pass().await;
            Ok(pool)
        })
    }
}

/// Signs with a cluster's own key.
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

/// Waits for something that another task is about to do.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "never: {what}");
}
