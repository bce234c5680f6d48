//! The gateway's certificate, and the TLS that clients get.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::Problem;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{CertificateError, RootCertStore, ServerConfig, crypto::ring};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use tokio_rustls::TlsAcceptor;

use super::certificate_error;
use super::der::{self, SignatureHash};
use crate::config::TlsFiles;

/// What PostgreSQL's clients say that they speak inside TLS.
pub(super) const PROTOCOL: &[u8] = b"postgresql";

/// The keys that ring can sign with.
const KEYS: &str = "an RSA key of 2048 to 4096 bits, an ECDSA key on the curve P-256 or P-384, or an Ed25519 key; \
                    `openssl ecparam -genkey -name prime256v1 -noout` makes one, which needs a certificate of its own";

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
            rustls::Error::InvalidCertificate(why) => (
                "tls_cert_file",
                format!("its first certificate {}", certificate_error::of_certificate(&why)),
            ),
            error => ("tls_cert_file", error.to_string()),
        };
        if chain.first().and_then(|own| der::version(own)).is_some_and(|version| version < 3) {
            let reason = "its first certificate is X.509 version 1, but must be version 3; `openssl req -x509` makes these, \
                          and `openssl x509 -req` does if it has extensions (-extfile)";
            return Err(("tls_cert_file", reason.to_owned()));
        }
        if ring::sign::any_supported_type(&key).is_err() {
            return Err(("tls_key_file", format!("it must be {KEYS}")));
        }
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
        Err(error) => problems.push(problem(
            setting,
            path,
            &format!("a file with certificates in PEM: {}", in_words(&error)),
        )),
    }
    Vec::new()
}

fn key(path: &Path, problems: &mut Vec<Problem>) -> Option<PrivateKeyDer<'static>> {
    let read = fs::read(path).map_err(pem::Error::Io);
    let is_encrypted = read.as_ref().is_ok_and(|text| is_encrypted(text));
    let error = match read.and_then(|text| PrivateKeyDer::from_pem_slice(&text)) {
        Ok(key) if ring::sign::any_supported_type(&key).is_ok() => return Some(key),
        Ok(_) => None,
        Err(error) => Some(error),
    };
    let of_path = |value: &str, allowed: &str| Problem {
        value: format!("{}, {value}", path.display()),
        ..problem("tls_key_file", path, allowed)
    };
    problems.push(match error {
        _ if is_encrypted => {
            let command = format!("openssl pkey -in {} -out NEW_FILE", path.display());
            of_path(
                "an encrypted key",
                &format!("one that is not encrypted: `{command}`, and `chmod 600 NEW_FILE`"),
            )
        }
        None => of_path("a key of an unsupported kind", KEYS),
        Some(error) => {
            problem("tls_key_file", path, &format!("a file with a private key in PEM: {}", in_words(&error)))
        }
    });
    None
}

/// What is wrong with a file. Its text is not repeated: a file whose lines were joined is one line, and has the key in it.
fn in_words(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it has none".to_owned(),
        pem::Error::MissingSectionEnd { .. } | pem::Error::IllegalSectionStart { .. } => {
            "a line that begins or ends a section is wrong, or not a line of its own".to_owned()
        }
        _ => "it is damaged".to_owned(),
    }
}

