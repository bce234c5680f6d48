//! The server's connection preface. In HTTP/2 each side begins with a SETTINGS frame, and hyper does not
//! report when the server's has arrived. Without this check, a port that never answers, or one that speaks
//! TLS, would count as a connection until its first call.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// The position of a frame's type.
const TYPE_AT: usize = 3;
const SETTINGS: u8 = 4;

/// A socket that reports whether the first frame it reads is SETTINGS.
pub(crate) struct PrefaceReader<T> {
    socket: T,
    read: usize,
    report: Option<oneshot::Sender<bool>>,
}

impl<T> PrefaceReader<T> {
    /// The socket, and its report. There is none if the socket is dropped before.
    pub(crate) fn new(socket: T) -> (Self, oneshot::Receiver<bool>) {
        let (report, reported) = oneshot::channel();
        (Self { socket, read: 0, report: Some(report) }, reported)
    }

    fn inspect(&mut self, bytes: &[u8]) {
        if self.report.is_none() {
            return;
        }
        let kind = TYPE_AT.checked_sub(self.read).and_then(|at| bytes.get(at));
        self.read += bytes.len();
        if (kind.is_some() || bytes.is_empty())
            && let Some(report) = self.report.take()
        {
            // Fails if the caller no longer waits for the connection.
            let _ = report.send(kind == Some(&SETTINGS));
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for PrefaceReader<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.socket).poll_read(context, buffer));
        self.inspect(&buffer.filled()[before..]);
        Poll::Ready(read)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for PrefaceReader<T> {
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

    fn reported(chunks: &[&[u8]]) -> Option<bool> {
        let (mut socket, mut reported) = PrefaceReader::new(());
        chunks.iter().for_each(|chunk| socket.inspect(chunk));
        drop(socket);
        reported.try_recv().ok()
    }

    #[test]
    fn only_settings_are_a_preface() {
        assert_eq!(reported(&[&[0, 0, 6, 4, 0, 0, 0, 0, 0]]), Some(true));
        assert_eq!(reported(&[&[0], &[0, 6], &[4, 0]]), Some(true), "in pieces");
        assert_eq!(reported(&[&[21, 3, 3, 0, 2, 2, 22]]), Some(false), "an alert of TLS");
        assert_eq!(reported(&[&[0, 0], &[]]), Some(false), "the end");
        assert_eq!(reported(&[]), None);
    }
}
