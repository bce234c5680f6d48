//! Frames, short to write.

use crate::protocol::{ServerError, server, write};

pub(super) fn query(sql: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::query(&mut frame, sql.as_bytes());
    frame
}

pub(super) fn parse(name: &str, sql: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    let rest: Vec<u8> = sql.bytes().chain([0, 0, 0]).collect();
    write::parse(&mut frame, name.as_bytes(), &rest);
    frame
}

pub(super) fn bind(name: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::bind(&mut frame, b"", name.as_bytes());
    frame
}

pub(super) fn describe(name: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::describe_statement(&mut frame, name.as_bytes());
    frame
}

pub(super) fn execute() -> Vec<u8> {
    let mut frame = Vec::new();
    write::execute(&mut frame, b"");
    frame
}

pub(super) fn bare(kind: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    write::bare(&mut frame, kind);
    frame
}

pub(super) fn ready(status: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    write::ready_for_query(&mut frame, status);
    frame
}

pub(super) fn complete(tag: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::command_complete(&mut frame, tag);
    frame
}

/// What describes a statement without parameters, before its columns.
pub(super) fn no_parameters() -> Vec<u8> {
    let mut frame = Vec::new();
    write::frame(&mut frame, server::PARAMETER_DESCRIPTION, |out| out.extend_from_slice(&[0, 0]));
    frame
}

/// Rows have one column, of this type.
pub(super) fn column(oid: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    write::frame(&mut frame, server::ROW_DESCRIPTION, |out| {
        out.extend_from_slice(b"\0\x01a\0\0\0\0\0\0\0");
        out.extend_from_slice(&oid.to_be_bytes());
        out.extend_from_slice(&[0, 4, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    });
    frame
}

pub(super) fn error(sqlstate: &'static str, message: &'static str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::error(&mut frame, &ServerError::error(sqlstate, message));
    frame
}

pub(super) const CONFLICT: &str = "schema has been updated by another transaction, please retry: (OC001)";
