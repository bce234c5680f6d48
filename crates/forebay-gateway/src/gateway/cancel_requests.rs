//! Cancel requests: those of clients, and those that peers pass on.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay::rt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::door::ACCEPT_PAUSE;
use super::shared::{CLOSE_TIME, Shared};
use crate::clients::Owner;
use crate::listener::{Accepted, Bound};
use crate::login::{self, CancelRequest, Peer};
use crate::metrics;
use crate::peers;

/// How long a cancel request may take on its way to a peer.
const PEER_TIME: Duration = Duration::from_secs(5);

impl Shared {
    /// Listens for cancel requests that peers pass on.
    pub(super) async fn hear_peers(self: Arc<Self>, bound: Bound, mut gone: watch::Receiver<()>) {
        let listener = match bound.listen() {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "peers cannot be heard"),
        };
        let mut gone = pin!(async { while gone.changed().await.is_ok() {} });
        loop {
            let mut accept = pin!(listener.accept());
            let accepted = poll_fn(|context| {
                if gone.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                accept.as_mut().poll(context).map(Some)
            });
            match accepted.await {
                None => return,
                Some(Ok(Accepted::Tcp(socket, peer))) => {
                    let shared = Arc::clone(&self);
                    let heard = async move {
                        match login::passed_on(socket, Peer::Tcp(peer), &shared.login).await {
                            Ok(request) => {
                                metrics::peer_cancel("received");
                                // It is not passed on again, whatever its key says: so it cannot go round in circles.
                                shared.clients.cancel(request.key());
                            }
                            Err(error) => {
                                tracing::info!(%peer, %error, "this was not a cancel request of a peer")
                            }
                        }
                    };
                    self.workers.runtime(0).spawn(Box::pin(heard));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    tracing::warn!(%error, "a peer could not be accepted");
                    self.runtime.sleep_until(self.runtime.now() + ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Cancels a statement here, or passes the request on to the process that has the session.
    pub(super) async fn cancel<S>(&self, request: CancelRequest<S>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let key = request.key();
        let request = match self.clients.owner(key) {
            Owner::Peer(id) => self.pass_on(id, request).await,
            Owner::Here => {
                self.clients.cancel(key);
                Some(request)
            }
        };
        if let Some(request) = request {
            rt::within(&*self.runtime, CLOSE_TIME, request.close()).await;
        }
    }

    /// Passes the request on to this process. None if there are too many requests.
    async fn pass_on<S>(&self, id: u8, request: CancelRequest<S>) -> Option<CancelRequest<S>> {
        let config = Arc::clone(&self.config.read());
        let Some(address) = config.peers.as_ref().and_then(|peers| peers.addresses.get(&id)) else {
            metrics::peer_cancel("unknown");
            return Some(request);
        };
        let key = request.key();
        let request = match request.pass_on(&self.login) {
            Ok(request) => request,
            Err(crowd) => {
                metrics::peer_cancel("failed");
                tracing::warn!(peer = id, %address, error = %crowd, "a cancel request could not be passed on");
                return None;
            }
        };
        match rt::within(&*self.runtime, PEER_TIME, peers::pass_on(address, key)).await {
            Some(Ok(())) => metrics::peer_cancel("passed_on"),
            failed => {
                metrics::peer_cancel("failed");
                let error = failed.map_or_else(
                    || "no answer in time".to_owned(),
                    |result| result.err().map_or_else(String::new, |error| error.to_string()),
                );
                tracing::warn!(peer = id, %address, %error, "a cancel request could not be passed on");
            }
        }
        Some(request)
    }
}
