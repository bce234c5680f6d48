//! Cancellation by `FlightInfo`, ticket, session or statement.

use arrow_flight::sql::{ActionCancelQueryRequest, ActionCancelQueryResult, Any};
use arrow_flight::{CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo, Ticket};
use prost::Message;
use tonic::Status;

use super::action::unreadable;
use super::{Caller, Service, catalog, command};
use crate::handle::{Handle, Kind};
use crate::messages::CancelStatement;
use crate::session::Cancelled;

impl Service {
    pub(super) async fn cancel_flight_info(&self, body: &[u8]) -> Result<CancelFlightInfoResult, Status> {
        let request = CancelFlightInfoRequest::decode(body).map_err(unreadable)?;
        let info = request.info.ok_or_else(|| Status::invalid_argument("the request has no FlightInfo"))?;
        Ok(CancelFlightInfoResult { status: status(self.cancel_info(&info).await?).into() })
    }

    pub(super) async fn cancel_query(
        &self,
        caller: &Caller,
        body: &[u8],
    ) -> Result<ActionCancelQueryResult, Status> {
        let any = Any::decode(body).map_err(unreadable)?;
        let cancelled = if any.type_url == CancelStatement::TYPE_URL {
            let request = CancelStatement::decode(&any.value[..]).map_err(unreadable)?;
            self.cancel_statement(caller, request).await?
        } else {
            let request: Option<ActionCancelQueryRequest> =
                any.unpack().map_err(|error| Status::invalid_argument(error.to_string()))?;
            let request = request.ok_or_else(|| {
                Status::invalid_argument(format!("the body of CancelQuery is an unknown {}", any.type_url))
            })?;
            self.cancel_info(&FlightInfo::decode(&request.info[..]).map_err(unreadable)?).await?
        };
        // Both messages number their results in the same way.
        Ok(ActionCancelQueryResult { result: status(cancelled).into() })
    }

    /// Cancels all parts of a result, or a statement that a poll has started.
    async fn cancel_info(&self, info: &FlightInfo) -> Result<Cancelled, Status> {
        let tickets = info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref());
        let mut handles: Vec<Handle> =
            tickets.filter_map(|ticket| Handle::of_ticket(&ticket.ticket)).collect();
        if handles.is_empty() {
            // A poll returns no ticket before there is a result.
            handles.extend(Handle::read(&info.app_metadata, Kind::Statement).ok());
        }
        if handles.is_empty() {
            let mut tickets = info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref());
            let is_catalog = |ticket: &Ticket| {
                command(&ticket.ticket).is_ok_and(|asked| catalog::schema(&asked).is_some())
            };
            return match tickets.any(is_catalog) {
                // A catalog query runs nothing that could be cancelled.
                true => Ok(Cancelled::Nothing),
                false => Err(Status::invalid_argument("the FlightInfo has no statement of this server")),
            };
        }
        let mut sum = Cancelled::Nothing;
        for handle in &handles {
            sum = match (sum, self.cancel_handle(handle).await) {
                (Cancelled::Stopping, _) | (_, Cancelled::Stopping) => Cancelled::Stopping,
                (Cancelled::Stopped, _) | (_, Cancelled::Stopped) => Cancelled::Stopped,
                _ => Cancelled::Nothing,
            };
        }
        Ok(sum)
    }

    async fn cancel_handle(&self, handle: &Handle) -> Cancelled {
        match self.shared.sessions.named(&handle.session) {
            Ok(session) => session.cancel(handle).await,
            Err(_) => Cancelled::Nothing,
        }
    }

    async fn cancel_statement(&self, caller: &Caller, request: CancelStatement) -> Result<Cancelled, Status> {
        let CancelStatement { session_id, statement_handle, ticket } = request;
        let session = match session_id.as_str() {
            "" => self.shared.sessions.find(&caller.client, caller.cookie.as_deref(), &self.shared),
            id => self.shared.sessions.named(id).ok(),
        };
        let Some(session) = session else { return Ok(Cancelled::Nothing) };
        let handle = match (&statement_handle[..], &ticket[..]) {
            ([], []) => return Ok(session.cancel_all().await),
            ([], ticket) => Handle::of_ticket(ticket).ok_or_else(|| {
                Status::invalid_argument("this is not a ticket of a statement of this server")
            })?,
            (handle, _) => Handle::read(handle, Kind::Statement)
                .or_else(|_| Handle::read(handle, Kind::Prepared))
                .map_err(|_| {
                    Status::invalid_argument("this is not a handle of a statement of this server")
                })?,
        };
        match handle.session == session.id {
            true => Ok(session.cancel(&handle).await),
            false => Err(Status::invalid_argument("the statement belongs to another session")),
        }
    }
}

fn status(cancelled: Cancelled) -> CancelStatus {
    match cancelled {
        Cancelled::Stopped => CancelStatus::Cancelled,
        Cancelled::Stopping => CancelStatus::Cancelling,
        Cancelled::Nothing => CancelStatus::NotCancellable,
    }
}
