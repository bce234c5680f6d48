//! A cluster to test, and clients that verify it fully.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dsql_local::{Cluster, Config, Credentials, Speed, TokenClock};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::{Client, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

pub(crate) const ENDPOINT: &str = "abc.dsql.us-east-1.on.aws";
/// Longer than any step takes: a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn keys() -> Credentials {
    Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
}

/// A cluster with a stopped clock, also for tokens.
pub(crate) fn config() -> Config {
    Config {
        endpoint: ENDPOINT.to_owned(),
        credentials: vec![keys()],
        speed: Speed::STOPPED,
        token_clock: TokenClock::Emulator,
        ..Config::default()
    }
}

pub(crate) fn start(config: Config) -> Cluster {
    // Thousands of sockets, with both ends in this process.
    static RAISED: OnceLock<()> = OnceLock::new();
    RAISED.get_or_init(|| {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    });
    Cluster::start(config).unwrap()
}

pub(crate) fn options(cluster: &Cluster) -> tokio_postgres::Config {
    let mut options = tokio_postgres::Config::new();
    options
        .host(cluster.endpoint())
        .hostaddr(cluster.address().ip())
        .port(cluster.address().port())
        .user("admin")
        .password(cluster.token("admin").unwrap())
        .dbname("postgres")
        .ssl_mode(SslMode::Require)
        .ssl_negotiation(SslNegotiation::Direct);
    options
}

pub(crate) async fn connect(cluster: &Cluster) -> Client {
    try_connect(cluster).await.unwrap()
}

pub(crate) async fn try_connect(cluster: &Cluster) -> Result<Client, Error> {
    connect_with(cluster, &options(cluster)).await
}

pub(crate) async fn connect_with(
    cluster: &Cluster,
    options: &tokio_postgres::Config,
) -> Result<Client, Error> {
    let (client, connection) = options.connect(tls(cluster)).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// The error that a refused client got: code, message and hint.
pub(crate) fn told(error: &Error) -> (String, String, Option<String>) {
    let error = error.as_db_error().unwrap_or_else(|| panic!("no answer: {error:?}"));
    (error.code().code().to_owned(), error.message().to_owned(), error.hint().map(str::to_owned))
}

pub(crate) fn code(error: &Error) -> &str {
    error.code().map_or("none", |code| code.code())
}

/// Waits for something that another task does.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "never: {what}");
}

/// A raw socket.
pub(crate) async fn socket(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

pub(crate) fn client_config(cluster: &Cluster) -> Arc<ClientConfig> {
    // Shared, because creating it is the slow part of a connection in a debug build.
    static PROVIDER: OnceLock<Arc<rustls::crypto::CryptoProvider>> = OnceLock::new();
    let provider = PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider()));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cluster.ca_pem().as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Arc::new(config)
}

/// TLS for tokio-postgres.
pub(crate) fn tls(cluster: &Cluster) -> MakeRustlsConnect {
    MakeRustlsConnect::new((*client_config(cluster)).clone())
}
