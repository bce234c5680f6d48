//! Messages to clients, named as in PostgreSQL's manual.

use bytes::{BufMut, BytesMut};

use super::{Format, put_count, put_message, put_string};
use crate::engine::{Column, CopyFormat};
use crate::error::SqlError;

/// The transaction status in `ReadyForQuery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionStatus {
    Idle,
    InTransaction,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Fatal,
    Error,
    Warning,
}

// The tags of messages without a body.
pub(crate) const PARSE_COMPLETE: u8 = b'1';
pub(crate) const BIND_COMPLETE: u8 = b'2';
pub(crate) const CLOSE_COMPLETE: u8 = b'3';
pub(crate) const NO_DATA: u8 = b'n';
pub(crate) const PORTAL_SUSPENDED: u8 = b's';
pub(crate) const EMPTY_QUERY_RESPONSE: u8 = b'I';

/// The initial capacity, enough for most answers.
const ROOM: usize = 256;

/// Messages that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Replies(pub(crate) BytesMut);

impl Replies {
    fn message(&mut self, tag: u8, body: impl FnOnce(&mut BytesMut)) {
        let Self(buffer) = self;
        if buffer.capacity() == 0 {
            buffer.reserve(ROOM);
        }
        put_message(buffer, Some(tag), body);
    }

    pub(crate) fn authentication_cleartext_password(&mut self) {
        self.message(b'R', |body| body.put_u32(3));
    }

    pub(crate) fn authentication_ok(&mut self) {
        self.message(b'R', |body| body.put_u32(0));
    }

    pub(crate) fn parameter_status(&mut self, name: &str, value: &str) {
        self.message(b'S', |body| {
            put_string(body, name);
            put_string(body, value);
        });
    }

    pub(crate) fn backend_key_data(&mut self, session: u32, secret: u32) {
        self.message(b'K', |body| {
            body.put_u32(session);
            body.put_u32(secret);
        });
    }

    /// The server supports protocol 3.0 only; `unknown` are the client's unsupported options.
    pub(crate) fn negotiate_protocol_version(&mut self, unknown: &[&str]) {
        self.message(b'v', |body| {
            body.put_u32(0x0003_0000);
            body.put_u32(u32::try_from(unknown.len()).unwrap_or(0));
            unknown.iter().for_each(|option| put_string(body, option));
        });
    }

    pub(crate) fn ready_for_query(&mut self, status: TransactionStatus) {
        let letter = match status {
            TransactionStatus::Idle => b'I',
            TransactionStatus::InTransaction => b'T',
            TransactionStatus::Failed => b'E',
        };
        self.message(b'Z', |body| body.put_u8(letter));
    }

    pub(crate) fn row_description(&mut self, columns: &[Column], formats: &[Format]) {
        self.message(b'T', |body| {
            put_count(body, columns.len());
            for (index, column) in columns.iter().enumerate() {
                put_string(body, &column.name);
                body.put_u32(0);
                body.put_u16(0);
                body.put_u32(column.oid);
                body.put_i16(column.size);
                body.put_i32(-1);
                body.put_u16(u16::from(Format::of(formats, index) == Format::Binary));
            }
        });
    }

    pub(crate) fn parameter_description(&mut self, types: &[u32]) {
        self.message(b't', |body| {
            put_count(body, types.len());
            types.iter().for_each(|oid| body.put_u32(*oid));
        });
    }

    pub(crate) fn copy_in_response(&mut self, format: CopyFormat) {
        let code = u8::from(format.format == Format::Binary);
        self.message(b'G', |body| {
            body.put_u8(code);
            body.put_u16(format.columns);
            (0..format.columns).for_each(|_| body.put_u16(code.into()));
        });
    }

    pub(crate) fn command_complete(&mut self, tag: &str) {
        self.message(b'C', |body| put_string(body, tag));
    }

    /// A message without a body.
    pub(crate) fn empty(&mut self, tag: u8) {
        self.message(tag, |_| {});
    }

    pub(crate) fn error_response(&mut self, severity: Severity, error: &SqlError) {
        let (tag, severity) = match severity {
            Severity::Fatal => (b'E', "FATAL"),
            Severity::Error => (b'E', "ERROR"),
            Severity::Warning => (b'N', "WARNING"),
        };
        let fields = [
            (b'S', Some(severity)),
            (b'V', Some(severity)),
            (b'C', Some(error.code)),
            (b'M', Some(&*error.message)),
            (b'D', error.detail.as_deref()),
            (b'H', error.hint.as_deref()),
        ];
        self.message(tag, |body| {
            for (field, value) in fields {
                if let Some(value) = value {
                    body.put_u8(field);
                    put_string(body, value);
                }
            }
            body.put_u8(0);
        });
    }
}

