//! Queries: what they will return, and their results.

use std::sync::Arc;

use arrow_flight::sql::{Command, CommandPreparedStatementQuery, CommandStatementQuery};
use arrow_flight::{
    FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, Location, SchemaAsIpc, SchemaResult, Ticket,
};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::Schema;
use futures_util::stream;
use rusqlite::Connection;
use tonic::{Response, Status};

use super::{Caller, Flow, Front, catalog, command, unknown};
use crate::cells::known_schema;
use crate::counters::count;
use crate::deadline;
use crate::error::Failure;
use crate::execute::{self, Order};
use crate::handle::{Handle, Kind};
use crate::perform::{Errand, answer, aside, outcome};
use crate::run::Run;
use crate::session::Session;
use crate::sink::{Kept, encode, encode_schema};
use crate::supply::{Supply, spread};

impl Front {
    /// What a statement will return, as far as it is known, and the tickets for it. It is run when they are redeemed.
    pub(super) async fn flight_info(
        &self,
        caller: &Caller,
        descriptor: FlightDescriptor,
    ) -> Result<Response<FlightInfo>, Status> {
        let command = command(&descriptor.cmd)?;
        if let Some(schema) = catalog::schema(&command) {
            let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(descriptor.cmd.clone()));
            let info = info(Some(&schema))?.with_endpoint(endpoint).with_descriptor(descriptor);
            return Ok(Response::new(info));
        }
        let session = self.session(caller)?;
        let supply = self.supply(&session, &command)?;
        let info = match self.shared.config.endpoints_per_result {
            0 | 1 => self.one_endpoint(&session, supply).await?,
            parts => self.several_endpoints(caller, &session, supply, parts).await?,
        };
        Ok(self.signed(info.with_descriptor(descriptor), &session))
    }

    /// What a command asks for.
    pub(super) fn supply(&self, session: &Session, command: &Command) -> Result<Supply, Status> {
        match command {
            Command::CommandStatementQuery(CommandStatementQuery { query, transaction_id }) => {
                self.check_transaction(session, transaction_id.as_deref())?;
                Ok(Supply::of(query))
            }
            Command::CommandPreparedStatementQuery(CommandPreparedStatementQuery {
                prepared_statement_handle,
            }) => {
                let number = self.own(session, prepared_statement_handle, Kind::Prepared)?.number;
                let prepared = session.prepared(number)?;
                Ok(match Supply::of(&prepared.text) {
                    Supply::Order(Order { text, .. }, _) => {
                        Supply::Order(Order { text, parameters: prepared.parameters }, Some(number))
                    }
                    other => other,
                })
            }
            other => Err(unknown(other.type_url())),
        }
    }

    /// A handle that must be of this session.
    pub(super) fn own(&self, session: &Session, handle: &[u8], kind: Kind) -> Result<Handle, Status> {
        let handle = Handle::read(handle, kind)?;
        match handle.session == session.id() {
            true => Ok(handle),
            false => {
                Err(Status::invalid_argument("the handle is of another session; sessions share nothing"))
            }
        }
    }

    async fn one_endpoint(&self, session: &Arc<Session>, supply: Supply) -> Result<FlightInfo, Status> {
        let schema = self.known(session, &supply).await?;
        let handle = session.keep(session.new_run(&self.shared), supply);
        let endpoint = FlightEndpoint::new().with_ticket(handle.ticket());
        Ok(info(schema.as_ref())?.with_endpoint(endpoint).with_app_metadata(handle.to_string()))
    }

    /// The schema, as far as it is known without running the statement. Finds mistakes in its text, too.
    async fn known(&self, session: &Arc<Session>, supply: &Supply) -> Result<Option<Schema>, Status> {
        match supply {
            Supply::Order(order, _) => {
                let text = order.text.clone();
                let look = move |connection: &Connection| execute::describe(connection, &text, known_schema);
                Ok(aside(&self.shared, session, look).await?.flatten())
            }
            Supply::Prebuilt(prebuilt) => Ok(Some(prebuilt.schema().as_ref().clone())),
            Supply::Kept(schema, _) => Ok(Some(schema.as_ref().clone())),
        }
    }

    async fn several_endpoints(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        supply: Supply,
        parts: usize,
    ) -> Result<FlightInfo, Status> {
        let supplies: Vec<Supply> = match supply {
            Supply::Prebuilt(prebuilt) => {
                (0..parts).map(|part| Supply::Prebuilt(prebuilt.part(part, parts))).collect()
            }
            Supply::Kept(schema, batches) => spread(&schema, &batches, parts),
            Supply::Order(order, prepared) => {
                let kept = self.kept(caller, session, order, prepared).await?;
                let schema = kept.schema.unwrap_or_else(|| Arc::new(Schema::empty()));
                spread(&schema, &kept.batches, parts)
            }
        };
        let schema = match supplies.first() {
            Some(first) => self.known(session, first).await?,
            None => None,
        };
        let mut info = info(schema.as_ref())?.with_ordered(true);
        for (part, supply) in supplies.into_iter().enumerate() {
            let handle = session.keep(session.new_run(&self.shared), supply);
            let endpoint = FlightEndpoint::new().with_ticket(handle.ticket());
            info = info.with_endpoint(match self.location(part) {
                Some(location) => FlightEndpoint { location: vec![Location { uri: location }], ..endpoint },
                None => endpoint,
            });
        }
        Ok(info)
    }

    /// Where a part is to be fetched, if not here.
    fn location(&self, part: usize) -> Option<String> {
        let locations = self.shared.locations.get()?;
        (part % (locations.len() + 1)).checked_sub(1).and_then(|further| locations.get(further)).cloned()
    }

    /// Runs a statement to its end and keeps its result.
    async fn kept(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        order: Order,
        prepared: Option<u64>,
    ) -> Result<Kept, Status> {
        let errand = self.errand(caller, session, &order.text, prepared);
        let max_rows = self.shared.config.max_batch_rows.max(1);
        outcome(&self.shared, errand, move |connection, run: &Run| {
            let mut kept = Kept::default();
            execute::query(connection, &order, max_rows, &mut kept, run)?;
            Ok::<_, Failure>(kept)
        })
        .await
    }

    /// A new execution for this caller.
    pub(super) fn errand(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        text: &str,
        prepared: Option<u64>,
    ) -> Errand {
        Errand {
            session: session.clone(),
            run: session.new_run(&self.shared),
            number: session.number(),
            prepared,
            line: caller.line.clone(),
            text: text.to_owned(),
        }
    }

    /// The schema of a result. Where only its first row would tell, a query that changes nothing is run so far.
    pub(super) async fn schema(
        &self,
        caller: &Caller,
        descriptor: &FlightDescriptor,
    ) -> Result<Response<SchemaResult>, Status> {
        let command = command(&descriptor.cmd)?;
        if let Some(schema) = catalog::schema(&command) {
            return Ok(Response::new(schema_result(&schema)?));
        }
        let session = self.session(caller)?;
        let supply = self.supply(&session, &command)?;
        let schema = match (self.known(&session, &supply).await?, &supply) {
            (Some(schema), _) => schema,
            (None, Supply::Order(order, _)) => {
                let order = order.clone();
                aside(&self.shared, &session, move |connection| execute::first_schema(connection, &order))
                    .await?
            }
            (None, _) => Schema::empty(),
        };
        Ok(self.signed(schema_result(&schema)?, &session))
    }

    /// The result behind a ticket, from whichever connection.
    pub(super) async fn get(
        &self,
        caller: &Caller,
        ticket: &Ticket,
    ) -> Result<Response<Flow<FlightData>>, Status> {
        let Some(handle) = Handle::of_ticket(&ticket.ticket) else {
            let command = command(&ticket.ticket)?;
            let session = self.session(caller)?;
            let batch = self.catalog(&session, command).await?;
            let messages = [Ok(encode_schema(&batch.schema())), encode(&batch)];
            let messages = messages.map(|message| message.map_err(|failure| failure.status(false)));
            return Ok(self.signed(Box::pin(stream::iter(messages)), &session));
        };
        let session = self.shared.sessions.named(&handle.session)?;
        let limit = |run: &Arc<Run>| {
            if let Some(time) = caller.time_left.filter(|_| self.shared.config.interrupt_on_drop) {
                deadline::interrupt_after(time, run);
            }
        };
        if let Some(polled) = session.polled(handle.number) {
            limit(&polled.run);
            let answer = polled.take().await;
            session.forget_polled(handle.number);
            return Ok(self.signed(Box::pin(answer?), &session));
        }
        let kept = session.redeem(handle.number);
        let (run, supply) = kept.ok_or_else(|| {
            Status::not_found("the ticket was redeemed or cancelled already; run the statement again")
        })?;
        let (text, prepared) = match &supply {
            Supply::Order(order, prepared) => (order.text.clone(), *prepared),
            Supply::Prebuilt(prebuilt) => {
                (format!("SELECT * FROM prebuilt(rows => {})", prebuilt.rows), None)
            }
            // It was run when its tickets were made.
            Supply::Kept(schema, batches) => {
                let tally = self.shared.tally.clone();
                let schema = [Ok(encode_schema(schema))];
                let batches = batches.clone().into_iter().map(move |batch| {
                    count(&tally.batches_sent);
                    encode(&batch).map_err(|failure| failure.status(false))
                });
                return Ok(self.signed(Box::pin(stream::iter(schema.into_iter().chain(batches))), &session));
            }
        };
        limit(&run);
        let line = caller.line.clone();
        let errand = Errand { session: session.clone(), run, number: handle.number, prepared, line, text };
        let answer = answer(&self.shared, errand, supply).await?;
        Ok(self.signed(Box::pin(answer), &session))
    }
}

/// With a schema, if it is known.
pub(super) fn info(schema: Option<&Schema>) -> Result<FlightInfo, Status> {
    let info = FlightInfo::new();
    match schema {
        Some(schema) => info.try_with_schema(schema).map_err(|error| Status::internal(error.to_string())),
        None => Ok(info),
    }
}

fn schema_result(schema: &Schema) -> Result<SchemaResult, Status> {
    SchemaAsIpc::new(schema, &IpcWriteOptions::default())
        .try_into()
        .map_err(|error: arrow_schema::ArrowError| Status::internal(error.to_string()))
}
