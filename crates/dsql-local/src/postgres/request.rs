//! Messages for the private PostgreSQL.

use bytes::{BufMut, Bytes, BytesMut};

use crate::engine::{Call, Oid};
use crate::wire::{Format, put_count, put_message, put_string};

#[derive(Debug, Default)]
pub(super) struct Request {
    bytes: BytesMut,
    /// Whether the data of a COPY follows.
    copies: bool,
}

impl Request {
    pub(super) fn startup(parameters: &[(&str, &str)]) -> Self {
        let mut request = Self::default();
        put_message(&mut request.bytes, None, |body| {
            body.put_u32(0x0003_0000);
            for (name, value) in parameters {
                put_string(body, name);
                put_string(body, value);
            }
            body.put_u8(0);
        });
        request
    }

    pub(super) fn query(sql: &str) -> Self {
        let mut request = Self::default();
        request.message(b'Q', |body| put_string(body, sql));
        request
    }

    pub(super) fn parse(&mut self, sql: &str, types: &[Oid]) {
        self.prepare("", sql, types);
    }

    /// Parses a statement and names it.
    pub(super) fn prepare(&mut self, name: &str, sql: &str, types: &[Oid]) {
        self.message(b'P', |body| {
            put_string(body, name);
            put_string(body, sql);
            put_count(body, types.len());
            types.iter().for_each(|oid| body.put_u32(*oid));
        });
    }

    /// Closes a prepared statement, even one that does not exist.
    pub(super) fn close(&mut self, name: &str) {
        self.message(b'C', |body| {
            body.put_u8(b'S');
            put_string(body, name);
        });
    }

    pub(super) fn describe(&mut self) {
        self.message(b'D', |body| body.put_slice(b"S\0"));
    }

    pub(super) fn describe_portal(&mut self) {
        self.message(b'D', |body| body.put_slice(b"P\0"));
    }

    /// Binds the values of a call; `results` are the formats of the rows.
    pub(super) fn bind(&mut self, name: &str, call: &Call<'_>, results: &[Format]) {
        self.message(b'B', |body| {
            put_string(body, "");
            put_string(body, name);
            formats(body, call.formats);
            put_count(body, call.values.len());
            call.values.iter().for_each(|value| put_value(body, value.as_ref()));
            formats(body, results);
        });
    }

    /// Runs a statement without parameters, with rows as text.
    pub(super) fn whole(&mut self, sql: &str) {
        self.parse(sql, &[]);
        self.message(b'B', |body| body.put_slice(&[0; 8]));
        self.execute();
    }

    pub(super) fn bind_texts(&mut self, values: &[Option<Bytes>]) {
        self.message(b'B', |body| {
            body.put_slice(b"\0\0");
            formats(body, &[]);
            put_count(body, values.len());
            values.iter().for_each(|value| put_value(body, value.as_ref()));
            formats(body, &[]);
        });
    }

    pub(super) fn execute(&mut self) {
        self.message(b'E', |body| body.put_slice(&[0; 5]));
    }

    /// The data of a COPY FROM STDIN.
    pub(super) fn copy(&mut self, data: &[u8]) {
        self.copies = true;
        self.message(b'd', |body| body.put_slice(data));
        self.message(b'c', |_| {});
    }

    /// Ends a COPY FROM STDIN with an error.
    pub(super) fn copy_fail(&mut self, reason: &str) {
        self.copies = true;
        self.message(b'f', |body| put_string(body, reason));
    }

    /// Whether the server may ask for the data of a COPY.
    pub(super) fn copies(&self) -> bool {
        self.copies
    }

    pub(super) fn sync(&mut self) {
        self.message(b'S', |_| {});
    }

    pub(super) fn into_bytes(self) -> BytesMut {
        self.bytes
    }

    fn message(&mut self, tag: u8, body: impl FnOnce(&mut BytesMut)) {
        put_message(&mut self.bytes, Some(tag), body);
    }
}

fn formats(body: &mut BytesMut, formats: &[Format]) {
    put_count(body, formats.len());
    formats.iter().for_each(|format| body.put_u16(u16::from(*format == Format::Binary)));
}

fn put_value(body: &mut BytesMut, value: Option<&Bytes>) {
    match value {
        None => body.put_i32(-1),
        Some(value) => {
            body.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
            body.put_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_carry_their_length() {
        let mut request = Request::query("SELECT 1");
        request.parse("x", &[23]);
        request.sync();
        let expected = b"Q\0\0\0\x0dSELECT 1\0P\0\0\0\x0d\0x\0\0\x01\0\0\0\x17S\0\0\0\x04";
        assert_eq!(&request.into_bytes()[..], expected);
    }
}
