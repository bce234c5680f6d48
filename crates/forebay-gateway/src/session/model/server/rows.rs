//! The rows of a result, and their description.

use super::ModelServer;
use crate::protocol::{server, write};

/// The columns of a result: name, type and length.
pub(super) type Column = (&'static str, u32, u16);

pub(super) fn row_description(out: &mut Vec<u8>, (name, oid, length): &Column) {
    write::frame(out, server::ROW_DESCRIPTION, |out| {
        out.extend_from_slice(&[0, 1]);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&[0; 7]);
        out.extend_from_slice(&oid.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0]);
    });
}

impl ModelServer {
    pub(super) fn data_row(&mut self, values: &[&str]) {
        write::frame(&mut self.out, server::DATA_ROW, |out| {
            out.extend_from_slice(&u16::try_from(values.len()).expect("few").to_be_bytes());
            for value in values {
                out.extend_from_slice(&u32::try_from(value.len()).expect("short").to_be_bytes());
                out.extend_from_slice(value.as_bytes());
            }
        });
    }
}
