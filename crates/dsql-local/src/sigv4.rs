//! Signature Version 4 for presigned requests, from its public specification.
//!
//! It supports what a connect token needs: `GET https://{host}/?...` with an empty body and `host` as the
//! only signed header.

use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

pub(crate) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The last part of every scope.
pub(crate) const TERMINATOR: &str = "aws4_request";

/// Everything but RFC 3986's unreserved characters.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The scope of a signature: when, where and for which service it is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scope<'a> {
    /// `20260131`.
    pub(crate) day: &'a str,
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
}

impl Scope<'_> {
    pub(crate) fn text(&self) -> String {
        format!("{}/{}/{}/{TERMINATOR}", self.day, self.region, self.service)
    }
}

/// A request without its signature.
#[derive(Debug)]
pub(crate) struct Presigned<'a> {
    pub(crate) host: &'a str,
    /// Decoded names and values, in any order.
    pub(crate) query: &'a [(String, String)],
    /// `20260131T235959Z`.
    pub(crate) date: &'a str,
    pub(crate) scope: Scope<'a>,
}

impl Presigned<'_> {
    /// The HMAC of this request; its output is the signature.
    pub(crate) fn mac(&self, secret: &str) -> Hmac<Sha256> {
        let Scope { day, region, service } = self.scope;
        let key = [day, region, service, TERMINATOR]
            .iter()
            .fold(format!("AWS4{secret}").into_bytes(), |key, part| {
                keyed(&key, part).finalize().into_bytes().to_vec()
            });
        keyed(&key, &self.string_to_sign())
    }

    fn string_to_sign(&self) -> String {
        let hash = hex::encode(Sha256::digest(self.canonical()));
        format!("{ALGORITHM}\n{}\n{}\n{hash}", self.date, self.scope.text())
    }

    fn canonical(&self) -> String {
        let empty_body = hex::encode(Sha256::digest(b""));
        format!("GET\n/\n{}\nhost:{}\n\nhost\n{empty_body}", canonical_query(self.query), self.host)
    }
}

/// Encodes the pairs, sorts them by their encoded forms, and joins them.
pub(crate) fn canonical_query(query: &[(String, String)]) -> String {
    let mut pairs: Vec<_> = query.iter().map(|(name, value)| (encode(name), encode(value))).collect();
    pairs.sort();
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

fn keyed(key: &[u8], message: &str) -> Hmac<Sha256> {
    // HMAC accepts keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { unreachable!("HMAC takes any key") };
    mac.update(message.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signing_key_is_that_of_the_published_example() {
        // From "Examples of how to derive a signing key" in the AWS documentation.
        let key = ["20120215", "us-east-1", "iam", TERMINATOR]
            .iter()
            .fold(b"AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_vec(), |key, part| {
                keyed(&key, part).finalize().into_bytes().to_vec()
            });
        assert_eq!(hex::encode(&key), "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d");
    }

    #[test]
    fn queries_are_encoded_and_then_sorted() {
        let query = [("b", "x/y z"), ("a", "~-._"), ("B", "1")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(canonical_query(&query), "B=1&a=~-._&b=x%2Fy%20z");
    }
}
