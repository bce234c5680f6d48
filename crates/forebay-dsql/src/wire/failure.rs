//! The fields of an ErrorResponse that matter: how bad it is, and what.

use crate::error::ErrorKind;

/// What an error was, in one number: its SQLSTATE, and which of Aurora DSQL's conflicts its text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    code: [u8; 5],
    /// The last digit of `OC000` or `OC001`; zero if it names neither.
    conflict: u8,
}

impl Failure {
    pub(super) const fn bits(self) -> u64 {
        let [a, b, c, d, e] = self.code;
        u64::from_be_bytes([0, 0, self.conflict, a, b, c, d, e])
    }

    pub(super) fn from_bits(bits: u64) -> Option<Self> {
        let [_, _, conflict, code @ ..] = bits.to_be_bytes();
        (bits != 0).then_some(Self { code, conflict })
    }

    pub(super) fn kind(self) -> ErrorKind {
        let text = match self.conflict {
            b'0' => "oc000",
            b'1' => "oc001",
            _ => "",
        };
        ErrorKind::of_server(std::str::from_utf8(&self.code).unwrap_or_default(), text, None)
    }
}

/// The fields of one ErrorResponse, as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorFields {
    /// The field we are in; none at its beginning.
    field: Option<u8>,
    value: [u8; 5],
    length: usize,
    /// The last bytes of the field, in lower case.
    recent: u64,
    pub(super) code: [u8; 5],
    pub(super) is_fatal: bool,
    conflict: u8,
}

/// The last five of the bytes in a number.
const FIVE: u64 = 0xff_ffff_ffff;
const OC000: u64 = u64::from_be_bytes(*b"\0\0\0oc000");
const OC001: u64 = u64::from_be_bytes(*b"\0\0\0oc001");

impl ErrorFields {
    pub(super) const fn failure(&self) -> Failure {
        Failure { code: self.code, conflict: self.conflict }
    }

    pub(super) fn extend(&mut self, part: &[u8]) {
        for byte in part {
            match (self.field, *byte) {
                (None, kind) => {
                    self.field = Some(kind);
                    self.length = 0;
                    self.recent = 0;
                }
                (Some(field), 0) => {
                    self.close(field);
                    self.field = None;
                }
                (Some(field), byte) => {
                    if let Some(place) = self.value.get_mut(self.length) {
                        *place = byte;
                    }
                    self.length += 1;
                    self.recent = (self.recent << 8) | u64::from(byte.to_ascii_lowercase());
                    if field == b'M' && matches!(self.recent & FIVE, OC000 | OC001) {
                        self.conflict = byte;
                    }
                }
            }
        }
    }

    fn close(&mut self, field: u8) {
        if self.length != self.value.len() {
            return;
        }
        match field {
            // S is translated, V is not; where there is no V, S is in English.
            b'S' | b'V' => self.is_fatal |= matches!(&self.value, b"FATAL" | b"PANIC"),
            b'C' => self.code = self.value,
            _ => {}
        }
    }
}
