//! TLS certificates.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::error::StartError;

/// The server's certificate and key, in PEM.
#[derive(Clone)]
pub struct Tls {
    /// The certificate chain, with the server's certificate first.
    pub certificate_pem: String,
    /// The private key.
    pub key_pem: String,
    /// If set, clients must present a certificate that it has signed.
    pub client_ca_pem: Option<String>,
}

/// Without the key.
impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tls")
            .field("client_ca", &self.client_ca_pem.is_some())
            .finish_non_exhaustive()
    }
}

/// A certificate authority for one run, and the certificates that it has signed.
#[derive(Clone)]
pub struct SelfSigned {
    /// The server's certificate, for `localhost`, 127.0.0.1 and ::1. Clients need no certificate; see
    /// [`SelfSigned::mutual`].
    pub tls: Tls,
    /// The root certificate, with which clients verify the server.
    pub root_pem: String,
    /// A client certificate.
    pub client_certificate_pem: String,
    /// The private key of the client certificate.
    pub client_key_pem: String,
}

impl fmt::Debug for SelfSigned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SelfSigned").field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl SelfSigned {
    /// The same server, but clients must present the client certificate.
    #[must_use]
    pub fn mutual(&self) -> Tls {
        Tls { client_ca_pem: Some(self.root_pem.clone()), ..self.tls.clone() }
    }
}

impl Tls {
    /// Creates a certificate authority, and certificates for the server and a client.
    ///
    /// # Errors
    /// If no keys can be generated.
    pub fn self_signed() -> Result<SelfSigned, StartError> {
        make().map_err(|error| StartError::Certificate(error.to_string()))
    }

    pub(crate) fn server(&self) -> ServerTlsConfig {
        let config =
            ServerTlsConfig::new().identity(Identity::from_pem(&self.certificate_pem, &self.key_pem));
        match &self.client_ca_pem {
            Some(root) => config.client_ca_root(Certificate::from_pem(root)),
            None => config,
        }
    }
}

fn make() -> Result<SelfSigned, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority.distinguished_name.push(DnType::CommonName, "flight-local authority");
    let root_pem = authority.self_signed(&key)?.pem();
    let issuer = Issuer::new(authority, key);

    let names = ["localhost", "127.0.0.1", "::1"];
    let server = leaf("flight-local", &names, ExtendedKeyUsagePurpose::ServerAuth)?;
    let server_key = KeyPair::generate()?;
    let client_key = KeyPair::generate()?;
    let client = leaf("flight-local client", &[], ExtendedKeyUsagePurpose::ClientAuth)?;
    Ok(SelfSigned {
        tls: Tls {
            certificate_pem: server.signed_by(&server_key, &issuer)?.pem(),
            key_pem: server_key.serialize_pem(),
            client_ca_pem: None,
        },
        root_pem,
        client_certificate_pem: client.signed_by(&client_key, &issuer)?.pem(),
        client_key_pem: client_key.serialize_pem(),
    })
}

fn leaf(
    name: &str,
    hosts: &[&str],
    purpose: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, rcgen::Error> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    Ok(params)
}
