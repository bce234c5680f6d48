//! Follows requests and answers, and derives the state of the connection.

use super::failure::{ErrorFields, Failure};
use super::frames::{Listener, STARTUP};
use super::verb::Verbs;

/// What is known of the protocol's course on one connection. The task that moves its bytes owns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProtocolState {
    /// Requests sent that are each answered by one ReadyForQuery.
    asked: u64,
    /// ReadyForQueries received.
    answered: u64,
    /// The last request that can change anything. Closing a statement cannot, and drivers do so in passing.
    serious: u64,
    /// The last request that failed.
    refused: u64,
    /// The last request that may commit.
    commit: u64,
    /// How many of these were sent.
    pub(super) commits: u64,
    /// How many COMMITs were carried out, and statements outside of a transaction.
    pub(super) committed: u64,
    /// The last COMMIT found no transaction open.
    pub(super) committed_nothing: bool,
    /// How many transactions were begun.
    pub(super) begun: u64,
    /// What is sent next comes outside of a transaction, as far as can be foreseen.
    outside: bool,
    /// A COMMIT was prepared: any later execution may be that COMMIT.
    prepared_commit: bool,
    /// The same for a COMMIT or a ROLLBACK.
    prepared_end: bool,
    /// Part of the request that the next Sync ends, and it may commit.
    may_commit: bool,
    /// The first error since the last BEGIN.
    pub(super) failure: Option<Failure>,
    /// The last COMMIT was answered with a ROLLBACK.
    rolled_back: bool,
    /// Something serious was sent after the last request, which the next Sync will make part of a request.
    unfinished: bool,
    /// The last request ended with a Sync, behind which the data of a COPY FROM ended at the earliest.
    synced: bool,
    /// The end of the data of a COPY FROM was sent behind the last execution.
    data_ended: bool,
    in_transaction: bool,
    /// A setting changed; the shared state takes this over.
    pub(super) altered: bool,
    /// A COPY FROM waits for the client's data.
    copying: bool,
    /// A frame of the server has begun and is not complete.
    pub(super) half_heard: bool,
    /// The socket takes no more bytes for now: requests that the driver holds back are not counted here yet.
    pub(super) blocked: bool,
    /// The driver has not read again since it last got bytes: it may hold answers that nobody takes.
    pub(super) undelivered: bool,
    /// SQLSTATE of the error that ended the session.
    pub(super) fatal: Option<[u8; 5]>,
    /// The client has said good-bye.
    pub(super) over: bool,
    /// The type of the request that passes, and its text.
    request: u8,
    verbs: Verbs,
    answer: Prefix,
    error: ErrorFields,
}

impl ProtocolState {
    /// Whether something that can change the connection's state is on its way.
    pub(super) fn is_unanswered(&self) -> bool {
        self.answered < self.serious || self.unfinished || self.copying || self.blocked || self.half_heard
    }

    /// Whether a request that commits is unanswered: if the connection ends now, its outcome is unknown.
    pub(super) fn is_committing(&self) -> bool {
        self.answered.max(self.refused) < self.commit
    }

    /// The last request that can change anything.
    pub(super) fn newest_request(&self) -> u64 {
        self.serious
    }

    pub(super) fn answers_received(&self) -> u64 {
        self.answered
    }

    /// The requests that are unanswered. Of each, whether it was told an error already, and whether it or a later one may commit.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = (bool, bool)> + use<> {
        let (refused, commit) = (self.refused, self.commit);
        (self.answered + 1..=self.asked).map(move |request| (refused == request, request <= commit))
    }

    /// Whether the server has answered all requests, and nothing else is on its way.
    pub(super) fn is_settled(&self) -> bool {
        self.answered >= self.asked && !self.unfinished && !self.copying && !self.half_heard
    }

    /// Whether a part of a request is still to be sent.
    pub(super) fn is_being_sent(&self) -> bool {
        self.unfinished || self.blocked
    }

    /// Whether the client is in the middle of a request, or of the data of a COPY: only the server itself can end that.
    pub(super) fn is_inside_a_request(&self) -> bool {
        self.unfinished || self.copying
    }

    /// Whether the server waits for the data of a COPY.
    pub(super) fn is_copying(&self) -> bool {
        self.copying
    }

    /// Whether the last request failed.
    #[cfg(feature = "raw")]
    pub(super) fn was_refused(&self) -> bool {
        self.refused == self.asked
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

    /// A transaction is open. If none was open before, it is a new one.
    fn enter(&mut self) {
        if !std::mem::replace(&mut self.in_transaction, true) {
            self.begun += 1;
        }
    }

    fn ask(&mut self) {
        self.asked += 1;
        // The end of the data of a COPY decides on its outcome.
        if std::mem::take(&mut self.unfinished) || self.data_ended {
            self.serious = self.asked;
        }
        if std::mem::take(&mut self.may_commit) {
            self.commit = self.asked;
            self.commits += 1;
            self.rolled_back = false;
        }
    }
}

