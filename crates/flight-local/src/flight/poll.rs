//! Polling: a statement that runs while its client looks in now and then.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::{Any, Command};
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, PollInfo};
use prost::Message;
use tonic::{Response, Status};

use super::query::info;
use super::{Caller, Front, command};
use crate::config::Support;
use crate::counters::count;
use crate::handle::{Handle, Kind};
use crate::outside;
use crate::perform::begin;
use crate::polled::{Found, Polled};
use crate::race::unless;
use crate::session::Session;
use crate::sink::Answer;
use crate::supply::Supply;

/// How long a poll waits for news.
const PATIENCE: Duration = Duration::from_millis(100);

impl Front {
    /// Begins a statement, or looks how far it is.
    pub(super) async fn poll(
        &self,
        caller: &Caller,
        descriptor: FlightDescriptor,
    ) -> Result<Response<PollInfo>, Status> {
        count(&self.shared.tally.poll_flight_info);
        // It is a call, not an action: a server that does not know it says so in the same words.
        if self.shared.config.actions.poll_flight_info != Support::Known {
            return Err(Status::unimplemented("this server does not know PollFlightInfo"));
        }
        let (session, handle) = match command(&descriptor.cmd)? {
            Command::TicketStatementQuery(ticket) => {
                let handle = Handle::read(&ticket.statement_handle, Kind::Statement)?;
                (self.shared.sessions.named(&handle.session)?, handle)
            }
            command => {
                let session = self.session(caller)?;
                let handle = self.begin_polled(caller, &session, &command).await?;
                (session, handle)
            }
        };
        let info = self.look_in(&session, &handle).await?;
        Ok(self.signed(info, &session))
    }

    async fn begin_polled(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        command: &Command,
    ) -> Result<Handle, Status> {
        let supply = self.supply(session, command)?;
        let (text, prepared) = match &supply {
            Supply::Order(order, prepared) => (order.text.clone(), *prepared),
            Supply::Prebuilt(_) | Supply::Kept(..) => ("SELECT * FROM prebuilt".to_owned(), None),
        };
        let errand = self.errand(caller, session, &text, prepared);
        let number = errand.number;
        let polled = Arc::new(Polled::new(errand.run.clone()));
        session.keep_polled(number, polled.clone());
        let (messages, task, leash) = begin(&self.shared, errand, supply);
        let tally = self.shared.tally.clone();
        outside::spawn(async move { polled.set(Answer::begin(messages, task, tally, leash).await) });
        Ok(session.handle(Kind::Statement, number))
    }

    async fn look_in(&self, session: &Session, handle: &Handle) -> Result<PollInfo, Status> {
        let polled = session.polled(handle.number);
        let polled = polled.ok_or_else(|| Status::not_found("the statement has ended; poll it anew"))?;
        // Waits for news, and for a while only: a client wants to tell its user something.
        unless(polled.found(), outside::sleep(PATIENCE)).await;
        let info = info(None)?.with_app_metadata(handle.to_string());
        match polled.look() {
            Found::Failure(status) => {
                session.forget_polled(handle.number);
                Err(status)
            }
            Found::Result => Ok(complete(info, handle)),
            Found::Nothing => Ok(PollInfo {
                info: Some(info),
                flight_descriptor: Some(again(handle.any())),
                progress: polled.run.progress(),
                expiration_time: None,
            }),
        }
    }
}

/// There is a result; what is left of it comes while it is fetched.
fn complete(info: FlightInfo, handle: &Handle) -> PollInfo {
    let endpoint = FlightEndpoint::new().with_ticket(handle.ticket());
    PollInfo {
        info: Some(info.with_endpoint(endpoint)),
        flight_descriptor: None,
        progress: Some(1.0),
        expiration_time: None,
    }
}

/// What to poll with the next time.
fn again(any: Any) -> FlightDescriptor {
    FlightDescriptor::new_cmd(any.encode_to_vec())
}
