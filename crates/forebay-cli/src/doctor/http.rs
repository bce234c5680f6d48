//! One GET request, as small as it can be.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No status page is larger.
const LARGEST: u64 = 16 << 20;

/// Where a page is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    /// Host and port.
    authority: String,
    path: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Url {
    /// Reads `http://host:port/path`. Without a path, it is that of the status.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let example = "such as http://127.0.0.1:9090";
        if text.contains('@') {
            // The error does not repeat it: it may have a password.
            return Err(format!("an address without a user, {example}"));
        }
        let rest =
            text.strip_prefix("http://").ok_or_else(|| format!("an address with http://, {example}"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || !plain(rest) {
            return Err(format!("an address, {example}"));
        }
        let path = if path.is_empty() { "/status.json".to_owned() } else { format!("/{path}") };
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        Ok(Self { authority, path })
    }

    /// Gets it, with HTTP/1.0: then the answer ends with the connection.
    pub(super) async fn get(&self) -> io::Result<Answer> {
        let mut socket = TcpStream::connect(&self.authority).await?;
        let Self { authority, path } = self;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {authority}\r\nAccept: application/json\r\n\r\n");
        socket.write_all(request.as_bytes()).await?;
        let mut bytes = Vec::new();
        socket.take(LARGEST).read_to_end(&mut bytes).await?;
        answer(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
    }
}

fn answer(bytes: &[u8]) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(bytes).ok()? else { return None };
    Some(Answer { status: response.code?, body: bytes[length..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_as_people_paste_them() {
        for (given, authority, path) in [
            ("http://127.0.0.1:9090", "127.0.0.1:9090", "/status.json"),
            ("http://localhost/", "localhost:80", "/status.json"),
            ("http://[::1]:80/a/status.json", "[::1]:80", "/a/status.json"),
        ] {
            let expected = Url { authority: authority.to_owned(), path: path.to_owned() };
            assert_eq!(Url::parse(given), Ok(expected), "{given}");
        }
        for wrong in
            ["", "localhost:9090", "https://localhost", "http://", "http://a b", "http://u:hunter2@h"]
        {
            let error = Url::parse(wrong).unwrap_err();
            assert!(error.contains("such as http://") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let whole = b"HTTP/1.1 401 Unauthorized\r\na: b\r\n\r\nno";
        assert_eq!(answer(whole), Some(Answer { status: 401, body: b"no".to_vec() }));
        assert_eq!(answer(b"SSH-2.0-x\r\n"), None);
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
