//! A client that shows every message as it was sent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use dsql_local::Cluster;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::harness::client_config;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(super) struct Client {
    stream: Box<dyn Stream>,
    input: BytesMut,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) key: [u8; 8],
}

/// How to connect.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) user: String,
    pub(super) token: String,
    pub(super) database: String,
    pub(super) sni: bool,
    pub(super) tls: Tls,
    pub(super) options: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    Off,
    Asked,
    Direct,
}

/// Why the connection failed.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) asked: bool,
    pub(super) answer: Option<Answer>,
}

/// The result of one statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Option<String>>>,
    pub(super) end: End,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    #[default]
    Missing,
    Tag(String),
    Empty,
    /// The fields of an error.
    Error(BTreeMap<char, String>),
}

/// All answers to a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    pub(super) answers: Vec<Answer>,
    /// From `ReadyForQuery`; none if the socket was closed.
    pub(super) status: Option<char>,
}

impl Client {
    pub(super) async fn connect(cluster: &Cluster, attempt: &Attempt) -> Result<Self, Refusal> {
        match open(cluster, attempt).await {
            Some(stream) => Self::log_in(stream, attempt).await,
            None => Err(Refusal { asked: false, answer: None }),
        }
    }

    pub(super) async fn log_in(stream: Box<dyn Stream>, attempt: &Attempt) -> Result<Self, Refusal> {
        let mut refusal = Refusal { asked: false, answer: None };
        let mut client = Self { stream, input: BytesMut::new(), parameters: BTreeMap::new(), key: [0; 8] };
        let mut startup = BytesMut::from(&[0, 0, 0, 0, 0, 3, 0, 0][..]);
        let named = [("user", &attempt.user), ("database", &attempt.database)];
        let options = attempt.options.iter().map(|(name, value)| (name.as_str(), value));
        for (name, value) in named.into_iter().chain(options) {
            string(&mut startup, name);
            string(&mut startup, value);
        }
        startup.put_u8(0);
        let length = u32::try_from(startup.len()).unwrap();
        startup[..4].copy_from_slice(&length.to_be_bytes());
        client.send(&startup).await;
        while let Some((tag, mut body)) = client.message().await {
            match tag {
                b'R' if body.try_get_u32() == Ok(3) => {
                    refusal.asked = true;
                    let mut password = BytesMut::new();
                    message(&mut password, b'p', |body| string(body, &attempt.token));
                    client.send(&password).await;
                }
                b'S' => drop(client.parameters.insert(take_string(&mut body), take_string(&mut body))),
                b'K' => body.copy_to_slice(&mut client.key),
                b'E' => refusal.answer = Some(Answer { end: error(body), ..Answer::default() }),
                b'Z' => return Ok(client),
                _ => {}
            }
        }
        Err(refusal)
    }

    /// Sends messages and reads all answers.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Exchange {
        self.send(request).await;
        self.answers().await
    }

    /// If the socket is closed, there will be no answer either.
    pub(super) async fn send(&mut self, request: &[u8]) {
        if self.stream.write_all(request).await.is_ok() {
            drop(self.stream.flush().await);
        }
    }

    pub(super) async fn answers(&mut self) -> Exchange {
        let mut exchange = Exchange::default();
        let mut answer = Answer::default();
        while let Some((tag, mut body)) = self.message().await {
            match tag {
                b'T' => answer.columns = columns(&mut body),
                b'D' => answer.rows.push(fields(&mut body)),
                b'C' | b'I' | b'E' => {
                    answer.end = match tag {
                        b'C' => End::Tag(take_string(&mut body)),
                        b'I' => End::Empty,
                        _ => error(body),
                    };
                    exchange.answers.push(std::mem::take(&mut answer));
                }
                b'Z' => {
                    exchange.status = body.first().map(|status| char::from(*status));
                    break;
                }
                _ => {}
            }
        }
        exchange
    }

    /// Waits for the end of the connection; a message before it is an error.
    pub(super) async fn ended(&mut self) {
        if self.stream.read_buf(&mut self.input).await.is_ok_and(|count| count > 0) {
            std::future::pending::<()>().await;
        }
    }

    async fn message(&mut self) -> Option<(u8, Bytes)> {
        loop {
            if let Some((head, _)) = self.input.split_first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if self.input.len() > length {
                    let mut message = self.input.split_to(length + 1).freeze();
                    let tag = message.get_u8();
                    message.advance(4);
                    return Some((tag, message));
                }
            }
            if self.stream.read_buf(&mut self.input).await.ok()? == 0 {
                return None;
            }
        }
    }
}

