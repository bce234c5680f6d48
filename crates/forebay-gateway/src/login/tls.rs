//! The gateway's certificate, and the TLS that clients get.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::Problem;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{CertificateError, RootCertStore, ServerConfig, crypto::ring};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use tokio_rustls::TlsAcceptor;

use super::der::{self, SignatureHash};
use crate::config::TlsFiles;

/// What PostgreSQL's clients say that they speak inside TLS.
pub(super) const PROTOCOL: &[u8] = b"postgresql";

/// A certificate with its key, ready for clients.
#[derive(Clone)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    binding: Option<Vec<u8>>,
    chain: Arc<[CertificateDer<'static>]>,
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").field("channel_binding", &self.binding.is_some()).finish_non_exhaustive()
    }
}

impl TlsServer {
    /// Reads the files.
    ///
    /// # Errors
    /// Every problem with them.
    pub fn load(files: &TlsFiles) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let chain = certificates("tls_cert_file", &files.cert, &mut problems);
        let key = key(&files.key, &mut problems);
        let authorities =
            files.client_ca.as_ref().map(|path| certificates("tls_client_ca_file", path, &mut problems));
        let (Some(key), true) = (key, problems.is_empty()) else { return Err(problems) };
        Self::new(chain, key, authorities).map_err(|(setting, reason)| {
            let path = match setting {
                "tls_client_ca_file" => files.client_ca.as_deref().unwrap_or(&files.cert),
                "tls_key_file" => &files.key,
                _ => &files.cert,
            };
            vec![problem(setting, path, &format!("usable: {reason}"))]
        })
    }

    /// From a chain of certificates, the gateway's own first; its key; and the authorities of client certificates, if clients may
    /// show one.
    ///
    /// # Errors
    /// The setting that is wrong, and why.
    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authorities: Option<Vec<CertificateDer<'static>>>,
    ) -> Result<Self, (&'static str, String)> {
        let binding = chain.first().and_then(|own| binding(own));
        let provider = Arc::new(ring::default_provider());
        let of_cert = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => {
                ("tls_key_file", "it is not the key of the first certificate in tls_cert_file".to_owned())
            }
            error => ("tls_cert_file", error.to_string()),
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(of_cert)?;
        let builder = match authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in authorities {
                    roots.add(authority).map_err(|error| ("tls_client_ca_file", error.to_string()))?;
                }
                // Whether a user needs a certificate is known only after the start-up message.
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| ("tls_client_ca_file", error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain: Arc<[CertificateDer<'static>]> = chain.into();
        let mut config = builder.with_single_cert(chain.to_vec(), key).map_err(of_cert)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // As PostgreSQL: libpq does not resume sessions, and tickets cost time and memory on every connection.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { config: Arc::new(config), binding, chain })
    }

    /// Why clients that check the certificate refuse it at this time since 1970: it has expired, or is not valid yet.
    #[must_use]
    pub fn out_of_date(&self, wall: Duration) -> Option<String> {
        use CertificateError as E;
        let (own, others) = self.chain.split_first()?;
        // Dates are looked at before it matters who has signed it.
        let mut roots = RootCertStore::empty();
        roots.add(own.clone()).ok()?;
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
        let anybody = ServerName::try_from("localhost").ok()?;
        let now = UnixTime::since_unix_epoch(wall);
        match verifier.verify_server_cert(own, others, &anybody, &[], now) {
            Err(rustls::Error::InvalidCertificate(
                why @ (E::Expired | E::ExpiredContext { .. } | E::NotValidYet | E::NotValidYetContext { .. }),
            )) => Some(why.to_string()),
            _ => None,
        }
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// What clients bind a SCRAM exchange to: the hash of the certificate (`tls-server-end-point`, RFC 5929).
    pub(super) fn binding(&self) -> Option<&[u8]> {
        self.binding.as_deref()
    }
}

fn binding(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(match der::binding_hash(certificate)? {
        SignatureHash::Sha256 => Sha256::digest(certificate).to_vec(),
        SignatureHash::Sha384 => Sha384::digest(certificate).to_vec(),
        SignatureHash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

fn certificates(
    setting: &'static str,
    path: &Path,
    problems: &mut Vec<Problem>,
) -> Vec<CertificateDer<'static>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(chain) if chain.is_empty() => {
            problems.push(problem(setting, path, "a file with certificates in PEM"))
        }
        Ok(chain) => return chain,
        Err(error) => {
            problems.push(problem(setting, path, &format!("a file with certificates in PEM: {error}")))
        }
    }
    Vec::new()
}

fn key(path: &Path, problems: &mut Vec<Problem>) -> Option<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| {
            problems.push(problem(
                "tls_key_file",
                path,
                &format!("a file with a private key in PEM: {error}"),
            ))
        })
        .ok()
}

fn problem(setting: &'static str, path: &Path, allowed: &str) -> Problem {
    Problem { setting: setting.into(), value: path.display().to_string(), allowed: allowed.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_has_expired_is_noticed() {
        let mut of_2025 = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        (of_2025.not_before, of_2025.not_after) =
            (rcgen::date_time_ymd(2025, 1, 1), rcgen::date_time_ymd(2025, 12, 31));
        let key = rcgen::KeyPair::generate().unwrap();
        let own = of_2025.self_signed(&key).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let tls = TlsServer::new(vec![own.der().clone()], key, None).unwrap();
        let years = |years: f64| Duration::from_secs_f64(years * 365.25 * 86_400.0);
        assert!(tls.out_of_date(years(54.5)).unwrap().contains("not valid yet"));
        assert_eq!(tls.out_of_date(years(55.5)), None);
        assert!(tls.out_of_date(years(56.5)).unwrap().contains("expired"));
    }

    #[test]
    fn the_key_of_another_certificate_is_named() {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::KeyPair::generate().unwrap();
        let key = PrivateKeyDer::try_from(other.serialize_der()).unwrap();
        let (setting, _) = TlsServer::new(vec![own.cert.der().clone()], key, None).unwrap_err();
        assert_eq!(setting, "tls_key_file");
    }
}
