//! A TLS handshake with each address, and the certificate.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay::rt::Runtime as _;
use forebay_dsql::Options;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::certificate::Certificate;
use super::check::Check;
use super::context::Context;
use super::fault::{self, Fault};
use super::finding::Finding;
use super::{dns, moment, tcp};

/// Certificates are renewed before this much is left.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);
/// The message with which a client of PostgreSQL requests TLS.
const REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// What the protocol is called in a handshake.
const ALPN: &[u8] = b"postgresql";

pub(super) async fn run(context: &mut Context<'_>) -> Vec<Finding> {
    let Some(options) = context.options().cloned() else { return Vec::new() };
    let addresses = match context.accepting.clone() {
        Some(accepting) => accepting,
        None => match dns::addresses(context, Check::Tls).await {
            Ok(addresses) => addresses,
            Err(finding) => return vec![finding],
        },
    };
    let roots = match options.root_store() {
        Ok(roots) => Arc::new(roots),
        Err(error) => {
            return vec![Finding::failure(fault::INVALID_SETTING, error.to_string()).under(Check::Tls)];
        }
    };
    let mut findings = Vec::new();
    for (number, address) in addresses.iter().enumerate() {
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
        let verifier = match verifier {
            Ok(verifier) => verifier,
            Err(error) => {
                let what = format!("no certificate can be checked: {error}");
                return vec![Finding::failure(fault::INVALID_SETTING, what).under(Check::Tls)];
            }
        };
        let recorder =
            Arc::new(Recorder { verifier, seen: Mutex::default(), has_other_key: AtomicBool::default() });
        let began = context.runtime.now();
        let parts = addresses.len() - number;
        let shaken = context.bounded(parts, shake(*address, &options, provider, Arc::clone(&recorder))).await;
        let took = context.runtime.now().since(began);
        let seen = recorder.seen.lock().unwrap_or_else(PoisonError::into_inner).take();
        let finding = match shaken {
            Some(Ok(version)) => valid(*address, version, seen.as_ref(), context.runtime.wall()),
            Some(Err(error)) => {
                let known = recorder.has_other_key.load(Ordering::Relaxed).then(|| other_key(context));
                failed(*address, options.host(), &error).details(seen.iter().map(issued)).details(known)
            }
            None => {
                let what = format!(
                    "{address} accepts connections, but does not answer within {}",
                    tcp::rounded(took)
                );
                Finding::failure(fault::SILENT_ADDRESS, what).under(Check::Tls)
            }
        };
        findings.push(finding);
    }
    tcp::soften(&mut findings);
    findings
}

/// A handshake as a service makes it. The version of TLS.
async fn shake(
    address: SocketAddr,
    options: &Options,
    provider: Arc<rustls::crypto::CryptoProvider>,
    recorder: Arc<Recorder>,
) -> io::Result<&'static str> {
    let mut socket = TcpStream::connect(address).await?;
    if !options.direct_tls() {
        socket.write_all(&REQUEST).await?;
        let mut answer = [0];
        socket.read_exact(&mut answer).await?;
        if answer != *b"S" {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the server refuses TLS"));
        }
    }
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config
        .map_err(io::Error::other)?
        .dangerous()
        // It asks the usual verifier, and remembers the certificate.
        .with_custom_certificate_verifier(recorder)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let name = ServerName::try_from(options.host().to_owned()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
    Ok(match stream.get_ref().1.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLS 1.3",
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLS 1.2",
        _ => "TLS",
    })
}

fn valid(address: SocketAddr, version: &str, certificate: Option<&Certificate>, now: Duration) -> Finding {
    let Some(certificate) = certificate else {
        return Finding::ok(
            Check::Tls,
            format!("{address} speaks {version}, and its certificate is trusted"),
        );
    };
    let end = u64::try_from(certificate.not_after.unix_timestamp()).unwrap_or(0);
    let left = Duration::from_secs(end).saturating_sub(now);
    let days = left.as_secs() / 86_400;
    let what = format!(
        "{address} speaks {version}; its certificate is trusted, and valid until {} ({days} days)",
        moment::shown(certificate.not_after)
    );
    if left < SOON {
        return Finding::warning(fault::EXPIRING_CERTIFICATE, what).detail(issued(certificate));
    }
    Finding::ok(Check::Tls, what).detail(issued(certificate))
}

