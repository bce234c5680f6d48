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

use crate::actions;
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::server::Server;
use crate::session::AsyncSession;

/// How long a socket may take to close.
const CLOSE: Duration = Duration::from_secs(1);

/// Opens the sessions of one pool.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) server: Arc<Server>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) default_timeout: Option<Duration>,
    pub(crate) linger: Duration,
    /// How long a session that nobody wants is kept.
    pub(crate) idle_ttl: Option<Duration>,
    /// The pool is closing: nothing is waited for any more.
    pub(crate) closing: watch::Receiver<bool>,
}

impl Connector {
    fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// A session that still runs a cancelled statement is waited for. One that answers again is kept for the pool's next open.
    async fn quarantine(&self, mut session: AsyncSession) -> Option<AsyncSession> {
        let recovery = async {
            let link = Arc::clone(&session.link);
            (link.settled().await || link.recover().await) && session.clean().await.is_ok()
        };
        let recovered = unless(self.closing.clone(), recovery).await == Some(true);
        if recovered && session.link.is_usable() && !self.is_closing() {
            tracing::debug!(endpoint = %self.server.options.endpoint, "session answers again");
            self.shelve(session);
            return None;
        }
        Some(session)
    }
}

impl Connector {
    /// Connects, and sees that the server has a session for it. A server makes one with the first call, and may have none left:
    /// a connection without a session would be lent again and again, and fail everybody's statements.
    ///
    /// # Cancel safety
    /// Dropping it ends what was begun, in the background.
    async fn begin(&self, monitor: ConnectionMonitor) -> Result<AsyncSession> {
        let mut session = AsyncSession::open(&self.server, monitor, self.default_timeout).await?;
        let limit = self.server.options.connect_timeout;
        let answer = rt::within(&*self.server.runtime, limit, session.link.ping()).await;
        let why = match answer {
            Some(Ok(())) => return Ok(session),
            Some(Err(error)) if is_about_the_session(&error) => {
                session.is_over = true;
                return Err(error);
            }
            // Whatever it says of the statement, it is a session that says it.
            Some(Err(Error::Server { .. })) => return Ok(session),
            Some(Err(Error::Transport { message, .. } | Error::SessionLost { message, .. })) => message,
            Some(Err(error)) => return Err(error),
            None => format!("no answer within {limit:?}"),
        };
        // The server may have made one all the same: it counts until that is forgotten.
        let (place, forgotten) = (Budget::occupy(&self.budget), self.forgotten(session));
        self.server.runtime.spawn(Box::pin(async move {
            forgotten.await;
            drop(place);
        }));
        let message = format!("no session at {}: {why}", self.server.options.endpoint);
        Err(Error::Transport { message, may_have_run: false })
    }

    /// Ends a session. Done when the server is believed to have forgotten it.
    fn forgotten(&self, session: AsyncSession) -> impl Future<Output = ()> + Send + use<> {
        let (closing, linger) = (self.closing.clone(), self.linger);
        let runtime = Arc::clone(&self.server.runtime);
        async move {
            if !close(session).await && !linger.is_zero() {
                unless(closing, runtime.sleep_until(runtime.now() + linger)).await;
            }
        }
    }

    /// Keeps a session for the next open, for as long as an idle one is kept.
    fn shelve(&self, session: AsyncSession) {
        let (budget, runtime) = (Arc::clone(&self.budget), &self.server.runtime);
        let id = budget.shelve(session);
        let expiry = self.idle_ttl.map_or(Instant::NEVER, |ttl| runtime.now() + ttl);
        let unwanted = unless(self.closing.clone(), runtime.sleep_until(expiry));
        runtime.spawn(Box::pin(async move {
            unwanted.await;
            if let Some(session) = budget.give_up(id) {
                close(session).await;
            }
        }));
    }
}

impl Connect for Connector {
    type Connection = AsyncSession;

    async fn open(&self, monitor: ConnectionMonitor) -> Result<AsyncSession, OpenError> {
        while let Some(session) = self.budget.unshelve() {
            session.link.pulse().attach(monitor.clone());
            if session.link.is_usable() {
                return Ok(session);
            }
        }
        // Boxed, like all that a pool's care rarely does: its tasks are moved about before they run.
        Box::pin(self.begin(monitor)).await.map_err(|error| OpenError::new(failure(&error), error))
    }

    fn is_usable(&self, session: &AsyncSession) -> bool {
        session.link.is_usable()
    }

    fn is_clean(&self, session: &AsyncSession) -> bool {
        session.is_clean()
    }

    async fn reset(&self, session: &mut AsyncSession) -> Result<(), BoxError> {
        session.clean().await
    }

    async fn check(&self, session: &mut AsyncSession) -> Result<(), BoxError> {
        Ok(Box::pin(session.link.ping()).await?)
    }

    async fn close(&self, session: AsyncSession) {
        let busy = session.link.is_usable() && !session.link.is_at_rest();
        let session = match busy {
            true => Box::pin(self.quarantine(session)).await,
            false => Some(session),
        };
        if let Some(session) = session {
            Box::pin(self.forgotten(session)).await;
        }
    }
}

/// Whether the server says that it makes no session for this connection.
fn is_about_the_session(error: &Error) -> bool {
    use Code::{ResourceExhausted, Unauthenticated, Unavailable};
    matches!(error, Error::Server { code: ResourceExhausted | Unauthenticated | Unavailable, .. })
}

/// Waits for `future` unless the pool closes.
async fn unless<T>(mut closing: watch::Receiver<bool>, future: impl Future<Output = T>) -> Option<T> {
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

/// Ends a session, and waits until its socket is closed. Whether the server is known to have forgotten it.
pub(crate) async fn close(mut session: AsyncSession) -> bool {
    let server = Arc::clone(&session.link.server);
    let pulse = Arc::clone(session.link.pulse());
    let mut is_forgotten = false;
    if is_known(&session.link) {
        is_forgotten = actions::close_session(&session.link).await;
    }
    session.is_over = true;
    drop(session);
    rt::within(&*server.runtime, CLOSE, pulse.over()).await;
    is_forgotten
}

/// Ends a session that was dropped, in the background.
pub(crate) fn part(link: &Arc<Link>) {
    if is_known(link) {
        let parting = Arc::clone(link);
        link.errand(async move {
            actions::close_session(&parting).await;
            true
        });
    }
}

/// Whether the server may have a session for it, and a way to end it.
fn is_known(link: &Link) -> bool {
    link.is_usable() && link.is_used() && link.server.closes_sessions.may_be()
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::Server { code: Code::Unauthenticated | Code::PermissionDenied, .. } => Failure::Auth,
        Error::Server { code: Code::ResourceExhausted, .. } => Failure::TooManyConnections,
        _ => Failure::Open,
    }
}
