//! Queries: `GetFlightInfo`, `GetSchema` and `DoGet`.

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

use super::{BoxStream, Caller, Service, catalog, command, unknown};
use crate::batch_builder::known_schema;
use crate::counters::count;
use crate::deadline;
use crate::error::Failure;
use crate::execute::{self, BoundStatement};
use crate::execution::Execution;
use crate::handle::{Handle, Kind};
use crate::result_source::{ResultSource, spread};
use crate::result_stream::{CollectedResult, encode, encode_schema};
use crate::session::Session;
use crate::statement_task::{StatementTask, run_internal, run_to_stream, run_to_value};

impl Service {
    /// The schema of a statement, if known, and its tickets. The statement runs when they are redeemed.
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
        let source = self.source(&session, &command)?;
        let info = match self.shared.config.endpoints_per_result {
            0 | 1 => self.one_endpoint(&session, source).await?,
            parts => self.several_endpoints(caller, &session, source, parts).await?,
        };
        Ok(self.respond(info.with_descriptor(descriptor), &session))
    }

    /// What a command returns.
    pub(super) fn source(&self, session: &Session, command: &Command) -> Result<ResultSource, Status> {
        match command {
            Command::CommandStatementQuery(CommandStatementQuery { query, transaction_id }) => {
                self.check_transaction(session, transaction_id.as_deref())?;
                Ok(ResultSource::of(query))
            }
            Command::CommandPreparedStatementQuery(CommandPreparedStatementQuery {
                prepared_statement_handle,
            }) => {
                let number = self.own_handle(session, prepared_statement_handle, Kind::Prepared)?.number;
                let prepared = session.prepared(number)?;
                if self.shared.config.quirks.consumes_bindings {
                    session.unbind(number);
                }
                Ok(match ResultSource::of(&prepared.text) {
                    ResultSource::Statement(BoundStatement { text, .. }, _) => ResultSource::Statement(
                        BoundStatement { text, parameters: prepared.parameters },
                        Some(number),
                    ),
                    other => other,
                })
            }
            other => Err(unknown(other.type_url())),
        }
    }

    /// Parses a handle, which must belong to this session.
    pub(super) fn own_handle(&self, session: &Session, handle: &[u8], kind: Kind) -> Result<Handle, Status> {
        let handle = Handle::read(handle, kind)?;
        match handle.session == session.id {
            true => Ok(handle),
            false => Err(Status::invalid_argument("the handle belongs to another session")),
        }
    }

    async fn one_endpoint(&self, session: &Arc<Session>, source: ResultSource) -> Result<FlightInfo, Status> {
        let schema = self.schema_if_known(session, &source).await?;
        let handle = session.keep(session.new_run(&self.shared), source);
        let endpoint = FlightEndpoint::new().with_ticket(handle.ticket());
        Ok(info(schema.as_ref())?.with_endpoint(endpoint).with_app_metadata(handle.to_string()))
    }

    /// The schema, as far as it is known without running the statement. This also finds syntax errors.
    async fn schema_if_known(
        &self,
        session: &Arc<Session>,
        source: &ResultSource,
    ) -> Result<Option<Schema>, Status> {
        match source {
            ResultSource::Statement(statement, _) => {
                let text = statement.text.clone();
                if self.shared.config.quirks.plans_by_running {
                    self.plan_by_running(session, &text).await?;
                }
                let look = move |connection: &Connection| execute::describe(connection, &text, known_schema);
                Ok(run_internal(&self.shared, session, look).await?.flatten())
            }
            ResultSource::Prebuilt(prebuilt) => Ok(Some(prebuilt.schema().as_ref().clone())),
            ResultSource::Batches(schema, _) => Ok(Some(schema.as_ref().clone())),
        }
    }

    /// Runs a WITH to find its columns, also if it writes. Its parameters are NULL.
    pub(super) async fn plan_by_running(&self, session: &Arc<Session>, text: &str) -> Result<(), Status> {
        if !text.trim_start().get(..4).is_some_and(|word| word.eq_ignore_ascii_case("with")) {
            return Ok(());
        }
        let text = text.to_owned();
        run_internal(&self.shared, session, move |connection| execute::plan(connection, &text)).await
    }

    async fn several_endpoints(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        source: ResultSource,
        parts: usize,
    ) -> Result<FlightInfo, Status> {
        let sources: Vec<ResultSource> = match source {
            ResultSource::Prebuilt(prebuilt) => {
                (0..parts).map(|part| ResultSource::Prebuilt(prebuilt.part(part, parts))).collect()
            }
            ResultSource::Batches(schema, batches) => spread(&schema, &batches, parts),
            ResultSource::Statement(statement, prepared) => {
                let kept = self.collect(caller, session, statement, prepared).await?;
                let schema = kept.schema.unwrap_or_else(|| Arc::new(Schema::empty()));
                spread(&schema, &kept.batches, parts)
            }
        };
        let schema = match sources.first() {
            Some(first) => self.schema_if_known(session, first).await?,
            None => None,
        };
        let mut info = info(schema.as_ref())?.with_ordered(true);
        for (part, source) in sources.into_iter().enumerate() {
            let handle = session.keep(session.new_run(&self.shared), source);
            let endpoint = FlightEndpoint::new().with_ticket(handle.ticket());
            info = info.with_endpoint(match self.location(part) {
                Some(location) => FlightEndpoint { location: vec![Location { uri: location }], ..endpoint },
                None => endpoint,
            });
        }
        Ok(info)
    }

    /// The location of a part; none for this listener.
    fn location(&self, part: usize) -> Option<String> {
        let locations = self.shared.locations.get()?;
        (part % (locations.len() + 1)).checked_sub(1).and_then(|further| locations.get(further)).cloned()
    }

    /// Runs a statement to its end and keeps its result.
    async fn collect(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        statement: BoundStatement,
        prepared: Option<u64>,
    ) -> Result<CollectedResult, Status> {
        let task = self.task(caller, session, &statement.text, prepared);
        let max_rows = self.shared.config.max_batch_rows.max(1);
        run_to_value(&self.shared, task, move |connection, run: &Execution| {
            let mut kept = CollectedResult::default();
            execute::query(connection, &statement, max_rows, &mut kept, run)?;
            Ok::<_, Failure>(kept)
        })
        .await
    }

    pub(super) fn task(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        text: &str,
        prepared: Option<u64>,
    ) -> StatementTask {
        StatementTask {
            session: session.clone(),
            run: session.new_run(&self.shared),
            number: session.number(),
            prepared,
            client: caller.client.clone(),
            text: text.to_owned(),
        }
    }

    /// The schema of a result. If it depends on the first row, a query that does not write runs until then.
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
        let source = self.source(&session, &command)?;
        let schema = match (self.schema_if_known(&session, &source).await?, &source) {
            (Some(schema), _) => schema,
            (None, ResultSource::Statement(statement, _)) => {
                let statement = statement.clone();
                run_internal(&self.shared, &session, move |connection| {
                    execute::first_schema(connection, &statement)
                })
                .await?
            }
            (None, _) => Schema::empty(),
        };
        Ok(self.respond(schema_result(&schema)?, &session))
    }

    /// The result of a ticket, on any connection.
    pub(super) async fn get(
        &self,
        caller: &Caller,
        ticket: &Ticket,
    ) -> Result<Response<BoxStream<FlightData>>, Status> {
        let Some(handle) = Handle::of_ticket(&ticket.ticket) else {
            let command = command(&ticket.ticket)?;
            let session = self.session(caller)?;
            let batch = self.catalog(&session, command).await?;
            let messages = [Ok(encode_schema(&batch.schema())), encode(&batch)];
            let messages = messages.map(|message| message.map_err(|failure| failure.status(false)));
            return Ok(self.respond(Box::pin(stream::iter(messages)), &session));
        };
        let session = self.shared.sessions.named(&handle.session)?;
        let limit = |run: &Arc<Execution>| {
            if let Some(time) = caller.time_left.filter(|_| self.shared.config.interrupt_on_drop) {
                deadline::interrupt_after(time, run);
            }
        };
        if let Some(polled) = session.polled(handle.number) {
            limit(&polled.run);
            let answer = polled.take().await;
            session.forget_polled(handle.number);
            return Ok(self.respond(Box::pin(answer?), &session));
        }
        let kept = session.redeem(handle.number);
        let (run, source) = kept.ok_or_else(|| {
            Status::not_found("the ticket was redeemed or cancelled already; run the statement again")
        })?;
        let (text, prepared) = match &source {
            ResultSource::Statement(statement, prepared) => (statement.text.clone(), *prepared),
            ResultSource::Prebuilt(prebuilt) => {
                (format!("SELECT * FROM prebuilt(rows => {})", prebuilt.rows), None)
            }
            // The statement ran when its tickets were created.
            ResultSource::Batches(schema, batches) => {
                let tally = self.shared.tally.clone();
                let schema = [Ok(encode_schema(schema))];
                let batches = batches.clone().into_iter().map(move |batch| {
                    count(&tally.batches_sent);
                    encode(&batch).map_err(|failure| failure.status(false))
                });
                return Ok(self.respond(Box::pin(stream::iter(schema.into_iter().chain(batches))), &session));
            }
        };
        limit(&run);
        let client = caller.client.clone();
        let task =
            StatementTask { session: session.clone(), run, number: handle.number, prepared, client, text };
        let answer = run_to_stream(&self.shared, task, source).await?;
        Ok(self.respond(Box::pin(answer), &session))
    }
}

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
