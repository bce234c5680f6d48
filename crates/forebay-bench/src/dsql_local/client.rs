//! A client that logs in and does nothing: as little as can be, so that ten thousand fit beside the server.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Server;
use super::postgres::Postgres;
use crate::clock::Stopwatch;

/// The start-up of a connection.
const STARTUP: &[u8] = b"\0\0\0\x26\0\x03\0\0user\0admin\0database\0postgres\0\0";

/// A connection that is logged in.
pub(super) type Line = TlsStream<TcpStream>;

/// Makes connections.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    connector: TlsConnector,
    /// What is said before TLS begins, and answered with one letter; nothing if TLS begins at once.
    request: &'static [u8],
    hello: Arc<[u8]>,
}

/// Asks whether the server has TLS.
const TLS_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";

impl Client {
    pub(super) fn new(server: &Server) -> anyhow::Result<Self> {
        // Start-up and password in one go: the server asks in between, but need not be waited for.
        let mut hello = STARTUP.to_vec();
        hello.push(b'p');
        hello.extend(u32::try_from(server.token.len() + 5)?.to_be_bytes());
        hello.extend(server.token.as_bytes());
        hello.push(0);
        Self::to(server.address, &server.ca_file, b"", hello)
    }

    /// To a PostgreSQL, which asks for no password.
    pub(super) fn to_postgres(postgres: &Postgres) -> anyhow::Result<Self> {
        Self::to(postgres.address(), &postgres.authority(), TLS_REQUEST, STARTUP.to_vec())
    }

    fn to(
        address: SocketAddr,
        authority: &Path,
        request: &'static [u8],
        hello: Vec<u8>,
    ) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&fs::read(authority)?)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self { address, connector: Arc::new(config).into(), request, hello: hello.into() })
    }

    /// Connects and waits until the server is ready.
    pub(super) async fn connect(&self) -> anyhow::Result<Line> {
        let mut socket = TcpStream::connect(self.address).await?;
        socket.set_nodelay(true)?;
        if !self.request.is_empty() {
            socket.write_all(self.request).await?;
            ensure!(socket.read_u8().await? == b'S', "the server has no TLS");
        }
        let mut line = self.connector.connect(ServerName::try_from("localhost")?, socket).await?;
        line.write_all(&self.hello).await?;
        answered(&mut line).await?;
        Ok(line)
    }

    /// How long each answer takes to `SELECT 1`, in microseconds, for as long as that: the middle one.
    pub(super) async fn middle(&self, prepared: bool, time: Duration) -> anyhow::Result<f64> {
        let mut line = self.connect().await?;
        let question: &[u8] = if prepared {
            line.write_all(b"P\0\0\0\x11s\0SELECT 1\0\0\0S\0\0\0\x04").await?;
            answered(&mut line).await?;
            b"B\0\0\0\x0d\0s\0\0\0\0\0\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04"
        } else {
            b"Q\0\0\0\x0dSELECT 1\0"
        };
        let (mut times, watch) = (Vec::new(), Stopwatch::start());
        while watch.elapsed() < time {
            let one = Stopwatch::start();
            line.write_all(question).await?;
            answered(&mut line).await?;
            times.push(one.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().context("nothing was answered")
    }
}

/// Waits until the server is ready for more.
async fn answered(line: &mut Line) -> anyhow::Result<()> {
    let mut said = Vec::with_capacity(1_024);
    while !said.ends_with(b"Z\0\0\0\x05I") {
        let count = line.read_buf(&mut said).await?;
        ensure!(count > 0, "refused: {}", String::from_utf8_lossy(&said));
    }
    ensure!(!said.windows(7).any(|text| text == b"SERROR\0"), "an error: {}", String::from_utf8_lossy(&said));
    Ok(())
}
