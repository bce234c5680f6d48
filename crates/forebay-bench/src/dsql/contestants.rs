//! The contestants: this project in both modes, AWS's connector for sqlx, and deadpool-postgres.

use std::fs;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use aurora_dsql_sqlx_connector::DsqlConnectOptionsBuilder;
use aws_config::Region;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, RecyclingMethod, Runtime as DeadpoolRuntime, Timeouts,
};
use forebay::Config;
use forebay_dsql::{Dsql, Options, OptionsBuilder, PooledConnection, Postgres, RootCertificates};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::cluster::{Cluster, KEY, SECRET};
use crate::tls::tls_config;

/// How long a caller waits for a connection, of any contestant.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);

/// The size of a full pool, and the limit of opens per second.
pub(super) const SIZE: usize = 200;
pub(super) const RATE: u32 = 100;

/// A reservoir that keeps `SIZE` connections and opens `RATE` per second, without a burst.
pub(super) fn full_reservoir() -> Config {
    Config::default()
        .max_open(SIZE)
        .low_watermark(SIZE)
        .rate(f64::from(RATE), 1)
        .fill_timeout(Duration::from_secs(60))
}

/// A pool of any contestant.
pub(super) trait Pool: Clone + Send + Sync + 'static {
    type Lent<'a>: Send;

    fn acquire(&self) -> impl Future<Output = anyhow::Result<Self::Lent<'_>>> + Send;

    /// `SELECT 1` in one round trip.
    fn select(lent: &mut Self::Lent<'_>) -> impl Future<Output = anyhow::Result<()>> + Send;
}

impl Pool for Dsql {
    type Lent<'a> = PooledConnection<'a, Postgres>;

    async fn acquire(&self) -> anyhow::Result<Self::Lent<'_>> {
        Ok(Dsql::acquire(self).await?)
    }

    async fn select(lent: &mut Self::Lent<'_>) -> anyhow::Result<()> {
        select_one(lent).await
    }
}

/// What all contestants with tokio-postgres send: text without parameters, parsed, bound and run in one round
/// trip.
pub(super) async fn select_one(client: &tokio_postgres::Client) -> anyhow::Result<()> {
    anyhow::ensure!(client.query_typed("SELECT 1", &[]).await?.len() == 1, "expected one row");
    Ok(())
}

/// Options for `cluster` with this configuration.
pub(super) fn options(cluster: &Cluster, reservoir: bool, config: Config) -> anyhow::Result<Options> {
    options_within(cluster, reservoir, config, ACQUIRE_TIMEOUT)
}

/// The same, for callers that wait up to `wait` for a connection.
pub(super) fn options_within(
    cluster: &Cluster,
    reservoir: bool,
    config: Config,
    wait: Duration,
) -> anyhow::Result<Options> {
    Ok(options_builder(cluster, reservoir, config, wait)?.build()?)
}

/// The same, to add to.
pub(super) fn options_builder(
    cluster: &Cluster,
    reservoir: bool,
    config: Config,
    wait: Duration,
) -> anyhow::Result<OptionsBuilder> {
    let pem = fs::read(&cluster.server.ca_file)?;
    Ok(Options::builder("localhost")
        .port(cluster.server.address.port())
        .region("us-east-1")
        .roots(RootCertificates::Pem(pem.into()))
        .direct_tls(true)
        .reservoir(reservoir)
        // The peers do not spread their first opens over minutes, either.
        .variable("DSQL_POOL_WARMUP_STAGGER_DURATION", "0s")
        .config(config.startup_jitter(Duration::ZERO).acquire_timeout(wait)))
}

impl Pool for PgPool {
    type Lent<'a> = PoolConnection<sqlx::Postgres>;

    async fn acquire(&self) -> anyhow::Result<Self::Lent<'_>> {
        Ok(PgPool::acquire(self).await?)
    }

    async fn select(lent: &mut Self::Lent<'_>) -> anyhow::Result<()> {
        sqlx::query("SELECT 1").fetch_one(&mut **lent).await?;
        Ok(())
    }
}

