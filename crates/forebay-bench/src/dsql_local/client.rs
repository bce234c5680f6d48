//! A minimal client that logs in and does nothing, so that ten thousand of them fit beside the server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::clock::Stopwatch;
use crate::cluster::Server;
use crate::postgres::Postgres;
use crate::tls::tls_config;

/// The start-up message.
const STARTUP: &[u8] = b"\0\0\0\x26\0\x03\0\0user\0admin\0database\0postgres\0\0";

/// A connection after its login.
pub(super) type Connection = TlsStream<TcpStream>;

/// Opens connections.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    connector: TlsConnector,
    /// The request for TLS, which the server answers with one letter; empty for direct TLS.
    request: &'static [u8],
    login: Arc<[u8]>,
}

/// `SSLRequest` of the PostgreSQL protocol.
const TLS_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";

impl Client {
    pub(super) fn new(server: &Server) -> anyhow::Result<Self> {
        // Start-up and password are sent at once, without waiting for the server to request the password.
        let mut login = STARTUP.to_vec();
        login.push(b'p');
        login.extend(u32::try_from(server.token.len() + 5)?.to_be_bytes());
        login.extend(server.token.as_bytes());
        login.push(0);
        Self::with(server.address, &server.ca_file, b"", login)
    }

    /// For a PostgreSQL without a password.
    pub(super) fn to_postgres(postgres: &Postgres) -> anyhow::Result<Self> {
        Self::with(postgres.address(), &postgres.ca_file(), TLS_REQUEST, STARTUP.to_vec())
    }

    fn with(
        address: SocketAddr,
        ca_file: &Path,
        request: &'static [u8],
        login: Vec<u8>,
    ) -> anyhow::Result<Self> {
        let mut config = tls_config(ca_file)?;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self { address, connector: Arc::new(config).into(), request, login: login.into() })
    }

    /// Connects and waits until the server is ready.
    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        let mut socket = TcpStream::connect(self.address).await?;
        socket.set_nodelay(true)?;
        if !self.request.is_empty() {
            socket.write_all(self.request).await?;
            ensure!(socket.read_u8().await? == b'S', "the server has no TLS");
        }
        let mut connection = self.connector.connect(ServerName::try_from("localhost")?, socket).await?;
        connection.write_all(&self.login).await?;
        ready_for_query(&mut connection).await?;
        Ok(connection)
    }

    /// Repeats `SELECT 1` for `time`. Returns the median latency in microseconds.
    pub(super) async fn median_latency(&self, prepared: bool, time: Duration) -> anyhow::Result<f64> {
        let mut connection = self.connect().await?;
        let statement: &[u8] = if prepared {
            connection.write_all(b"P\0\0\0\x11s\0SELECT 1\0\0\0S\0\0\0\x04").await?;
            ready_for_query(&mut connection).await?;
            b"B\0\0\0\x0d\0s\0\0\0\0\0\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04"
        } else {
            b"Q\0\0\0\x0dSELECT 1\0"
        };
        let (mut times, watch) = (Vec::new(), Stopwatch::start());
        while watch.elapsed() < time {
            let one = Stopwatch::start();
            connection.write_all(statement).await?;
            ready_for_query(&mut connection).await?;
            times.push(one.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().context("no answers")
    }
}

/// Waits for `ReadyForQuery`.
async fn ready_for_query(connection: &mut Connection) -> anyhow::Result<()> {
    let mut answer = Vec::with_capacity(1_024);
    while !answer.ends_with(b"Z\0\0\0\x05I") {
        let count = connection.read_buf(&mut answer).await?;
        ensure!(count > 0, "refused: {}", String::from_utf8_lossy(&answer));
    }
    ensure!(
        !answer.windows(7).any(|text| text == b"SERROR\0"),
        "an error: {}",
        String::from_utf8_lossy(&answer)
    );
    Ok(())
}
