//! Reads and writes messages before the login is complete, with a limit on each.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::client_stream::{ClientStream, Replay};
use super::refusal::Refusal;
use super::tls::TlsServer;
use super::{Stop, startup};

/// PostgreSQL's limit for a message of a SASL exchange.
const LONGEST_SASL: usize = 1_024;
/// A start-up message, and a password message, fit into this.
const CHUNK: usize = 512;

/// A client that is logging in.
pub(super) struct Wire<S> {
    /// None while TLS begins, and after that failed.
    stream: Option<ClientStream<S>>,
    /// What was read, and not yet used. It never has more than one message of the largest size and a chunk.
    input: Vec<u8>,
    /// What is to be written.
    pub(super) out: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(socket: S) -> Self {
        Self { stream: Some(ClientStream::Plain(socket)), input: Vec::new(), out: Vec::new() }
    }

    /// Takes it apart: the stream, what was not used, and what is to be written.
    pub(super) fn into_parts(self) -> io::Result<(ClientStream<S>, Vec<u8>, Vec<u8>)> {
        Ok((self.stream.ok_or(io::ErrorKind::NotConnected)?, self.input, self.out))
    }

    pub(super) fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.stream.as_ref().is_some_and(ClientStream::is_encrypted)
    }

    /// The certificate that the client has shown.
    pub(super) fn certificate(&self) -> Option<&[u8]> {
        self.stream.as_ref()?.certificate()
    }

    /// Begins TLS, with what was read. Returns what the client says it speaks.
    pub(super) async fn encrypt(&mut self, tls: &TlsServer) -> Result<Option<&[u8]>, Stop> {
        let Some(ClientStream::Plain(socket)) = self.stream.take() else { return Err(Stop::Stranger) };
        let replay = Replay::new(std::mem::take(&mut self.input), socket);
        let stream = tls.acceptor().accept(replay).await.map_err(Stop::Tls)?;
        match self.stream.insert(ClientStream::Tls(Box::new(stream))) {
            ClientStream::Tls(stream) => Ok(stream.get_ref().1.alpn_protocol()),
            ClientStream::Plain(_) => Ok(None),
        }
    }

    /// The next byte that the client sends. It stays unread. Who leaves instead has not begun anything, so it does not matter how: probes
    /// of load balancers often end with a reset.
    pub(super) async fn peek(&mut self) -> Result<u8, Stop> {
        match self.fill(1).await {
            Err(Stop::Io(error)) if is_leave(&error) => Err(Stop::Gone),
            result => result.map(|()| self.input[0]),
        }
    }

    /// Answers a request for encryption. Who does not wait for that has left, as above.
    pub(super) async fn answer(&mut self, byte: u8) -> Result<(), Stop> {
        self.out.push(byte);
        self.send().await.map_err(|error| if is_leave(&error) { Stop::Gone } else { Stop::Io(error) })
    }

    /// A whole start-up message, with its length.
    pub(super) async fn first_message(&mut self) -> Result<Vec<u8>, Stop> {
        self.fill(4).await?;
        let [a, b, c, d] = self.input[..4] else { return Err(Stop::Stranger) };
        let length = startup::length([a, b, c, d]).map_err(Stop::from)?;
        self.take(length).await
    }

    /// The body of the message that answers a request for a password.
    pub(super) async fn sasl_message(&mut self) -> Result<Vec<u8>, Stop> {
        self.fill(5).await?;
        let [kind, a, b, c, d] = self.input[..5] else { return Err(Stop::Stranger) };
        if kind != b'p' {
            let message = format!("expected SASL response, got message type {kind}");
            return Err(Refusal::protocol(message).into());
        }
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if !(4..=LONGEST_SASL).contains(&length) {
            return Err(Refusal::protocol("invalid message length").into());
        }
        let mut message = self.take(1 + length).await?;
        message.drain(..5);
        Ok(message)
    }

    /// Writes what is to be written.
    pub(super) async fn send(&mut self) -> io::Result<()> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        stream.write_all(&self.out).await?;
        self.out.clear();
        stream.flush().await
    }

    /// Writes what is to be written, and ends the stream.
    pub(super) async fn close(&mut self) -> io::Result<()> {
        self.send().await?;
        match &mut self.stream {
            Some(stream) => stream.shutdown().await,
            None => Ok(()),
        }
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>, Stop> {
        self.fill(length).await?;
        let rest = self.input.split_off(length);
        Ok(std::mem::replace(&mut self.input, rest))
    }

    /// Reads until there are this many bytes.
    async fn fill(&mut self, wanted: usize) -> Result<(), Stop> {
        while self.input.len() < wanted {
            self.input.reserve(CHUNK.max(wanted - self.input.len()));
            let stream = self.stream.as_mut().ok_or(Stop::Gone)?;
            match stream.read_buf(&mut self.input).await {
                Ok(0) => return Err(Stop::Gone),
                // It has left without the good-bye of TLS.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Stop::Gone),
                read => read?,
            };
        }
        Ok(())
    }
}

/// Whether the other side is gone, rather than the network.
fn is_leave(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe | K::NotConnected)
}