/// What the client sends.
pub(super) struct Requests<'a>(&'a mut ProtocolState);

impl Listener for Requests<'_> {
    #[inline]
    fn begin(&mut self, kind: u8) -> bool {
        self.0.request = kind;
        match kind {
            b'Q' => self.0.verbs = Verbs::of(self.0.outside),
            b'P' => self.0.verbs = Verbs::behind_a_name(),
            _ => {}
        }
        match kind {
            // Close, Flush, Sync; the password, which belongs to the start-up; and the data of a COPY.
            b'C' | b'H' | b'S' | b'p' | b'd' | b'c' | b'f' => {}
            b'X' => self.0.over = true,
            // As soon as it begins: half a request makes the connection useless for others, too.
            _ => self.0.unfinished = true,
        }
        matches!(kind, b'Q' | b'P')
    }

    fn body(&mut self, part: &[u8]) {
        self.0.verbs.extend(part);
    }

    #[inline]
    fn end(&mut self) {
        let kind = self.0.request;
        match kind {
            b'Q' => {
                self.0.may_commit |= self.0.verbs.may_commit();
                self.0.outside = self.0.verbs.is_outside();
            }
            b'P' => {
                self.0.prepared_commit |= self.0.verbs.may_commit();
                self.0.prepared_end |= self.0.verbs.is_outside();
            }
            b'E' => {
                (self.0.data_ended, self.0.synced) = (false, false);
                self.0.may_commit |= self.0.prepared_commit || self.0.outside;
                self.0.outside |= self.0.prepared_end;
            }
            b'F' => self.0.may_commit |= self.0.outside,
            b'c' | b'f' => self.0.data_ended = true,
            _ => {}
        }
        if matches!(kind, STARTUP | b'Q' | b'F' | b'S') {
            self.0.ask();
            // One behind the end of the data is not overlooked, but one before it still is.
            self.0.synced = kind == b'S' && (self.0.synced || !self.0.data_ended);
        }
    }
}

/// What the server sends.
pub(super) struct Answers<'a>(&'a mut ProtocolState);

impl Listener for Answers<'_> {
    #[inline]
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
                    // The Sync behind the data ends the COPY, and commits it if this one would have.
                    self.0.may_commit |= self.0.commit == self.0.answered;
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

    #[inline]
    fn end(&mut self) {
        match self.0.answer.kind {
            b'Z' => {
                self.0.answered += 1;
                self.0.copying = false;
                match self.0.answer.text() {
                    b"I" => self.0.in_transaction = false,
                    _ => self.0.enter(),
                }
                if self.0.answered >= self.0.serious {
                    self.0.outside = !self.0.in_transaction;
                } else if self.0.refused == self.0.answered && !self.0.in_transaction {
                    // Such as a BEGIN that was refused: what was sent behind it runs outside of a transaction.
                    self.0.commit = self.0.serious;
                }
            }
            b'C' => match self.0.answer.text() {
                b"BEGIN\0" | b"START TR" => {
                    self.0.failure = None;
                    self.0.enter();
                }
                b"COMMIT\0" => {
                    self.0.committed += 1;
                    self.0.rolled_back = false;
                    self.0.committed_nothing = !std::mem::take(&mut self.0.in_transaction);
                }
                // ROLLBACK TO has the same tag; there are no savepoints.
                b"ROLLBACK" => {
                    self.0.rolled_back = self.0.commit == self.0.answered + 1;
                    self.0.in_transaction = false;
                }
                tag => {
                    self.0.altered |= matches!(tag, b"SET\0" | b"RESET\0");
                    self.0.committed += u64::from(!self.0.in_transaction);
                }
            },
            b'E' => {
                if self.0.error.is_fatal {
                    self.0.fatal = Some(self.0.error.code);
                } else {
                    let refused = self.0.answered + 1;
                    // What failed inside of the server may have been carried out all the same.
                    self.0.committed += u64::from(refused == self.0.commit && self.0.error.code == *b"XX000");
                    self.0.refused = refused;
                }
                self.0.failure.get_or_insert(self.0.error.failure());
            }
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
}
