//! The PostgreSQL protocol, version 3, as bytes.

pub(crate) mod backend;
pub(crate) mod frontend;
pub(crate) mod stream;

use bytes::{BufMut, BytesMut};

/// The format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// PostgreSQL's text format.
    Text,
    /// PostgreSQL's binary format.
    Binary,
}

impl Format {
    fn from_code(code: i16) -> Option<Self> {
        match code {
            0 => Some(Self::Text),
            1 => Some(Self::Binary),
            _ => None,
        }
    }

    /// The format of the value at `index`: without formats it is text; a single format is for all values.
    #[must_use]
    pub fn of(formats: &[Self], index: usize) -> Self {
        match formats {
            [] => Self::Text,
            [all] => *all,
            each => each.get(index).copied().unwrap_or(Self::Text),
        }
    }
}

/// Appends a message: its tag, its length, and what `body` writes. The first packet of a connection has no tag.
pub(crate) fn put_message(buffer: &mut BytesMut, tag: Option<u8>, body: impl FnOnce(&mut BytesMut)) {
    buffer.extend(tag);
    let start = buffer.len();
    buffer.put_u32(0);
    body(buffer);
    let length = u32::try_from(buffer.len() - start).unwrap_or(u32::MAX);
    buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a string and its NUL. Text after a NUL of its own is left out: it would be read as another field.
pub(crate) fn put_string(body: &mut BytesMut, text: &str) {
    let end = text.find('\0').unwrap_or(text.len());
    body.put_slice(&text.as_bytes()[..end]);
    body.put_u8(0);
}

/// Appends a count of 16 bits, as most messages have.
pub(crate) fn put_count(body: &mut BytesMut, items: usize) {
    body.put_u16(u16::try_from(items).unwrap_or(u16::MAX));
}
