//! One TCP connection that speaks HTTP/2, and nothing that would open a second one.
//!
//! A channel of tonic connects again by itself when its connection breaks. To Flight SQL that is another session, without the
//! caller's transaction and temporary tables. So this is hyper's connection itself, which ends for good; and as there is no
//! queue and no task between caller and connection, a call takes fewer hops, too.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay::{BoxError, ConnectionMonitor};
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tonic::body::Body;

use crate::dress::Dress;
use crate::error::{Error, Result};
use crate::greeting::greeted;
use crate::options::ConnectOptions;
use crate::tls::Tls;
use crate::valve::Valve;

/// How long the other host may be silent before it is asked, and how long it may owe an acknowledgement.
const SILENCE: Duration = Duration::from_secs(30);

/// The largest frames to accept. Batches are large, and would come in dozens of pieces by default.
const FRAME: u32 = 256 * 1024;

/// A connection's calling end. Clones call over the same connection; it is closed with the last of them.
#[derive(Clone)]
pub(crate) struct Wire {
    send: SendRequest<Body>,
    scheme: Scheme,
    authority: Authority,
    dress: Arc<Dress>,
    pulse: Arc<Pulse>,
}

/// Whether a connection lives.
#[derive(Debug)]
pub(crate) struct Pulse {
    is_over: AtomicBool,
    over: Notify,
    /// Who is to hear of its end.
    monitor: Mutex<ConnectionMonitor>,
}

impl Pulse {
    fn new(monitor: ConnectionMonitor) -> Arc<Self> {
        Arc::new(Self { is_over: AtomicBool::new(false), over: Notify::new(), monitor: Mutex::new(monitor) })
    }

    /// Somebody else is to hear of its end from now on; at once, if it was before.
    pub(crate) fn attach(&self, monitor: ConnectionMonitor) {
        *self.monitor.lock() = monitor.clone();
        if self.is_over() {
            monitor.mark_dead();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Done once the socket is closed. Cancel safe.
    pub(crate) async fn over(&self) {
        let mut over = std::pin::pin!(self.over.notified());
        // Asked to be told before looking, so that the end cannot fall in between.
        over.as_mut().enable();
        if !self.is_over() {
            over.await;
        }
    }
}

/// Tells of the end of a connection, whatever ends it.
struct LastBeat(Arc<Pulse>);

impl Drop for LastBeat {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.over.notify_waiters();
        let monitor = self.0.monitor.lock().clone();
        monitor.mark_dead();
    }
}

/// The request never left: the connection was gone before.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed")]
pub(crate) struct Unsent(#[source] hyper::Error);

impl Wire {
    /// Connects, for at most the time the options allow.
    ///
    /// # Cancel safety
    /// Dropping it closes what was half made.
    pub(crate) async fn dial(
        options: &ConnectOptions,
        tls: Option<&Tls>,
        runtime: &Arc<dyn Runtime>,
        monitor: ConnectionMonitor,
    ) -> Result<Self> {
        let limit = options.connect_timeout;
        // In a box: a handshake is twenty kilobytes of state, and every future that waits for one would carry it.
        let dialling = Box::pin(async {
            let endpoint = &options.endpoint;
            let socket = TcpStream::connect((endpoint.host(), endpoint.port())).await;
            let socket = socket.map_err(|error| unreachable(options, &error))?;
            // Statements are small, and each is waited for.
            socket
                .set_nodelay(true)
                .and_then(|()| watch(&socket))
                .map_err(|error| unreachable(options, &error))?;
            match tls {
                None => Self::over(socket, options, runtime, monitor).await,
                Some(tls) => {
                    let secured = tls.secure(socket).await.map_err(|error| unreachable(options, &error))?;
                    Self::over(secured, options, runtime, monitor).await
                }
            }
        });
        let dialled = rt::within(&**runtime, limit, dialling).await;
        dialled.unwrap_or_else(|| Err(unreachable(options, &format!("no answer within {limit:?}"))))
    }

    async fn over<T>(
        socket: T,
        options: &ConnectOptions,
        runtime: &Arc<dyn Runtime>,
        monitor: ConnectionMonitor,
    ) -> Result<Self>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (socket, greeting) = greeted(socket);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(options.window)
            .initial_connection_window_size(options.window.max(1024 * 1024))
            .max_frame_size(FRAME)
            .keep_alive_interval(options.keep_alive)
            .keep_alive_timeout(options.keep_alive_timeout)
            .keep_alive_while_idle(true);
        let handshake = builder.handshake(TokioIo::new(socket)).await;
        let (send, connection) = handshake.map_err(|error| unreachable(options, &error))?;
        let pulse = Pulse::new(monitor);
        let beat = LastBeat(Arc::clone(&pulse));
        runtime.spawn(Box::pin(async move {
            // Dropped last: the socket is closed before it is said to be.
            let _beat = beat;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
        }));
        if greeting.await != Ok(true) {
            let other = match options.endpoint.is_tls() {
                true => "what answers there speaks no HTTP/2, and so no gRPC",
                false => {
                    "what answers there speaks no HTTP/2, or only within TLS: grpc+tls:// is for servers with TLS"
                }
            };
            return Err(unreachable(options, &other));
        }
        let endpoint = &options.endpoint;
        let authority = Authority::try_from(endpoint.authority()).map_err(|_| {
            Error::config(format!("the endpoint's host is {:?}, which is none", endpoint.host()))
        })?;
        Ok(Self {
            send,
            scheme: if endpoint.is_tls() { Scheme::HTTPS } else { Scheme::HTTP },
            authority,
            dress: Arc::new(Dress::new(options)),
            pulse,
        })
    }

    /// The same connection with these credentials.
    pub(crate) fn dressed(self, dress: Dress) -> Self {
        Self { dress: Arc::new(dress), ..self }
    }

    pub(crate) fn dress(&self) -> &Dress {
        &self.dress
    }

    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }
}

/// Has the system find out when the other host is gone: it asks a silent one, and does not wait for ever for one that does not
/// acknowledge what it was sent.
fn watch(socket: &TcpStream) -> std::io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE / 3))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(SILENCE))?;
    Ok(())
}

fn unreachable(options: &ConnectOptions, error: &dyn fmt::Display) -> Error {
    Error::Transport {
        message: format!("cannot connect to {}: {error}", options.endpoint),
        may_have_run: false,
    }
}

impl tower_service::Service<Request<Body>> for Wire {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>>;

    /// Always: what is wrong with the connection is told by the call, in a form that can be told apart.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        match Uri::from_parts(parts) {
            Ok(uri) => *request.uri_mut() = uri,
            Err(error) => return Box::pin(std::future::ready(Err(error.into()))),
        }
        self.dress.put_on(request.headers_mut());
        if let Some(valve) = request.extensions_mut().remove::<Valve>() {
            request = request.map(|body| valve.through(body));
        }
        let answer = self.send.try_send_request(request);
        let dress = Arc::clone(&self.dress);
        Box::pin(async move {
            match answer.await {
                Ok(response) => {
                    dress.note_cookies(response.headers());
                    Ok(response)
                }
                Err(mut failed) => {
                    let unsent = failed.take_message().is_some();
                    let error = failed.into_error();
                    Err(if unsent { Unsent(error).into() } else { error.into() })
                }
            }
        })
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("authority", &self.authority).finish_non_exhaustive()
    }
}
