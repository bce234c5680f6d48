//! What is wrong with a certificate, in words for operators.

use std::io;

use rustls::{CertificateError, Error};

use super::refusal::cut;

/// As long as a sentence. Whoever connects may show a certificate that makes it longer.
const LONGEST: usize = 200;

/// Why TLS with a client failed.
pub(super) fn of_handshake(error: &io::Error) -> String {
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(Error::InvalidCertificate(why)) => format!("the client's certificate {}", of_certificate(why)),
        _ => cut(&error.to_string(), LONGEST).into_owned(),
    }
}

/// What follows "the certificate".
pub(super) fn of_certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    let words = match error {
        E::Expired | E::ExpiredContext { .. } => "has expired",
        E::NotValidYet | E::NotValidYetContext { .. } => "is not valid yet",
        E::UnknownIssuer => "is not signed by an authority of tls_client_ca_file",
        E::BadSignature => "has a signature that is not of the authority that it names",
        E::BadEncoding => "is damaged",
        E::UnsupportedSignatureAlgorithmContext { .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "is signed by an algorithm that is not supported"
        }
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "is not for clients, but its extended key usage must have clientAuth, if it has any"
        }
        // Its type is that of a crate that is not used here directly.
        E::Other(other) if format!("{:?}", other.0) == "UnsupportedCertVersion" => {
            "is X.509 version 1, but must be version 3"
        }
        other => return format!("cannot be used: {}", cut(&other.to_string(), LONGEST)),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::RootCertStore;
    use rustls::crypto::ring;
    use rustls::pki_types::{CertificateDer, UnixTime};
    use rustls::server::WebPkiClientVerifier;

    use super::super::tls::tests::of_version_1;
    use super::*;

    /// What the log says of a client with this certificate.
    fn said(authority: &CertificateDer<'static>, own: &CertificateDer<'static>) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let error = verifier.verify_client_cert(own, &[], now).unwrap_err();
        of_handshake(&io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn what_is_wrong_with_a_clients_certificate_is_said_in_words() {
        let make = |name: &str| {
            let mut own = rcgen::CertificateParams::new(["client".to_owned()]).unwrap();
            own.distinguished_name.push(rcgen::DnType::CommonName, name);
            own.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().clone()
        };
        let (authority, stranger, namesake) = (make("a"), make("b"), make("a"));
        assert_eq!(
            said(&authority, &of_version_1(&stranger)),
            "the client's certificate is X.509 version 1, but must be version 3"
        );
        let words = "the client's certificate is not signed by an authority of tls_client_ca_file";
        assert_eq!(said(&authority, &stranger), words);
        let words = "the client's certificate has a signature that is not of the authority that it names";
        assert_eq!(said(&authority, &namesake), words);
        assert_eq!(said(&authority, &vec![0; 9].into()), "the client's certificate is damaged");
    }

    #[test]
    fn it_is_short_whatever_was_shown() {
        let long = Error::InvalidCertificate(CertificateError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: vec![255; 60_000],
            supported_algorithms: Vec::new(),
        });
        let of_io = |error: Error| of_handshake(&io::Error::other(error));
        assert_eq!(of_io(long), "the client's certificate is signed by an algorithm that is not supported");
        assert_eq!(of_io(Error::General("x".repeat(60_000))).len(), LONGEST + 3);
    }
}
