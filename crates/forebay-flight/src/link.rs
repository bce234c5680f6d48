//! The calls of one connection, and what is still going on over it.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{Action, FlightData, FlightDescriptor, FlightInfo, PollInfo, Ticket};
use bytes::Bytes;
use forebay::rt;
use forebay::{Chain, ConnectionMonitor};
use futures_util::{Stream, TryStreamExt};
use tokio::sync::Notify;
use tonic::{Code, Request, Status, Streaming};

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::login::login;
use crate::server::Server;
use crate::transaction::Current;
use crate::wire::{Pulse, Unsent, Wire};

mod errands;
mod size;
mod turn;
mod upload;

pub(crate) use size::TooLarge;
pub(crate) use turn::Turn;

/// One connection: one session on the server.
pub(crate) struct Link {
    client: FlightServiceClient<Wire>,
    pulse: Arc<Pulse>,
    pub(crate) server: Arc<Server>,
    /// The server may have made a session for it: it does so at the first call that needs one.
    is_used: AtomicBool,
    /// The transaction that is open.
    pub(crate) transaction: Current,
    /// Turns that are taken: statements, mostly, that have begun and not ended.
    running: AtomicUsize,
    /// Work that goes on in the background: cancelling, rolling back, closing what was prepared.
    errands: AtomicUsize,
    errand_done: Notify,
    /// One errand at a time, in the order they came: a rollback must not overtake the cancelling of its last statement.
    lane: Arc<tokio::sync::Mutex<()>>,
    /// A cancelled statement could not be seen to end.
    is_stuck: AtomicBool,
    /// The server says that a transaction was over when it was to be rolled back: nobody but its holder should use the session any more.
    is_doubtful: AtomicBool,
    /// Not to be used again, though it lives.
    is_refused: AtomicBool,
    /// How often it has been given back: what belongs to one borrower must not be used by the next.
    tenancy: AtomicU64,
}

impl Link {
    /// Connects and logs in.
    ///
    /// # Cancel safety
    /// Dropping it closes what was half made.
    pub(crate) async fn open(server: &Arc<Server>, monitor: ConnectionMonitor) -> Result<Arc<Self>> {
        let options = &server.options;
        let wire = Wire::dial(options, server.tls.as_ref(), &server.runtime, monitor).await?;
        let limit = options.connect_timeout;
        let login = rt::within(&*server.runtime, limit, login(wire, &options.auth)).await;
        let wire = login.unwrap_or_else(|| {
            let message = format!("cannot log in to {}: no answer within {limit:?}", options.endpoint);
            Err(Error::Transport { message, may_have_run: false })
        })?;
        let pulse = Arc::clone(wire.pulse());
        let client = FlightServiceClient::new(wire)
            .max_decoding_message_size(options.max_decoding)
            .max_encoding_message_size(options.max_encoding);
        Ok(Arc::new(Self {
            client,
            pulse,
            server: Arc::clone(server),
            is_used: AtomicBool::new(false),
            transaction: Current::default(),
            running: AtomicUsize::new(0),
            errands: AtomicUsize::new(0),
            errand_done: Notify::new(),
            lane: Arc::default(),
            is_stuck: AtomicBool::new(false),
            is_doubtful: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            tenancy: AtomicU64::new(0),
        }))
    }

    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// Whether it can be used at all.
    pub(crate) fn is_usable(&self) -> bool {
        !self.pulse.is_over() && !self.is_refused.load(Ordering::Relaxed)
    }

