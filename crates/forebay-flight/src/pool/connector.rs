//! How a pool opens, cleans and closes its sessions.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay::rt;
use forebay::{BoxError, Connect, ConnectionMonitor, Failure, Instant, OpenError};
use tokio::sync::watch;
use tonic::Code;

use super::session_budget::SessionBudget;
use crate::connection::Server;
use crate::error::{Error, Result};
use crate::session::AsyncSession;

/// The pause between two attempts to reach a session that does not answer.
const RECOVERY_PAUSE: Duration = Duration::from_secs(1);
/// How long a server may keep a session, if nobody says so.
const UNKNOWN_LINGER: Duration = Duration::from_secs(20 * 60);

/// Opens the sessions of one pool.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) server: Arc<Server>,
    pub(crate) budget: Arc<SessionBudget>,
    pub(crate) default_timeout: Option<Duration>,
    pub(crate) linger: Duration,
    /// How long a recovered session waits for an open.
    pub(crate) idle_timeout: Option<Duration>,
    /// Whether the pool is closing, and nothing is worth waiting for.
    pub(crate) closing: watch::Receiver<bool>,
}

impl Connector {
    /// Connects, and makes sure that the server has a session for the connection. A server creates it with
    /// the first call, and may have none left. A connection without a session would be lent again and again,
    /// and fail every statement.
    ///
    /// # Cancel safety
    /// Dropping it closes the session in the background.
    async fn open_session(&self, monitor: ConnectionMonitor) -> Result<AsyncSession> {
        let mut session = AsyncSession::open(&self.server, monitor, self.default_timeout).await?;
        let limit = self.server.options.connect_timeout;
        let answer = rt::within(&*self.server.runtime, limit, session.connection.ping()).await;
        let reason = match answer {
            Some(Ok(())) => return Ok(session),
            Some(Err(error)) if is_about_the_session(&error) => {
                session.is_closed = true;
                return Err(error);
            }
            // Any other answer of the server comes from a session.
            Some(Err(Error::Server { .. })) => return Ok(session),
            Some(Err(Error::Transport { message, .. } | Error::SessionLost { message, .. })) => message,
            Some(Err(error)) => return Err(error),
            None => format!("no answer within {limit:?}"),
        };
        // The server may have created a session nevertheless. It counts until it is forgotten.
        self.close_and_reserve(session);
        Err(Error::transport(format!("no session at {}: {reason}", self.server.options.endpoint), false))
    }

    /// Waits for a session that still runs a cancelled statement. If it answers again in time, it is kept for the
    /// pool's next open.
    async fn quarantine(&self, mut session: AsyncSession) -> Option<AsyncSession> {
        // Until then it is not known whether the server can close sessions.
        let cancelled = unless_closing(self.closing.clone(), session.connection.background_done()).await;
        let limit = self.server.quarantine + self.linger;
        if cancelled.is_none() || self.recovers(&mut session, limit).await {
            return self.keep_unless_closing(session);
        }
        let can_recover = session.connection.is_usable() && !self.server.close_session.may_work();
        if self.linger.is_zero() && can_recover && !*self.closing.borrow() {
            self.watch(session);
            return None;
        }
        Some(session)
    }

    /// Waits until a session answers and is clean. Returns whether it is.
    async fn recovers(&self, session: &mut AsyncSession, limit: Duration) -> bool {
        let recovery = async {
            let connection = Arc::clone(&session.connection);
            let mut answers = connection.recover().await;
            // A server that cannot close sessions keeps this one anyway, so it is worth waiting for its statement.
            while !answers && connection.is_usable() && !self.server.close_session.may_work() {
                let runtime = &self.server.runtime;
                runtime.sleep_until(runtime.now() + RECOVERY_PAUSE).await;
                answers = connection.recover().await;
            }
            answers && session.clean().await.is_ok()
        };
        let recovery = rt::within(&*self.server.runtime, limit, recovery);
        unless_closing(self.closing.clone(), recovery).await.flatten() == Some(true)
    }

    /// Waits on for a session whose quarantine is over. How long the server keeps it is not known, so it does not count
    /// towards the limit any more: that would lock callers out. It is only reported.
    fn watch(&self, mut session: AsyncSession) {
        let connector = self.clone();
        self.budget.begin_linger();
        self.server.runtime.spawn(Box::pin(async move {
            let rest = match connector.recovers(&mut session, UNKNOWN_LINGER).await {
                true => connector.keep_unless_closing(session),
                false => Some(session),
            };
            connector.budget.end_linger();
            if let Some(session) = rest {
                connector.close_and_linger(session).await;
            }
        }));
    }

