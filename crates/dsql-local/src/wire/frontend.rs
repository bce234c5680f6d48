//! Messages from clients.

use bytes::{Buf, Bytes, BytesMut};

use super::Format;
use crate::error::SqlError;

/// The largest start-up packet, as in PostgreSQL.
const STARTUP_LIMIT: usize = 10_000;
/// Protocol 3.0. A newer minor version is negotiated down.
const PROTOCOL_MAJOR: u32 = 3;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// The first or second packet of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StartupPacket {
    Tls,
    Gss,
    Cancel,
    Startup { minor: u16, parameters: Vec<(String, String)> },
}

/// A packet that no PostgreSQL client sends. It gets no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the PostgreSQL protocol: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

impl StartupPacket {
    /// The length of the rest of the packet, from its first four bytes.
    pub(crate) fn length(head: [u8; 4]) -> Result<usize, Malformed> {
        let length = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
        match length {
            8..=STARTUP_LIMIT => Ok(length - 4),
            _ => Err(Malformed("the length of the first packet is invalid")),
        }
    }

    /// Parses the packet after its length.
    pub(crate) fn parse(mut body: &[u8]) -> Result<Self, Malformed> {
        let code = body.try_get_u32().map_err(|_| Malformed("the first packet has no code"))?;
        match code {
            SSL_REQUEST => return Ok(Self::Tls),
            GSS_REQUEST => return Ok(Self::Gss),
            CANCEL_REQUEST => return Ok(Self::Cancel),
            _ if code >> 16 != PROTOCOL_MAJOR => {
                return Err(Malformed("the version of the protocol is not 3"));
            }
            _ => {}
        }
        let minor = u16::try_from(code & 0xffff).unwrap_or(0);
        let mut parameters = Vec::new();
        let mut strings = body.split(|byte| *byte == 0);
        loop {
            let mut next = || {
                let text = strings.next().ok_or(Malformed("the start-up packet has no end"))?;
                std::str::from_utf8(text).map_err(|_| Malformed("the start-up packet is not UTF-8"))
            };
            let name = next()?;
            if name.is_empty() {
                return Ok(Self::Startup { minor, parameters });
            }
            parameters.push((name.to_owned(), next()?.to_owned()));
        }
    }
}

/// A message after the start-up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Query(String),
    Parse {
        name: String,
        sql: String,
        types: Vec<u32>,
    },
    Bind {
        portal: String,
        statement: String,
        formats: Vec<Format>,
        values: Vec<Option<Bytes>>,
        results: Vec<Format>,
    },
    Describe {
        kind: DescribeTarget,
        name: String,
    },
    Execute {
        portal: String,
        limit: usize,
    },
    Close {
        kind: DescribeTarget,
        name: String,
    },
    Sync,
    Flush,
    Password(Bytes),
    /// COPY data after an error, or without a COPY. PostgreSQL ignores it too.
    Copy,
    FunctionCall,
    Terminate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescribeTarget {
    Statement,
    Portal,
}

/// The next message in `buffer`, if it is complete: its tag and body.
pub(crate) fn frame(buffer: &mut BytesMut, limit: usize) -> Result<Option<(u8, Bytes)>, Malformed> {
    let Some((head, _)) = buffer.split_first_chunk::<5>() else { return Ok(None) };
    let [tag, length @ ..] = *head;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length < 4 {
        return Err(Malformed("a message is shorter than its length"));
    }
    if length > limit {
        return Err(Malformed("a message is too long"));
    }
    if buffer.len() <= length {
        return Ok(None);
    }
    let mut message = buffer.split_to(length + 1).freeze();
    message.advance(5);
    Ok(Some((tag, message)))
}

