//! Stopping a statement on the server: abort the call, `CancelFlightInfo`, `CancelQuery`, ping the session,
//! and `CloseSession` if it does not answer.
//!
//! Dropping a call aborts it, which resets its stream. For some servers that is enough. Others go on with the
//! statement, and the session's next one would have to wait. If nothing else helps, the owner of the
//! connection drops it.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::{ActionCancelQueryRequest, ActionCancelQueryResult, Any, ProstMessageExt};
use arrow_flight::{CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo};
use bytes::Bytes;
use forebay::rt;
use prost::Message;
use tonic::Status;

use crate::connection::{Capability, Connection, Moment, StatementPermit};
use crate::error::{Code, Error, Result};

/// How long one action may take.
const ACTION_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a session may take to answer if the server has understood the cancellation.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may take at least if the server has not understood: the abort alone may have stopped the
/// statement. Short, since the session takes a place in the pool meanwhile. A session that answers later
/// comes back from quarantine.
const MIN_PING_TIMEOUT: Duration = Duration::from_millis(100);
/// A server that is slow to refuse an action is slow to answer too: the ping may take this many times as
/// long.
const PING_FACTOR: u32 = 10;

/// The body of a `CancelQuery` for the statement that runs in the caller's own session. Updates have no
/// `FlightInfo`, and a query has none until its first call is answered.
const CANCEL_OWN_STATEMENT: &str = "type.googleapis.com/forebay.flight.CancelStatement";

/// A statement that was sent. Unless it [ends](Self::finish), dropping it cancels it in the background.
#[derive(Debug)]
pub(crate) struct RunningStatement {
    /// There until it has ended.
    permit: Option<StatementPermit>,
    info: Option<FlightInfo>,
    /// A catalog query: its `FlightInfo` does not name anything that can be cancelled.
    is_catalog: bool,
    is_answered: bool,
    sent: Option<Moment>,
}

impl RunningStatement {
    pub(crate) fn begin(permit: StatementPermit) -> Self {
        permit.connection().mark_used();
        let sent = permit.connection().moment();
        Self { permit: Some(permit), info: None, is_catalog: false, is_answered: false, sent }
    }

    /// For a catalog query. A server that is asked to cancel its `FlightInfo` may answer as if it did not
    /// know the action.
    pub(crate) fn begin_catalog(permit: StatementPermit) -> Self {
        let mut statement = Self::begin(permit);
        statement.is_catalog = true;
        statement
    }

    /// For parameters, which a server may take without its session.
    pub(crate) fn begin_parameters(permit: StatementPermit) -> Self {
        let mut statement = Self::begin(permit);
        statement.sent = None;
        statement
    }

    /// The server has given it a `FlightInfo`.
    pub(crate) fn set_info(&mut self, info: FlightInfo) {
        if !self.is_catalog {
            self.info = Some(info);
        }
    }

