//! A `dsql-local`, and connections to it with nothing of this crate in between.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dsql_local::{Cluster, Config, Credentials, EngineKind, Speed, TokenClock};
use forebay_dsql::{Error, Session, Sessions};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sqlx::{Connection, Executor, PgConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Socket};

/// A cluster whose clock stands still, also for tokens; its connections are not rationed.
pub(crate) fn cluster() -> Cluster {
    cluster_on(EngineKind::Builtin)
}

pub(crate) fn cluster_on(engine: EngineKind) -> Cluster {
    let mut config = Config {
        engine,
        credentials: vec![Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")],
        speed: Speed::STOPPED,
        token_clock: TokenClock::Emulator,
        ..Config::default()
    };
    config.limits.burst = 1_000_000;
    Cluster::start(config).unwrap()
}

/// Connections of tokio-postgres, a new one each time.
pub(crate) struct Postgres<'a>(pub(crate) &'a Cluster);
/// Connections of sqlx, a new one each time.
pub(crate) struct Sqlx<'a>(pub(crate) &'a Cluster);

pub(crate) struct PostgresSession(pub(crate) Client);
pub(crate) struct SqlxSession(pub(crate) PgConnection);

impl Sessions for Postgres<'_> {
    type Session = PostgresSession;

    async fn session(&self) -> Result<PostgresSession, Error> {
        Ok(PostgresSession(connect(self.0, &self.0.token("admin").unwrap()).await?))
    }
}

impl Sessions for Sqlx<'_> {
    type Session = SqlxSession;

    async fn session(&self) -> Result<SqlxSession, Error> {
        let options = sqlx::postgres::PgConnectOptions::new_without_pgpass()
            .host("localhost")
            .port(self.0.address().port())
            .username("admin")
            .database("postgres")
            .password(&self.0.token("admin").unwrap())
            .ssl_mode(sqlx::postgres::PgSslMode::VerifyFull)
            .ssl_root_cert(self.0.ca_file());
        Ok(SqlxSession(PgConnection::connect_with(&options).await?))
    }
}

impl Session for PostgresSession {
    async fn begin(&mut self) -> Result<(), Error> {
        Ok(self.0.batch_execute("BEGIN").await?)
    }
    async fn commit(&mut self) -> Result<(), Error> {
        Ok(self.0.batch_execute("COMMIT").await?)
    }
    async fn rollback(&mut self) -> Result<(), Error> {
        Ok(self.0.batch_execute("ROLLBACK").await?)
    }
}

impl Session for SqlxSession {
    async fn begin(&mut self) -> Result<(), Error> {
        self.0.execute("BEGIN").await?;
        Ok(())
    }
    async fn commit(&mut self) -> Result<(), Error> {
        self.0.execute("COMMIT").await?;
        Ok(())
    }
    async fn rollback(&mut self) -> Result<(), Error> {
        self.0.execute("ROLLBACK").await?;
        Ok(())
    }
}

pub(crate) async fn connect(cluster: &Cluster, token: &str) -> Result<Client, tokio_postgres::Error> {
    let mut options = tokio_postgres::Config::new();
    options
        .host(cluster.endpoint())
        .hostaddr(cluster.address().ip())
        .port(cluster.address().port())
        .user("admin")
        .password(token)
        .dbname("postgres")
        .ssl_mode(SslMode::Require)
        .ssl_negotiation(SslNegotiation::Direct);
    let (client, connection) = options.connect(Tls(client_config(cluster), None)).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

fn client_config(cluster: &Cluster) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cluster.ca_pem().as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Arc::new(config)
}

#[derive(Clone)]
struct Tls(Arc<ClientConfig>, Option<String>);

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Stream;
    type TlsConnect = Self;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Self> {
        Ok(Self(Arc::clone(&self.0), Some(domain.to_owned())))
    }
}

impl TlsConnect<Socket> for Tls {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.1.unwrap_or_default()).map_err(io::Error::other)?;
            Ok(Stream(tokio_rustls::TlsConnector::from(self.0).connect(name, socket).await?))
        })
    }
}

struct Stream(tokio_rustls::client::TlsStream<Socket>);

impl tokio_postgres::tls::TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
