//! Stopping a statement on the server: abort the call, CancelFlightInfo, CancelQuery, see whether the session answers, and if
//! not CloseSession.
//!
//! The call itself is aborted by dropping it, which resets its stream. To some servers that is enough; others go on with
//! the statement and would hold the session's next one back. The last rung, dropping the connection, is its owner's.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::{ActionCancelQueryRequest, ActionCancelQueryResult, Any, ProstMessageExt};
use arrow_flight::{CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo};
use bytes::Bytes;
use forebay::rt;
use prost::Message;
use tonic::Status;

use crate::actions;
use crate::error::Error;
use crate::link::{Link, Turn};
use crate::server::Ability;

/// How long one action may take.
const ACTION: Duration = Duration::from_secs(1);
/// How long a session may take to answer after the server has understood what it is to stop.
const UNDERSTOOD: Duration = Duration::from_secs(2);
/// How long it may take at least if the server has not understood: the abort alone may have done it. Short, since its place in the
/// pool is taken for so long; one that answers later comes back out of quarantine.
const HOPED: Duration = Duration::from_millis(100);
/// A server that is slow to refuse is as slow to answer: it gets so many times as long.
const SLOWNESS: u32 = 10;

/// The body of a CancelQuery that means whatever runs in the caller's own session: updates have no `FlightInfo` to be called by,
/// and a query has none before its first call is answered.
const ALL_OF_MINE: &str = "type.googleapis.com/forebay.flight.CancelStatement";

/// A statement that has begun. Unless it [ends](Self::over), it is cancelled when it is dropped, in the background.
#[derive(Debug)]
pub(crate) struct Statement {
    /// There until it is over.
    turn: Option<Turn>,
    info: Option<FlightInfo>,
    /// Its `FlightInfo` is not the name of something that runs.
    is_nameless: bool,
    is_answered: bool,
}

impl Statement {
    /// It is about to be sent.
    pub(crate) fn begin(turn: Turn) -> Self {
        turn.link().used();
        Self { turn: Some(turn), info: None, is_nameless: false, is_answered: false }
    }

    /// The same for what is no statement of SQL. A server that is asked to cancel the `FlightInfo` of a catalog may refuse that as
    /// it refuses an action that it does not know.
    pub(crate) fn nameless(turn: Turn) -> Self {
        let mut statement = Self::begin(turn);
        statement.is_nameless = true;
        statement
    }

    /// The server has said what it is to it.
    pub(crate) fn known_as(&mut self, info: FlightInfo) {
        if !self.is_nameless {
            self.info = Some(info);
        }
    }

    /// The server has answered a call of it, and may have carried it out then.
    pub(crate) fn answered(&mut self) {
        self.is_answered = true;
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// The server is done with it.
    pub(crate) fn over(mut self) {
        self.turn = None;
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // Its turn ends after the errand has begun, so that the link is not at rest in between.
        let Some(turn) = self.turn.take() else { return };
        let (link, info) = (Arc::clone(turn.link()), self.info.take());
        if link.is_usable() {
            turn.link().errand(async move { climb(&link, info).await });
        }
    }
}

/// Whether the session answers in the end.
async fn climb(link: &Link, info: Option<FlightInfo>) -> bool {
    let server = &link.server;
    let asked = server.runtime.now();
    let mut stops = None;
    if let Some(info) = info {
        if server.cancels_flights.may_be() {
            stops = noted(cancel_flight_info(link, info.clone()).await, &server.cancels_flights);
        }
        if stops != Some(true) && server.cancels_queries.may_be() {
            stops = noted(cancel_query(link, info).await, &server.cancels_queries).or(stops);
        }
    } else if server.cancels_sessions.may_be() {
        stops = noted(cancel_all_of_mine(link).await, &server.cancels_sessions);
    }
    let slow = server.runtime.now().since(asked).saturating_mul(SLOWNESS);
    // One that has nothing to stop may have stopped it by then: the abort came first.
    let limit = if stops.is_some() { UNDERSTOOD } else { slow.clamp(HOPED, UNDERSTOOD) };
    let answer = rt::within(&*server.runtime, limit, link.ping()).await;
    let answers = matches!(answer, Some(Ok(()) | Err(Error::Server { .. })));
    let mut closed = false;
    if !answers && link.is_usable() && server.closes_sessions.may_be() {
        // Of no more use to anybody, and with it ends what runs in it.
        closed = actions::close_session(link).await;
        if closed {
            link.refuse();
        }
    }
    tracing::debug!(endpoint = %server.options.endpoint, ?stops, answers, closed, "statement cancelled");
    answers
}

/// Whether the server says that it stops it, if it understands the question; remembers what that says about it.
fn noted(answer: Result<bool, Status>, ability: &Ability) -> Option<bool> {
    match &answer {
        Ok(true) => ability.works(),
        Ok(false) => {}
        Err(status) => ability.refused_for_one(status),
    }
    answer.ok()
}

async fn cancel_flight_info(link: &Link, info: FlightInfo) -> Result<bool, Status> {
    let request = CancelFlightInfoRequest::new(info).encode_to_vec();
    let Some(body) = bounded(link, "CancelFlightInfo", request).await? else { return Ok(false) };
    let result =
        CancelFlightInfoResult::decode(body).map_err(|error| Status::data_loss(error.to_string()))?;
    Ok(is_stopped(result.status))
}

async fn cancel_query(link: &Link, info: FlightInfo) -> Result<bool, Status> {
    query_cancelled(link, ActionCancelQueryRequest { info: info.encode_to_vec().into() }.as_any()).await
}

async fn cancel_all_of_mine(link: &Link) -> Result<bool, Status> {
    query_cancelled(link, Any { type_url: ALL_OF_MINE.to_owned(), value: Bytes::new() }).await
}

async fn query_cancelled(link: &Link, request: Any) -> Result<bool, Status> {
    let Some(body) = bounded(link, "CancelQuery", request.encode_to_vec()).await? else { return Ok(false) };
    let result =
        Any::decode(body).ok().and_then(|any| any.unpack::<ActionCancelQueryResult>().ok().flatten());
    // The two results have the same numbers for the same outcomes.
    Ok(result.is_some_and(|result| is_stopped(result.result)))
}

fn is_stopped(status: i32) -> bool {
    [CancelStatus::Cancelled, CancelStatus::Cancelling].iter().any(|stopped| *stopped as i32 == status)
}

async fn bounded(link: &Link, kind: &str, body: Vec<u8>) -> Result<Option<Bytes>, Status> {
    let answer = rt::within(&*link.server.runtime, ACTION, link.act(kind, body, Some(ACTION))).await;
    answer.unwrap_or_else(|| Err(Status::deadline_exceeded("no answer to the action")))
}
