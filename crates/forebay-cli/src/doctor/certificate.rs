//! What a certificate says: who signed it, and until when it is valid.

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

/// The parts of a certificate (X.509) that people ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    /// The names in the issuer, such as `Amazon, Amazon RSA 2048 M01`.
    pub(super) issuer: String,
    pub(super) not_before: OffsetDateTime,
    pub(super) not_after: OffsetDateTime,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The identifiers of an organization and of a common name.
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

const TIME: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day][hour][minute][second]Z");

impl Certificate {
    /// Reads a certificate in DER. None if it is none.
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        let (certificate, _) = tagged(der, SEQUENCE)?;
        let (mut rest, _) = tagged(certificate, SEQUENCE)?;
        if let Some((_, after)) = tagged(rest, VERSION) {
            rest = after;
        }
        // The serial number and the algorithm.
        for _ in 0..2 {
            rest = element(rest)?.2;
        }
        let (issuer, rest) = tagged(rest, SEQUENCE)?;
        let (validity, _) = tagged(rest, SEQUENCE)?;
        let (not_before, rest) = time(validity)?;
        let (not_after, _) = time(rest)?;
        Some(Self { issuer: names(issuer).join(", "), not_before, not_after })
    }
}

/// The tag, the content and what follows of the first element.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        let digits = Some(digits).filter(|digits| digits.len() <= 4)?;
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    let (content, after) = rest.split_at_checked(length)?;
    Some((tag, content, after))
}

/// The content and what follows of an element with this tag.
fn tagged(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(der).filter(|(found, ..)| *found == tag).map(|(_, content, after)| (content, after))
}

fn time(der: &[u8]) -> Option<(OffsetDateTime, &[u8])> {
    let (tag, content, after) = element(der)?;
    let text = std::str::from_utf8(content).ok()?;
    let text = match tag {
        // Two digits of the year mean 1950 to 2049.
        UTC_TIME if text.get(..2)? >= "50" => format!("19{text}"),
        UTC_TIME => format!("20{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    Some((PrimitiveDateTime::parse(&text, TIME).ok()?.assume_utc(), after))
}

/// Organizations and common names.
fn names(mut name: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while let Some((set, after)) = tagged(name, SET) {
        name = after;
        let pair = tagged(set, SEQUENCE).and_then(|(pair, _)| tagged(pair, OBJECT_IDENTIFIER));
        let Some((identifier, value)) = pair else { continue };
        if identifier == ORGANIZATION || identifier == COMMON_NAME {
            let text = element(value).map(|(_, text, _)| String::from_utf8_lossy(text).into_owned());
            names.extend(text.map(|text| text.chars().filter(|one| !one.is_control()).collect()));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
    use time::macros::datetime;

    use super::*;

    fn signed(not_after: OffsetDateTime) -> Vec<u8> {
        let (mut authority, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        authority.distinguished_name = rcgen::DistinguishedName::new();
        authority.distinguished_name.push(DnType::OrganizationName, "Example");
        authority.distinguished_name.push(DnType::CommonName, "authority\n1");
        let issuer = Issuer::new(authority, key);
        let mut leaf = CertificateParams::new(["localhost".to_owned()]).unwrap();
        (leaf.not_before, leaf.not_after) = (datetime!(2026-11-17 01:02:03 UTC), not_after);
        leaf.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().to_vec()
    }

    #[test]
    fn issuer_and_dates_are_read() {
        // Up to 2049, dates have two digits of the year, and later four.
        for not_after in [datetime!(2027-01-01 00:00:00 UTC), datetime!(2061-01-01 00:00:00 UTC)] {
            let certificate = Certificate::read(&signed(not_after)).unwrap();
            assert_eq!(certificate.issuer, "Example, authority1");
            assert_eq!(certificate.not_before, datetime!(2026-11-17 01:02:03 UTC));
            assert_eq!(certificate.not_after, not_after);
        }
    }

    #[test]
    fn what_is_cut_off_or_changed_is_no_reason_to_panic() {
        let whole = signed(datetime!(2027-01-01 00:00:00 UTC));
        for length in 0..whole.len() {
            assert_eq!(Certificate::read(&whole[..length]), None);
        }
        for place in 0..whole.len().min(200) {
            let mut changed = whole.clone();
            changed[place] ^= 0xff;
            // Whatever it is.
            let _ = Certificate::read(&changed);
        }
    }
}
