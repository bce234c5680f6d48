//! Actions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, ActionEndSavepointRequest, ActionEndTransactionRequest, Any,
    ProstMessageExt,
};
use arrow_flight::{Action, ActionType, IpcMessage, SchemaAsIpc};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::{DataType, Field, Schema};
use prost::Message;
use tonic::{Response, Status};

use super::{BoxStream, Caller, Service, flow, supported, unknown};
use crate::batch_builder::known_schema;
use crate::config::Support;
use crate::control::{TELL, execute};
use crate::counters::count;
use crate::error::Failure;
use crate::execute;
use crate::handle::Kind;
use crate::messages::{
    CloseSessionRequest, CloseSessionResult, CloseStatus, GetSessionOptionsRequest, GetSessionOptionsResult,
    OptionError, SetSessionOptionsRequest, SetSessionOptionsResult,
};
use crate::prebuilt::Prebuilt;
use crate::session::Session;
use crate::statement_task::run_internal;

/// The actions and their descriptions.
const ACTIONS: [(&str, &str); 11] = [
    ("CreatePreparedStatement", "Prepares a statement."),
    ("ClosePreparedStatement", "Closes a prepared statement."),
    ("BeginTransaction", "Begins a transaction."),
    ("EndTransaction", "Commits a transaction or rolls it back."),
    ("BeginSavepoint", "Begins a savepoint in a transaction."),
    ("EndSavepoint", "Releases a savepoint or rolls back to it."),
    ("CancelFlightInfo", "Cancels a statement by its FlightInfo."),
    ("CancelQuery", "Cancels a statement by its FlightInfo, ticket or session."),
    ("SetSessionOptions", "Changes options of the session."),
    ("GetSessionOptions", "Returns the options of the session."),
    ("CloseSession", "Ends the session."),
];

impl Service {
    pub(super) async fn act(
        &self,
        caller: &Caller,
        action: Action,
    ) -> Result<Response<BoxStream<arrow_flight::Result>>, Status> {
        let name = action.r#type.as_str();
        let body = &action.body[..];
        if name == TELL && self.shared.config.control {
            let said = execute(&self.shared, caller.client.number, body)?;
            return Ok(Response::new(answer(Some(said.into_bytes()))));
        }
        let (support, counter) = self.support(name);
        // A cancellation counts even where the server does not support it: clients try it without asking first.
        if support != Support::Unknown || name.starts_with("Cancel") {
            counter.into_iter().for_each(count);
        }
        supported(support, name)?;
        // A cancellation must not make a session of its own.
        match name {
            "CancelFlightInfo" => {
                let result = self.cancel_flight_info(body).await?;
                return Ok(Response::new(answer(Some(result.encode_to_vec()))));
            }
            "CancelQuery" => {
                let result = self.cancel_query(caller, body).await?;
                return Ok(Response::new(answer(Some(result.as_any().encode_to_vec()))));
            }
            _ => {}
        }
        let session = self.session(caller)?;
        let result = match name {
            "CreatePreparedStatement" => {
                Some(self.prepare(&session, unpack(body)?).await?.as_any().encode_to_vec())
            }
            "ClosePreparedStatement" => {
                let request: ActionClosePreparedStatementRequest = unpack(body)?;
                let handle = self.own_handle(&session, &request.prepared_statement_handle, Kind::Prepared)?;
                if !session.close_prepared(handle.number) {
                    return Err(Status::not_found("the prepared statement was closed already"));
                }
                None
            }
            "BeginTransaction" => Some(self.begin_transaction(&session).await?.as_any().encode_to_vec()),
            "EndTransaction" => {
                self.end_transaction(&session, &unpack::<ActionEndTransactionRequest>(body)?).await?;
                None
            }
            "BeginSavepoint" => {
                let request: ActionBeginSavepointRequest = unpack(body)?;
                Some(self.begin_savepoint(&session, &request).await?.as_any().encode_to_vec())
            }
            "EndSavepoint" => {
                self.end_savepoint(&session, &unpack::<ActionEndSavepointRequest>(body)?).await?;
                None
            }
            "SetSessionOptions" => {
                let request = SetSessionOptionsRequest::decode(body).map_err(unreadable)?;
                Some(self.set_options(&session, request).await?.encode_to_vec())
            }
            "GetSessionOptions" => {
                GetSessionOptionsRequest::decode(body).map_err(unreadable)?;
                let session_options = session.options(|options| options.read(&session.id));
                Some(GetSessionOptionsResult { session_options }.encode_to_vec())
            }
            "CloseSession" => {
                CloseSessionRequest::decode(body).map_err(unreadable)?;
                self.shared.sessions.end(&session.id);
                Some(CloseSessionResult { status: CloseStatus::Closed.into() }.encode_to_vec())
            }
            other => return Err(unknown(other)),
        };
        Ok(self.respond(answer(result), &session))
    }

