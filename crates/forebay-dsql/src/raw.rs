//! Connections without a client: authenticated sockets, for programs that speak the PostgreSQL protocol themselves, such as a gateway.
//!
//! The stream is [tracked](crate::wire) like that of tokio-postgres. So a pool knows whether a returned connection is in a transaction or
//! waits for an answer, whatever its user sent.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay::{BoxError, ConfigError, Connect, ConnectionMonitor, OpenError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::driver::addresses::{self, Answers};
use crate::driver::tls::Tls;
use crate::driver::{self, ConnectorParts};
use crate::error::{Error, ErrorKind};
use crate::token::Token;
use crate::wire::{ConnectionState, StateTracker, TrackedStream};

mod login;
mod movable;
mod server_message;
mod watch;

pub use login::Reported;
use movable::Movable;
pub use server_message::ServerMessage;
use watch::{Watch, Watched};

/// TCP probes a peer that is silent for this long.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The connection ends if bytes are not acknowledged for this long. Only Linux can do so.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// A simple query that ends a transaction.
const ROLLBACK: &[u8] = b"Q\0\0\0\x0dROLLBACK\0";
/// One that resets settings.
const RESET_ALL: &[u8] = b"Q\0\0\0\x0eRESET ALL\0";
/// One that fails under another role than that of the session, which RESET ALL leaves as it is.
const CHECK_ROLE: &[u8] = b"Q\0\0\0\x47SELECT 1 / CASE WHEN current_user = session_user THEN 1 ELSE 0 END\0";
/// How many steps a reset may take: a transaction, settings, a changed schema, and one to be sure.
const STEPS: usize = 5;
/// The message that ends a session.
const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// Opens connections without a client to a cluster, with tokens from a cache. `M` is what the program remembers of each connection.
pub struct RawPostgres<M> {
    parts: ConnectorParts,
    tls: Tls,
    watch: Watch,
    memory: PhantomData<fn() -> M>,
}

impl<M: Default + Send + Sync + 'static> RawPostgres<M> {
    async fn dial(&self, token: Token, monitor: ConnectionMonitor) -> Result<RawConnection<M>, Error> {
        let limit = self.parts.options.config().open_timeout;
        let addresses = addresses::resolve(&self.parts.options).await?;
        let dial = |address, answers| self.dial_one(address, answers, &token, monitor.clone());
        addresses::first_reached(&addresses, self.parts.options.port(), &*self.parts.runtime, limit, dial)
            .await
    }

    async fn dial_one(
        &self,
        address: IpAddr,
        answers: Answers,
        token: &Token,
        monitor: ConnectionMonitor,
    ) -> Result<RawConnection<M>, Error> {
        let options = &self.parts.options;
        let mut socket = TcpStream::connect(SocketAddr::new(address, options.port())).await?;
        socket.set_nodelay(true)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
        socket2::SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
        #[cfg(target_os = "linux")]
        socket2::SockRef::from(&socket).set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
        if !options.direct_tls() {
            login::request_tls(&mut socket).await?;
        }
        let watched = self.watch.add(&socket, monitor, &self.parts.runtime)?;
        let stream = self.tls.clone().connect(Movable::new(socket)).await?;
        answers.record();
        let tracker = Arc::new(StateTracker::default());
        let mut stream = TrackedStream::without_driver(stream, Arc::clone(&tracker));
        let reported = login::start(&mut stream, options, token).await?;
        Ok(RawConnection { stream, tracker, reported, memory: M::default(), _watched: watched })
    }
}

impl<M: Default + Send + Sync + 'static> driver::Driver for RawPostgres<M> {
    fn new(parts: ConnectorParts) -> Result<Self, ConfigError> {
        Ok(Self { tls: Tls::new(&parts.options)?, parts, watch: Watch::default(), memory: PhantomData })
    }

    async fn settle(&self, connection: &mut RawConnection<M>) -> Result<(), BoxError> {
        connection.answered().await?;
        connection.state().is_settled()?;
        connection.tracker.settle();
        Ok(())
    }

    fn is_settled(connection: &RawConnection<M>) -> bool {
        connection.tracker.is_settled()
    }
}