/// Whether it has a key that needs a password, in the format of PKCS#8 or the older one of OpenSSL.
fn is_encrypted(pem: &[u8]) -> bool {
    let has = |mark: &[u8]| pem.windows(mark.len()).any(|part| part == mark);
    has(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(b"Proc-Type: 4,ENCRYPTED")
}

fn problem(setting: &'static str, path: &Path, allowed: &str) -> Problem {
    Problem { setting: setting.into(), value: path.display().to_string(), allowed: allowed.to_owned() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An element of a SEQUENCE with this content.
    fn sequence(content: &[u8]) -> Vec<u8> {
        let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
        let header = match (high, low) {
            (0, 0..=0x7f) => vec![0x30, low],
            (0, _) => vec![0x30, 0x81, low],
            _ => vec![0x30, 0x82, high, low],
        };
        [header.as_slice(), content].concat()
    }

    /// The same certificate without its version, which makes it one of version 1. Its signature is wrong then.
    pub(in super::super) fn of_version_1(certificate: &[u8]) -> CertificateDer<'static> {
        let version = [0xa0, 3, 2, 1, 2];
        let at = certificate.windows(5).position(|part| part == version).unwrap();
        // What is signed has a header of two to four bytes, behind that of the whole.
        let header = |bytes: &[u8]| if bytes[1] < 0x80 { 2 } else { 2 + usize::from(bytes[1] - 0x80) };
        let inner = &certificate[header(certificate)..];
        let rest = &inner[at + 5 - header(certificate)..];
        let length = header(inner);
        let signed = match length {
            2 => usize::from(inner[1]),
            _ => inner[2..length].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        };
        let (signed, signature) = rest.split_at(signed - 5);
        sequence(&[sequence(signed).as_slice(), signature].concat()).into()
    }

    /// What is said of files with this certificate and this key.
    fn problems(certificate: &str, key: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let [cert, file] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
        fs::write(&cert, certificate).unwrap();
        fs::write(&file, key).unwrap();
        let problems = TlsServer::load(&TlsFiles { cert, key: file, client_ca: None, required: true });
        let problems = problems.unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>();
        problems.join("\n").replace(&directory.path().display().to_string(), "")
    }

    #[test]
    fn keys_that_cannot_be_used_are_explained() {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (own, genuine) = (own.cert.pem(), own.signing_key.serialize_pem());
        let encrypted =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIHsMFcG\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let older = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,320DDD96\n\nkOCLsGwt\n\
                     -----END RSA PRIVATE KEY-----\n";
        for key in [encrypted, older] {
            assert_eq!(
                problems(&own, key),
                "tls_key_file is /key.pem, an encrypted key, but must be one that is not encrypted: \
                 `openssl pkey -in /key.pem -out NEW_FILE`, and `chmod 600 NEW_FILE`"
            );
        }
        let secp256k1 = "-----BEGIN PRIVATE KEY-----\nMIGEAgEAMBAGByqGSM49AgEGBSuBBAAKBG0wawIBAQQgXbmnxAakBlcY4s+Lx5Pu\n\
                         T1fqiC8DJT6HAPWXsJrAHvqhRANCAAT9vUH6wP5opWQHnTYY6w76qx3TdgYKf85D\n\
                         UsfB/3WdZ+htD92VIN5/nv3u2ng9yf6mGN1Rt7H3YtL9t0XHN5Ap\n-----END PRIVATE KEY-----\n";
        let said = problems(&own, secp256k1);
        assert!(said.starts_with("tls_key_file is /key.pem, a key of an unsupported kind, but must be an RSA key of 2048 to 4096"), "{said}");
        assert!(!said.contains("tls_cert_file"), "{said}");
        let said = problems(&own, &genuine.replace("PRIVATE", "OTHER"));
        assert!(said.ends_with("must be a file with a private key in PEM: it has none"), "{said}");
        for joined in [" ", "\\n"] {
            for (own, key) in
                [(own.clone(), genuine.replace('\n', joined)), (own.replace('\n', joined), genuine.clone())]
            {
                let said = problems(&own, &key);
                // As bytes, too: those of the base64 of a key.
                assert!(!said.contains("MI") && !said.contains("77, 73"), "{said}");
                assert!(said.contains("not a line of its own"), "{said}");
            }
        }
    }

    #[test]
    fn a_certificate_of_version_1_is_explained() {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let old = of_version_1(own.cert.der());
        assert_eq!((der::version(own.cert.der()), der::version(&old)), (Some(3), Some(1)));
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let (setting, reason) = TlsServer::new(vec![old], key, None).unwrap_err();
        assert_eq!(setting, "tls_cert_file");
        assert!(
            reason.starts_with("its first certificate is X.509 version 1, but must be version 3;"),
            "{reason}"
        );
    }

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
