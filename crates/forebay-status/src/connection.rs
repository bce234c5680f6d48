//! The connections of a server: bounded in number, ended with the server, and not kept for nothing.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use forebay::Instant;
use forebay::rt::{Runtime, Task};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How many connections a server has at a time. More wait in the queue of the operating system.
const CONNECTIONS: usize = 256;

/// A connection ends after this time without an answer, or a part of one. Event streams write twice a second.
/// Bytes from the client do not count: one that sends its request a byte at a time would never end.
const IDLE: Duration = Duration::from_secs(60);

/// A connection ends after this time without its first answer, or a part of it: those that say nothing must not keep probes out for long.
const SILENT: Duration = Duration::from_secs(5);

/// A connection ends if it sends this many bytes without an answer. Requests have no bodies, but a browser sends
/// the cookies of everything on this machine.
const LONGEST_REQUEST: usize = 64 * 1024;

/// How long to wait after an error that more accepts would repeat, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Accepts the connections.
pub(crate) struct Connections {
    /// `None` once the server is dropped. The server takes it away, and does not wait for the task that accepts, so
    /// that the address is free at once.
    listener: Arc<Mutex<Option<TcpListener>>>,
    permits: Arc<Semaphore>,
    stopped: watch::Receiver<()>,
    runtime: Arc<dyn Runtime>,
}

impl Connections {
    pub(crate) fn new(
        listener: Arc<Mutex<Option<TcpListener>>>,
        stopped: watch::Receiver<()>,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        Self { listener, permits: Arc::new(Semaphore::new(CONNECTIONS)), stopped, runtime }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    /// Cancel safe: a connection that was accepted is returned at once.
    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                // The semaphore is never closed.
                std::future::pending::<()>().await;
                continue;
            };
            let accepted = std::future::poll_fn(|context| match &*self.listener.lock() {
                Some(listener) => listener.poll_accept(context),
                // The server is dropped, and this task ends.
                None => Poll::Pending,
            });
            match accepted.await {
                Ok((stream, address)) => {
                    return (Connection::new(stream, permit, self.stopped.clone(), &self.runtime), address);
                }
                Err(_) => self.runtime.sleep_until(self.runtime.now() + ACCEPT_PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        let closed = || io::Error::from(io::ErrorKind::NotConnected);
        self.listener.lock().as_ref().ok_or_else(closed)?.local_addr()
    }
}

/// One connection.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Completes when the server is dropped.
    stopped: Task,
    runtime: Arc<dyn Runtime>,
    /// The last byte to the client, and the time at which that is looked at again.
    active: Instant,
    /// How long it may go without an answer.
    patience: Duration,
    look: Task,
    /// The bytes from the client since then.
    unanswered: usize,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn new(
        stream: TcpStream,
        permit: OwnedSemaphorePermit,
        mut stopped: watch::Receiver<()>,
        runtime: &Arc<dyn Runtime>,
    ) -> Self {
        let now = runtime.now();
        Self {
            stream,
            // The sender sends nothing: this completes when it is dropped.
            stopped: Box::pin(async move { stopped.changed().await.unwrap_or_default() }),
            active: now,
            patience: SILENT,
            look: runtime.sleep_until(now + SILENT),
            unanswered: 0,
            runtime: Arc::clone(runtime),
            _permit: permit,
        }
    }

