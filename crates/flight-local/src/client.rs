//! Client connections. Each has an id, can be reset by the server, and removes itself at its end.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::server::Connected;

use crate::shared::Shared;

/// A client connection, as the rest of the server sees it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: u64,
    pub(crate) peer: SocketAddr,
    /// The listener's address.
    pub(crate) local: SocketAddr,
    was_reset: AtomicBool,
    waker: AtomicWaker,
}

impl Client {
    /// Resets the connection: the peer does not get data that is still buffered.
    pub(crate) fn reset(&self) {
        self.was_reset.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Clients {
    open: Mutex<BTreeMap<u64, Arc<Client>>>,
}

impl Clients {
    pub(crate) fn reset_all_but(&self, spared: Option<u64>) {
        for client in self.open.lock().values().filter(|client| Some(client.number) != spared) {
            client.reset();
        }
    }

    pub(crate) fn open(&self) -> usize {
        self.open.lock().len()
    }

    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.open.lock().contains_key(&number)
    }
}

/// The socket of a client. Dropping it ends the connection.
#[derive(Debug)]
pub(crate) struct ClientSocket {
    socket: TcpStream,
    client: Arc<Client>,
    shared: Arc<Shared>,
}

impl ClientSocket {
    pub(crate) fn new(socket: TcpStream, peer: SocketAddr, shared: &Arc<Shared>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let local = socket.local_addr()?;
        let number = shared.tally.connections_ever.fetch_add(1, Ordering::Relaxed);
        let client =
            Client { number, peer, local, was_reset: AtomicBool::new(false), waker: AtomicWaker::new() };
        let client = Arc::new(client);
        shared.clients.open.lock().insert(number, client.clone());
        Ok(Self { socket, client, shared: shared.clone() })
    }

    /// Fails once the connection was reset.
    fn intact(&self) -> io::Result<()> {
        if !self.client.was_reset.load(Ordering::SeqCst) {
            return Ok(());
        }
        // The peer gets a TCP reset, as if the machine had lost power.
        self.socket.set_zero_linger()?;
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        self.shared.clients.open.lock().remove(&self.client.number);
        self.shared.sessions.hung_up(self.client.number, &self.shared);
    }
}

impl Connected for ClientSocket {
    type ConnectInfo = Arc<Client>;

    fn connect_info(&self) -> Arc<Client> {
        self.client.clone()
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The server always reads, so a reset is noticed here.
        self.client.waker.register(context.waker());
        self.intact()?;
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.intact()?;
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.intact()?;
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.intact()?;
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.intact()?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
