//! The connections that a result is read from: its own, and those to other locations.

use std::sync::Arc;

use arrow_flight::FlightEndpoint;
use arrow_flight::decode::FlightDataDecoder;
use arrow_flight::error::FlightError;
use forebay::ConnectionMonitor;
use futures_util::TryStreamExt;
use parking_lot::Mutex;

use super::Source;
use crate::connection::{Connection, Endpoint, Server, SessionReset};
use crate::error::{Error, Phase, Result};
use crate::statement::limits::Limits;

/// Names the connection of the statement itself.
const SAME_CONNECTION: &str = "arrow-flight-reuse-connection://";

/// The connections that one result is read from.
pub(super) struct EndpointConnections {
    own: Arc<Connection>,
    /// One connection to each other location, for as long as the result is read.
    others: Mutex<Vec<Arc<Connection>>>,
}

impl EndpointConnections {
    pub(super) fn new(own: &Arc<Connection>) -> Arc<Self> {
        Arc::new(Self { own: Arc::clone(own), others: Mutex::default() })
    }

    /// Starts to read one endpoint, at the first of its locations that works.
    ///
    /// # Cancel safety
    /// Dropping it aborts the call.
    pub(super) async fn open(self: Arc<Self>, endpoint: FlightEndpoint, limits: Limits) -> Result<Source> {
        let ticket = endpoint.ticket.ok_or_else(|| Error::protocol("an endpoint without a ticket"))?;
        let mut failure = None;
        let mut locations: Vec<_> = endpoint.location.iter().map(|location| location.uri.as_str()).collect();
        if locations.is_empty() {
            locations.push(SAME_CONNECTION);
        }
        for location in locations {
            let connection = match self.connect(location).await {
                Ok(connection) => connection,
                Err(error) => {
                    failure = Some(error);
                    continue;
                }
            };
            match connection.get(ticket.clone(), limits.remaining()).await {
                Ok(data) => {
                    let data = FlightDataDecoder::new(data.map_err(FlightError::from));
                    return Ok(Source { data, connection });
                }
                Err(status) => {
                    let is_own = Arc::ptr_eq(&connection, &self.own);
                    let error = connection.classify_within(&status, &limits, Phase::Execute);
                    let error = if is_own { error } else { error.without_session() };
                    // A refusal of the statement would be the same at every location.
                    if is_own || !error.is_connection_failure() {
                        return Err(error);
                    }
                    failure = Some(error);
                }
            }
        }
        Err(failure.unwrap_or_else(|| Error::protocol("an endpoint without a location")))
    }

    /// The connection to a location: the statement's own if it leads there.
    async fn connect(&self, location: &str) -> Result<Arc<Connection>> {
        let own = &self.own;
        if location.starts_with(SAME_CONNECTION) {
            return Ok(Arc::clone(own));
        }
        // The parser's error does not repeat what may be secret.
        let endpoint: Endpoint = location
            .parse()
            .map_err(|error| Error::protocol(format!("the location of a result: {error}")))?;
        if endpoint == own.server.options.endpoint {
            return Ok(Arc::clone(own));
        }
        let is_there = |other: &&Arc<Connection>| other.server.options.endpoint == endpoint;
        let known = self.others.lock().iter().find(is_there).map(Arc::clone);
        if let Some(connection) = known.filter(|connection| connection.is_usable()) {
            return Ok(connection);
        }
        let options = own.server.options.for_location(endpoint)?;
        let server = Server::new(
            options,
            Arc::clone(&own.server.runtime),
            "",
            own.server.quarantine,
            SessionReset::default(),
        )?;
        let server = Server { close_session: Arc::clone(&own.server.close_session), ..server };
        let connection = Connection::open(&Arc::new(server), ConnectionMonitor::unattached()).await?;
        self.others.lock().push(Arc::clone(&connection));
        Ok(connection)
    }
}

impl Drop for EndpointConnections {
    /// Closes the sessions: a server may have created one for each connection, and would keep it like a lost
    /// one.
    fn drop(&mut self) {
        for connection in self.others.get_mut().drain(..) {
            if connection.is_usable() && connection.server.close_session.may_work() {
                self.own.server.runtime.spawn(Box::pin(async move {
                    connection.close_session().await;
                }));
            }
        }
    }
}