    /// Whether the connection must end now.
    fn poll_end(&mut self, context: &mut Context<'_>) -> bool {
        if self.stopped.as_mut().poll(context).is_ready() {
            self.stopped = Box::pin(std::future::ready(()));
            return true;
        }
        while self.look.as_mut().poll(context).is_ready() {
            let end = self.active + self.patience;
            if end <= self.runtime.now() {
                self.look = Box::pin(std::future::ready(()));
                return true;
            }
            self.look = self.runtime.sleep_until(end);
        }
        false
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the status page ended the connection")
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.poll_end(context) {
            return Poll::Ready(Err(ended()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.unanswered += buffer.filled().len() - before;
        if self.unanswered > LONGEST_REQUEST {
            return Poll::Ready(Err(ended()));
        }
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.poll_end(context) {
            return Poll::Ready(Err(ended()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if polled.is_ready() {
            (self.active, self.patience, self.unanswered) = (self.runtime.now(), IDLE, 0);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use forebay::rt::VirtualTime;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A connection whose clock is virtual, its other end, and what ends all connections of its server.
    async fn connection(time: &VirtualTime) -> (Connection, TcpStream, watch::Sender<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stop, stopped) = watch::channel(());
        let listener = Arc::new(Mutex::new(Some(listener)));
        let mut connections = Connections::new(listener, stopped, Arc::new(time.clone()));
        let (connection, _) = connections.accept().await;
        assert_eq!(connections.permits.available_permits(), CONNECTIONS - 1);
        (connection, client, stop)
    }

    fn read(connection: &mut Connection) -> Poll<Option<u8>> {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let polled = Pin::new(connection).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer);
        polled.map(|read| read.ok().and_then(|()| buffer.filled().first().copied()))
    }

    fn write(connection: &mut Connection) {
        let written = Pin::new(connection).poll_write(&mut Context::from_waker(Waker::noop()), b"x");
        assert!(matches!(written, Poll::Ready(Ok(1))), "{written:?}");
    }

    #[tokio::test]
    async fn a_connection_ends_after_a_minute_without_an_answer() {
        let time = VirtualTime::new();
        let (mut connection, mut client, _stop) = connection(&time).await;
        assert_eq!(read(&mut connection), Poll::Pending);
        time.advance(Duration::from_secs(4));
        write(&mut connection);
        time.advance(Duration::from_secs(59));
        assert_eq!(read(&mut connection), Poll::Pending, "an answer starts the minute again");
        client.write_all(b"G").await.unwrap();
        while read(&mut connection) != Poll::Ready(Some(b'G')) {
            connection.stream.readable().await.unwrap();
        }
        time.advance(Duration::from_secs(1));
        assert_eq!(read(&mut connection), Poll::Ready(None), "a byte of a request does not");
        assert_eq!(read(&mut connection), Poll::Ready(None), "it stays ended");
    }

    #[tokio::test]
    async fn a_connection_that_says_nothing_ends_soon() {
        let time = VirtualTime::new();
        let (mut connection, mut client, _stop) = connection(&time).await;
        client.write_all(b"G").await.unwrap();
        while read(&mut connection) != Poll::Ready(Some(b'G')) {
            connection.stream.readable().await.unwrap();
        }
        time.advance(Duration::from_secs(5));
        assert_eq!(read(&mut connection), Poll::Ready(None), "half a request is nothing, either");
    }

    #[tokio::test]
    async fn a_connection_ends_with_a_request_that_is_too_long() {
        let time = VirtualTime::new();
        let (mut connection, mut client, _stop) = connection(&time).await;
        let mut send = async |bytes: usize| {
            client.write_all(&vec![b'a'; bytes]).await.unwrap();
            let read = connection.read_exact(&mut vec![0; bytes]).await;
            write(&mut connection);
            read.map_err(|error| error.kind())
        };
        assert_eq!(send(LONGEST_REQUEST).await, Ok(LONGEST_REQUEST));
        assert_eq!(send(LONGEST_REQUEST).await, Ok(LONGEST_REQUEST), "each request can be that long");
        assert_eq!(send(LONGEST_REQUEST + 1).await, Err(io::ErrorKind::ConnectionAborted));
    }

    #[tokio::test]
    async fn a_connection_ends_with_its_server() {
        let time = VirtualTime::new();
        let (mut connection, _client, stop) = connection(&time).await;
        assert_eq!(read(&mut connection), Poll::Pending);
        drop(stop);
        assert_eq!(read(&mut connection), Poll::Ready(None));
        let written = Pin::new(&mut connection).poll_write(&mut Context::from_waker(Waker::noop()), b"x");
        assert!(matches!(written, Poll::Ready(Err(_))));
    }
}