fn issued(certificate: &Certificate) -> String {
    let (begin, end): (OffsetDateTime, OffsetDateTime) = (certificate.not_before, certificate.not_after);
    let issuer = if certificate.issuer.is_empty() { "nobody in particular" } else { &certificate.issuer };
    format!("issued by {issuer}, valid from {} to {}", moment::shown(begin), moment::shown(end))
}

fn other_key(context: &Context<'_>) -> String {
    let file = context.variables.get("PGSSLROOTCERT").filter(|value| !value.trim().is_empty());
    let whose = if file.is_some() { "PGSSLROOTCERT has" } else { "the public authorities have" };
    let why = if file.is_some() { ": the file is old, or of another cluster" } else { "" };
    format!("{whose} an authority of this name with another key{why}")
}

fn failed(address: SocketAddr, host: &str, error: &io::Error) -> Finding {
    let (known, what) = fault_of(error, host);
    Finding::failure(known, format!("{address}: {what}")).under(Check::Tls)
}

fn fault_of(error: &io::Error, host: &str) -> (&'static Fault, String) {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(problem)) => match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                (fault::UNTRUSTED_CERTIFICATE, "the certificate is not trusted".to_owned())
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                (fault::OTHER_SERVER, format!("the certificate is not for {host}"))
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                (fault::EXPIRED_CERTIFICATE, "the certificate has expired".to_owned())
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                (fault::EXPIRED_CERTIFICATE, "the certificate is not valid yet".to_owned())
            }
            other => (fault::UNTRUSTED_CERTIFICATE, format!("the certificate is refused: {other}")),
        },
        // A server that knows other names only.
        Some(rustls::Error::AlertReceived(
            alert @ (rustls::AlertDescription::UnrecognisedName
            | rustls::AlertDescription::AccessDenied
            | rustls::AlertDescription::HandshakeFailure),
        )) => {
            (fault::OTHER_SERVER, format!("the server has no certificate for {host} (TLS alert {alert:?})"))
        }
        Some(other) => (fault::BROKEN_TLS, format!("the handshake failed: {other}")),
        None if error.kind() == io::ErrorKind::Unsupported => {
            (fault::NO_TLS, "the server refuses TLS".to_owned())
        }
        None => (fault::BROKEN_TLS, format!("the connection ended in the handshake: {error}")),
    }
}

/// Verifies as usual, and remembers what the certificate says, also if it is refused.
#[derive(Debug)]
struct Recorder {
    verifier: Arc<WebPkiServerVerifier>,
    seen: Mutex<Option<Certificate>>,
    /// Whether an authority with the name of the issuer is trusted, and did not sign it.
    has_other_key: AtomicBool,
}

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Certificate::read(end_entity);
        let verified =
            self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        if let Err(rustls::Error::InvalidCertificate(CertificateError::BadSignature)) = &verified {
            self.has_other_key.store(true, Ordering::Relaxed);
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn a_certificate_that_ends_soon_is_worth_a_warning() {
        let now = OffsetDateTime::from_unix_timestamp(1_770_000_000).unwrap();
        let wall = Duration::from_secs(1_770_000_000);
        for (days, status) in [(13, Status::Warning), (15, Status::Ok)] {
            let certificate = Certificate {
                issuer: "Example".to_owned(),
                not_before: now,
                not_after: now + Duration::from_secs(days * 86_400),
            };
            let found = valid("127.0.0.1:5432".parse().unwrap(), "TLS 1.3", Some(&certificate), wall);
            assert_eq!(found.status, status);
            assert!(found.what.contains(&format!("({days} days)")), "{}", found.what);
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        let certificate = |problem| io::Error::other(rustls::Error::InvalidCertificate(problem));
        for (error, known) in [
            (certificate(CertificateError::UnknownIssuer), fault::UNTRUSTED_CERTIFICATE),
            (certificate(CertificateError::NotValidForName), fault::OTHER_SERVER),
            (certificate(CertificateError::Expired), fault::EXPIRED_CERTIFICATE),
            (certificate(CertificateError::NotValidYet), fault::EXPIRED_CERTIFICATE),
            (io::ErrorKind::Unsupported.into(), fault::NO_TLS),
            (io::ErrorKind::UnexpectedEof.into(), fault::BROKEN_TLS),
        ] {
            assert_eq!(fault_of(&error, "abc").0, known, "{error}");
        }
    }
}
