//! A client that logs in and does nothing: as little as can be, so that ten thousand fit beside the server.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::ensure;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Server;

/// A connection that is logged in.
pub(super) type Line = TlsStream<TcpStream>;

/// Makes connections.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    connector: TlsConnector,
    hello: Arc<[u8]>,
}

impl Client {
    pub(super) fn new(server: &Server) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&fs::read(&server.ca_file)?)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        // Start-up and password in one go: the server asks in between, but need not be waited for.
        let mut hello = b"\0\0\0\x26\0\x03\0\0user\0admin\0database\0postgres\0\0p".to_vec();
        hello.extend(u32::try_from(server.token.len() + 5)?.to_be_bytes());
        hello.extend(server.token.as_bytes());
        hello.push(0);
        Ok(Self { address: server.address, connector: Arc::new(config).into(), hello: hello.into() })
    }

    /// Connects and waits until the server is ready.
    pub(super) async fn connect(&self) -> anyhow::Result<Line> {
        let socket = TcpStream::connect(self.address).await?;
        socket.set_nodelay(true)?;
        let mut line = self.connector.connect(ServerName::try_from("localhost")?, socket).await?;
        line.write_all(&self.hello).await?;
        let mut said = Vec::with_capacity(1_024);
        while !said.ends_with(b"Z\0\0\0\x05I") {
            let count = line.read_buf(&mut said).await?;
            ensure!(count > 0, "refused: {}", String::from_utf8_lossy(&said));
        }
        Ok(line)
    }
}