    /// Whether nothing goes on over it.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.running.load(Ordering::SeqCst) == 0 && self.is_in_order()
    }

    /// Whether nothing goes on in the background, and nothing is left to be done there.
    fn is_in_order(&self) -> bool {
        self.errands.load(Ordering::Acquire) == 0 && !self.is_stuck()
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Acquire)
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Acquire)
    }

    pub(crate) fn doubt(&self) {
        self.is_doubtful.store(true, Ordering::Release);
    }

    /// It is not to be used again.
    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    pub(crate) fn tenancy(&self) -> u64 {
        self.tenancy.load(Ordering::SeqCst)
    }

    /// Its borrower has given it back.
    pub(crate) fn end_tenancy(&self) {
        self.tenancy.fetch_add(1, Ordering::SeqCst);
    }

    /// Something is about to be sent that the server makes a session for.
    pub(crate) fn used(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    // What Flight SQL has to offer.

    pub(crate) async fn info(&self, command: Bytes, limit: Option<Duration>) -> Result<FlightInfo, Status> {
        let request = self.request(FlightDescriptor::new_cmd(command), limit)?;
        Ok(self.client.clone().get_flight_info(request).await?.into_inner())
    }

    /// Asks how far a statement is; begins it, if the descriptor is its command.
    pub(crate) async fn poll(
        &self,
        descriptor: FlightDescriptor,
        limit: Option<Duration>,
    ) -> Result<PollInfo, Status> {
        let request = self.request(descriptor, limit)?;
        Ok(self.client.clone().poll_flight_info(request).await?.into_inner())
    }

    pub(crate) async fn get(
        &self,
        ticket: Ticket,
        limit: Option<Duration>,
    ) -> Result<Streaming<FlightData>, Status> {
        Ok(self.client.clone().do_get(timed(ticket, limit)).await?.into_inner())
    }

    /// Runs an action to its end, and returns its first result.
    pub(crate) async fn act(
        &self,
        kind: &str,
        body: impl Into<Bytes>,
        limit: Option<Duration>,
    ) -> Result<Option<Bytes>, Status> {
        self.used();
        let request = self.request(Action::new(kind, body), limit)?;
        let results = self.client.clone().do_action(request).await?;
        Ok(first(results.into_inner()).await?.map(|result| result.body))
    }

    /// Asks the session whether it answers, whatever it answers.
    pub(crate) async fn ping(&self) -> Result<()> {
        self.used();
        let info = self.info(self.server.healthcheck.clone(), None).await;
        for ticket in
            info.map_err(|status| self.judge(&status))?.endpoint.into_iter().filter_map(|end| end.ticket)
        {
            let data = self.get(ticket, None).await.map_err(|status| self.judge(&status))?;
            first(data).await.map_err(|status| self.judge(&status))?;
        }
        Ok(())
    }

    /// What a failed call means for the caller, and for this connection.
    pub(crate) fn judge(&self, status: &Status) -> Error {
        let Some(source) = status.source() else {
            let mut message = status.message().to_owned();
            if status.code() == Code::Unauthenticated {
                // A new connection logs in anew.
                self.is_refused.store(true, Ordering::Relaxed);
                message = format!("{message}; {}", self.server.options.auth.remedy());
            }
            if status.code() == Code::OutOfRange && message.contains("message length too large") {
                message.push_str("; raise ConnectOptions::max_message_size, or ask for fewer rows at once");
            }
            return Error::Server { code: status.code(), message };
        };
        let (mut unsent, mut reset) = (false, None);
        let mut cause = Some(source);
        while let Some(error) = cause {
            if let Some(too_large) = error.downcast_ref::<TooLarge>() {
                return Error::config(too_large.to_string());
            }
            unsent |= error.is::<Unsent>();
            reset = reset.or_else(|| error.downcast_ref::<h2::Error>().filter(|error| error.is_reset()));
            cause = error.source();
        }
        let message = Chain(source).to_string();
        match reset {
            // The server broke off this one call; the connection goes on.
            Some(reset) => {
                let may_have_run = reset.reason() != Some(h2::Reason::REFUSED_STREAM);
                Error::Transport { message, may_have_run }
            }
            None => {
                self.is_refused.store(true, Ordering::Relaxed);
                Error::SessionLost { message, may_have_run: !unsent }
            }
        }
    }

    /// As [`judge`](Self::judge), for a statement with these limits: a server that keeps to its deadline may be the first
    /// to say that it has passed.
    pub(crate) fn judge_within(&self, status: &Status, limits: &Limits, phase: crate::Phase) -> Error {
        let error = self.judge(status);
        let timed_out = match &error {
            Error::Server { code: Code::DeadlineExceeded, .. } => limits.remaining().is_some(),
            Error::Server { code: Code::Cancelled, .. } => limits.remaining().is_some_and(|left| left < SOON),
            _ => false,
        };
        if timed_out { limits.overdue(phase) } else { error }
    }
}

/// The first of the server's answers, when the last has come.
async fn first<T>(mut answers: impl Stream<Item = Result<T, Status>> + Unpin) -> Result<Option<T>, Status> {
    let first = answers.try_next().await?;
    while answers.try_next().await?.is_some() {
        // Deadlines are looked at in between, however many there are.
        rt::yield_now().await;
    }
    Ok(first)
}

/// A deadline is soon if it is nearer than clocks and networks are exact.
const SOON: Duration = Duration::from_millis(20);

fn timed<T>(message: T, limit: Option<Duration>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(limit) = limit {
        request.set_timeout(limit);
    }
    request
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("endpoint", &self.server.options.endpoint)
            .field("is_usable", &self.is_usable())
            .field("is_at_rest", &self.is_at_rest())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use futures_util::stream;

    use super::*;

    #[test]
    fn a_flood_of_answers_does_not_keep_others_waiting() {
        let mut flood = pin!(first(stream::iter((0..1_000).map(Ok))));
        let mut context = Context::from_waker(Waker::noop());
        assert!(flood.as_mut().poll(&mut context).is_pending());
        let mut polls =
            (0..).map(|_| flood.as_mut().poll(&mut context)).skip_while(|polled| polled.is_pending());
        assert!(matches!(polls.next(), Some(Poll::Ready(Ok(Some(0))))));
    }

    #[test]
    fn the_server_is_told_the_deadline() {
        let request = timed((), Some(Duration::from_millis(250)));
        assert!(request.metadata().get("grpc-timeout").is_some());
        assert!(timed((), None).metadata().get("grpc-timeout").is_none());
    }
}
