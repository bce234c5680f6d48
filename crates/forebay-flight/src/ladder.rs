//! Stopping a statement on the server: abort the call, CancelFlightInfo, CancelQuery, and see whether the session answers.
//!
//! The call itself is aborted by dropping it, which resets its stream. To some servers that is enough; others go on with
//! the statement and would hold the session's next one back. The last rung, dropping the connection, is its owner's.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::{ActionCancelQueryRequest, ActionCancelQueryResult, Any, ProstMessageExt};
use arrow_flight::{
    CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightDescriptor, FlightInfo,
};
use bytes::Bytes;
use forebay::rt;
use prost::Message;
use tonic::Status;

use crate::link::Link;
use crate::server::Ability;

/// How long one action may take.
const ACTION: Duration = Duration::from_secs(1);
/// How long a session may take to answer after the server has agreed to stop.
const AGREED: Duration = Duration::from_secs(2);
/// How long it may take if the server has not agreed: the abort alone may have done it.
const HOPED: Duration = Duration::from_millis(250);

/// A statement that has begun. Unless it [ends](Self::over), it is cancelled when it is dropped, in the background.
#[derive(Debug)]
pub(crate) struct Statement {
    link: Option<Arc<Link>>,
    command: Bytes,
    info: Option<FlightInfo>,
}

impl Statement {
    /// It is about to be sent.
    pub(crate) fn begin(link: &Arc<Link>, command: Bytes) -> Self {
        link.begin_statement();
        Self { link: Some(Arc::clone(link)), command, info: None }
    }

    /// The server has said what it is to it.
    pub(crate) fn known_as(&mut self, info: FlightInfo) {
        self.info = Some(info);
    }

    /// The server is done with it.
    pub(crate) fn over(mut self) {
        if let Some(link) = self.link.take() {
            link.end_statement();
        }
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        let Some(link) = self.link.take() else { return };
        if link.is_usable() {
            let (info, command) = (self.info.take(), std::mem::take(&mut self.command));
            let climber = Arc::clone(&link);
            link.errand(async move { climb(&climber, info, command).await });
        }
        // After the errand has begun, so that the link is not at rest in between.
        link.end_statement();
    }
}

/// Whether the session answers in the end.
async fn climb(link: &Link, info: Option<FlightInfo>, command: Bytes) -> bool {
    let named = info.is_some();
    // A statement that hangs before the server has named it is called by its command: some servers know it by that.
    let info = info.unwrap_or_else(|| FlightInfo::new().with_descriptor(FlightDescriptor::new_cmd(command)));
    let server = &link.server;
    let mut stopped = false;
    if server.cancels_flights.may_be() {
        let answer = cancel_flight_info(link, info.clone());
        stopped = agreed(answer.await, &server.cancels_flights, named);
    }
    if !stopped && server.cancels_queries.may_be() {
        stopped = agreed(cancel_query(link, &info).await, &server.cancels_queries, named);
    }
    let limit = if stopped { AGREED } else { HOPED };
    let answers = rt::within(&*server.runtime, limit, link.ping()).await;
    let answers = matches!(answers, Some(Ok(()) | Err(crate::Error::Server { .. })));
    tracing::debug!(endpoint = %server.options.endpoint, agreed = stopped, answers, "statement cancelled");
    answers
}

fn agreed(answer: Result<bool, Status>, ability: &Ability, named: bool) -> bool {
    match answer {
        Ok(stopped) => {
            if stopped {
                ability.works();
            }
            stopped
        }
        Err(status) => {
            // Refused for a statement without its proper name, it says nothing about the action.
            if named {
                ability.refused(&status);
            }
            false
        }
    }
}

async fn cancel_flight_info(link: &Link, info: FlightInfo) -> Result<bool, Status> {
    let request = CancelFlightInfoRequest::new(info).encode_to_vec();
    let Some(body) = bounded(link, "CancelFlightInfo", request).await? else { return Ok(false) };
    let result =
        CancelFlightInfoResult::decode(body).map_err(|error| Status::data_loss(error.to_string()))?;
    Ok(is_stopped(result.status))
}

async fn cancel_query(link: &Link, info: &FlightInfo) -> Result<bool, Status> {
    let request = ActionCancelQueryRequest { info: info.encode_to_vec().into() }.as_any().encode_to_vec();
    let Some(body) = bounded(link, "CancelQuery", request).await? else { return Ok(false) };
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
