//! How a pool opens, cleans and closes its sessions.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay::rt;
use forebay::{BoxError, Connect, Failure, Instant, Lifeline, OpenError};
use tokio::sync::watch;
use tonic::Code;

use crate::actions;
use crate::budget::Budget;
use crate::error::Error;
use crate::link::Link;
use crate::server::Server;
use crate::session::AsyncSession;

/// How long a server may take to close a session, and a socket to close.
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

    async fn open(&self, lifeline: Lifeline) -> Result<AsyncSession, OpenError> {
        while let Some(session) = self.budget.unshelve() {
            session.link.pulse().attach(lifeline.clone());
            if session.link.is_usable() {
                return Ok(session);
            }
        }
        // Boxed, like all that a pool's care rarely does: its tasks are moved about before they run.
        Box::pin(AsyncSession::open(&self.server, lifeline, self.default_timeout))
            .await
            .map_err(|error| OpenError::new(failure(&error), error))
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
        let Some(session) = session else { return };
        if !Box::pin(close(session)).await && !self.linger.is_zero() {
            let runtime = &self.server.runtime;
            unless(self.closing.clone(), runtime.sleep_until(runtime.now() + self.linger)).await;
        }
    }
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
        let close = rt::within(&*server.runtime, CLOSE, actions::close_session(&session.link)).await;
        is_forgotten = close == Some(true);
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
            rt::within(&*parting.server.runtime, CLOSE, actions::close_session(&parting)).await;
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
