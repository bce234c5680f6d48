//! Who takes part: this project in both modes, AWS's connector for sqlx, and deadpool-postgres.

use std::fs;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use aurora_dsql_sqlx_connector::DsqlConnectOptionsBuilder;
use aws_config::Region;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, RecyclingMethod, Runtime as DeadpoolRuntime, Timeouts,
};
use forebay::Config;
use forebay_dsql::{Dsql, Options, PooledConnection, Postgres, RootCertificates};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::cluster::Cluster;
use crate::dsql_local::{KEY, SECRET};

/// How long a caller waits for a connection, whomever he asks.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A pool that lends connections, whoever made it.
pub(super) trait Pool: Clone + Send + Sync + 'static {
    type Lent<'a>: Send;

    fn acquire(&self) -> impl Future<Output = anyhow::Result<Self::Lent<'_>>> + Send;

    /// `SELECT 1` in one round trip.
    fn select(lent: &mut Self::Lent<'_>) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// This project's.
pub(super) type Forebay = Dsql;

impl Pool for Forebay {
    type Lent<'a> = PooledConnection<'a, Postgres>;

    async fn acquire(&self) -> anyhow::Result<Self::Lent<'_>> {
        Ok(Dsql::acquire(self).await?)
    }

    async fn select(lent: &mut Self::Lent<'_>) -> anyhow::Result<()> {
        one(lent).await
    }
}

/// What everybody with tokio-postgres sends. Text without parameters, parsed, bound and run in one go.
pub(super) async fn one(client: &tokio_postgres::Client) -> anyhow::Result<()> {
    anyhow::ensure!(client.query_typed("SELECT 1", &[]).await?.len() == 1, "not one row");
    Ok(())
}

/// Options for `cluster` with this configuration.
pub(super) fn options(cluster: &Cluster, reservoir: bool, config: Config) -> anyhow::Result<Options> {
    options_within(cluster, reservoir, config, PATIENCE)
}

/// The same for callers who wait so long for a connection.
pub(super) fn options_within(
    cluster: &Cluster,
    reservoir: bool,
    config: Config,
    wait: Duration,
) -> anyhow::Result<Options> {
    let pem = fs::read(cluster.ca_file())?;
    let options = Options::builder("localhost")
        .port(cluster.port())
        .region("us-east-1")
        .roots(RootCertificates::Pem(pem.into()))
        .direct_tls(true)
        .reservoir(reservoir)
        // The peers do not spread their first opens over minutes, either.
        .variable("DSQL_POOL_WARMUP_STAGGER_DURATION", "0s")
        .config(config.startup_jitter(Duration::ZERO).acquire_timeout(wait));
    Ok(options.build()?)
}

/// AWS's own, with sqlx's pool and its prepared statements.
pub(super) type Official = PgPool;

impl Pool for Official {
    type Lent<'a> = PoolConnection<sqlx::Postgres>;

    async fn acquire(&self) -> anyhow::Result<Self::Lent<'_>> {
        Ok(PgPool::acquire(self).await?)
    }

    async fn select(lent: &mut Self::Lent<'_>) -> anyhow::Result<()> {
        sqlx::query("SELECT 1").fetch_one(&mut **lent).await?;
        Ok(())
    }
}

pub(super) async fn official(cluster: &Cluster, pool: PgPoolOptions) -> anyhow::Result<Official> {
    let connect = PgConnectOptions::new_without_pgpass()
        .host("localhost")
        .port(cluster.port())
        .username("admin")
        .database("postgres")
        .ssl_mode(PgSslMode::VerifyFull)
        .ssl_root_cert(cluster.ca_file());
    let credentials = Credentials::new(KEY, SECRET, None, None, "bench");
    let options = DsqlConnectOptionsBuilder::default()
        .pg_connect_options(connect)
        .region(Some(Region::new("us-east-1")))
        .credentials_provider(Some(SharedCredentialsProvider::new(credentials)))
        .build()?;
    Ok(aurora_dsql_sqlx_connector::pool::connect_with(&options, pool.acquire_timeout(PATIENCE)).await?)
}

/// deadpool-postgres, whose connections are opened with a token.
pub(super) type Deadpool = deadpool_postgres::Pool;

impl Pool for Deadpool {
    type Lent<'a> = deadpool_postgres::Client;

    async fn acquire(&self) -> anyhow::Result<Self::Lent<'_>> {
        Ok(self.get().await?)
    }

    async fn select(lent: &mut Self::Lent<'_>) -> anyhow::Result<()> {
        one(lent).await
    }
}

/// `life` ends a connection that is older, before it is lent.
pub(super) fn deadpool(cluster: &Cluster, size: usize, life: Option<Duration>) -> anyhow::Result<Deadpool> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let dial = Dial::new(cluster)?;
    let manager = Manager::from_connect(dial.config.clone(), dial, recycling);
    let wait = Some(PATIENCE);
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

/// Opens connections of tokio-postgres with a token.
#[derive(Clone)]
pub(super) struct Dial {
    cluster: Cluster,
    config: tokio_postgres::Config,
    tls: MakeRustlsConnect,
}

impl Dial {
    pub(super) fn new(cluster: &Cluster) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&fs::read(cluster.ca_file())?)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"postgresql".to_vec()];
        let mut config = tokio_postgres::Config::new();
        config
            .host("localhost")
            .hostaddr([127, 0, 0, 1].into())
            .port(cluster.port())
            .user("admin")
            .dbname("postgres")
            .ssl_mode(SslMode::Require)
            .ssl_negotiation(SslNegotiation::Direct);
        Ok(Self { cluster: cluster.clone(), config, tls: MakeRustlsConnect::new(tls) })
    }

    /// A connection, and the task that drives it.
    pub(super) async fn dial(
        &self,
    ) -> Result<(tokio_postgres::Client, JoinHandle<()>), tokio_postgres::Error> {
        let mut config = self.config.clone();
        // Without a token the server refuses, which is told as any other refusal.
        config.password(self.cluster.token().await.unwrap_or_default());
        let (client, connection) = config.connect(self.tls.clone()).await?;
        Ok((client, Handle::current().spawn(async move { drop(connection.await) })))
    }
}

impl deadpool_postgres::Connect for Dial {
    fn connect(
        &self,
        _config: &tokio_postgres::Config,
    ) -> Pin<
        Box<
            dyn Future<Output = Result<(tokio_postgres::Client, JoinHandle<()>), tokio_postgres::Error>>
                + Send
                + '_,
        >,
    > {
        Box::pin(self.dial())
    }
}
