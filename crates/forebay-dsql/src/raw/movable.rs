//! A socket that can move to another runtime.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A socket that can move to another runtime. It is gone only after a move that failed.
pub(super) struct Movable(Option<TcpStream>);

impl Movable {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self(Some(socket))
    }

    /// Registers the socket with the runtime of the caller. Nobody may be waiting for it.
    pub(super) fn move_here(&mut self) -> io::Result<()> {
        let socket = self.0.take().ok_or(io::ErrorKind::NotConnected)?;
        self.0 = Some(TcpStream::from_std(socket.into_std()?)?);
        Ok(())
    }

    /// The socket.
    pub(super) fn socket(&self) -> Option<&TcpStream> {
        self.0.as_ref()
    }

    fn stream(self: Pin<&mut Self>) -> io::Result<Pin<&mut TcpStream>> {
        let socket = self.get_mut().0.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Pin::new(socket))
    }
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