    /// Ends a session. Returns when the server has probably forgotten it.
    async fn close_and_linger(&self, session: AsyncSession) {
        // A lost connection is not counted: if the server was killed, nothing is left, and a long wait would lock callers
        // out. If only the network failed, a server that keeps sessions has one more than the pool says.
        let may_linger = session.connection.may_have_session();
        if session.close_confirmed().await || !may_linger {
            return;
        }
        let (closing, runtime) = (self.closing.clone(), &self.server.runtime);
        if !self.linger.is_zero() {
            unless_closing(closing, runtime.sleep_until(runtime.now() + self.linger)).await;
            return;
        }
        // How long the server keeps it is not known. It is only counted.
        let budget = Arc::clone(&self.budget);
        budget.begin_linger();
        let forgotten = runtime.sleep_until(runtime.now() + UNKNOWN_LINGER);
        runtime.spawn(Box::pin(async move {
            unless_closing(closing, forgotten).await;
            budget.end_linger();
        }));
    }

    /// Ends a session in the background, and counts it until the server has probably forgotten it.
    fn close_and_reserve(&self, session: AsyncSession) {
        let (connector, reservation) = (self.clone(), SessionBudget::reserve(&self.budget));
        self.server.runtime.spawn(Box::pin(async move {
            connector.close_and_linger(session).await;
            drop(reservation);
        }));
    }

    /// Keeps a recovered session for the next open, for as long as an idle one. Returns it if that is not possible.
    fn keep_unless_closing(&self, session: AsyncSession) -> Option<AsyncSession> {
        if !session.connection.is_usable() || *self.closing.borrow() {
            return Some(session);
        }
        tracing::debug!(endpoint = %self.server.options.endpoint, "session answers again");
        let (connector, runtime) = (self.clone(), &self.server.runtime);
        let id = self.budget.keep_recovered(session);
        let expiry = self.idle_timeout.map_or(Instant::NEVER, |timeout| runtime.now() + timeout);
        let expired = unless_closing(self.closing.clone(), runtime.sleep_until(expiry));
        runtime.spawn(Box::pin(async move {
            expired.await;
            if let Some(session) = connector.budget.expire(id) {
                connector.close_and_reserve(session);
            }
        }));
        None
    }
}

impl Connect for Connector {
    type Connection = AsyncSession;

    async fn open(&self, monitor: ConnectionMonitor) -> Result<AsyncSession, OpenError> {
        while let Some(session) = self.budget.take_recovered() {
            session.connection.liveness().attach(monitor.clone());
            if session.connection.is_usable() {
                return Ok(session);
            }
        }
        // Boxed, like all rare maintenance: the pool's tasks are moved before they run.
        Box::pin(self.open_session(monitor)).await.map_err(|error| OpenError::new(failure(&error), error))
    }

    fn is_usable(&self, session: &AsyncSession) -> bool {
        session.connection.is_usable()
    }

    fn is_clean(&self, session: &AsyncSession) -> bool {
        session.is_clean()
    }

    async fn reset(&self, session: &mut AsyncSession) -> Result<(), BoxError> {
        session.clean().await
    }

    async fn check(&self, session: &mut AsyncSession) -> Result<(), BoxError> {
        Ok(Box::pin(session.connection.ping()).await?)
    }

    async fn close(&self, session: AsyncSession) {
        let is_busy = session.connection.is_usable() && !session.connection.is_idle();
        let session = match is_busy {
            true => Box::pin(self.quarantine(session)).await,
            false => Some(session),
        };
        if let Some(session) = session {
            Box::pin(self.close_and_linger(session)).await;
        }
    }
}

/// Whether the server says that it creates no session for this connection.
fn is_about_the_session(error: &Error) -> bool {
    use Code::{ResourceExhausted, Unauthenticated, Unavailable};
    matches!(error, Error::Server { code: ResourceExhausted | Unauthenticated | Unavailable, .. })
}

/// Runs `future` until it ends or the pool closes.
async fn unless_closing<T>(mut closing: watch::Receiver<bool>, future: impl Future<Output = T>) -> Option<T> {
    let mut closed = pin!(async move { drop(closing.wait_for(|closing| *closing).await) });
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        closed.as_mut().poll(context).map(|()| None)
    })
    .await
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::Server { code: Code::Unauthenticated | Code::PermissionDenied, .. } => Failure::Auth,
        Error::Server { code: Code::ResourceExhausted, .. } => Failure::TooManyConnections,
        _ => Failure::Open,
    }
}
