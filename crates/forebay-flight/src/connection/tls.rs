//! TLS: the trusted authorities and the client's own certificate.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::options::ConnectOptions;
use crate::error::{Error, Result};

/// The TLS settings of connections to one server.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// None for an endpoint without TLS.
    ///
    /// # Errors
    /// [`Error::Config`] if the certificates, the key or the server's name are invalid.
    pub(crate) fn new(options: &ConnectOptions) -> Result<Option<Self>> {
        if !options.endpoint.is_tls() {
            return Ok(None);
        }
        let mut roots = RootCertStore::empty();
        match &options.roots {
            Some(pem) => {
                for certificate in certificates("roots", pem)? {
                    roots.add(certificate).map_err(|error| wrong("roots", "certificates", &error))?;
                }
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let name = options.server_name.as_deref().unwrap_or(options.endpoint.host());
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Error::config(format!("the server's name {name:?} is not a valid host name")))?;
        // Named here, so that it works next to another provider that the program has installed.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("TLS", "version 1.2 or 1.3", &error))?
            .with_root_certificates(roots);
        let mut config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = PrivateKeyDer::from_pem_slice(&identity.key)
                    .map_err(|error| wrong("identity", "private key", &error))?;
                builder
                    .with_client_auth_cert(certificates("identity", &identity.certificates)?, key)
                    .map_err(|error| wrong("identity", "certificates and key", &error))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Some(Self { connector: TlsConnector::from(Arc::new(config)), name }))
    }

    /// # Errors
    /// What went wrong, and what to do about it.
    ///
    /// # Cancel safety
    /// Dropping it closes the socket.
    pub(crate) async fn secure(&self, socket: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let secured = self.connector.connect(self.name.clone(), socket).await;
        secured.map_err(|error| format!("{error}{}", remedy(&error)))
    }
}

/// What to do about a failed handshake, where the error says enough.
fn remedy(error: &io::Error) -> &'static str {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match cause {
        Some(InvalidMessage(_)) => "; the server does not speak TLS: grpc:// is for servers without it",
        Some(InvalidCertificate(UnknownIssuer)) => {
            "; if you trust the server, pass the authority that signed its certificate to ConnectOptions::roots"
        }
        Some(InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            "; if it is the right server, pass the name in its certificate to ConnectOptions::server_name"
        }
        Some(AlertReceived(_)) => {
            "; the server ended the handshake: it may require a client certificate, ConnectOptions::identity"
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "; it may be a server without TLS: grpc:// is for servers without it"
        }
        _ => "",
    }
}

fn certificates(option: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| wrong(option, "certificates", &error))?;
    if found.is_empty() {
        return Err(wrong(option, "certificates", &"it contains none"));
    }
    Ok(found)
}

fn wrong(option: &str, what: &str, error: &dyn fmt::Display) -> Error {
    Error::config(format!("{option} must be {what} in PEM that can be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_pem_is_a_clear_error() {
        let options = || ConnectOptions::new("grpc+tls://localhost:1").unwrap();
        assert!(Tls::new(&options()).unwrap().is_some());
        assert!(Tls::new(&ConnectOptions::new("grpc://localhost:1").unwrap()).unwrap().is_none());
        for (wrong, said) in [
            (options().roots("nothing"), "roots must be certificates"),
            (options().identity("nothing", "nothing"), "identity must be private key"),
            (options().server_name("not a name"), "not a name"),
        ] {
            let error = Tls::new(&wrong).err().unwrap().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
