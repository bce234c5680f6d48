//! Session options, and custom actions. The messages of the session actions are missing in arrow-flight's
//! generated code.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::{Alteration, AsyncSession};
use crate::error::{Code, Error, Phase, Result};
use crate::statement::QueryOptions;
use crate::statement::cancellation::RunningStatement;

/// The value of a session option.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OptionValue {
    /// A string.
    String(String),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int64(i64),
    /// A floating-point number.
    Double(f64),
    /// A list of strings.
    StringList(Vec<String>),
    /// No value: the option is unset.
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
    String(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sfixed64, tag = "3")]
    Int64(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    StringList(StringList),
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

impl AsyncSession {
    /// Sets options of this session. A pool does not lend the session again.
    ///
    /// # Errors
    /// See [`Error`]. [`Error::Server`] names the options that the server did not accept. The others are set.
    ///
    /// # Cancel safety
    /// Dropping it leaves open whether they are set.
    pub async fn set_options(
        &mut self,
        options: impl IntoIterator<Item = (String, OptionValue)>,
    ) -> Result<()> {
        let session_options = options.into_iter().map(|(name, value)| (name, value.into())).collect();
        // Before it is sent: if this future is dropped, they may be set.
        self.connection.alter(Alteration::unknown());
        let request = SetSessionOptionsRequest { session_options }.encode_to_vec();
        let body = self.first_result("SetSessionOptions", request).await?;
        let result = SetSessionOptionsResult::decode(body).map_err(Error::protocol)?;
        if result.errors.is_empty() {
            return Ok(());
        }
        let refused = result.errors.iter().map(|(name, error)| format!("{name} ({})", reason(error.value)));
        let message =
            format!("session options that were not set: {}", refused.collect::<Vec<_>>().join(", "));
        // Not Config, which means that nothing was sent: the other options are set.
        Err(Error::server(Code::InvalidArgument, message))
    }

    /// The options of this session.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn options(&mut self) -> Result<BTreeMap<String, OptionValue>> {
        let body = self.first_result("GetSessionOptions", Vec::new()).await?;
        let result = GetSessionOptionsResult::decode(body).map_err(Error::protocol)?;
        Ok(result.session_options.into_iter().map(|(name, value)| (name, value.into())).collect())
    }

    /// Runs a Flight action of the server that this crate does not know (`DoAction` with this type and body),
    /// and returns the bodies of its results. The session's headers and credentials are sent with it. Of the
    /// options, the timeout and the cancellation apply.
    ///
    /// A pool does not lend the session again, since the action may have changed anything in it.
    ///
    /// # Cancel safety
    /// Dropping it aborts the call, and leaves open whether the action ran. The next call of the session
    /// waits until the session answers.
    pub async fn action(
        &mut self,
        kind: &str,
        body: impl Into<Bytes>,
        options: QueryOptions,
    ) -> Result<Vec<Bytes>> {
        let limits = self.limits(&options);
        let permit = self.permit(&limits).await?;
        limits.check(Phase::Execute)?;
        self.connection.alter(Alteration::unknown());
        let running = RunningStatement::begin(permit);
        let results = limits.run(Phase::Execute, async {
            let results = self.connection.action_results(kind, body, limits.remaining()).await;
            results.map_err(|status| self.connection.classify_within(&status, &limits, Phase::Execute))
        });
        let results = results.await;
        running.end(&results);
        results
    }

    async fn first_result(&mut self, kind: &str, request: Vec<u8>) -> Result<Bytes> {
        let limits = self.limits(&QueryOptions::new());
        let answer = self.permit(&limits).await?.action(kind, request, &limits).await?;
        answer.ok_or_else(|| Error::protocol(format!("{kind} without a result")))
    }
}

fn reason(error: i32) -> &'static str {
    match error {
        1 => "no such option",
        2 => "no such value",
        3 => "the server failed",
        _ => "the server gave no reason",
    }
}

impl From<OptionValue> for SessionOptionValue {
    fn from(value: OptionValue) -> Self {
        let value = match value {
            OptionValue::String(string) => Some(Value::String(string)),
            OptionValue::Bool(bool) => Some(Value::Bool(bool)),
            OptionValue::Int64(integer) => Some(Value::Int64(integer)),
            OptionValue::Double(double) => Some(Value::Double(double)),
            OptionValue::StringList(values) => Some(Value::StringList(StringList { values })),
            OptionValue::Unset => None,
        };
        Self { value }
    }
}

impl From<SessionOptionValue> for OptionValue {
    fn from(value: SessionOptionValue) -> Self {
        match value.value {
            Some(Value::String(string)) => Self::String(string),
            Some(Value::Bool(bool)) => Self::Bool(bool),
            Some(Value::Int64(integer)) => Self::Int64(integer),
            Some(Value::Double(double)) => Self::Double(double),
            Some(Value::StringList(list)) => Self::StringList(list.values),
            None => Self::Unset,
        }
    }
}
