//! A page at an address of its own.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use axum::middleware;
use forebay::rt::NoRuntime;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::access::{self, Access};
use crate::connection::Connections;
use crate::headers;
use crate::listen::Listen;
use crate::page::Shared;
use crate::router;

/// Why a page cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address can be reached from other machines, and there is no token.
    #[error("{address} can be reached from other machines: serve the page with a token, or on 127.0.0.1")]
    NeedsToken {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; choose another port, or stop what listens there")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// There is no runtime to take time and tasks from.
    #[error(transparent)]
    NoRuntime(#[from] NoRuntime),
}

/// A page that is served. Dropping it closes the listener and all connections, also open event streams.
#[derive(Debug)]
#[must_use = "the page is served until this is dropped"]
pub struct Server {
    address: SocketAddr,
    /// The task that accepts owns it: it is also closed when the runtime ends.
    listener: Weak<Mutex<Option<TcpListener>>>,
    stop: watch::Sender<()>,
}

impl Server {
    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it still serves the page. It does not once its runtime has ended.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        !self.stop.is_closed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.upgrade() {
            *listener.lock() = None;
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}/", self.address)
    }
}

/// Serves until the [`Server`] is dropped. Cancel safe: the listener is handed to a task, or dropped.
pub(crate) async fn serve(page: &Arc<Shared>, listen: Listen) -> Result<Server, ServeError> {
    let address = listen.address();
    if !listen.is_loopback() && !listen.has_token() {
        return Err(ServeError::NeedsToken { address });
    }
    let access = match listen.into_token() {
        Some(token) => Access::Token(Arc::new(token)),
        None => Access::LoopbackNames,
    };
    let runtime = page.start()?;
    let bind_error = |error| ServeError::Bind { address, error };
    let listener = TcpListener::bind(address).await.map_err(bind_error)?;
    let address = listener.local_addr().map_err(bind_error)?;
    let listener = Arc::new(Mutex::new(Some(listener)));
    let weak = Arc::downgrade(&listener);
    let (stop, stopped) = watch::channel(());
    let app = router::router(Arc::clone(page))
        .layer(middleware::from_fn_with_state(access, access::check))
        .layer(middleware::map_response(headers::add));
    let connections = Connections::new(listener, stopped.clone(), Arc::clone(&runtime));
    runtime.spawn(Box::pin(async move {
        let serving = async { axum::serve(connections, app).await };
        let mut serving = pin!(serving);
        let mut stopped = stopped;
        let mut ended = pin!(stopped.changed());
        std::future::poll_fn(|context| {
            if ended.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            serving.as_mut().poll(context).map(|_| ())
        })
        .await;
    }));
    Ok(Server { address, listener: weak, stop })
}
