//! One TCP connection that speaks HTTP/2, and nothing that would open a second one.
//!
//! A tonic channel reconnects by itself when its connection breaks. In Flight SQL that would be another
//! session, without the caller's transaction and temporary tables. So this is hyper's connection itself,
//! which ends for good. There is also no queue and no task between caller and connection, so a call is
//! faster.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay::{BoxError, ConnectionMonitor};
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::body::Body;

use super::abortable_body::AbortHandle;
use super::headers::CallHeaders;
use super::liveness::{CloseGuard, Liveness};
use super::options::ConnectOptions;
use super::preface::PrefaceReader;
use super::tls::Tls;
use crate::error::{Error, Result};

/// After this much silence TCP probes the other host; the host must acknowledge data within the same time.
const TCP_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest frame to accept. With the default size, a batch arrives in dozens of frames.
const MAX_FRAME: u32 = 256 * 1024;

/// Sends calls over one connection. Clones use the same connection, which is closed with the last of them.
#[derive(Clone)]
pub(crate) struct Transport {
    send: SendRequest<Body>,
    scheme: Scheme,
    authority: Authority,
    headers: Arc<CallHeaders>,
    liveness: Arc<Liveness>,
}

/// The connection was closed before the request was sent.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed")]
pub(crate) struct Unsent(#[source] hyper::Error);

impl Transport {
    /// Connects, within the timeout of the options.
    ///
    /// # Cancel safety
    /// Dropping it closes the socket.
    pub(crate) async fn connect(
        options: &ConnectOptions,
        tls: Option<&Tls>,
        runtime: &Arc<dyn Runtime>,
        monitor: ConnectionMonitor,
    ) -> Result<Self> {
        let limit = options.connect_timeout;
        // Boxed: a handshake is twenty kilobytes of state, which every future that waits for it would
        // contain.
        let connecting = Box::pin(async {
            let endpoint = &options.endpoint;
            let socket = TcpStream::connect((endpoint.host(), endpoint.port())).await;
            let socket = socket.map_err(|error| unreachable(options, &error))?;
            // Statements are small, and a caller waits for each.
            socket
                .set_nodelay(true)
                .and_then(|()| set_timeouts(&socket))
                .map_err(|error| unreachable(options, &error))?;
            match tls {
                None => Self::handshake(socket, options, runtime, monitor).await,
                Some(tls) => {
                    let secured = tls.secure(socket).await.map_err(|error| unreachable(options, &error))?;
                    Self::handshake(secured, options, runtime, monitor).await
                }
            }
        });
        let connected = rt::within(&**runtime, limit, connecting).await;
        connected.unwrap_or_else(|| Err(unreachable(options, &format!("no answer within {limit:?}"))))
    }

    async fn handshake<T>(
        socket: T,
        options: &ConnectOptions,
        runtime: &Arc<dyn Runtime>,
        monitor: ConnectionMonitor,
    ) -> Result<Self>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (socket, preface) = PrefaceReader::new(socket);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(options.window)
            .initial_connection_window_size(options.window.max(1024 * 1024))
            .max_frame_size(MAX_FRAME)
            .keep_alive_interval(options.keep_alive)
            .keep_alive_timeout(options.keep_alive_timeout)
            .keep_alive_while_idle(true);
        let handshake = builder.handshake(TokioIo::new(socket)).await;
        let (send, connection) = handshake.map_err(|error| unreachable(options, &error))?;
        let liveness = Liveness::new(monitor);
        let guard = CloseGuard(Arc::clone(&liveness));
        runtime.spawn(Box::pin(async move {
            // Dropped last, so that the socket is closed before it is reported as closed.
            let _guard = guard;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
        }));
        if preface.await != Ok(true) {
            let reason = match options.endpoint.is_tls() {
                true => "the server does not speak HTTP/2, and so not gRPC",
                false => {
                    "the server does not speak HTTP/2, or only within TLS: grpc+tls:// is for servers with TLS"
                }
            };
            return Err(unreachable(options, &reason));
        }
        let endpoint = &options.endpoint;
        let authority = Authority::try_from(endpoint.authority()).map_err(|_| {
            Error::config(format!("the endpoint's host {:?} is not a valid host", endpoint.host()))
        })?;
        Ok(Self {
            send,
            scheme: if endpoint.is_tls() { Scheme::HTTPS } else { Scheme::HTTP },
            authority,
            headers: Arc::new(CallHeaders::new(options)),
            liveness,
        })
    }

    /// The same connection with other headers.
    pub(crate) fn with_headers(self, headers: CallHeaders) -> Self {
        Self { headers: Arc::new(headers), ..self }
    }

    pub(crate) fn headers(&self) -> &CallHeaders {
        &self.headers
    }

    pub(crate) fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }
}

/// Makes the operating system notice when the other host is gone.
fn set_timeouts(socket: &TcpStream) -> std::io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_TIMEOUT).with_interval(TCP_TIMEOUT / 3))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(TCP_TIMEOUT))?;
    Ok(())
}

fn unreachable(options: &ConnectOptions, error: &dyn fmt::Display) -> Error {
    Error::transport(format!("cannot connect to {}: {error}", options.endpoint), false)
}

impl tower_service::Service<Request<Body>> for Transport {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>>;

    /// Always ready: a call over a closed connection returns an error that can be classified.
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
        self.headers.apply(request.headers_mut());
        if let Some(abort) = request.extensions_mut().remove::<AbortHandle>() {
            request = request.map(|body| abort.wrap(body));
        }
        let answer = self.send.try_send_request(request);
        let headers = Arc::clone(&self.headers);
        Box::pin(async move {
            match answer.await {
                Ok(response) => {
                    headers.store_cookies(response.headers());
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

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("authority", &self.authority).finish_non_exhaustive()
    }
}
