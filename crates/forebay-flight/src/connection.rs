//! One connection, which is one session on the server: its calls, and the work that still goes on over it.

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
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;
use tonic::{Code, Request, Status, Streaming};

use crate::error::{Error, Phase, Result};
use crate::session::Alteration;
use crate::session::transaction::TransactionState;
use crate::statement::limits::Limits;

mod abortable_body;
mod activity;
mod auth;
mod background;
mod capability;
mod endpoint;
mod headers;
mod keep_alive;
mod liveness;
mod message_size;
mod options;
mod permit;
mod preface;
mod server;
mod tls;
mod transport;
mod upload;

use activity::Activity;
pub(crate) use activity::Moment;
pub use auth::{TokenFuture, TokenProvider};
pub(crate) use capability::Capability;
pub use endpoint::Endpoint;
pub(crate) use liveness::Liveness;
pub(crate) use message_size::TooLarge;
pub use options::ConnectOptions;
pub(crate) use options::SWANLAKE_IDLE_LIMIT;
pub(crate) use permit::StatementPermit;
pub(crate) use server::{Server, SessionReset, query_command};
use transport::{Transport, Unsent};

/// How long a server may take to close a session.
const CLOSE_SESSION_TIMEOUT: Duration = Duration::from_secs(1);

/// A deadline this near counts as passed: clocks and networks are not more exact.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(20);

/// One connection: one session on the server.
pub(crate) struct Connection {
    client: FlightServiceClient<Transport>,
    liveness: Arc<Liveness>,
    pub(crate) server: Arc<Server>,
    /// A call was made for which a server creates a session.
    is_used: AtomicBool,
    pub(crate) transaction: TransactionState,
    /// What the next borrower would see of this one.
    alteration: Mutex<Alteration>,
    activity: Activity,
    /// Statement permits in use.
    permits: AtomicUsize,
    /// Background tasks that have not ended: cancelling, rolling back, closing.
    background_tasks: AtomicUsize,
    /// Notified when a permit or a background task ends.
    changed: Notify,
    /// Background tasks run one at a time, in order: a rollback must not overtake the cancellation of its
    /// last statement.
    background_lock: Arc<tokio::sync::Mutex<()>>,
    /// A background task failed: a cancelled statement may still run, or an abandoned transaction may still
    /// be open.
    is_stuck: AtomicBool,
    /// The server reported an abandoned transaction as already ended. Only its present holder may go on using
    /// the session.
    is_suspect: AtomicBool,
    /// Not to be used again, although the connection is open.
    is_unusable: AtomicBool,
    /// Unusable because it was idle for too long. The server may still have its session.
    is_expired: AtomicBool,
    /// The server was asked to close its session. Whatever it gets behind that, it may begin another session for.
    is_session_closing: AtomicBool,
    /// How often the session was given back. A prepared statement of one borrower must not run for the next.
    checkout_generation: AtomicU64,
}

impl Connection {
    /// Connects and logs in.
    ///
    /// # Cancel safety
    /// Dropping it closes the connection.
    pub(crate) async fn open(server: &Arc<Server>, monitor: ConnectionMonitor) -> Result<Arc<Self>> {
        let options = &server.options;
        let transport = Transport::connect(options, server.tls.as_ref(), &server.runtime, monitor).await?;
        let limit = options.connect_timeout;
        let login = rt::within(&*server.runtime, limit, auth::login(transport, &options.auth)).await;
        let transport = login.unwrap_or_else(|| {
            let message = format!("cannot log in to {}: no answer within {limit:?}", options.endpoint);
            Err(Error::transport(message, false))
        })?;
        let liveness = Arc::clone(transport.liveness());
        let client = FlightServiceClient::new(transport)
            .max_decoding_message_size(options.max_decoding)
            .max_encoding_message_size(options.max_encoding);
        let connection = Arc::new(Self {
            client,
            liveness,
            server: Arc::clone(server),
            is_used: AtomicBool::new(false),
            transaction: TransactionState::default(),
            alteration: Mutex::default(),
            activity: Activity::new(Moment::now(&*server.runtime)),
            permits: AtomicUsize::new(0),
            background_tasks: AtomicUsize::new(0),
            changed: Notify::new(),
            background_lock: Arc::default(),
            is_stuck: AtomicBool::new(false),
            is_suspect: AtomicBool::new(false),
            is_unusable: AtomicBool::new(false),
            is_expired: AtomicBool::new(false),
            is_session_closing: AtomicBool::new(false),
            checkout_generation: AtomicU64::new(0),
        });
        connection.keep_session_alive();
        Ok(connection)
    }