/// Encoded rows of a result.
#[derive(Debug, Default)]
pub struct Rows {
    data: BytesMut,
    count: u64,
    /// The position of the row that is being written, and its number of fields.
    open: Option<(usize, u16)>,
}

impl Rows {
    /// Begins a row.
    pub fn begin(&mut self) {
        self.open = Some((self.data.len(), 0));
        self.data.put_u8(b'D');
        self.data.put_u32(0);
        self.data.put_u16(0);
    }

    /// Adds a field whose value is written by `value`.
    pub fn field<E>(&mut self, value: impl FnOnce(&mut BytesMut) -> Result<(), E>) -> Result<(), E> {
        let start = self.data.len();
        self.data.put_i32(0);
        value(&mut self.data)?;
        let length = i32::try_from(self.data.len() - start - 4).unwrap_or(i32::MAX);
        self.data[start..start + 4].copy_from_slice(&length.to_be_bytes());
        self.counted();
        Ok(())
    }

    /// Adds a field without a value.
    pub fn null(&mut self) {
        self.data.put_i32(-1);
        self.counted();
    }

    fn counted(&mut self) {
        if let Some((_, fields)) = &mut self.open {
            *fields += 1;
        }
    }

    /// Ends the row.
    pub fn end(&mut self) {
        if let Some((start, fields)) = self.open.take() {
            let length = u32::try_from(self.data.len() - start - 1).unwrap_or(u32::MAX);
            self.data[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
            self.data[start + 5..start + 7].copy_from_slice(&fields.to_be_bytes());
            self.count += 1;
        }
    }

    /// Adds a row of texts.
    pub(crate) fn texts(&mut self, texts: &[&str]) {
        self.begin();
        for text in texts {
            let Ok(()) = self.field::<std::convert::Infallible>(|body| {
                body.put_slice(text.as_bytes());
                Ok(())
            });
        }
        self.end();
    }

    /// Adds an encoded row: the number of fields, and each field with its length.
    pub(crate) fn whole(&mut self, fields: &[u8]) {
        self.data.put_u8(b'D');
        self.data.put_u32(u32::try_from(fields.len() + 4).unwrap_or(u32::MAX));
        self.data.put_slice(fields);
        self.count += 1;
    }

    /// Adds a message of a COPY TO STDOUT, which is not a row.
    pub(crate) fn copy_message(&mut self, tag: u8, body: &[u8]) {
        put_message(&mut self.data, Some(tag), |message| message.put_slice(body));
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The number of rows.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.data.len()
    }

    /// Removes the first `limit` rows, or all if it is zero. Returns them and their number.
    pub(crate) fn take(&mut self, limit: usize) -> (BytesMut, u64) {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        if limit == 0 || limit >= self.count {
            return (std::mem::take(&mut self.data), std::mem::take(&mut self.count));
        }
        let mut end = 0;
        for _ in 0..limit {
            let Some(head) = self.data[end + 1..].first_chunk::<4>() else { break };
            end += 1 + usize::try_from(u32::from_be_bytes(*head)).unwrap_or(0);
        }
        self.count -= limit;
        (self.data.split_to(end), limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_carries_its_hint_as_a_field_of_its_own() {
        let mut replies = Replies::default();
        replies.error_response(Severity::Fatal, &SqlError::new("28000", "no").hint("Signature expired: x"));
        assert_eq!(&replies.0[5..], b"SFATAL\0VFATAL\0C28000\0Mno\0HSignature expired: x\0\0");
        assert_eq!(&replies.0[..5], [b'E', 0, 0, 0, 52]);
    }

    #[test]
    fn rows_are_taken_one_by_one_or_all_at_once() {
        let mut rows = Rows::default();
        for text in ["a", "bb", "ccc"] {
            rows.begin();
            let Ok(()) = rows.field::<std::convert::Infallible>(|body| {
                body.put_slice(text.as_bytes());
                Ok(())
            });
            rows.null();
            rows.end();
        }
        let (first, count) = rows.take(1);
        assert_eq!((&first[..], count), (&b"D\0\0\0\x0f\0\x02\0\0\0\x01a\xff\xff\xff\xff"[..], 1));
        assert_eq!((rows.take(0).1, rows.count(), rows.size()), (2, 0, 0));
    }
}