impl Message {
    /// Parses a message.
    pub(crate) fn parse(tag: u8, body: Bytes) -> Result<Self, SqlError> {
        let mut body = Body(body);
        let message = match tag {
            b'Q' => Self::Query(body.string()?),
            b'P' => Self::Parse {
                name: body.string()?,
                sql: body.string()?,
                types: body.list(|body| body.0.try_get_u32().map_err(short))?,
            },
            b'B' => Self::Bind {
                portal: body.string()?,
                statement: body.string()?,
                formats: body.list(Body::format)?,
                values: body.list(Body::value)?,
                results: body.list(Body::format)?,
            },
            b'D' => Self::Describe { kind: body.kind()?, name: body.string()? },
            b'C' => Self::Close { kind: body.kind()?, name: body.string()? },
            b'E' => Self::Execute {
                portal: body.string()?,
                // Zero and less mean no limit.
                limit: usize::try_from(body.0.try_get_i32().map_err(short)?).unwrap_or(0),
            },
            b'S' => Self::Sync,
            b'H' => Self::Flush,
            b'X' => Self::Terminate,
            b'F' => {
                body.0.clear();
                Self::FunctionCall
            }
            b'd' | b'c' | b'f' => {
                body.0.clear();
                Self::Copy
            }
            b'p' => Self::Password(std::mem::take(&mut body.0)),
            _ => return Err(SqlError::protocol(format!("invalid frontend message type {tag}"))),
        };
        if body.0.is_empty() { Ok(message) } else { Err(SqlError::protocol("invalid message format")) }
    }
}

fn short(_: bytes::TryGetError) -> SqlError {
    SqlError::protocol("insufficient data left in message")
}

struct Body(Bytes);

impl Body {
    fn string(&mut self) -> Result<String, SqlError> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| SqlError::protocol("invalid string in message"))?;
        let text = std::str::from_utf8(&self.0[..end])
            .map_err(|_| SqlError::new("22021", "invalid byte sequence for encoding \"UTF8\""))?
            .to_owned();
        self.0.advance(end + 1);
        Ok(text)
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        // Without a capacity: the count is not trusted, and each item fails once the message has ended.
        let count = self.0.try_get_u16().map_err(short)?;
        (0..count).map(|_| item(self)).collect()
    }

    fn format(&mut self) -> Result<Format, SqlError> {
        let code = self.0.try_get_i16().map_err(short)?;
        Format::from_code(code).ok_or_else(|| SqlError::protocol(format!("unsupported format code: {code}")))
    }

    fn value(&mut self) -> Result<Option<Bytes>, SqlError> {
        let length = self.0.try_get_i32().map_err(short)?;
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        if length > self.0.len() {
            return Err(SqlError::protocol("insufficient data left in message"));
        }
        Ok(Some(self.0.split_to(length)))
    }

    fn kind(&mut self) -> Result<DescribeTarget, SqlError> {
        match self.0.try_get_u8().map_err(short)? {
            b'S' => Ok(DescribeTarget::Statement),
            b'P' => Ok(DescribeTarget::Portal),
            other => Err(SqlError::protocol(format!("invalid subtype {other}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn openings_are_told_apart() {
        assert_eq!(StartupPacket::parse(&SSL_REQUEST.to_be_bytes()), Ok(StartupPacket::Tls));
        let mut packet = 0x0003_0002_u32.to_be_bytes().to_vec();
        packet.extend(b"user\0admin\0database\0postgres\0\0");
        let parameters = vec![("user".into(), "admin".into()), ("database".into(), "postgres".into())];
        assert_eq!(StartupPacket::parse(&packet), Ok(StartupPacket::Startup { minor: 2, parameters }));
        assert!(StartupPacket::parse(&packet[..packet.len() - 3]).is_err());
        assert!(StartupPacket::parse(&0x0002_0000_u32.to_be_bytes()).is_err());
        for absurd in [0, 7, 10_001, i32::MAX.cast_unsigned(), u32::MAX] {
            assert!(StartupPacket::length(absurd.to_be_bytes()).is_err(), "{absurd}");
        }
    }

    #[test]
    fn a_message_waits_for_its_last_byte_and_has_a_limit() {
        let mut buffer = BytesMut::from(&b"Q\0\0\0\x0cSELECT \0"[..]);
        let whole = buffer.clone();
        buffer.truncate(12);
        assert_eq!(frame(&mut buffer, 100), Ok(None));
        let mut buffer = whole.clone();
        assert_eq!(frame(&mut buffer, 100), Ok(Some((b'Q', Bytes::from_static(b"SELECT \0")))));
        assert!(buffer.is_empty());
        assert!(frame(&mut whole.clone(), 11).is_err());
        assert!(frame(&mut BytesMut::from(&b"Q\x7f\xff\xff\xff"[..]), 10 << 20).is_err());
        assert!(frame(&mut BytesMut::from(&b"Q\0\0\0\x03"[..]), 100).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(tag: u8, body: Vec<u8>) {
            drop(StartupPacket::parse(&body));
            drop(Message::parse(tag, body.into()));
        }
    }
}
