//! What was asked, what was answered, and what that makes of the connection.

use super::frames::{Listener, STARTUP};

/// The books of one connection, kept by the task that moves its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// Requests sent that are each answered by one ReadyForQuery.
    asked: u64,
    /// ReadyForQueries received.
    answered: u64,
    /// The last request that can change anything. Closing a statement cannot, and drivers do so in passing.
    serious: u64,
    /// The last COMMIT.
    commit: u64,
    /// How many COMMITs were sent.
    pub(super) commits: u64,
    /// The last COMMIT was answered with a ROLLBACK.
    rolled_back: bool,
    /// Something serious was sent after the last request, which the next Sync will make part of a request.
    unfinished: bool,
    /// The last request ended with a Sync.
    synced: bool,
    in_transaction: bool,
    /// A setting changed; the shared state takes this over.
    pub(super) altered: bool,
    /// A COPY FROM waits for the client's data.
    copying: bool,
    /// The socket takes no more for now: what the driver holds back is not in these books yet.
    pub(super) blocked: bool,
    /// The driver has not asked for more since it was last given something: it may hold answers that nobody takes.
    pub(super) undelivered: bool,
    /// SQLSTATE of the error that ended the session.
    pub(super) fatal: Option<[u8; 5]>,
    /// The client has said good-bye.
    pub(super) over: bool,
    request: Prefix,
    answer: Prefix,
    error: ErrorFields,
}

impl Ledger {
    /// Whether something that can change the connection's state is on its way.
    pub(super) fn is_unanswered(&self) -> bool {
        self.answered < self.serious || self.unfinished || self.copying || self.blocked
    }

    /// Whether a COMMIT is on its way: should the connection end now, nobody can tell what became of it.
    pub(super) fn is_committing(&self) -> bool {
        self.answered < self.commit
    }

    /// Whether the last COMMIT was answered by rolling back, as of a transaction in which a statement had failed.
    pub(super) fn is_rolled_back(&self) -> bool {
        self.rolled_back
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.in_transaction
    }

    pub(super) fn requests(&mut self) -> Requests<'_> {
        Requests(self)
    }

    pub(super) fn answers(&mut self) -> Answers<'_> {
        Answers(self)
    }

    fn ask(&mut self) {
        self.asked += 1;
        if std::mem::take(&mut self.unfinished) {
            self.serious = self.asked;
        }
    }
}

/// What the client sends.
pub(super) struct Requests<'a>(&'a mut Ledger);

impl Listener for Requests<'_> {
    fn begin(&mut self, kind: u8) -> bool {
        self.0.request = Prefix::of(kind);
        match kind {
            // Close, Flush, Sync; the password, which belongs to the start-up; and the data of a COPY.
            b'C' | b'H' | b'S' | b'p' | b'd' | b'c' | b'f' => {}
            b'X' => self.0.over = true,
            // As soon as it begins: half a request makes the connection useless for others, too.
            _ => self.0.unfinished = true,
        }
        kind == b'Q'
    }

    fn body(&mut self, part: &[u8]) {
        self.0.request.extend(part);
    }

    fn end(&mut self) {
        let kind = self.0.request.kind;
        match kind {
            STARTUP | b'Q' | b'F' | b'S' => self.0.ask(),
            _ => return,
        }
        self.0.synced = kind == b'S';
        if kind == b'Q' && self.0.request.is_commit() {
            self.0.commit = self.0.asked;
            self.0.commits += 1;
            self.0.rolled_back = false;
        }
    }
}

/// What the server sends.
pub(super) struct Answers<'a>(&'a mut Ledger);

impl Listener for Answers<'_> {
    fn begin(&mut self, kind: u8) -> bool {
        self.0.answer = Prefix::of(kind);
        match kind {
            b'E' => self.0.error = ErrorFields::default(),
            // Settings reported before the first ReadyForQuery are what the session begins with.
            b'S' if self.0.answered > 0 => self.0.altered = true,
            b'G' => {
                // A server that is about to read a COPY overlooks the Sync that came with the request.
                if self.0.synced && self.0.answered < self.0.asked {
                    self.0.answered += 1;
                }
                self.0.copying = true;
            }
            _ => {}
        }
        matches!(kind, b'Z' | b'C' | b'E')
    }

    fn body(&mut self, part: &[u8]) {
        if self.0.answer.kind == b'E' {
            self.0.error.extend(part);
        } else {
            self.0.answer.extend(part);
        }
    }

    fn end(&mut self) {
        match self.0.answer.kind {
            b'Z' => {
                self.0.answered += 1;
                self.0.copying = false;
                self.0.in_transaction = self.0.answer.text() != b"I";
            }
            b'C' if self.0.answer.text() == b"ROLLBACK" => self.0.rolled_back = self.0.is_committing(),
            b'C' if matches!(self.0.answer.text(), b"SET\0" | b"RESET\0") => self.0.altered = true,
            b'E' if self.0.error.is_fatal => self.0.fatal = Some(self.0.error.code),
            _ => {}
        }
    }
}

/// The type of a frame and how its body begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Prefix {
    kind: u8,
    text: [u8; 8],
    length: usize,
}

impl Prefix {
    fn of(kind: u8) -> Self {
        Self { kind, ..Self::default() }
    }

    fn extend(&mut self, part: &[u8]) {
        let room = &mut self.text[self.length..];
        let taken = room.len().min(part.len());
        room[..taken].copy_from_slice(&part[..taken]);
        self.length += taken;
    }

    fn text(&self) -> &[u8] {
        &self.text[..self.length]
    }

    fn is_commit(&self) -> bool {
        let begins = |word: &[u8]| {
            let text = self.text();
            text.len() > word.len()
                && text[..word.len()].eq_ignore_ascii_case(word)
                && !text[word.len()].is_ascii_alphanumeric()
                && text[word.len()] != b'_'
        };
        begins(b"COMMIT") || begins(b"END")
    }
}

/// The two fields of an ErrorResponse that matter: how bad it is, and its code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ErrorFields {
    /// The field we are in; none at its beginning.
    field: Option<u8>,
    value: [u8; 5],
    length: usize,
    code: [u8; 5],
    is_fatal: bool,
}

impl ErrorFields {
    fn extend(&mut self, part: &[u8]) {
        for byte in part {
            match (self.field, *byte) {
                (None, kind) => {
                    self.field = Some(kind);
                    self.length = 0;
                }
                (Some(field), 0) => {
                    self.close(field);
                    self.field = None;
                }
                (Some(_), byte) => {
                    if let Some(place) = self.value.get_mut(self.length) {
                        *place = byte;
                    }
                    self.length += 1;
                }
            }
        }
    }

    fn close(&mut self, field: u8) {
        if self.length != self.value.len() {
            return;
        }
        match field {
            // S is translated, V is not; where there is no V, S is in English.
            b'S' | b'V' => self.is_fatal |= matches!(&self.value, b"FATAL" | b"PANIC"),
            b'C' => self.code = self.value,
            _ => {}
        }
    }
}
