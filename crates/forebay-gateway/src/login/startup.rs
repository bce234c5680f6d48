//! The first message of a connection.

use std::str;

use super::refusal::{Refusal, message};

/// PostgreSQL's limit for a start-up message.
pub(super) const LONGEST: usize = 10_000;

const CANCEL: u32 = 1234 << 16 | 5678;
const TLS: u32 = 1234 << 16 | 5679;
const GSS: u32 = 1234 << 16 | 5680;

/// The newest minor version of protocol 3.
const NEWEST_MINOR: u32 = 2;

/// What a client asks for first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum First {
    Tls,
    Gss,
    /// The key of the session whose statement is to be cancelled. None if it is not of this gateway, whose keys have 8 bytes.
    Cancel(Option<[u8; 8]>),
    Start(Start),
}

/// A start-up message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    minor: u32,
    /// In the client's order.
    pub(super) parameters: Vec<(String, String)>,
}

/// Why a first message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Not a client of PostgreSQL: nobody would understand an answer.
    Stranger,
    Refused(Refusal),
}

/// The length of the whole message, from its first four bytes.
pub(super) fn length(header: [u8; 4]) -> Result<usize, Unreadable> {
    let length = usize::try_from(u32::from_be_bytes(header)).unwrap_or(usize::MAX);
    if (8..=LONGEST).contains(&length) { Ok(length) } else { Err(Unreadable::Stranger) }
}

/// Reads a whole message, with its length.
pub(super) fn read(bytes: &[u8]) -> Result<First, Unreadable> {
    let (Some((_, rest)), refused) = (bytes.split_first_chunk::<4>(), Unreadable::Refused) else {
        return Err(Unreadable::Stranger);
    };
    let Some((version, body)) = rest.split_first_chunk::<4>() else { return Err(Unreadable::Stranger) };
    let version = u32::from_be_bytes(*version);
    match version {
        CANCEL if (8..=260).contains(&body.len()) => return Ok(First::Cancel(body.try_into().ok())),
        TLS if body.is_empty() => return Ok(First::Tls),
        GSS if body.is_empty() => return Ok(First::Gss),
        CANCEL | TLS | GSS => return Err(Unreadable::Stranger),
        _ => {}
    }
    let (major, minor) = (version >> 16, version & 0xffff);
    if major != 3 {
        let message =
            format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.{NEWEST_MINOR}");
        return Err(refused(Refusal::new("0A000", message)));
    }
    Ok(First::Start(Start { minor, parameters: parameters(body).map_err(refused)? }))
}

/// Names and values, each ended by a NUL, and a NUL at the end of all.
fn parameters(body: &[u8]) -> Result<Vec<(String, String)>, Refusal> {
    let layout = || Refusal::protocol("invalid startup packet layout: expected terminator as last byte");
    let mut rest = body.strip_suffix(&[0]).ok_or_else(layout)?;
    let mut parameters = Vec::new();
    let next = |rest: &mut &[u8]| -> Result<String, Refusal> {
        let end = rest.iter().position(|byte| *byte == 0).ok_or_else(layout)?;
        let text = str::from_utf8(&rest[..end]).map_err(|_| {
            Refusal::new("22021", "invalid byte sequence for encoding \"UTF8\" in the startup packet")
        })?;
        *rest = &rest[end + 1..];
        Ok(text.to_owned())
    };
    while !rest.is_empty() {
        let name = next(&mut rest)?;
        if name.is_empty() {
            return Err(layout());
        }
        parameters.push((name, next(&mut rest)?));
    }
    Ok(parameters)
}

impl Start {
    /// The value of a parameter. The last one counts.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Adds the message that tells which protocol is spoken, if it is not the one that the client asked for.
    pub(super) fn negotiate(&self, out: &mut Vec<u8>) {
        let unknown: Vec<&str> = self.extensions().collect();
        if self.minor <= NEWEST_MINOR && unknown.is_empty() {
            return;
        }
        message(out, b'v', |out| {
            out.extend((3 << 16 | self.minor.min(NEWEST_MINOR)).to_be_bytes());
            out.extend(u32::try_from(unknown.len()).unwrap_or(u32::MAX).to_be_bytes());
            for name in unknown {
                out.extend(name.as_bytes());
                out.push(0);
            }
        });
    }

    /// Extensions of the protocol that the client can do without. There are none yet.
    fn extensions(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().map(|(name, _)| name.as_str()).filter(|name| name.starts_with("_pq_."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(version: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 8).unwrap();
        [&length.to_be_bytes()[..], &version.to_be_bytes(), body].concat()
    }

    fn start(body: &[u8]) -> Result<First, Unreadable> {
        read(&packet(3 << 16, body))
    }

    #[test]
    fn requests_are_told_apart() {
        assert_eq!(read(&packet(TLS, b"")), Ok(First::Tls));
        assert_eq!(read(&packet(GSS, b"")), Ok(First::Gss));
        assert_eq!(read(&packet(CANCEL, b"12345678")), Ok(First::Cancel(Some(*b"12345678"))));
        // Keys of protocol 3.2 may be longer, but ours are not.
        assert_eq!(read(&packet(CANCEL, &[1; 260])), Ok(First::Cancel(None)));
        for bad in
            [packet(CANCEL, b"1234567"), packet(CANCEL, &[1; 261]), packet(TLS, b"x"), packet(GSS, b"x")]
        {
            assert_eq!(read(&bad), Err(Unreadable::Stranger));
        }
        assert_eq!(length(*b"GET "), Err(Unreadable::Stranger));
        assert_eq!((length([0, 0, 0, 7]), length([0, 0, 0, 8])), (Err(Unreadable::Stranger), Ok(8)));
    }

    #[test]
    fn parameters_are_read_in_order() {
        let Ok(First::Start(read)) = start(b"user\0a\0database\0\0user\0b\0\0") else {
            panic!("a start-up message")
        };
        assert_eq!((read.parameter("user"), read.parameter("database")), (Some("b"), Some("")));
        assert_eq!(read.parameters.len(), 3);
    }

    #[test]
    fn a_broken_layout_is_refused() {
        for bad in [&b""[..], b"user\0a\0", b"user\0a", b"user\0\0x", b"\0user\0a\0\0", b"user\0a\0\0\0\0"] {
            assert!(matches!(start(bad), Err(Unreadable::Refused(Refusal { code: "08P01", .. }))), "{bad:?}");
        }
        assert!(matches!(start(b"user\0\xff\0\0"), Err(Unreadable::Refused(Refusal { code: "22021", .. }))));
        let old = read(&packet(2 << 16, b""));
        assert!(matches!(old, Err(Unreadable::Refused(Refusal { code: "0A000", .. }))));
    }

    #[test]
    fn what_is_not_spoken_is_negotiated() {
        let answer = |minor: u32, body: &[u8]| {
            let Ok(First::Start(start)) = read(&packet(3 << 16 | minor, body)) else {
                panic!("a start-up message")
            };
            let mut out = Vec::new();
            start.negotiate(&mut out);
            out
        };
        assert_eq!(answer(0, b"user\0a\0\0"), b"");
        assert_eq!(answer(2, b"user\0a\0\0"), b"");
        assert_eq!(answer(9, b"user\0a\0\0"), b"v\0\0\0\x0c\0\x03\0\x02\0\0\0\0");
        assert_eq!(answer(0, b"user\0a\0_pq_.x\0y\0\0"), b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.x\0");
    }
}
