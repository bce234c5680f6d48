//! Messages of Flight that the `arrow-flight` crate does not have, and one of our own.
#![allow(missing_docs, reason = "the fields and variants are those of Flight.proto")]

use std::collections::BTreeMap;

use prost::{Enumeration, Message, Oneof};

/// The value of a session option. Without a value, the option is reset to its default.
#[derive(Clone, PartialEq, Message)]
pub struct SessionOptionValue {
    #[prost(oneof = "OptionValue", tags = "1, 2, 3, 4, 5")]
    pub value: Option<OptionValue>,
}

/// The types of a session option.
#[derive(Clone, PartialEq, Oneof)]
pub enum OptionValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sfixed64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Real(f64),
    #[prost(message, tag = "5")]
    List(StringList),
}

/// A list of strings.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StringList {
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// The body of `SetSessionOptions`.
#[derive(Clone, PartialEq, Message)]
pub struct SetSessionOptionsRequest {
    #[prost(btree_map = "string, message", tag = "1")]
    pub session_options: BTreeMap<String, SessionOptionValue>,
}

/// The result of `SetSessionOptions`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetSessionOptionsResult {
    #[prost(btree_map = "string, message", tag = "1")]
    pub errors: BTreeMap<String, OptionError>,
}

/// Why an option could not be set.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct OptionError {
    #[prost(enumeration = "OptionProblem", tag = "1")]
    pub value: i32,
}

/// Why an option could not be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum OptionProblem {
    Unspecified = 0,
    InvalidName = 1,
    InvalidValue = 2,
    Error = 3,
}

/// The body of `GetSessionOptions`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct GetSessionOptionsRequest {}

/// The result of `GetSessionOptions`.
#[derive(Clone, PartialEq, Message)]
pub struct GetSessionOptionsResult {
    #[prost(btree_map = "string, message", tag = "1")]
    pub session_options: BTreeMap<String, SessionOptionValue>,
}

/// The body of `CloseSession`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CloseSessionRequest {}

/// The result of `CloseSession`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CloseSessionResult {
    #[prost(enumeration = "CloseStatus", tag = "1")]
    pub status: i32,
}

/// The status of a closed session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum CloseStatus {
    Unspecified = 0,
    Closed = 1,
    Closing = 2,
    NotCloseable = 3,
}

/// A body of `CancelQuery` in addition to the standard one. It names a session and a statement, or a ticket.
/// It is packed into an `Any` of type [`CancelStatement::TYPE_URL`].
///
/// Every answer has its session in the header `flight-session-id`. So a statement can be cancelled before its
/// call is answered, for example an update. Without a session, it is the caller's own. Without a statement
/// and a ticket, everything in the session is cancelled.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CancelStatement {
    /// The session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// The handle of a ticket's statement or of a prepared statement.
    #[prost(bytes = "bytes", tag = "2")]
    pub statement_handle: prost::bytes::Bytes,
    /// Or a whole ticket.
    #[prost(bytes = "bytes", tag = "3")]
    pub ticket: prost::bytes::Bytes,
}

impl CancelStatement {
    /// The type URL of its `Any`.
    pub const TYPE_URL: &'static str = "type.googleapis.com/forebay.flight.CancelStatement";
}
