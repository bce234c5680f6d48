//! A server with answers that a DynamoDB for tests never gives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

/// The answer to every request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A status and a body.
    Says(u16, String),
    /// Closes the connection instead of an answer.
    HangsUp,
    /// Closes the connection in the middle of the answer.
    BreaksOff,
}

impl Answer {
    /// An error in DynamoDB's format.
    pub(crate) fn error(status: u16, code: &str, message: &str) -> Self {
        let kind = format!("com.amazonaws.dynamodb.v20120810#{code}");
        Self::Says(status, serde_json::json!({ "__type": kind, "message": message }).to_string())
    }

    pub(crate) fn json(status: u16, body: Value) -> Self {
        Self::Says(status, body.to_string())
    }
}

/// Answers one connection at a time, each with one request, until it is dropped.
pub(crate) struct Answers {
    pub(crate) address: SocketAddr,
    asked: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answers {
    pub(crate) fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, end) = (Arc::clone(&asked), Arc::clone(&over));
        let thread = std::thread::Builder::new().spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                let stream = stream.unwrap();
                // A connection without a request has no answer.
                if read_request(&stream).is_some() {
                    count.fetch_add(1, Ordering::Relaxed);
                    give(&stream, &answer);
                }
            }
        });
        Self { address, asked, over, thread: Some(thread.unwrap()) }
    }

    /// The number of requests.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn read_request(stream: &TcpStream) -> Option<Vec<u8>> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

fn give(mut stream: &TcpStream, answer: &Answer) {
    let text = match answer {
        Answer::HangsUp => return,
        Answer::BreaksOff => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"Attr".to_owned(),
        Answer::Says(status, body) => format!(
            "HTTP/1.1 {status} Some\r\ncontent-type: application/x-amz-json-1.0\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        ),
    };
    // The client may have gone.
    drop(stream.write_all(text.as_bytes()));
}
