//! Which client certificate a user needs.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use super::verifier::Hash;
use crate::login::common_name;

/// The client certificate that a user needs. An authority that the gateway trusts must have signed it in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateRule {
    /// One whose subject has this common name, as PostgreSQL's method `cert` demands.
    CommonName(String),
    /// Exactly this one: `sha256:` and the hash of the certificate in hexadecimal digits.
    Fingerprint([u8; 32]),
}

impl CertificateRule {
    /// Whether it is this certificate, in DER.
    #[must_use]
    pub fn matches(&self, certificate: &[u8]) -> bool {
        match self {
            Self::CommonName(name) => common_name(certificate).as_deref() == Some(name),
            Self::Fingerprint(own) => *own == Hash::from(Sha256::digest(certificate)),
        }
    }
}

/// Not a rule for certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the common name of a certificate, or sha256: with 64 hexadecimal digits")]
pub struct InvalidCertificateRule;

impl FromStr for CertificateRule {
    type Err = InvalidCertificateRule;

    fn from_str(text: &str) -> Result<Self, InvalidCertificateRule> {
        let Some(digits) = text.strip_prefix("sha256:") else {
            return if text.is_empty() {
                Err(InvalidCertificateRule)
            } else {
                Ok(Self::CommonName(text.to_owned()))
            };
        };
        // As `openssl x509 -fingerprint` prints it, too.
        let digits: Vec<u8> = digits.bytes().filter(|digit| *digit != b':').collect();
        let mut hash = [0; 32];
        if digits.len() != 64 {
            return Err(InvalidCertificateRule);
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err(InvalidCertificateRule);
            };
            *byte = high << 4 | low;
        }
        Ok(Self::Fingerprint(hash))
    }
}

impl fmt::Display for CertificateRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommonName(name) => f.write_str(name),
            Self::Fingerprint(hash) => {
                f.write_str("sha256:")?;
                hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_in_both_spellings() {
        let hash = Hash::from(Sha256::digest(b"certificate"));
        let rule = CertificateRule::Fingerprint(hash);
        let plain = rule.to_string();
        assert_eq!(plain.parse(), Ok(rule.clone()));
        let digits = plain["sha256:".len()..].to_uppercase();
        let pairs: Vec<&str> = (0..32).map(|pair| &digits[2 * pair..2 * pair + 2]).collect();
        assert_eq!(format!("sha256:{}", pairs.join(":")).parse(), Ok(rule.clone()));
        assert!(rule.matches(b"certificate") && !rule.matches(b"certificates"));
        for bad in ["", "sha256:", "sha256:00", &format!("sha256:{}", "g".repeat(64))] {
            assert_eq!(bad.parse::<CertificateRule>(), Err(InvalidCertificateRule), "{bad}");
        }
    }
}