impl<M: Default + Send + Sync + 'static> Connect for RawPostgres<M> {
    type Connection = RawConnection<M>;

    async fn prepare(&self) -> Result<(), OpenError> {
        self.parts.prepare().await
    }

    async fn open(&self, monitor: ConnectionMonitor) -> Result<RawConnection<M>, OpenError> {
        self.parts.open(|token| self.dial(token, monitor.clone())).await
    }

    fn is_usable(&self, connection: &RawConnection<M>) -> bool {
        connection.is_alive()
    }

    fn is_clean(&self, connection: &RawConnection<M>) -> bool {
        connection.state() == ConnectionState::Clean
    }

    /// Rolls back an open transaction, and resets settings that the program does not account for. What was sent before is answered first; if
    /// that takes too long, the reservoir closes it.
    async fn reset(&self, connection: &mut RawConnection<M>) -> Result<(), BoxError> {
        if connection.state() == ConnectionState::Unanswered {
            connection.answered().await?;
        }
        for _ in 0..STEPS {
            match connection.state() {
                ConnectionState::Clean => return Ok(()),
                ConnectionState::InTransaction => connection.ask(ROLLBACK).await?,
                ConnectionState::Altered => {
                    // A server that refuses it, such as after a change of the schema, is asked again.
                    if connection.ask(RESET_ALL).await? && connection.ask(CHECK_ROLE).await? {
                        connection.tracker.settings_restored();
                    }
                    true
                }
                ConnectionState::Broken | ConnectionState::Unanswered => {
                    return Err("the connection is closed".into());
                }
            };
        }
        Err("the connection does not become clean".into())
    }

    async fn close(&self, mut connection: RawConnection<M>) {
        // An error means that it is closed already.
        let _ = connection.write_all(TERMINATE).await;
        let _ = connection.shutdown().await;
    }
}

impl<M> fmt::Debug for RawPostgres<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawPostgres").field(&self.parts.options.host()).finish()
    }
}

/// An authenticated connection without a client. What is written to it goes to the server, and must be whole messages of the PostgreSQL
/// protocol in the end; what is read is the server's.
pub struct RawConnection<M> {
    stream: TrackedStream<TlsStream<Movable>>,
    tracker: Arc<StateTracker>,
    reported: Reported,
    /// What the program remembers of this connection while it is in the pool.
    pub memory: M,
    /// Ends with the connection.
    _watched: Watched,
}

impl<M> RawConnection<M> {
    /// Its state, known without asking the server.
    #[must_use]
    pub fn state(&self) -> ConnectionState {
        self.tracker.state()
    }

    /// What the server reported at the start of the session, such as its version.
    #[must_use]
    pub fn reported(&self) -> &Reported {
        &self.reported
    }

    /// The settings that were changed are accounted for: the program remembers them in [`memory`](Self::memory), and deals with them
    /// itself when the connection is lent again.
    pub fn settings_are_known(&self) {
        self.tracker.settings_accepted();
    }

    /// Settings may have been changed that the program does not know of: they are all reset before the connection is lent again.
    pub fn settings_are_unknown(&self) {
        self.tracker.settings_changed();
    }

    /// Whether a request that may commit is unanswered. If the connection is lost now, its outcome is unknown.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        self.tracker.is_committing()
    }

    /// Registers the socket with the tokio runtime of the caller. A program with a runtime for each thread calls it when it takes a
    /// connection from a pool, so that the thread that uses it hears of it without another one.
    ///
    /// # Errors
    /// If there is no runtime, or it takes no more sockets. The connection is useless then.
    pub fn move_here(&mut self) -> io::Result<()> {
        let moved = self.stream.get_mut().get_mut().0.move_here();
        if moved.is_err() {
            self.tracker.set_broken();
        }
        moved
    }

    /// Whether its socket is registered with the tokio runtime of the caller already, so that [`move_here`](Self::move_here) costs nothing.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.stream.get_ref().get_ref().0.is_here()
    }

    /// Whether the server has not closed it, as far as the operating system has told. It costs no system call.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let Some(socket) = self.stream.get_ref().get_ref().0.socket() else { return false };
        let ready = pin!(socket.ready(Interest::READABLE)).poll(&mut Context::from_waker(Waker::noop()));
        let closed = match ready {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        !closed && !self.tracker.is_broken()
    }

    /// Sends a simple query, and drops the answer. Whether it succeeded.
    async fn ask(&mut self, query: &[u8]) -> io::Result<bool> {
        self.write_all(query).await?;
        self.flush().await?;
        self.answered().await?;
        Ok(!self.stream.was_refused())
    }

    /// Reads and drops answers until nothing is unanswered.
    async fn answered(&mut self) -> io::Result<()> {
        let mut dropped = vec![0; 8 * 1024];
        while self.state() == ConnectionState::Unanswered {
            if self.read(&mut dropped).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

/// Nothing in it is ever pinned.
impl<M> Unpin for RawConnection<M> {}

impl<M> AsyncRead for RawConnection<M> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<M> AsyncWrite for RawConnection<M> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl<M> fmt::Debug for RawConnection<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawConnection").field(&self.state()).finish()
    }
}

/// The error of a server that says what it should not.
fn unexpected(what: impl Into<BoxError>) -> Error {
    Error::new(ErrorKind::Disconnected, what)
}

#[cfg(test)]
mod tests {
    #[test]
    fn lengths_are_right() {
        for frame in [super::ROLLBACK, super::RESET_ALL, super::CHECK_ROLE, super::TERMINATE] {
            let length = u32::from_be_bytes(frame[1..5].try_into().unwrap());
            assert_eq!(usize::try_from(length).unwrap() + 1, frame.len());
        }
    }
}
