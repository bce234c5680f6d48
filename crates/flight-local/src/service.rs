//! The Flight SQL service.

mod action;
mod cancel;
mod catalog;
mod poll;
mod put;
mod query;
mod sql_info;
mod transaction;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{Any, Command};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest,
    HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures_util::{Stream, stream};
use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::server::TlsConnectInfo;
use tonic::{Request, Response, Status, Streaming};

use crate::client::Client;
use crate::config::{SessionKey, Support};
use crate::counters::count;
use crate::deadline;
use crate::session::Session;
use crate::sessions::COOKIE;
use crate::shared::Shared;

/// The header with the session of an answer.
const SESSION: &str = "flight-session-id";

type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[derive(Clone, Debug)]
pub(crate) struct Service {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Caller {
    client: Arc<Client>,
    cookie: Option<String>,
    time_left: Option<Duration>,
}

impl Service {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Authenticates a call.
    fn admit<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        self.shared
            .authenticator
            .admit(request.metadata())
            .inspect_err(|_| count(&self.shared.tally.refused))?;
        let extensions = request.extensions();
        let client = match extensions.get::<TlsConnectInfo<Arc<Client>>>() {
            Some(secured) => Some(secured.get_ref()),
            None => extensions.get::<Arc<Client>>(),
        };
        let client = client.cloned().ok_or_else(|| Status::internal("a call without a connection"))?;
        let metadata = request.metadata();
        Ok(Caller { client, cookie: cookie(metadata), time_left: deadline::time_left(metadata) })
    }

    fn session(&self, caller: &Caller) -> Result<Arc<Session>, Status> {
        self.shared.sessions.of(&caller.client, caller.cookie.as_deref(), &self.shared)
    }

    /// Adds the session's headers to an answer.
    fn respond<T>(&self, answer: T, session: &Session) -> Response<T> {
        let mut response = Response::new(answer);
        let mut say = |name: &'static str, value: &str| {
            if let Ok(value) = MetadataValue::try_from(value) {
                response.metadata_mut().insert(name, value);
            }
        };
        say(SESSION, &session.id);
        if self.shared.config.session_key == SessionKey::Cookie {
            say("set-cookie", &format!("{COOKIE}={}; HttpOnly", &session.id));
        }
        response
    }
}

fn cookie(headers: &MetadataMap) -> Option<String> {
    headers
        .get_all("cookie")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value.trim_matches('"').to_owned())
}

/// The command in a descriptor or ticket.
fn command(bytes: &[u8]) -> Result<Command, Status> {
    let unreadable = |_| Status::invalid_argument("this is not a Flight SQL command");
    let any = Any::decode(bytes).map_err(unreadable)?;
    Command::try_from(any).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// As servers built on arrow-rs answer.
fn unknown(what: &str) -> Status {
    Status::invalid_argument(format!("the server does not know {what}"))
}

/// Checks that an action is supported.
fn supported(support: Support, what: &str) -> Result<(), Status> {
    match support {
        Support::Known => Ok(()),
        Support::Refused => Err(Status::unimplemented(format!("{what} is listed but not implemented"))),
        Support::Unknown => Err(unknown(what)),
    }
}

fn flow<T: Send + 'static>(items: impl IntoIterator<Item = T, IntoIter: Send + 'static>) -> BoxStream<T> {
    Box::pin(stream::iter(items.into_iter().map(Ok)))
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = BoxStream<HandshakeResponse>;
    type ListFlightsStream = BoxStream<FlightInfo>;
    type DoGetStream = BoxStream<FlightData>;
    type DoPutStream = BoxStream<PutResult>;
    type DoActionStream = BoxStream<arrow_flight::Result>;
    type ListActionsStream = BoxStream<ActionType>;
    type DoExchangeStream = BoxStream<FlightData>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let authenticator = &self.shared.authenticator;
        let token =
            authenticator.log_in(request.metadata()).inspect_err(|_| count(&self.shared.tally.refused))?;
        count(&self.shared.tally.handshakes);
        let answer = HandshakeResponse { protocol_version: 0, payload: token.to_owned().into() };
        let mut response = Response::new(flow([answer]));
        if let Ok(bearer) = MetadataValue::try_from(format!("Bearer {token}")) {
            response.metadata_mut().insert("authorization", bearer);
        }
        Ok(response)
    }

    async fn list_flights(
        &self,
        request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        self.admit(&request)?;
        Ok(Response::new(flow([])))
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let caller = self.admit(&request)?;
        self.flight_info(&caller, request.into_inner()).await
    }

    async fn poll_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        let caller = self.admit(&request)?;
        self.poll(&caller, request.into_inner()).await
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let caller = self.admit(&request)?;
        self.schema(&caller, &request.into_inner()).await
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let caller = self.admit(&request)?;
        self.get(&caller, &request.into_inner()).await
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        let caller = self.admit(&request)?;
        self.put(&caller, request.into_inner()).await
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        self.admit(&request)?;
        Err(Status::unimplemented("DoExchange is not supported; use DoGet and DoPut"))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let caller = self.admit(&request)?;
        self.act(&caller, request.into_inner()).await
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        self.admit(&request)?;
        Ok(Response::new(flow(self.actions())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = MetadataMap::new();
        assert_eq!(cookie(&headers), None);
        headers.append("cookie", "a=b".parse().unwrap());
        headers.append("cookie", "c=d; arrow_flight_session_id=ab-1".parse().unwrap());
        assert_eq!(cookie(&headers).as_deref(), Some("ab-1"));
    }
}
