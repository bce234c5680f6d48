//! A server that says whatever it is told to say: so that errors come to the clients over the wire, as real ones do.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server is to say. It travels to it as the text of a query, or as the name of the database for an error at
/// the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) code: &'static str,
    pub(crate) message: &'static str,
    pub(crate) hint: &'static str,
}

impl Line {
    pub(crate) fn text(self) -> String {
        format!("{}|{}|{}", self.code, self.message, self.hint)
    }
}

/// Starts a parrot. It ends with the test's runtime.
pub(crate) async fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move { drop(speak(socket).await) });
        }
    });
    address
}

async fn speak(mut socket: TcpStream) -> std::io::Result<()> {
    let parameters = loop {
        let length = socket.read_u32().await? as usize;
        let mut body = vec![0; length - 4];
        socket.read_exact(&mut body).await?;
        // Asked whether it speaks TLS: no.
        if body[..4] == 80_877_103_u32.to_be_bytes() {
            socket.write_all(b"N").await?;
        } else {
            break String::from_utf8_lossy(&body[4..]).into_owned();
        }
    };
    let mut words = parameters.split('\0');
    let database =
        words.by_ref().find(|word| *word == "database").and_then(|_| words.next()).unwrap_or_default();
    if database.contains('|') {
        return socket.write_all(&error("FATAL", database)).await;
    }
    let mut hello = message(b'R', &0_u32.to_be_bytes());
    hello.extend(message(b'S', b"server_version\x0016.0\0"));
    hello.extend(message(b'Z', b"I"));
    socket.write_all(&hello).await?;
    loop {
        let kind = socket.read_u8().await?;
        let length = socket.read_u32().await? as usize;
        let mut body = vec![0; length - 4];
        socket.read_exact(&mut body).await?;
        let text = String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned();
        let mut answer = match kind {
            b'X' => return Ok(()),
            b'Q' if text == "hang up" => return Ok(()),
            b'Q' if text.contains('|') => error("ERROR", &text),
            b'Q' => message(b'C', b"SELECT 0\0"),
            _ => continue,
        };
        answer.extend(message(b'Z', b"I"));
        socket.write_all(&answer).await?;
    }
}

fn error(severity: &str, line: &str) -> Vec<u8> {
    let mut parts = line.split('|');
    let mut body = Vec::new();
    for (field, text) in [
        (b'S', severity),
        (b'V', severity),
        (b'C', parts.next().unwrap_or_default()),
        (b'M', parts.next().unwrap_or_default()),
        (b'H', parts.next().unwrap_or_default()),
    ] {
        if !text.is_empty() {
            body.push(field);
            body.extend(text.as_bytes());
            body.push(0);
        }
    }
    body.push(0);
    message(b'E', &body)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}
