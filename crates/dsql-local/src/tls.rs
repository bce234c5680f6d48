//! The certificates of the emulator, and its TLS configuration.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};

use crate::error::Error;

/// The ALPN protocol.
pub(crate) const ALPN: &[u8] = b"postgresql";

/// A certificate authority and a server certificate, created at each start.
pub(crate) struct Identity {
    /// The certificate of the authority.
    pub(crate) ca_pem: String,
    pub(crate) server: Arc<ServerConfig>,
}

impl Identity {
    /// Creates certificates for the endpoint, `localhost` and the loopback addresses, with ECDSA on P-256.
    pub(crate) fn make(endpoint: &str) -> Result<Self, Error> {
        let problem = |reason: &dyn std::fmt::Display| Error::Certificate {
            name: endpoint.to_owned(),
            reason: reason.to_string(),
        };
        let ca_key = KeyPair::generate().map_err(|error| problem(&error))?;
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        ca.distinguished_name.push(DnType::CommonName, "dsql-local authority");
        let ca_pem = ca.self_signed(&ca_key).map_err(|error| problem(&error))?.pem();
        let issuer = Issuer::new(ca, ca_key);

        let names = [endpoint, "localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut leaf = CertificateParams::new(names.to_vec()).map_err(|error| problem(&error))?;
        leaf.distinguished_name.push(DnType::CommonName, "dsql-local");
        leaf.use_authority_key_identifier_extension = true;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(|error| problem(&error))?;
        let certificate = leaf.signed_by(&key, &issuer).map_err(|error| problem(&error))?;

        let provider = Arc::new(ring::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let certified = CertifiedKey::from_der(vec![certificate.der().clone()], key, &provider)
            .map_err(|error| problem(&error))?;
        let resolver = Resolver { names, certified: Arc::new(certified) };
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(|error| problem(&error))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        server.alpn_protocols = vec![ALPN.to_vec()];
        // The real service does not resume sessions. Tickets would also cost memory on every connection.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { ca_pem, server: Arc::new(server) })
    }
}

/// One certificate, for its own names only.
#[derive(Debug)]
struct Resolver {
    names: [String; 4],
    certified: Arc<CertifiedKey>,
}

impl ResolvesServerCert for Resolver {
    /// A client without a server name passes, so that it gets an error message later.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let known = hello
            .server_name()
            .is_none_or(|name| self.names.iter().any(|known| known.eq_ignore_ascii_case(name)));
        known.then(|| self.certified.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_host_name_is_an_error() {
        assert!(Identity::make("abc.dsql.us-east-1.on.aws").is_ok());
        let error = Identity::make("ümlaut").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("must be a host name"), "{error}");
    }
}
