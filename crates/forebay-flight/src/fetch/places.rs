//! Where the parts of a result are: on the connection that it was asked for on, or at other places.

use std::sync::Arc;

use arrow_flight::FlightEndpoint;
use arrow_flight::decode::FlightDataDecoder;
use arrow_flight::error::FlightError;
use forebay::ConnectionMonitor;
use futures_util::TryStreamExt;
use parking_lot::Mutex;

use super::Source;
use crate::actions;
use crate::endpoint::Endpoint;
use crate::error::{Error, Phase, Result};
use crate::limits::Limits;
use crate::link::Link;
use crate::server::Server;

/// Names the connection that the result was asked for on.
const SAME_CONNECTION: &str = "arrow-flight-reuse-connection://";

/// The places that one result is read from.
pub(super) struct Places {
    home: Arc<Link>,
    /// Connections to other places: one to each, for as long as the result is read.
    others: Mutex<Vec<Arc<Link>>>,
}

impl Places {
    pub(super) fn of(home: &Arc<Link>) -> Arc<Self> {
        Arc::new(Self { home: Arc::clone(home), others: Mutex::default() })
    }

    /// Begins to read one endpoint, wherever it is.
    ///
    /// # Cancel safety
    /// Dropping it aborts the call.
    pub(super) async fn open(self: Arc<Self>, endpoint: FlightEndpoint, limits: Limits) -> Result<Source> {
        let ticket = endpoint.ticket.ok_or_else(|| Error::protocol("an endpoint without a ticket"))?;
        let mut refusal = None;
        let locations = endpoint.location.iter().map(|location| location.uri.as_str());
        // No location at all means here.
        let places = if endpoint.location.is_empty() { vec![SAME_CONNECTION] } else { locations.collect() };
        for place in places {
            let link = match self.at(place).await {
                Ok(link) => link,
                Err(error) => {
                    refusal = Some(error);
                    continue;
                }
            };
            match link.get(ticket.clone(), limits.remaining()).await {
                Ok(data) => {
                    let data = FlightDataDecoder::new(data.map_err(FlightError::from));
                    return Ok(Source { data, link });
                }
                Err(status) => {
                    let here = Arc::ptr_eq(&link, &self.home);
                    let error = link.judge_within(&status, &limits, Phase::Execute);
                    let error = if here { error } else { error.stateless() };
                    // What the server says of the statement, it would say at any place.
                    if here || !error.is_of_the_way() {
                        return Err(error);
                    }
                    refusal = Some(error);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| Error::protocol("an endpoint without a location")))
    }

    /// The connection to a location: this one if that will do.
    async fn at(&self, place: &str) -> Result<Arc<Link>> {
        let home = &self.home;
        if place.starts_with(SAME_CONNECTION) {
            return Ok(Arc::clone(home));
        }
        // What is wrong with it is told without what may be secret in it.
        let endpoint: Endpoint =
            place.parse().map_err(|error| Error::protocol(format!("the location of a result: {error}")))?;
        if endpoint == home.server.options.endpoint {
            return Ok(Arc::clone(home));
        }
        let known =
            self.others.lock().iter().find(|link| link.server.options.endpoint == endpoint).map(Arc::clone);
        if let Some(link) = known.filter(|link| link.is_usable()) {
            return Ok(link);
        }
        let options = home.server.options.elsewhere(endpoint)?;
        let server = Server::new(options, Arc::clone(&home.server.runtime), "", home.server.quarantine)?;
        let server = Server { closes_sessions: Arc::clone(&home.server.closes_sessions), ..server };
        let link = Link::open(&Arc::new(server), ConnectionMonitor::unattached()).await?;
        self.others.lock().push(Arc::clone(&link));
        Ok(link)
    }
}

impl Drop for Places {
    /// The server may have made a session for each connection, and would keep it for as long as it keeps lost ones.
    fn drop(&mut self) {
        for link in self.others.get_mut().drain(..) {
            if link.is_usable() && link.server.closes_sessions.may_be() {
                self.home.server.runtime.spawn(Box::pin(async move {
                    actions::close_session(&link).await;
                }));
            }
        }
    }
}