    pub(crate) fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.liveness.is_closed() && !self.is_unusable.load(Ordering::Relaxed)
    }

    /// Whether nothing runs over it, and no background task failed.
    pub(crate) fn is_idle(&self) -> bool {
        self.permits.load(Ordering::SeqCst) == 0 && self.is_ready()
    }

    /// Whether a statement may be sent: no background task is left, and none failed.
    fn is_ready(&self) -> bool {
        self.background_tasks.load(Ordering::Acquire) == 0 && !self.is_stuck()
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Acquire)
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Acquire)
    }

    pub(crate) fn mark_suspect(&self) {
        self.is_suspect.store(true, Ordering::Release);
    }

    pub(crate) fn mark_unusable(&self) {
        self.is_unusable.store(true, Ordering::Relaxed);
    }

    /// Whether the server has a session for it that nobody has asked it to close, as far as is known without a call.
    pub(crate) fn keeps_session(&self) -> bool {
        self.is_usable() && !self.is_session_closing.load(Ordering::SeqCst)
    }

    /// Whether the server may have a session for it, as far as is known without a call.
    pub(crate) fn may_have_session(&self) -> bool {
        let is_open =
            self.is_usable() || !self.liveness.is_closed() && self.is_expired.load(Ordering::Relaxed);
        self.is_used() && is_open
    }

    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_used(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    pub(crate) fn checkout_generation(&self) -> u64 {
        self.checkout_generation.load(Ordering::SeqCst)
    }

    pub(crate) fn is_altered(&self) -> bool {
        !self.alteration.lock().is_none()
    }

    /// Whether the session has something that a new one has not.
    fn holds_state(&self) -> bool {
        self.transaction.is_open() || self.alteration.lock().is_wanted()
    }

    pub(crate) fn alteration(&self) -> Alteration {
        self.alteration.lock().clone()
    }

    pub(crate) fn set_alteration(&self, alteration: Alteration) {
        *self.alteration.lock() = alteration;
    }

    pub(crate) fn alter(&self, alteration: Alteration) {
        self.alteration.lock().add(alteration);
    }

    /// The present moment, for [`record_activity`](Self::record_activity). None if nobody asks how long it was idle.
    pub(crate) fn moment(&self) -> Option<Moment> {
        self.server.options.session_idle_limit.map(|_| Moment::now(&*self.server.runtime))
    }

    /// The server has answered a statement that was sent at this moment.
    pub(crate) fn record_activity(&self, sent: Option<Moment>) {
        if let Some(sent) = sent {
            self.activity.record(sent);
        }
    }

    /// Fails if the session was idle for so long that the server may have replaced it, and it held something. Otherwise
    /// nothing is lost but prepared statements, which end here.
    fn check_idle(&self) -> Result<()> {
        let Some((limit, now)) = self.server.options.session_idle_limit.zip(self.moment()) else {
            return Ok(());
        };
        let idle = self.activity.idle(now);
        if idle <= limit {
            return Ok(());
        }
        if self.holds_state() {
            self.is_expired.store(true, Ordering::Relaxed);
            self.mark_unusable();
            return Err(Error::session_lost(
                format!(
                    "it ran no statement for {} s, and the server may have replaced it after {} s (session_idle_limit)",
                    idle.as_secs(),
                    limit.as_secs()
                ),
                false,
            ));
        }
        self.end_checkout();
        self.activity.record(now);
        Ok(())
    }

    /// The borrower has given the session back: what it prepared cannot be used any more.
    pub(crate) fn end_checkout(&self) {
        self.checkout_generation.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) async fn info(&self, command: Bytes, limit: Option<Duration>) -> Result<FlightInfo, Status> {
        let request = self.request(FlightDescriptor::new_cmd(command), limit)?;
        Ok(self.client.clone().get_flight_info(request).await?.into_inner())
    }

    /// Starts a statement if the descriptor is its command; otherwise returns its progress.
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
    pub(crate) async fn action(
        &self,
        kind: &str,
        body: impl Into<Bytes>,
        limit: Option<Duration>,
    ) -> Result<Option<Bytes>, Status> {
        let results = self.start_action(kind, body, limit).await?;
        Ok(first_of(results).await?.map(|result| result.body))
    }

    /// Runs an action to its end, and returns all its results.
    pub(crate) async fn action_results(
        &self,
        kind: &str,
        body: impl Into<Bytes>,
        limit: Option<Duration>,
    ) -> Result<Vec<Bytes>, Status> {
        let mut results = self.start_action(kind, body, limit).await?;
        let mut bodies = Vec::new();
        while let Some(result) = results.try_next().await? {
            bodies.push(result.body);
            // A deadline is checked in between, however many results there are.
            rt::yield_now().await;
        }
        Ok(bodies)
    }

    async fn start_action(
        &self,
        kind: &str,
        body: impl Into<Bytes>,
        limit: Option<Duration>,
    ) -> Result<Streaming<arrow_flight::Result>, Status> {
        self.mark_used();
        let request = self.request(Action::new(kind, body), limit)?;
        Ok(self.client.clone().do_action(request).await?.into_inner())
    }

    /// Runs the health check in the session. Its rows do not matter.
    pub(crate) async fn ping(&self) -> Result<()> {
        self.mark_used();
        let sent = self.moment();
        let classify = |status: Status| self.classify(&status);
        let info = self.info(self.server.healthcheck.clone(), None).await.map_err(classify)?;
        for ticket in info.endpoint.into_iter().filter_map(|endpoint| endpoint.ticket) {
            let data = self.get(ticket, None).await.map_err(classify)?;
            first_of(data).await.map_err(classify)?;
        }
        self.record_activity(sent);
        Ok(())
    }

    /// Closes the session on the server, and waits a moment for it. Returns whether the server confirmed it.
    pub(crate) async fn close_session(&self) -> bool {
        let capability = &self.server.close_session;
        self.is_session_closing.store(true, Ordering::SeqCst);
        let close = self.action("CloseSession", Bytes::new(), None);
        let Some(answer) = rt::within(&*self.server.runtime, CLOSE_SESSION_TIMEOUT, close).await else {
            return false;
        };
        match answer {
            Ok(body) => {
                capability.record_success();
                let result = body.and_then(|body| CloseSessionResult::decode(body).ok());
                result.is_some_and(|result| result.status == CLOSED)
            }
            Err(status) => {
                self.is_session_closing.store(false, Ordering::SeqCst);
                capability.record_refusal(&status);
                false
            }
        }
    }

    /// A statement has failed, and with it the transaction that it was part of.
    pub(crate) fn fail_transaction(&self, error: &Error) {
        if !self.server.options.continues_after_errors {
            self.transaction.fail(error);
        }
    }

    /// What a failed call means for the caller. Marks the connection as unusable if it is.
    pub(crate) fn classify(&self, status: &Status) -> Error {
        let Some(source) = status.source() else {
            let mut message = status.message().to_owned();
            if status.code() == Code::Unauthenticated {
                // A new connection logs in again.
                self.mark_unusable();
                message = format!("{message}; {}", self.server.options.auth.remedy());
            }
            if status.code() == Code::OutOfRange && message.contains("message length too large") {
                message.push_str("; raise ConnectOptions::max_message_size, or ask for fewer rows at once");
            }
            return Error::server(status.code(), message).with_status(status);
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
            // The server ended this one call. The connection is still good.
            Some(reset) => Error::transport(message, reset.reason() != Some(h2::Reason::REFUSED_STREAM)),
            None => {
                self.mark_unusable();
                Error::session_lost(message, !unsent)
            }
        }
        .with_status(status)
    }

    /// As [`classify`](Self::classify), for a statement with these limits: the server may notice first that
    /// the deadline has passed.
    pub(crate) fn classify_within(&self, status: &Status, limits: &Limits, phase: Phase) -> Error {
        let error = self.classify(status);
        let timed_out = match &error {
            Error::Server { code: Code::DeadlineExceeded, .. } => limits.remaining().is_some(),
            Error::Server { code: Code::Cancelled, .. } => {
                limits.remaining().is_some_and(|left| left < DEADLINE_TOLERANCE)
            }
            _ => false,
        };
        if timed_out { limits.timeout_error(phase) } else { error }
    }
}

/// Missing in arrow-flight's generated code.
#[derive(Clone, PartialEq, Message)]
struct CloseSessionResult {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// `CLOSED` of a `CloseSessionResult`.
const CLOSED: i32 = 1;

/// Reads all answers, and returns the first.
async fn first_of<T>(
    mut answers: impl Stream<Item = Result<T, Status>> + Unpin,
) -> Result<Option<T>, Status> {
    let first = answers.try_next().await?;
    while answers.try_next().await?.is_some() {
        // A deadline is checked in between, however many answers there are.
        rt::yield_now().await;
    }
    Ok(first)
}

fn timed<T>(message: T, limit: Option<Duration>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(limit) = limit {
        request.set_timeout(limit);
    }
    request
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("endpoint", &self.server.options.endpoint)
            .field("is_usable", &self.is_usable())
            .field("is_idle", &self.is_idle())
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
        let mut flood = pin!(first_of(stream::iter((0..1_000).map(Ok))));
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
