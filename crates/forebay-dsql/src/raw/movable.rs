//! A socket that can move to another runtime.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id};

/// A socket that can move to another runtime.
pub(super) struct Movable {
    /// It is gone only after a move that failed.
    socket: Option<TcpStream>,
    /// The runtime that it is registered with.
    home: Option<Id>,
}

impl Movable {
    /// A socket of the caller's runtime.
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket: Some(socket), home: here() }
    }

    /// Whether it is registered with the runtime of the caller.
    pub(super) fn is_here(&self) -> bool {
        self.home.is_some() && self.home == here()
    }

    /// Registers the socket with the runtime of the caller. Nobody may be waiting for it.
    pub(super) fn move_here(&mut self) -> io::Result<()> {
        if self.is_here() {
            return Ok(());
        }
        let socket = self.socket.take().ok_or(io::ErrorKind::NotConnected)?;
        self.home = here();
        self.socket = Some(TcpStream::from_std(socket.into_std()?)?);
        Ok(())
    }

    /// The socket.
    pub(super) fn socket(&self) -> Option<&TcpStream> {
        self.socket.as_ref()
    }

    fn stream(self: Pin<&mut Self>) -> io::Result<Pin<&mut TcpStream>> {
        let socket = self.get_mut().socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Pin::new(socket))
    }
}

fn here() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

impl AsyncRead for Movable {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Movable {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(context)
    }
}