    /// The server has answered a call, and may have executed the statement.
    pub(crate) fn set_answered(&mut self) {
        self.is_answered = true;
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// The server has finished with it.
    pub(crate) fn finish(mut self) {
        // A server may answer a catalog query without its session.
        if let Some(permit) = self.permit.take()
            && !self.is_catalog
        {
            permit.connection().record_activity(self.sent);
        }
    }

    /// Ends with this outcome. A server that refuses a statement has finished with it. `OUT_OF_RANGE` may
    /// come from this side, though: a message was too large. An invalid option means that nothing was sent.
    /// After any other error it is cancelled.
    pub(crate) fn end<T>(mut self, outcome: &Result<T>) {
        if matches!(outcome, Err(Error::Config { .. })) {
            self.sent = None;
        }
        let is_finished = match outcome {
            Ok(_) | Err(Error::Config { .. }) => true,
            Err(Error::Server { code, .. }) => *code != Code::OutOfRange,
            Err(_) => false,
        };
        if let (Some(permit), Err(error)) = (&self.permit, outcome)
            // In both cases nothing was executed: the transaction goes on.
            && !matches!(error, Error::Config { .. } | Error::Server { code: Code::Unimplemented, .. })
        {
            permit.connection().fail_transaction(error);
        }
        if is_finished {
            self.finish();
        }
    }
}

impl Drop for RunningStatement {
    fn drop(&mut self) {
        // The permit ends after the background task has begun, so that the connection is not idle in between.
        let Some(permit) = self.permit.take() else { return };
        let (connection, info) = (Arc::clone(permit.connection()), self.info.take());
        connection.fail_transaction(&Error::Cancelled { may_have_run: true });
        if connection.is_usable() {
            permit.connection().spawn_background(async move { cancel(&connection, info).await });
        }
    }
}

/// Returns whether the session answers in the end.
async fn cancel(connection: &Connection, info: Option<FlightInfo>) -> bool {
    let server = &connection.server;
    let begun = server.runtime.now();
    let mut stops = None;
    if let Some(info) = info {
        if server.cancel_flight_info.may_work() {
            stops = record(cancel_flight_info(connection, info.clone()).await, &server.cancel_flight_info);
        }
        if stops != Some(true) && server.cancel_query.may_work() {
            let request = ActionCancelQueryRequest { info: info.encode_to_vec().into() }.as_any();
            stops = record(cancel_query(connection, request).await, &server.cancel_query).or(stops);
        }
    } else if server.cancel_session.may_work() {
        let request = Any { type_url: CANCEL_OWN_STATEMENT.to_owned(), value: Bytes::new() };
        stops = record(cancel_query(connection, request).await, &server.cancel_session);
    }
    let slow = server.runtime.now().since(begun).saturating_mul(PING_FACTOR);
    // A server that found nothing to stop has understood, too: the abort came first.
    let limit = if stops.is_some() { PING_TIMEOUT } else { slow.clamp(MIN_PING_TIMEOUT, PING_TIMEOUT) };
    let answer = rt::within(&*server.runtime, limit, connection.ping()).await;
    let answers = matches!(answer, Some(Ok(()) | Err(Error::Server { .. })));
    let mut closed = false;
    if !answers && connection.is_usable() && server.close_session.may_work() {
        // Ends the statement with the session, which nobody can use.
        closed = connection.close_session().await;
        if closed {
            connection.mark_unusable();
        }
    }
    tracing::debug!(endpoint = %server.options.endpoint, ?stops, answers, closed, "statement cancelled");
    answers
}

/// Whether the server says that it stops the statement. None if it does not understand the action, which is
/// remembered.
fn record(answer: Result<bool, Status>, capability: &Capability) -> Option<bool> {
    match &answer {
        Ok(true) => capability.record_success(),
        Ok(false) => {}
        Err(status) => capability.record_object_refusal(status),
    }
    answer.ok()
}

async fn cancel_flight_info(connection: &Connection, info: FlightInfo) -> Result<bool, Status> {
    let request = CancelFlightInfoRequest::new(info).encode_to_vec();
    let Some(body) = action(connection, "CancelFlightInfo", request).await? else { return Ok(false) };
    let result =
        CancelFlightInfoResult::decode(body).map_err(|error| Status::data_loss(error.to_string()))?;
    Ok(is_stopped(result.status))
}

async fn cancel_query(connection: &Connection, request: Any) -> Result<bool, Status> {
    let Some(body) = action(connection, "CancelQuery", request.encode_to_vec()).await? else {
        return Ok(false);
    };
    let result =
        Any::decode(body).ok().and_then(|any| any.unpack::<ActionCancelQueryResult>().ok().flatten());
    // The two kinds of result use the same numbers.
    Ok(result.is_some_and(|result| is_stopped(result.result)))
}

fn is_stopped(status: i32) -> bool {
    [CancelStatus::Cancelled, CancelStatus::Cancelling].iter().any(|stopped| *stopped as i32 == status)
}

async fn action(connection: &Connection, kind: &str, body: Vec<u8>) -> Result<Option<Bytes>, Status> {
    let action = connection.action(kind, body, Some(ACTION_TIMEOUT));
    let answer = rt::within(&*connection.server.runtime, ACTION_TIMEOUT, action).await;
    answer.unwrap_or_else(|| Err(Status::deadline_exceeded("no answer to the action")))
}
