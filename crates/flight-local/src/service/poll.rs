//! `PollFlightInfo`: a statement that runs in the background while its client polls.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::Command;
use arrow_flight::{FlightDescriptor, FlightEndpoint, PollInfo};
use prost::Message;
use tonic::{Response, Status};

use super::query::info;
use super::{Caller, Service, command};
use crate::background::{BackgroundStatement, PollState};
use crate::config::Support;
use crate::counters::count;
use crate::handle::{Handle, Kind};
use crate::race::unless;
use crate::result_source::ResultSource;
use crate::result_stream::ResultStream;
use crate::runtime;
use crate::session::Session;
use crate::statement_task::start;

/// How long a poll waits for a result.
const PATIENCE: Duration = Duration::from_millis(100);

impl Service {
    /// Starts a statement, or checks its progress.
    pub(super) async fn poll(
        &self,
        caller: &Caller,
        descriptor: FlightDescriptor,
    ) -> Result<Response<PollInfo>, Status> {
        count(&self.shared.tally.poll_flight_info);
        // A server without this call answers UNIMPLEMENTED, because it is a call and not an action.
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
        let info = self.check_progress(&session, &handle).await?;
        Ok(self.respond(info, &session))
    }

    async fn begin_polled(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        command: &Command,
    ) -> Result<Handle, Status> {
        let source = self.source(session, command)?;
        let (text, prepared) = match &source {
            ResultSource::Statement(statement, prepared) => (statement.text.clone(), *prepared),
            ResultSource::Prebuilt(_) | ResultSource::Batches(..) => {
                ("SELECT * FROM prebuilt".to_owned(), None)
            }
        };
        let task = self.task(caller, session, &text, prepared);
        let number = task.number;
        let polled = Arc::new(BackgroundStatement::new(task.run.clone()));
        session.keep_polled(number, polled.clone());
        let (messages, task, cancel_on_drop) = start(&self.shared, task, source);
        let tally = self.shared.tally.clone();
        runtime::spawn(async move {
            polled.set(ResultStream::begin(messages, task, tally, cancel_on_drop).await)
        });
        Ok(session.handle(Kind::Statement, number))
    }

    async fn check_progress(&self, session: &Session, handle: &Handle) -> Result<PollInfo, Status> {
        let polled = session.polled(handle.number);
        let polled = polled.ok_or_else(|| Status::not_found("the statement has ended; start it again"))?;
        // Waits briefly: the client wants to report progress.
        unless(polled.found(), runtime::sleep(PATIENCE)).await;
        let info = info(None)?.with_app_metadata(handle.to_string());
        match polled.look() {
            PollState::Failure(status) => {
                session.forget_polled(handle.number);
                Err(status)
            }
            // The rest of the result follows while it is fetched.
            PollState::Result => Ok(PollInfo {
                info: Some(info.with_endpoint(FlightEndpoint::new().with_ticket(handle.ticket()))),
                progress: Some(1.0),
                ..PollInfo::default()
            }),
            PollState::Nothing => Ok(PollInfo {
                info: Some(info),
                flight_descriptor: Some(FlightDescriptor::new_cmd(handle.any().encode_to_vec())),
                progress: polled.run.progress(),
                ..PollInfo::default()
            }),
        }
    }
}
