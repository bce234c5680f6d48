//! Bytes that a socket did not take at once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// What is still to be written to a socket. Empty, it owns no memory.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: Vec<u8>,
    written: usize,
    /// The stream may have bytes that it has not passed on.
    unflushed: bool,
}

impl Backlog {
    /// Whether everything is written.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Forgets what is not written: the stream is gone.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How much is still to be written.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Writes what is left and then `fresh`, as much as the stream takes, and keeps the rest. Whether it took anything.
    pub(super) fn write(
        &mut self,
        mut stream: Pin<&mut impl AsyncWrite>,
        context: &mut Context<'_>,
        fresh: &[u8],
    ) -> io::Result<bool> {
        let taken = if self.bytes.is_empty() {
            let written = write_some(stream.as_mut(), context, fresh)?;
            self.unflushed |= written > 0;
            self.bytes.extend_from_slice(&fresh[written..]);
            written
        } else {
            self.bytes.extend_from_slice(fresh);
            let written = write_some(stream.as_mut(), context, &self.bytes[self.written..])?;
            self.unflushed |= written > 0;
            self.written += written;
            if self.written == self.bytes.len() {
                (self.bytes, self.written) = (Vec::new(), 0);
            }
            written
        };
        if self.unflushed && stream.poll_flush(context)?.is_ready() {
            self.unflushed = false;
        }
        Ok(taken > 0)
    }
}

/// Writes until the stream takes no more. Returns how much it took.
fn write_some(
    mut stream: Pin<&mut impl AsyncWrite>,
    context: &mut Context<'_>,
    bytes: &[u8],
) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match stream.as_mut().poll_write(context, &bytes[written..]) {
            Poll::Pending => break,
            Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(more) => written += more?,
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time, and nothing every other time.
    #[derive(Default)]
    struct Narrow {
        taken: Vec<u8>,
        open: bool,
    }

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.open = !self.open;
            if !self.open {
                return Poll::Pending;
            }
            let few = bytes.len().min(3);
            self.taken.extend_from_slice(&bytes[..few]);
            Poll::Ready(Ok(few))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn nothing_is_lost_or_doubled_by_a_narrow_stream() {
        let (mut narrow, mut backlog) = (Narrow::default(), Backlog::default());
        let mut context = Context::from_waker(std::task::Waker::noop());
        let sent: Vec<u8> = (0..=255).collect();
        for chunk in sent.chunks(10) {
            backlog.write(Pin::new(&mut narrow), &mut context, chunk).unwrap();
        }
        while !backlog.is_empty() {
            backlog.write(Pin::new(&mut narrow), &mut context, &[]).unwrap();
        }
        assert_eq!(narrow.taken, sent);
    }
}
