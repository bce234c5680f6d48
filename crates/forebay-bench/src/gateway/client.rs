//! A client as small as possible: a blocking socket, messages that were encoded before, one answer at a time.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::door::{DATABASE, Door, USER};
use super::wire;

/// How long an answer may take. A server that never answers must not stop the benchmark.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Requests for a password: in clear text, and none any more.
const CLEAR_TEXT: [u8; 4] = [0, 0, 0, 3];
const LOGGED_IN: [u8; 4] = [0, 0, 0, 0];

/// A connection after its login.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    /// The bytes of the last answer, up to `filled`.
    bytes: Vec<u8>,
    filled: usize,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// What a server answered instead of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerError {
    pub(super) code: String,
    pub(super) message: String,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server said why.
    Server(ServerError),
    /// The connection ended without a word.
    Closed,
    Io(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => write!(f, "{} {}", error.code, error.message),
            Self::Closed => f.write_str("closed without a message"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Self::Closed
            }
            _ => Self::Io(error),
        }
    }
}

impl Connection {
    /// Connects, and waits until the server is ready.
    pub(super) fn open(door: &Door) -> Result<Self, Failure> {
        let mut socket = TcpStream::connect(door.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        let stream = match &door.tls {
            None => Stream::Plain(socket),
            Some(tls) => {
                socket.write_all(wire::TLS_REQUEST)?;
                let mut answer = [0];
                socket.read_exact(&mut answer)?;
                if answer != *b"S" {
                    return Err(io::Error::other("the server has no TLS").into());
                }
                let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
                let state = ClientConnection::new(tls.config.clone(), name).map_err(io::Error::other)?;
                Stream::Tls(Box::new(StreamOwned::new(state, socket)))
            }
        };
        let mut connection = Self { stream, bytes: vec![0; 1_024], filled: 0 };
        connection.send(&wire::start_up(USER, DATABASE))?;
        connection.log_in(door.password.as_deref())?;
        Ok(connection)
    }

    fn log_in(&mut self, password: Option<&str>) -> Result<(), Failure> {
        loop {
            let (kind, request) = self.first_frame()?;
            match (kind, password) {
                (b'R', Some(password)) if request == CLEAR_TEXT => {
                    self.send(&wire::password(password))?;
                    self.filled = 0;
                }
                (b'R', _) if request == LOGGED_IN => return self.receive(),
                (b'E', _) => return self.receive(),
                _ => return Err(io::Error::other("the server asks for another kind of password").into()),
            }
        }
    }

    /// Reads until the first frame is complete. Returns its kind and the first bytes of it.
    fn first_frame(&mut self) -> Result<(u8, [u8; 4]), Failure> {
        loop {
            if let Some((kind, body, _)) = wire::split(&self.bytes[..self.filled]) {
                let first = body.first_chunk().copied();
                return Ok((kind, first.ok_or_else(|| io::Error::other("a frame without a body"))?));
            }
            self.read_more()?;
        }
    }

    /// Sends a request, and reads the answer up to `ReadyForQuery`. An error in it is a failure.
    pub(super) fn ask(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.send(request)?;
        self.filled = 0;
        self.receive()
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => {
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    fn read_more(&mut self) -> Result<(), Failure> {
        if self.filled == self.bytes.len() {
            self.bytes.resize(self.bytes.len() * 2, 0);
        }
        let room = &mut self.bytes[self.filled..];
        let count = match &mut self.stream {
            Stream::Plain(stream) => stream.read(room),
            Stream::Tls(stream) => stream.read(room),
        }?;
        if count == 0 {
            return Err(Failure::Closed);
        }
        self.filled += count;
        Ok(())
    }

    /// Reads up to `ReadyForQuery`, or to the end of the connection.
    fn receive(&mut self) -> Result<(), Failure> {
        let (mut error, mut at) = (None, 0);
        loop {
            while let Some((kind, body, rest)) = wire::split(&self.bytes[at..self.filled]) {
                at = self.filled - rest.len();
                match kind {
                    b'Z' => return error.map_or(Ok(()), |error| Err(Failure::Server(error))),
                    b'E' if error.is_none() => {
                        error = Some(ServerError {
                            code: wire::field(body, b'C'),
                            message: wire::field(body, b'M'),
                        });
                    }
                    _ => {}
                }
            }
            match self.read_more() {
                Ok(()) => {}
                Err(failure) => return Err(error.map_or(failure, Failure::Server)),
            }
        }
    }

    /// The rows of the last answer.
    pub(super) fn rows(&self) -> Vec<Vec<Option<String>>> {
        let frames = wire::frames(&self.bytes[..self.filled]);
        frames.filter(|(kind, _)| *kind == b'D').map(|(_, body)| wire::values(body)).collect()
    }

    /// The messages of the notices in the last answer.
    pub(super) fn notices(&self) -> Vec<String> {
        let frames = wire::frames(&self.bytes[..self.filled]);
        frames.filter(|(kind, _)| *kind == b'N').map(|(_, body)| wire::field(body, b'M')).collect()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The server may be gone already.
        drop(self.send(wire::TERMINATE));
    }
}
