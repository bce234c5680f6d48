//! Messages of Flight that the `arrow-flight` crate does not have, and one of our own.

use std::collections::BTreeMap;

use prost::{Enumeration, Message, Oneof};

/// The value of a session option. Without one, the option goes back to its default.
#[derive(Clone, PartialEq, Message)]
pub struct SessionOptionValue {
    /// What it is, if anything.
    #[prost(oneof = "OptionValue", tags = "1, 2, 3, 4, 5")]
    pub value: Option<OptionValue>,
}

/// What a session option can be.
#[derive(Clone, PartialEq, Oneof)]
pub enum OptionValue {
    /// Text.
    #[prost(string, tag = "1")]
    Text(String),
    /// Yes or no.
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// A whole number, which has a fixed width on the socket.
    #[prost(sfixed64, tag = "3")]
    Integer(i64),
    /// A number.
    #[prost(double, tag = "4")]
    Real(f64),
    /// Several texts.
    #[prost(message, tag = "5")]
    List(StringList),
}

/// Several texts.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StringList {
    /// The texts.
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// The body of `SetSessionOptions`.
#[derive(Clone, PartialEq, Message)]
pub struct SetSessionOptionsRequest {
    /// What is to be changed.
    #[prost(btree_map = "string, message", tag = "1")]
    pub session_options: BTreeMap<String, SessionOptionValue>,
}

/// The answer to `SetSessionOptions`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetSessionOptionsResult {
    /// What could not be changed, and why.
    #[prost(btree_map = "string, message", tag = "1")]
    pub errors: BTreeMap<String, OptionError>,
}

/// Why an option could not be changed.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct OptionError {
    /// The reason.
    #[prost(enumeration = "OptionProblem", tag = "1")]
    pub value: i32,
}

/// Why an option could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum OptionProblem {
    /// Not said.
    Unspecified = 0,
    /// There is no such option.
    InvalidName = 1,
    /// It cannot have this value.
    InvalidValue = 2,
    /// It cannot be changed.
    Error = 3,
}

/// The body of `GetSessionOptions`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct GetSessionOptionsRequest {}

/// The answer to `GetSessionOptions`.
#[derive(Clone, PartialEq, Message)]
pub struct GetSessionOptionsResult {
    /// All options and what they are.
    #[prost(btree_map = "string, message", tag = "1")]
    pub session_options: BTreeMap<String, SessionOptionValue>,
}

/// The body of `CloseSession`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CloseSessionRequest {}

/// The answer to `CloseSession`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CloseSessionResult {
    /// What became of the session.
    #[prost(enumeration = "CloseStatus", tag = "1")]
    pub status: i32,
}

/// What became of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum CloseStatus {
    /// Not said.
    Unspecified = 0,
    /// It has ended.
    Closed = 1,
    /// It is about to end.
    Closing = 2,
    /// It cannot be ended.
    NotCloseable = 3,
}

/// A body of `CancelQuery` beside the standard one: by session and statement, or by ticket. It is packed into an `Any`
/// of type [`CancelStatement::TYPE_URL`].
///
/// The session is in the header `flight-session-id` of every answer; so a statement can be cancelled whose call has
/// not been answered yet, an update for one. Without a session it is the caller's own; without a statement and a ticket
/// it is everything that runs in the session.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CancelStatement {
    /// Whose statement it is.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// The handle of a ticket's statement or of a prepared statement.
    #[prost(bytes = "bytes", tag = "2")]
    pub statement_handle: prost::bytes::Bytes,
    /// Or else a whole ticket.
    #[prost(bytes = "bytes", tag = "3")]
    pub ticket: prost::bytes::Bytes,
}

impl CancelStatement {
    /// What its `Any` is called.
    pub const TYPE_URL: &'static str = "type.googleapis.com/forebay.flight.CancelStatement";
}