    /// The actions that `ListActions` lists: those that are supported, and those that are refused.
    pub(super) fn actions(&self) -> Vec<ActionType> {
        let listed = ACTIONS.into_iter().filter(|(name, _)| self.support(name).0 != Support::Unknown);
        listed
            .map(|(name, about)| ActionType { r#type: name.to_owned(), description: about.to_owned() })
            .collect()
    }

    /// Whether the server supports an action, and what counts its calls.
    fn support(&self, name: &str) -> (Support, Option<&AtomicU64>) {
        let (tally, support) = (&self.shared.tally, self.shared.config.actions);
        match name {
            "CreatePreparedStatement" => (Support::Known, Some(&tally.create_prepared_statement)),
            "ClosePreparedStatement" => (Support::Known, Some(&tally.close_prepared_statement)),
            "BeginTransaction" => (support.begin_transaction, Some(&tally.begin_transaction)),
            "EndTransaction" => (Support::Known, Some(&tally.end_transaction)),
            "BeginSavepoint" | "EndSavepoint" => (Support::Known, None),
            "CancelFlightInfo" => (support.cancel_flight_info, Some(&tally.cancel_flight_info)),
            "CancelQuery" => (support.cancel_query, Some(&tally.cancel_query)),
            "SetSessionOptions" => (support.set_session_options, Some(&tally.set_session_options)),
            "GetSessionOptions" => (support.get_session_options, Some(&tally.get_session_options)),
            "CloseSession" => (support.close_session, Some(&tally.close_session)),
            _ => (Support::Unknown, None),
        }
    }

    async fn prepare(
        &self,
        session: &Arc<Session>,
        request: ActionCreatePreparedStatementRequest,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let ActionCreatePreparedStatementRequest { query, transaction_id } = request;
        self.check_transaction(session, transaction_id.as_deref())?;
        let (dataset, parameters) = match Prebuilt::parse(&query) {
            Some(prebuilt) => (Some(prebuilt.schema().as_ref().clone()), Schema::empty()),
            None => {
                if self.shared.config.quirks.prepares_by_running {
                    self.plan_by_running(session, &query).await?;
                }
                let text = query.clone();
                run_internal(&self.shared, session, move |connection| describe(connection, &text)).await?
            }
        };
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: session.prepare(query).bytes(),
            dataset_schema: dataset.as_ref().map(ipc).transpose()?.unwrap_or_default(),
            parameter_schema: ipc(&parameters)?,
        })
    }

    async fn set_options(
        &self,
        session: &Arc<Session>,
        request: SetSessionOptionsRequest,
    ) -> Result<SetSessionOptionsResult, Status> {
        let (options, errors) = session.options(|options| {
            let mut errors = BTreeMap::new();
            for (name, value) in request.session_options {
                if let Err(problem) = options.set(&name, value.value) {
                    errors.insert(name, OptionError { value: problem.into() });
                }
            }
            (options.clone(), errors)
        });
        run_internal(&self.shared, session, move |connection| options.apply(connection)).await?;
        Ok(SetSessionOptionsResult { errors })
    }
}

/// The schema of a statement's result, if known, and of its parameters.
fn describe(connection: &rusqlite::Connection, text: &str) -> Result<(Option<Schema>, Schema), Failure> {
    let looked = execute::describe(connection, text, |statement| {
        // SQLite does not know the types of parameters; Null means unknown.
        let parameter = |index: usize| {
            let name = statement.parameter_name(index).map_or_else(|| index.to_string(), str::to_owned);
            Field::new(name.trim_start_matches([':', '@', '$', '?']), DataType::Null, true)
        };
        let parameters: Vec<Field> = (1..=statement.parameter_count()).map(parameter).collect();
        (known_schema(statement), Schema::new(parameters))
    })?;
    looked.ok_or_else(|| Failure::Request("only one statement can be prepared at a time".to_owned()))
}

fn ipc(schema: &Schema) -> Result<prost::bytes::Bytes, Status> {
    let message: Result<IpcMessage, _> = SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into();
    message.map(|IpcMessage(bytes)| bytes).map_err(|error| Status::internal(error.to_string()))
}

fn answer(body: Option<Vec<u8>>) -> BoxStream<arrow_flight::Result> {
    flow(body.map(|body| arrow_flight::Result { body: body.into() }))
}

pub(super) fn unreadable(error: prost::DecodeError) -> Status {
    Status::invalid_argument(format!("the body of the action cannot be decoded: {error}"))
}

fn unpack<M: ProstMessageExt>(body: &[u8]) -> Result<M, Status> {
    let any = Any::decode(body).map_err(unreadable)?;
    any.unpack()
        .ok()
        .flatten()
        .ok_or_else(|| Status::invalid_argument(format!("the body of the action is not a {}", M::type_url())))
}
