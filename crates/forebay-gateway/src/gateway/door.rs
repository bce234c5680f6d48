//! Clients arrive: they are accepted, and each is given to a worker.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use super::shared::Shared;
use crate::clients::Connection;
use crate::listener::{Accepted, Bound, Listener};
use crate::login::Peer;
use crate::workers::Load;

/// After a failed accept, such as for want of file descriptors, nothing is accepted for this long.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Shared {
    pub(super) async fn listen(self: Arc<Self>, here: usize, bound: Bound, mut stop: watch::Receiver<bool>) {
        let mut listener = match bound.listen() {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "a worker cannot listen"),
        };
        self.accept(&listener, here, async { drop(stop.wait_for(|stopped| *stopped).await) }).await;
        // If the sender is gone, so is the gateway.
        if stop.has_changed().is_err() {
            return;
        }
        // Who has connected is served, and who connects from now on finds the successor, if there is one.
        let time = listener.close_door();
        self.accept(&listener, here, self.runtime.sleep_until(self.runtime.now() + time)).await;
        match listener.rest() {
            Ok(rest) => rest.into_iter().for_each(|accepted| self.place(accepted, here)),
            Err(error) => tracing::warn!(%error, "clients could not be accepted"),
        }
    }

    /// Accepts clients until `end`.
    async fn accept(self: &Arc<Self>, listener: &Listener, here: usize, end: impl Future<Output = ()>) {
        let mut end = pin!(end);
        let mut told = None;
        loop {
            let mut accept = pin!(listener.accept());
            let accepted = poll_fn(|context| {
                if end.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                accept.as_mut().poll(context).map(Some)
            });
            match accepted.await {
                None => return,
                Some(Ok(accepted)) => self.place(accepted, here),
                Some(Err(error)) => {
                    let now = self.runtime.now();
                    // As long as it lasts, a line each second.
                    if told.is_none_or(|told| now.since(told) >= Duration::from_secs(1)) {
                        tracing::warn!(%error, "a client could not be accepted");
                        told = Some(now);
                    }
                    self.runtime.sleep_until(self.runtime.now() + ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Gives a client to a worker.
    fn place(self: &Arc<Self>, accepted: Accepted, here: usize) {
        let connection = self.clients.connected();
        let (worker, load) = self.workers.place(here);
        let served = if worker == here { Ok(accepted) } else { accepted.leave().map(Accepted::Left) };
        match served {
            Ok(accepted) => {
                let task = Arc::clone(self).welcome(accepted, worker, load, connection);
                self.workers.runtime(worker).spawn(Box::pin(task));
            }
            Err(error) => tracing::warn!(%error, "a client could not be passed to another worker"),
        }
    }

    /// Serves a client on this worker.
    async fn welcome(self: Arc<Self>, accepted: Accepted, worker: usize, load: Load, connection: Connection) {
        match accepted.arrive() {
            Ok(Accepted::Tcp(socket, peer)) => self.serve(socket, Peer::Tcp(peer), worker).await,
            Ok(Accepted::Unix(socket)) => self.serve(socket, Peer::Unix, worker).await,
            Ok(Accepted::Left(_)) => {}
            Err(error) => tracing::warn!(%error, "a client could not be passed to another worker"),
        }
        drop((load, connection));
    }
}
