//! A small HTTP client: these tests look at bytes that larger ones hide.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use forebay::rt::{self, Runtime, TokioRuntime};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers))
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    get_with(address, path, &[("Host", &address.to_string())]).await
}

pub(crate) async fn get_with(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut stream = Stream::open(address, path, headers).await;
    let mut text = String::new();
    while let Some(more) = stream.more().await {
        text.push_str(&more);
    }
    parse(&text)
}

fn parse(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").expect("a header");
        (name.to_ascii_lowercase(), value.to_owned())
    };
    Answer { status: status.expect("a status"), headers: lines.map(header).collect(), body: body.to_owned() }
}

/// An answer that goes on.
pub(crate) struct Stream {
    socket: TcpStream,
    seen: String,
}

impl Stream {
    pub(crate) async fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut socket = TcpStream::connect(address).await.expect("connected");
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.expect("sent");
        Self { socket, seen: String::new() }
    }

    /// Opens an event stream.
    pub(crate) async fn events(address: SocketAddr) -> Self {
        Self::open(address, "/events", &[("Host", "localhost")]).await
    }

    /// The next bytes. `None` at the end.
    pub(crate) async fn more(&mut self) -> Option<String> {
        let mut buffer = [0; 16 * 1024];
        let runtime = TokioRuntime::current().expect("a runtime");
        let read = rt::within(&runtime, Duration::from_secs(20), self.socket.read(&mut buffer)).await;
        match read.expect("an answer in time") {
            Ok(0) | Err(_) => None,
            Ok(length) => Some(String::from_utf8_lossy(&buffer[..length]).into_owned()),
        }
    }

    /// Reads on until all that came so far contains `text`. Returns all.
    pub(crate) async fn until(&mut self, text: &str) -> &str {
        let runtime = TokioRuntime::current().expect("a runtime");
        let end = runtime.now() + Duration::from_secs(30);
        while !self.seen.contains(text) {
            assert!(runtime.now() < end, "{text:?} did not come: {}", self.seen);
            let more = self.more().await;
            let more = more.unwrap_or_else(|| panic!("the end came before {text:?}: {}", self.seen));
            self.seen.push_str(&more);
        }
        &self.seen
    }

    /// Reads to the end.
    pub(crate) async fn end(&mut self) {
        while self.more().await.is_some() {}
    }
}
