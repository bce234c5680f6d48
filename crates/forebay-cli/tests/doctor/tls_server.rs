//! A server with a certificate of its own, which speaks no further than TLS.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, thread};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use time::OffsetDateTime;

pub(crate) struct TlsServer {
    address: SocketAddr,
    authority: PathBuf,
}

impl TlsServer {
    /// A server for `host` whose certificate ends so many days after `now`, the time since 1970.
    pub(crate) fn start(host: &str, now: Duration, days: i64) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = authority.self_signed(&key).unwrap().pem();
        let mut leaf = CertificateParams::new([host.to_owned()]).unwrap();
        let end = i64::try_from(now.as_secs()).unwrap() + days * 86_400;
        leaf.not_after = OffsetDateTime::from_unix_timestamp(end).unwrap();
        let leaf_key = KeyPair::generate().unwrap();
        let certificate = leaf.signed_by(&leaf_key, &Issuer::new(authority, key)).unwrap();

        let leaf_key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], leaf_key)
            .unwrap();
        let (config, listener) = (Arc::new(config), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                // A client that refuses the certificate ends the handshake.
                let _ = shake(socket, Arc::clone(&config));
            }
        });
        let authority = env::temp_dir().join(format!("forebay-doctor-{}-{address}.pem", std::process::id()));
        fs::write(&authority, pem).unwrap();
        Self { address, authority }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The file with the certificate of the authority.
    pub(crate) fn authority(&self) -> String {
        self.authority.display().to_string()
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.authority));
    }
}

/// One handshake, after a client of PostgreSQL has requested it.
fn shake(mut socket: TcpStream, config: Arc<ServerConfig>) -> std::io::Result<()> {
    socket.read_exact(&mut [0; 8])?;
    socket.write_all(b"S")?;
    let mut connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    Stream::new(&mut connection, &mut socket).read(&mut [0]).map(drop)
}
