//! One GET request, as small as it can be.

use std::fmt;
use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No status page is larger.
const LARGEST: usize = 16 << 20;
/// The name of the page's JSON.
const FILE: &str = "status.json";

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

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl Url {
    /// Reads the address of a page, with or without `http://`, a port, and the name of its JSON.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let example = "such as http://127.0.0.1:9464";
        if text.contains('@') {
            // The error does not repeat it: it may have a password.
            return Err(format!("an address without a user, {example}"));
        }
        let (scheme, rest) = text.trim().split_once("://").unwrap_or(("http", text.trim()));
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(format!("an address with http://, {example}: a status page has no TLS of its own"));
        }
        let rest = rest.split(['?', '#']).next().unwrap_or(rest);
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let authority = with_port(authority).filter(|_| rest.bytes().all(|byte| byte.is_ascii_graphic()));
        let authority = authority.ok_or_else(|| format!("an address, {example}"))?;
        let path = match path.trim_end_matches('/') {
            "" => format!("/{FILE}"),
            path if path.ends_with(".json") => format!("/{path}"),
            path => format!("/{path}/{FILE}"),
        };
        Ok(Self { authority, path })
    }

    /// Gets it, with this token if there is one. By HTTP/1.0, the answer ends with the connection.
    pub(super) async fn get(&self, token: Option<&str>) -> io::Result<Answer> {
        let mut socket = TcpStream::connect(&self.authority).await?;
        let Self { authority, path } = self;
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!(
            "GET {path} HTTP/1.0\r\nHost: {authority}\r\nAccept: application/json\r\nConnection: close\r\n{token}\r\n"
        );
        socket.write_all(request.as_bytes()).await?;
        let mut bytes = Vec::new();
        // Some servers do not close the connection after their answer.
        while !is_whole(&bytes) {
            if bytes.len() > LARGEST {
                return Err(invalid("the answer does not end"));
            }
            if socket.read_buf(&mut bytes).await? == 0 {
                break;
            }
        }
        if bytes.is_empty() {
            return Err(invalid("it closes the connection without an answer"));
        }
        answer(&bytes).ok_or_else(|| invalid("the answer is not HTTP"))
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Host and port. Without a port, it is that of HTTP.
fn with_port(authority: &str) -> Option<String> {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (format!("[{address}]"), if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => {
            let (host, port) =
                authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
            (host.to_owned(), port)
        }
    };
    let port: u16 = port.map_or(Some(80), |port| port.parse().ok())?;
    (!host.is_empty() && port > 0).then(|| format!("{host}:{port}"))
}

/// Whether these bytes are all of an answer that tells its length.
fn is_whole(bytes: &[u8]) -> bool {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = response.parse(bytes) else { return false };
    let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length =
        length.and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse::<usize>().ok());
    length.is_some_and(|length| bytes.len() - head >= length)
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
            ("http://127.0.0.1:9464", "127.0.0.1:9464", "/status.json"),
            ("127.0.0.1:9464", "127.0.0.1:9464", "/status.json"),
            ("HTTP://localhost/", "localhost:80", "/status.json"),
            (" http://localhost:9464/?x=1#top\n", "localhost:9464", "/status.json"),
            ("http://[::1]", "[::1]:80", "/status.json"),
            ("http://[::1]:80/a/status.json", "[::1]:80", "/a/status.json"),
            ("http://host:80/forebay/", "host:80", "/forebay/status.json"),
        ] {
            let expected = Url { authority: authority.to_owned(), path: path.to_owned() };
            assert_eq!(Url::parse(given), Ok(expected), "{given}");
        }
        for wrong in [
            "",
            "https://localhost",
            "http://",
            "http://a b",
            "http://a\r\nX: y",
            "http://é",
            "http://host:0",
            "http://host:99999",
            "http://host:x",
            "http://::1:80",
            "http://[::1",
            "http://[localhost]:80",
            "http://u:hunter2@h",
        ] {
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

    #[test]
    fn an_answer_that_tells_its_length_ends_with_it() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        for (body, whole) in [("", false), ("{", false), ("{}", true)] {
            assert_eq!(is_whole(format!("{head}{body}").as_bytes()), whole, "{body}");
        }
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\n\r\n{}"), "it ends with the connection");
    }
}
