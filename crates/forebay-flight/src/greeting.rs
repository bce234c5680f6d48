//! What a server says first. HTTP/2 has each side begin with its settings, and hyper does not tell when they are there: without
//! this a port where nobody answers, or where TLS is spoken, would pass for a connection until its first call.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// Where a frame of HTTP/2 has its type, and the type of settings.
const TYPE_AT: usize = 3;
const SETTINGS: u8 = 4;

/// A socket that tells whether the first thing read from it is a server's greeting.
pub(crate) struct Greeted<T> {
    socket: T,
    read: usize,
    tell: Option<oneshot::Sender<bool>>,
}

/// The socket, and what will be told of it; nothing, if it is closed before.
pub(crate) fn greeted<T>(socket: T) -> (Greeted<T>, oneshot::Receiver<bool>) {
    let (tell, told) = oneshot::channel();
    (Greeted { socket, read: 0, tell: Some(tell) }, told)
}

impl<T> Greeted<T> {
    fn note(&mut self, bytes: &[u8]) {
        if self.tell.is_none() {
            return;
        }
        let kind = TYPE_AT.checked_sub(self.read).and_then(|at| bytes.get(at));
        self.read += bytes.len();
        if (kind.is_some() || bytes.is_empty())
            && let Some(tell) = self.tell.take()
        {
            // Whoever does not wait for it any more has given the connection up.
            let _ = tell.send(kind == Some(&SETTINGS));
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Greeted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.socket).poll_read(context, buffer));
        self.note(&buffer.filled()[before..]);
        Poll::Ready(read)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Greeted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(chunks: &[&[u8]]) -> Option<bool> {
        let (mut socket, mut told) = greeted(());
        chunks.iter().for_each(|chunk| socket.note(chunk));
        drop(socket);
        told.try_recv().ok()
    }

    #[test]
    fn settings_are_a_greeting_and_nothing_else_is() {
        assert_eq!(told(&[&[0, 0, 6, 4, 0, 0, 0, 0, 0]]), Some(true));
        assert_eq!(told(&[&[0], &[0, 6], &[4, 0]]), Some(true), "in pieces");
        assert_eq!(told(&[&[21, 3, 3, 0, 2, 2, 22]]), Some(false), "an alert of TLS");
        assert_eq!(told(&[&[0, 0], &[]]), Some(false), "the end");
        assert_eq!(told(&[]), None);
    }
}
