//! The actions on sessions, whose messages arrow-flight's generated code lacks.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use forebay::rt;
use prost::Message;

use crate::error::{Code, Error, Result};
use crate::link::Link;
use crate::query_options::QueryOptions;
use crate::session::AsyncSession;

/// The value of a session's option.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OptionValue {
    /// A text.
    Text(String),
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// Several texts.
    Texts(Vec<String>),
    /// None: the option is unset.
    Unset,
}

#[derive(Clone, PartialEq, Message)]
struct StringList {
    #[prost(string, repeated, tag = "1")]
    values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionOptionValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(sfixed64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Float(f64),
    #[prost(message, tag = "5")]
    Texts(StringList),
}

#[derive(Clone, PartialEq, Message)]
struct SetSessionOptionsRequest {
    #[prost(btree_map = "string, message", tag = "1")]
    session_options: BTreeMap<String, SessionOptionValue>,
}

#[derive(Clone, PartialEq, Message)]
struct SetError {
    #[prost(int32, tag = "1")]
    value: i32,
}

#[derive(Clone, PartialEq, Message)]
struct SetSessionOptionsResult {
    #[prost(btree_map = "string, message", tag = "1")]
    errors: BTreeMap<String, SetError>,
}

#[derive(Clone, PartialEq, Message)]
struct GetSessionOptionsResult {
    #[prost(btree_map = "string, message", tag = "1")]
    session_options: BTreeMap<String, SessionOptionValue>,
}

#[derive(Clone, PartialEq, Message)]
struct CloseSessionResult {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// `CLOSED` of a CloseSessionResult.
const CLOSED: i32 = 1;

/// How long a server may take to forget a session.
const CLOSE: Duration = Duration::from_secs(1);

/// Asks the server to forget the session, and waits a moment for it. Whether it has.
pub(crate) async fn close_session(link: &Link) -> bool {
    let close = link.act("CloseSession", Bytes::new(), None);
    let Some(answer) = rt::within(&*link.server.runtime, CLOSE, close).await else { return false };
    match answer {
        Ok(body) => {
            link.server.closes_sessions.works();
            let result = body.and_then(|body| CloseSessionResult::decode(body).ok());
            result.is_some_and(|result| result.status == CLOSED)
        }
        Err(status) => {
            link.server.closes_sessions.refused(&status);
            false
        }
    }
}

impl AsyncSession {
    /// Sets options of this session. A pool does not lend it again.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Server`] names the options that the server did not accept. The others are set.
    ///
    /// # Cancel safety
    /// Dropping it leaves open whether they are set.
    pub async fn set_options(
        &mut self,
        options: impl IntoIterator<Item = (String, OptionValue)>,
    ) -> Result<()> {
        let session_options = options.into_iter().map(|(name, value)| (name, value.into())).collect();
        // Before it is sent: if this is dropped, they may be set.
        self.is_altered = true;
        let request = SetSessionOptionsRequest { session_options }.encode_to_vec();
        let body = self.act("SetSessionOptions", request).await?;
        let result = SetSessionOptionsResult::decode(body).map_err(Error::protocol)?;
        if result.errors.is_empty() {
            return Ok(());
        }
        let refused = result.errors.iter().map(|(name, error)| format!("{name} ({})", why(error.value)));
        let message =
            format!("session options that were not set: {}", refused.collect::<Vec<_>>().join(", "));
        // Not Config, which says that nothing was sent: the others are set.
        Err(Error::Server { code: Code::InvalidArgument, message })
    }

    /// The options of this session.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn options(&mut self) -> Result<BTreeMap<String, OptionValue>> {
        let body = self.act("GetSessionOptions", Vec::new()).await?;
        let result = GetSessionOptionsResult::decode(body).map_err(Error::protocol)?;
        Ok(result.session_options.into_iter().map(|(name, value)| (name, value.into())).collect())
    }

    async fn act(&mut self, kind: &str, request: Vec<u8>) -> Result<Bytes> {
        let limits = self.limits(QueryOptions::new());
        let answer = self.ready(&limits).await?.act(kind, request, &limits).await?;
        answer.ok_or_else(|| Error::protocol(format!("{kind} without a result")))
    }
}

fn why(error: i32) -> &'static str {
    match error {
        1 => "no such option",
        2 => "no such value",
        3 => "the server failed",
        _ => "for a reason the server did not give",
    }
}

impl From<OptionValue> for SessionOptionValue {
    fn from(value: OptionValue) -> Self {
        let value = match value {
            OptionValue::Text(text) => Some(Value::Text(text)),
            OptionValue::Flag(flag) => Some(Value::Flag(flag)),
            OptionValue::Integer(integer) => Some(Value::Integer(integer)),
            OptionValue::Float(float) => Some(Value::Float(float)),
            OptionValue::Texts(values) => Some(Value::Texts(StringList { values })),
            OptionValue::Unset => None,
        };
        Self { value }
    }
}

impl From<SessionOptionValue> for OptionValue {
    fn from(value: SessionOptionValue) -> Self {
        match value.value {
            Some(Value::Text(text)) => Self::Text(text),
            Some(Value::Flag(flag)) => Self::Flag(flag),
            Some(Value::Integer(integer)) => Self::Integer(integer),
            Some(Value::Float(float)) => Self::Float(float),
            Some(Value::Texts(list)) => Self::Texts(list.values),
            None => Self::Unset,
        }
    }
}
