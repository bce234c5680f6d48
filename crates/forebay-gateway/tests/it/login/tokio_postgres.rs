//! tokio-postgres: direct TLS, channel binding, cancel requests.

use std::sync::Arc;

use forebay_gateway::config::Authentication;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_postgres::config::{ChannelBinding, SslMode, SslNegotiation};
use tokio_postgres::{Config, Error, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::TlsConnector;

use super::door::{Door, KEY, Visit, policy};
use super::identity::Identity;
use crate::world::Plan;

fn config(door: &Door, password: &str) -> Config {
    let mut config = Config::new();
    config.host("localhost").port(door.address.port()).user("app").dbname("postgres").password(password);
    config
}

fn tls(identity: &Identity) -> MakeRustlsConnect {
    let mut config = tls_config(identity);
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    MakeRustlsConnect::new(config)
}

fn tls_config(identity: &Identity) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(identity.path("ca.pem")).unwrap()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

async fn role(config: &Config, tls: MakeRustlsConnect) -> Result<String, Error> {
    let (client, connection) = config.connect(tls).await?;
    let connection = tokio::spawn(connection);
    let rows = client.simple_query("SELECT role").await?;
    drop(client);
    connection.await.unwrap()?;
    let role = rows.iter().find_map(|row| match row {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(role.unwrap_or_default().to_owned())
}

#[tokio::test]
async fn every_way_to_tls_is_open() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    let mut door = Door::open(policy(Authentication::Scram, Some(&identity))).await;
    for negotiation in [SslNegotiation::Postgres, SslNegotiation::Direct] {
        for binding in [ChannelBinding::Disable, ChannelBinding::Prefer, ChannelBinding::Require] {
            let mut config = config(&door, "secret");
            config.ssl_mode(SslMode::Require).ssl_negotiation(negotiation).channel_binding(binding);
            assert_eq!(role(&config, tls(&identity)).await.unwrap(), "writer");
            assert!(matches!(door.visit().await, Visit::Client { encrypted: true, .. }));
            config.password("wrong");
            let refused = role(&config, tls(&identity)).await.unwrap_err();
            assert_eq!(refused.code().map(|code| code.code()), Some("28P01"));
            assert!(matches!(door.visit().await, Visit::Refused(_)));
        }
    }
}

#[tokio::test]
async fn a_password_is_proved_without_tls() {
    let door = Door::open(policy(Authentication::Scram, None)).await;
    let (client, connection) = config(&door, "secret").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client.simple_query("SELECT role").await.unwrap();
    let refused = config(&door, "").connect(NoTls).await.err().unwrap();
    assert_eq!(refused.code().map(|code| code.code()), Some("28P01"));
}

#[tokio::test]
async fn a_cancel_request_passes_with_and_without_tls_and_while_draining() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    let mut door = Door::open(policy(Authentication::Scram, Some(&identity))).await;
    let mut clients = Vec::new();
    for mode in [SslMode::Require, SslMode::Disable] {
        let (client, connection) =
            config(&door, "secret").ssl_mode(mode).connect(tls(&identity)).await.unwrap();
        tokio::spawn(connection);
        assert!(
            matches!(door.visit().await, Visit::Client { encrypted, .. } if encrypted == (mode == SslMode::Require))
        );
        clients.push(client);
    }
    door.shared.drain();
    for client in clients {
        client.cancel_token().cancel_query(tls(&identity)).await.unwrap();
        assert!(matches!(door.visit().await, Visit::Cancel(key) if key == *KEY));
    }
}

/// Who begins TLS at once says which protocol is inside: else a browser could be made to speak to the gateway (ALPACA).
#[tokio::test]
async fn direct_tls_names_its_protocol() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    let mut door = Door::open(policy(Authentication::Scram, Some(&identity))).await;
    for (protocols, words) in [(vec![], Some("without ALPN")), (vec![b"http/1.1".to_vec()], None)] {
        let mut config = tls_config(&identity);
        config.alpn_protocols = protocols;
        let socket = tokio::net::TcpStream::connect(door.address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = connector.connect("localhost".try_into().unwrap(), socket).await;
        let mut said = Vec::new();
        // With another protocol, the handshake fails; that may be noticed only when something is read.
        if let Ok(mut stream) = stream {
            drop(stream.read_to_end(&mut said).await);
        }
        let said = String::from_utf8_lossy(&said);
        assert!(words.map_or(said.is_empty(), |words| said.contains(words)), "{said}");
        assert!(matches!(door.visit().await, Visit::Refused(_)));
    }
}

/// libpq from version 17 on takes an end without a word for a failure.
#[tokio::test]
async fn a_cancel_request_within_tls_is_closed_with_a_word() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    let settings =
        vec![("tls_cert_file", identity.path("server.pem")), ("tls_key_file", identity.path("server.key"))];
    let world = Plan { settings, ..Plan::default() }.start().await;
    let mut config = tls_config(&identity);
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    // Keys of another length may come from servers of another kind.
    for length in [8, 32] {
        let socket = TcpStream::connect(world.gateway.addresses()[0]).await.unwrap();
        let mut socket = connector.connect("localhost".try_into().unwrap(), socket).await.unwrap();
        let mut request = u32::to_be_bytes(8 + length).to_vec();
        request.extend_from_slice(&[4, 210, 22, 46]);
        request.resize(8 + length as usize, 7);
        socket.write_all(&request).await.unwrap();
        assert_eq!(socket.read_to_end(&mut Vec::new()).await.unwrap(), 0, "a key of {length} bytes");
    }
}
