//! TLS for Aurora DSQL: the host name is sent (SNI) and checked, and the certificate verified.
//!
//! Public authorities are those compiled in from Mozilla's list: it has Amazon's, it is the same on every machine, and it
//! needs no file, which small containers do not have. The options can name a private authority.

use std::io;
use std::sync::Arc;

use forebay::{ConfigError, Problem};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::options::{Options, RootCertificates};

impl Options {
    /// The authorities that the certificate of the cluster must be signed by, as connections check it. For programs that look at
    /// the TLS of a cluster themselves.
    ///
    /// # Errors
    /// If a certificate cannot be read.
    pub fn root_store(&self) -> Result<RootCertStore, ConfigError> {
        let mut roots = RootCertStore::empty();
        match self.roots() {
            RootCertificates::Pem(pem) => {
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    let added = certificate
                        .map_err(|error| error.to_string())
                        .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
                    added.map_err(|error| {
                        problem("roots", "PEM", format!("certificates that can be read ({error})"))
                    })?;
                }
            }
            RootCertificates::Public => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        Ok(roots)
    }
}

fn problem(setting: &'static str, value: &str, allowed: String) -> ConfigError {
    ConfigError { problems: vec![Problem { setting: setting.into(), value: value.to_owned(), allowed }] }
}

/// How connections of one cluster are secured. Made once; clones share it, and its cache of sessions.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// # Errors
    /// If the certificates or the host's name are invalid.
    pub(crate) fn new(options: &Options) -> Result<Self, ConfigError> {
        let roots = options.root_store()?;
        let name = ServerName::try_from(options.host().to_owned())
            .map_err(|_| problem("CLUSTER_ENDPOINT", options.host(), "a host name".to_owned()))?;
        // Named, so that a program may install another provider.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| problem("TLS", "ring", format!("a provider of TLS 1.2 or 1.3 ({error})")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Required where TLS comes first.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    /// Secures one socket. Cancel safe: dropping the future closes it.
    pub(crate) async fn connect<S>(self, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.connector.connect(self.name, socket).await
    }
}
