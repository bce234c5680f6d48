//! Certificates for the transport.

use std::fmt;
use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::error::StartError;

/// Certificate and key of the server, as PEM text.
#[derive(Clone)]
pub struct Tls {
    /// The chain, the server's own certificate first.
    pub certificate_pem: String,
    /// The private key that belongs to it.
    pub key_pem: String,
    /// With this, clients must show a certificate that it has signed.
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

/// An authority made for one run, and what it has signed.
#[derive(Clone)]
pub struct SelfSigned {
    /// For `localhost`, 127.0.0.1 and ::1. Clients need no certificate; see [`SelfSigned::mutual`].
    pub tls: Tls,
    /// What clients verify it with.
    pub root_pem: String,
    /// A certificate for a client, if one is wanted.
    pub client_certificate_pem: String,
    /// Its private key.
    pub client_key_pem: String,
}

impl fmt::Debug for SelfSigned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SelfSigned").field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl SelfSigned {
    /// The same server, with clients that must show the certificate made for them.
    #[must_use]
    pub fn mutual(&self) -> Tls {
        Tls { client_ca_pem: Some(self.root_pem.clone()), ..self.tls.clone() }
    }
}

impl Tls {
    /// A new authority, and certificates of its for the server and for a client.
    ///
    /// # Errors
    ///
    /// If the machine makes no keys.
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

    let mut server = leaf("flight-local", ExtendedKeyUsagePurpose::ServerAuth);
    server.subject_alt_names = vec![SanType::DnsName("localhost".try_into()?)];
    let addresses = ["127.0.0.1", "::1"].into_iter().filter_map(|address| address.parse::<IpAddr>().ok());
    server.subject_alt_names.extend(addresses.map(SanType::IpAddress));
    let server_key = KeyPair::generate()?;
    let client_key = KeyPair::generate()?;
    let client = leaf("flight-local client", ExtendedKeyUsagePurpose::ClientAuth);
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

fn leaf(name: &str, purpose: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params
}
