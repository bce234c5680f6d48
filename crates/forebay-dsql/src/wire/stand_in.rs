//! Answers in place of a server whose own answers nobody waits for any more.

use tokio::io::ReadBuf;

use super::frames::{Frames, Garbage, Listener};
use crate::driver::given_up::GivenUp;

/// What stands in for the server once a request was given up, until the connection is reset.
///
/// The driver gets what the server would have sent had it cancelled the requests: an error and a ReadyForQuery for each. What
/// the driver sends meanwhile never reaches the server, and is answered in the same way: no caller can go on with a
/// transaction whose statements were not all executed.
pub(super) struct StandIn {
    /// The requests that the driver sends meanwhile.
    requests: Frames,
    swallowed: Swallowed,
    answers: Vec<u8>,
    /// How much of these the driver has read.
    read: usize,
    /// The state of the transaction, as a ReadyForQuery tells it.
    status: u8,
    /// The server has answered all requests. What it sends from now on is for the driver.
    pub(super) settled: bool,
}

impl StandIn {
    pub(super) fn new(in_transaction: bool) -> Self {
        let status = if in_transaction { b'E' } else { b'I' };
        Self {
            requests: Frames::of_server(),
            swallowed: Swallowed::default(),
            answers: Vec::new(),
            read: 0,
            status,
            settled: false,
        }
    }

    /// Answers a request; without an outcome, one that was told its error already.
    pub(super) fn answer(&mut self, outcome: Option<GivenUp>) {
        if let Some(outcome) = outcome {
            let (code, text) = (outcome.code(), outcome.text());
            self.push(b'E', format!("SERROR\0VERROR\0C{code}\0M{text}\0\0").as_bytes());
        }
        self.push(b'Z', &[self.status]);
    }

    fn push(&mut self, kind: u8, body: &[u8]) {
        let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
        self.answers.push(kind);
        self.answers.extend_from_slice(&length.to_be_bytes());
        self.answers.extend_from_slice(body);
    }

    /// Takes what the driver sends, and answers it.
    pub(super) fn swallow(&mut self, bytes: &[u8]) -> Result<(), Garbage> {
        let fed = self.requests.feed(bytes, &mut self.swallowed);
        for _ in 0..std::mem::take(&mut self.swallowed.asked) {
            self.answer(Some(GivenUp::NotSent));
        }
        fed
    }

    /// Whether the driver has read every answer, and is not in the middle of a request.
    pub(super) fn is_done(&self) -> bool {
        !self.has_answers() && !self.requests.is_inside()
    }

    pub(super) fn has_answers(&self) -> bool {
        self.read < self.answers.len()
    }

    /// Gives the driver as much as there is room for.
    pub(super) fn read(&mut self, buffer: &mut ReadBuf<'_>) {
        let rest = &self.answers[self.read..];
        let part = &rest[..rest.len().min(buffer.remaining())];
        buffer.put_slice(part);
        self.read += part.len();
        if !self.has_answers() {
            self.answers.clear();
            self.read = 0;
        }
    }
}

/// Counts the requests that expect a ReadyForQuery.
#[derive(Default)]
struct Swallowed {
    kind: u8,
    asked: usize,
}

impl Listener for Swallowed {
    fn begin(&mut self, kind: u8) -> bool {
        self.kind = kind;
        false
    }

    fn body(&mut self, _part: &[u8]) {}

    fn end(&mut self) {
        self.asked += usize::from(matches!(self.kind, b'Q' | b'F' | b'S'));
    }
}
