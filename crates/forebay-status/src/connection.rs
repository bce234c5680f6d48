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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How many connections a server has at a time. More wait in the queue of the operating system.
const CONNECTIONS: usize = 256;

/// A connection ends after this time without a byte in either direction. Event streams write twice a second.
const IDLE: Duration = Duration::from_secs(60);

/// How long to wait after an error that more accepts would repeat, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Accepts the connections.
pub(crate) struct Connections {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    stopped: watch::Receiver<()>,
    runtime: Arc<dyn Runtime>,
}

impl Connections {
    pub(crate) fn new(
        listener: TcpListener,
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
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    return (Connection::new(stream, permit, self.stopped.clone(), &self.runtime), address);
                }
                Err(_) => self.runtime.sleep_until(self.runtime.now() + ACCEPT_PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// One connection.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Completes when the server is dropped.
    stopped: Task,
    runtime: Arc<dyn Runtime>,
    /// The last byte in either direction, and the time at which that is looked at again.
    active: Instant,
    look: Task,
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
            look: runtime.sleep_until(now + IDLE),
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
            let end = self.active + IDLE;
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
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.active = self.runtime.now();
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
            self.active = self.runtime.now();
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
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// A connection whose clock is virtual, its other end, and what ends all connections of its server.
    async fn connection(time: &VirtualTime) -> (Connection, TcpStream, watch::Sender<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stop, stopped) = watch::channel(());
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

    #[tokio::test]
    async fn a_connection_ends_after_a_minute_of_silence() {
        let time = VirtualTime::new();
        let (mut connection, mut client, _stop) = connection(&time).await;
        assert_eq!(read(&mut connection), Poll::Pending);
        time.advance(Duration::from_secs(59));
        client.write_all(b"G").await.unwrap();
        while read(&mut connection) != Poll::Ready(Some(b'G')) {
            connection.stream.readable().await.unwrap();
        }
        time.advance(Duration::from_secs(59));
        assert_eq!(read(&mut connection), Poll::Pending, "a byte starts the minute again");
        time.advance(Duration::from_secs(1));
        assert_eq!(read(&mut connection), Poll::Ready(None));
        assert_eq!(read(&mut connection), Poll::Ready(None), "it stays ended");
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