async fn open(cluster: &Cluster, attempt: &Attempt) -> Option<Box<dyn Stream>> {
    let mut socket = TcpStream::connect(cluster.address()).await.ok()?;
    socket.set_nodelay(true).ok()?;
    if attempt.tls == Tls::Off {
        return Some(Box::new(socket));
    }
    if attempt.tls == Tls::Asked {
        socket.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).await.ok()?;
        (socket.read_u8().await.ok()? == b'S').then_some(())?;
    }
    let name = match attempt.sni {
        true => ServerName::try_from(cluster.endpoint().to_owned()).unwrap(),
        // No server name is sent for an IP address.
        false => ServerName::from(IpAddr::from([127, 0, 0, 1])),
    };
    let stream = TlsConnector::from(client_config(cluster)).connect(name, socket).await.ok()?;
    Some(Box::new(stream))
}

/// Messages to be sent.
pub(super) mod say {
    use super::{BufMut, BytesMut, message, string};

    pub(crate) fn query(sql: &str) -> BytesMut {
        let mut out = BytesMut::new();
        message(&mut out, b'Q', |body| string(body, sql));
        out
    }

    pub(crate) fn parse(out: &mut BytesMut, name: &str, sql: &str) {
        message(out, b'P', |body| {
            string(body, name);
            string(body, sql);
            body.put_u16(0);
        });
    }

    pub(crate) fn execute(out: &mut BytesMut, name: &str, params: &[Option<String>]) {
        message(out, b'B', |body| {
            body.put_u8(0);
            string(body, name);
            body.put_u16(0);
            body.put_u16(u16::try_from(params.len()).unwrap());
            for param in params {
                match param {
                    None => body.put_i32(-1),
                    Some(text) => {
                        body.put_u32(u32::try_from(text.len()).unwrap());
                        body.put_slice(text.as_bytes());
                    }
                }
            }
            body.put_u16(0);
        });
        message(out, b'D', |body| body.put_slice(b"P\0"));
        message(out, b'E', |body| body.put_slice(&[0; 5]));
    }

    /// The data of a COPY.
    pub(crate) fn copy(out: &mut BytesMut, data: &str) {
        message(out, b'd', |body| body.put_slice(data.as_bytes()));
        message(out, b'c', |_| {});
    }

    pub(crate) fn sync(out: &mut BytesMut) {
        message(out, b'S', |_| {});
    }
}

fn message(out: &mut BytesMut, tag: u8, body: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    let start = out.len();
    out.put_u32(0);
    body(out);
    let length = u32::try_from(out.len() - start).unwrap();
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn string(out: &mut BytesMut, text: &str) {
    out.put_slice(text.as_bytes());
    out.put_u8(0);
}

fn take_string(body: &mut Bytes) -> String {
    let end = body.iter().position(|byte| *byte == 0).unwrap();
    let text = String::from_utf8(body.split_to(end).to_vec()).unwrap();
    body.advance(1);
    text
}

fn columns(body: &mut Bytes) -> Vec<String> {
    let count = body.get_u16();
    let name = |_| {
        let name = take_string(body);
        body.advance(18);
        name
    };
    (0..count).map(name).collect()
}

fn fields(body: &mut Bytes) -> Vec<Option<String>> {
    let count = body.get_u16();
    let field = |_| {
        let length = usize::try_from(body.get_i32()).ok()?;
        Some(String::from_utf8_lossy(&body.split_to(length)).into_owned())
    };
    (0..count).map(field).collect()
}

fn error(mut body: Bytes) -> End {
    let mut fields = BTreeMap::new();
    while body.first().is_some_and(|field| *field != 0) {
        fields.insert(char::from(body.get_u8()), take_string(&mut body));
    }
    End::Error(fields)
}