/// AWS's connector, with sqlx's pool and its prepared statements.
pub(super) async fn aws_connector(cluster: &Cluster, pool: PgPoolOptions) -> anyhow::Result<PgPool> {
    let connect = PgConnectOptions::new_without_pgpass()
        .host("localhost")
        .port(cluster.server.address.port())
        .username("admin")
        .database("postgres")
        .ssl_mode(PgSslMode::VerifyFull)
        .ssl_root_cert(&cluster.server.ca_file);
    let credentials = Credentials::new(KEY, SECRET, None, None, "bench");
    let options = DsqlConnectOptionsBuilder::default()
        .pg_connect_options(connect)
        .region(Some(Region::new("us-east-1")))
        .credentials_provider(Some(SharedCredentialsProvider::new(credentials)))
        .build()?;
    Ok(aurora_dsql_sqlx_connector::pool::connect_with(&options, pool.acquire_timeout(ACQUIRE_TIMEOUT))
        .await?)
}

impl Pool for deadpool_postgres::Pool {
    type Lent<'a> = deadpool_postgres::Client;

    async fn acquire(&self) -> anyhow::Result<Self::Lent<'_>> {
        Ok(self.get().await?)
    }

    async fn select(lent: &mut Self::Lent<'_>) -> anyhow::Result<()> {
        select_one(lent).await
    }
}

/// deadpool-postgres, with connections that a token opens. A connection older than `life` is closed before it
/// is lent.
pub(super) fn deadpool(
    cluster: &Cluster,
    size: usize,
    life: Option<Duration>,
) -> anyhow::Result<deadpool_postgres::Pool> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let dial = Dial::new(cluster)?;
    let manager = Manager::from_connect(dial.config.clone(), dial, recycling);
    let wait = Some(ACQUIRE_TIMEOUT);
    let mut pool = deadpool_postgres::Pool::builder(manager)
        .max_size(size)
        .runtime(DeadpoolRuntime::Tokio1)
        .timeouts(Timeouts { wait, create: wait, recycle: wait });
    if let Some(life) = life {
        pool = pool.pre_recycle(Hook::sync_fn(move |_, metrics| {
            if metrics.age() < life { Ok(()) } else { Err(HookError::message("too old")) }
        }));
    }
    Ok(pool.build()?)
}

/// A new connection, and the task that drives it.
type Dialled = Result<(tokio_postgres::Client, JoinHandle<()>), tokio_postgres::Error>;

/// Opens connections of tokio-postgres with a token.
#[derive(Clone)]
pub(super) struct Dial {
    cluster: Cluster,
    config: tokio_postgres::Config,
    tls: MakeRustlsConnect,
}

impl Dial {
    pub(super) fn new(cluster: &Cluster) -> anyhow::Result<Self> {
        let tls = tls_config(&cluster.server.ca_file)?;
        let mut config = tokio_postgres::Config::new();
        config
            .host("localhost")
            .hostaddr([127, 0, 0, 1].into())
            .port(cluster.server.address.port())
            .user("admin")
            .dbname("postgres")
            .ssl_mode(SslMode::Require)
            .ssl_negotiation(SslNegotiation::Direct);
        Ok(Self { cluster: cluster.clone(), config, tls: MakeRustlsConnect::new(tls) })
    }

    pub(super) async fn dial(&self) -> Dialled {
        let mut config = self.config.clone();
        // Without a token the server refuses the connection, like any other refusal.
        config.password(self.cluster.token().await.unwrap_or_default());
        let (client, connection) = config.connect(self.tls.clone()).await?;
        Ok((client, Handle::current().spawn(async move { drop(connection.await) })))
    }
}

impl deadpool_postgres::Connect for Dial {
    fn connect(
        &self,
        _config: &tokio_postgres::Config,
    ) -> Pin<Box<dyn Future<Output = Dialled> + Send + '_>> {
        Box::pin(self.dial())
    }
}
