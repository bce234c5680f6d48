//! The facts about certificates that a login needs: which hash signs one, whose it is, and its version.
//!
//! Only certificates that rustls has accepted and the gateway's own get here, so this reader is short. It returns nothing for what it
//! does not know.

use std::str;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const EXPLICIT_0: u8 = 0xa0;
/// UTF8String, PrintableString, IA5String.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 1.2.840.113549.1.1
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// 1.2.840.10045.4
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];

/// The hash function of a certificate's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignatureHash {
    Sha256,
    Sha384,
    Sha512,
}

/// The hash that channel binding uses for this certificate (RFC 5929): that of its signature, but SHA-256 instead of MD5 and
/// SHA-1. None for Ed25519 and RSA-PSS: clients disagree about these.
pub(super) fn binding_hash(certificate: &[u8]) -> Option<SignatureHash> {
    let mut certificate = Der(Der(certificate).expect(SEQUENCE)?);
    certificate.expect(SEQUENCE)?;
    let algorithm = Der(certificate.expect(SEQUENCE)?).expect(OBJECT_ID)?;
    if let Some(rsa) = algorithm.strip_prefix(RSA) {
        return match rsa {
            [4 | 5 | 11] => Some(SignatureHash::Sha256),
            [12] => Some(SignatureHash::Sha384),
            [13] => Some(SignatureHash::Sha512),
            _ => None,
        };
    }
    match algorithm.strip_prefix(ECDSA)? {
        [1] | [3, 2] => Some(SignatureHash::Sha256),
        [3, 3] => Some(SignatureHash::Sha384),
        [3, 4] => Some(SignatureHash::Sha512),
        _ => None,
    }
}

/// The version of X.509 of a certificate, which begins with 1.
pub(super) fn version(certificate: &[u8]) -> Option<u8> {
    let mut certificate = Der(Der(certificate).expect(SEQUENCE)?);
    match Der(certificate.expect(SEQUENCE)?).next()? {
        (EXPLICIT_0, version) => Der(version).expect(INTEGER)?.last()?.checked_add(1),
        _ => Some(1),
    }
}

/// The common name of a certificate's subject. None if it has none, or more than one: then it is not clear whose it is.
pub(crate) fn common_name(certificate: &[u8]) -> Option<String> {
    let mut certificate = Der(Der(certificate).expect(SEQUENCE)?);
    let mut signed = Der(certificate.expect(SEQUENCE)?);
    // Version (not in certificates of version 1), serial number, algorithm, issuer, validity; then the subject.
    if signed.0.first() == Some(&EXPLICIT_0) {
        signed.next()?;
    }
    for _ in 0..4 {
        signed.next()?;
    }
    let mut subject = Der(signed.expect(SEQUENCE)?);
    let mut found = None;
    while !subject.0.is_empty() {
        let mut attributes = Der(subject.expect(SET)?);
        while !attributes.0.is_empty() {
            let mut attribute = Der(attributes.expect(SEQUENCE)?);
            if attribute.expect(OBJECT_ID)? != COMMON_NAME {
                continue;
            }
            let (tag, value) = attribute.next()?;
            let name =
                str::from_utf8(value).ok().filter(|name| TEXTS.contains(&tag) && !name.contains('\0'))?;
            if found.replace(name).is_some() {
                return None;
            }
        }
    }
    found.map(str::to_owned)
}

/// What is left of some elements.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element: its tag and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, length], rest) = self.0.split_first_chunk::<2>()?;
        let (length, rest) = match usize::from(length) {
            short @ 0..=0x7f => (short, rest),
            long @ 0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(long - 0x80)?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The content of the next element, if it has this tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }
}
