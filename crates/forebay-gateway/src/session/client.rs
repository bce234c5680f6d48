//! Frames of the client: which pass, which need something in front, and which must wait.

use super::again::LONGEST_FIRST;
use super::framing::Run;
use super::requests::{Batch, Request};
use super::scan::{self, Flags, Meaning};
use super::statements::{Change, Slot};
use super::{Hold, Outbox, TransactionStatus, Violation, VirtualSession};
use crate::protocol::{HEADER, ServerError, client, header, split_string, write};

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// Something else was sent in its place, or it was answered here.
    Drop,
    /// It waits, and everything behind it.
    Hold,
}

/// How much of a frame must be there before it can be handled.
enum Needed {
    More(usize),
    /// This much can be read now, of a frame of this length.
    Ready {
        kind: u8,
        read: usize,
        length: usize,
    },
}

impl VirtualSession {
    pub(super) fn client_bytes(&mut self, bytes: &[u8], out: &mut Outbox) -> Result<(), Violation> {
        let mut bytes = bytes;
        while !self.client_side.partial.is_empty() {
            match self.needed(&self.client_side.partial)? {
                Needed::More(count) => {
                    let (part, rest) = bytes.split_at(count.min(bytes.len()));
                    self.client_side.partial.extend_from_slice(part);
                    bytes = rest;
                    if part.len() < count {
                        return Ok(());
                    }
                }
                Needed::Ready { .. } => {
                    let frame = std::mem::take(&mut self.client_side.partial);
                    self.whole_frames(&frame, out)?;
                    // It may have to wait, and then what follows waits, too.
                    if !self.held.is_empty() {
                        return self.hold_bytes(bytes);
                    }
                }
            }
        }
        self.whole_frames(bytes, out)
    }

    fn whole_frames(&mut self, bytes: &[u8], out: &mut Outbox) -> Result<(), Violation> {
        let mut run = Run::new(bytes);
        loop {
            self.client_side.go_on(&mut run, &mut out.to_server);
            let rest = run.rest();
            if rest.is_empty() || self.over {
                break;
            }
            // Without a whole header, a frame that waits could not be answered with an error.
            if (self.backend.is_some() || rest.len() >= HEADER) && self.must_wait(rest[0]) {
                run.flush(&mut out.to_server);
                return self.hold_bytes(rest);
            }
            let Needed::Ready { kind, read, length } = self.needed(rest)? else {
                self.client_side.keep(&mut run, &mut out.to_server);
                return Ok(());
            };
            let verdict = if self.backend.is_none() {
                self.without_backend(kind, &rest[HEADER..read], out)?
            } else {
                self.client_frame(kind, &rest[HEADER..read], &mut run, out)?
            };
            match verdict {
                Verdict::Pass => {
                    self.remember_first(kind, rest, length);
                    self.client_side.pass(length, &mut run);
                }
                Verdict::Drop => {
                    self.client_side.skip(length, &mut run, &mut out.to_server);
                    // What is remembered would lack it.
                    if let Some(backend) = &mut self.backend {
                        backend.first = None;
                    }
                    // Its place may have been taken by a part of it, which waits.
                    if !self.held.is_empty() {
                        return self.hold_bytes(run.rest());
                    }
                }
                Verdict::Hold => {
                    run.flush(&mut out.to_server);
                    return self.hold_bytes(rest);
                }
            }
        }
        run.flush(&mut out.to_server);
        Ok(())
    }

    /// Whether a frame of this kind waits, whatever it says.
    fn must_wait(&self, kind: u8) -> bool {
        // The server waits for copy data.
        if self.copying {
            return false;
        }
        match self.hold {
            Hold::None => self.backend.is_none() && self.needs_backend(kind),
            Hold::AtBoundary => !self.unsynced && kind != client::TERMINATE,
            Hold::All => kind != client::TERMINATE,
        }
    }

    pub(super) fn hold_bytes(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        // The relay stops to read. What it has read already is one buffer.
        if self.held.len() + bytes.len() > self.limits.max_message + (1 << 20) {
            return Err(Violation::protocol("too much input while the session waits"));
        }
        self.held.extend_from_slice(bytes);
        // A client that is gone need not wait.
        if self.held.first() == Some(&client::TERMINATE) {
            self.over = true;
        }
        Ok(())
    }

    /// Handles the frames that wait, if they need not wait any more.
    pub(super) fn release(&mut self, out: &mut Outbox) {
        while !self.held.is_empty() && !self.over && !self.must_wait(self.held[0]) {
            let held = std::mem::take(&mut self.held);
            if let Err(Violation(error)) = self.client_bytes(&held, out) {
                self.terminate(&error, out);
            }
            if self.held.len() == held.len() {
                break;
            }
        }
    }

    fn client_frame(
        &mut self,
        kind: u8,
        body: &[u8],
        run: &mut Run<'_>,
        out: &mut Outbox,
    ) -> Result<Verdict, Violation> {
        if self.skipping && kind != client::SYNC && kind != client::TERMINATE {
            return Ok(Verdict::Pass);
        }
        if self.copying {
            // The server ignores Sync and Flush here. Anything else ends the copy with an error, and is consumed by it.
            match kind {
                client::COPY_DATA | client::FLUSH | client::SYNC => {}
                client::COPY_DONE | client::COPY_FAIL => self.copying = false,
                client::TERMINATE => {
                    self.over = true;
                    return Ok(Verdict::Drop);
                }
                _ => {
                    self.copying = false;
                    self.skipping = matches!(self.requests.first(), Some(Request::Execute(..)));
                }
            }
            return Ok(Verdict::Pass);
        }
        self.flushed = kind == client::FLUSH;
        match kind {
            client::QUERY => self.query(body, run, out),
            client::PARSE => self.parse(body, run, out),
            client::BIND => self.bind(body, run, out),
            client::DESCRIBE => self.describe(body, run, out),
            client::EXECUTE => self.execute(body, run, out),
            client::CLOSE => self.close(body, run, out),
            client::SYNC => {
                self.requests.push(Request::Sync);
                (self.unsynced, self.skipping) = (false, false);
                self.segment += 1;
                Ok(Verdict::Pass)
            }
            client::FLUSH | client::COPY_DATA => Ok(Verdict::Pass),
            client::COPY_DONE | client::COPY_FAIL => {
                if !self.requests.is_empty() {
                    self.requests.push(Request::CopyEnd);
                }
                Ok(Verdict::Pass)
            }
            client::FUNCTION_CALL => {
                self.unanswered.may_commit = true;
                self.segment += 1;
                self.requests.push(Request::FunctionCall);
                self.unsynced = false;
                Ok(Verdict::Pass)
            }
            client::TERMINATE => {
                self.over = true;
                Ok(Verdict::Drop)
            }
            kind => Err(Violation::protocol(format!("invalid frontend message type {kind}"))),
        }
    }

    fn query(&mut self, body: &[u8], run: &mut Run<'_>, out: &mut Outbox) -> Result<Verdict, Violation> {
        let text = body.strip_suffix(b"\0").ok_or_else(malformed)?;
        let verdict = match scan::read(text, self.backslash_escapes()) {
            Meaning::Plain(flags) => {
                self.note(flags);
                self.forget_unnamed(text);
                self.requests.push(Request::Query(flags));
                Verdict::Pass
            }
            Meaning::Pieces(pieces) => match self.translate(text, pieces) {
                None => {
                    self.drain(run, out);
                    return Ok(Verdict::Hold);
                }
                Some(translation) => {
                    self.note(translation.flags);
                    self.forget_unnamed(text);
                    if translation.holds {
                        self.hold = Hold::All;
                    }
                    let (steps, flags) = (translation.steps, translation.flags);
                    self.requests.push(Request::Batch(Box::new(Batch { steps, at: 0, flags })));
                    if let Some(text) = translation.text {
                        run.flush(&mut out.to_server);
                        write::query(&mut out.to_server, &text);
                        Verdict::Drop
                    } else {
                        Verdict::Pass
                    }
                }
            },
        };
        (self.unsynced, self.goes_on) = (false, false);
        self.segment += 1;
        Ok(verdict)
    }

    /// Waits until everything is answered, and asks the server to answer.
    pub(super) fn drain(&mut self, run: &mut Run<'_>, out: &mut Outbox) {
        run.flush(&mut out.to_server);
        write::bare(&mut out.to_server, client::FLUSH);
        self.hold = Hold::All;
    }

    /// A Query removes the unnamed statement. Its first statement takes the unnamed portal, if it is let in.
    fn forget_unnamed(&mut self, text: &[u8]) {
        if self.portals.get(b"").is_some()
            && self.status != TransactionStatus::Failed
            && !scan::pieces(text, self.backslash_escapes()).is_empty()
        {
            self.portals.remove(b"");
        }
        let slot = self.statements.get(b"");
        let in_flight = !self.requests.is_empty();
        if slot.is_free() && !(in_flight && slot.since >= self.answered_segment) {
            return;
        }
        let differs = slot.differs();
        let before = self.statements.put(b"", Slot::free(self.segment));
        // The server may skip what is unanswered: this Query, or another request that changed the unnamed statement.
        if in_flight {
            self.requests.push(Request::Forgets(Box::new(Change { name: Box::default(), before })));
            if differs && self.unsynced {
                self.hold_at_boundary();
            }
        }
    }

    pub(super) fn note(&mut self, flags: Flags) {
        if flags == Flags::default() {
            return;
        }
        self.changed_schema |= flags.has(Flags::SCHEMA);
        self.unanswered.may_commit |= flags.has(Flags::COMMITS);
        self.unanswered.may_end_block |= flags.has(Flags::COMMITS) || flags.has(Flags::ROLLS_BACK);
        if flags.has(Flags::WRITES) {
            self.unanswered.may_commit |=
                self.status == TransactionStatus::Idle || self.unanswered.may_end_block;
            self.unanswered.may_change_schema |= self.unanswered.may_commit && flags.has(Flags::SCHEMA);
            if let Some(backend) = &mut self.backend {
                backend.wrote = true;
            }
        }
    }

    pub(super) fn hold_at_boundary(&mut self) {
        if self.hold == Hold::None {
            self.hold = Hold::AtBoundary;
        }
    }

    pub(super) const fn backslash_escapes(&self) -> bool {
        self.escapes
    }

    /// The client was told other values: does the scanner read statements as the server does?
    pub(super) fn told_changed(&mut self) {
        let escapes = self.told.get("standard_conforming_strings") == Some("off");
        // On another backend, a text that was prepared before would be read by other rules.
        self.pinned |= self.escapes != escapes && self.statements.any();
        self.escapes = escapes;
        // In these, a byte that looks like a quote or a backslash may be half of a character.
        let unsafe_encodings = ["BIG5", "GB18030", "GBK", "JOHAB", "SHIFT_JIS_2004", "SJIS", "UHC"];
        let doubtful = self.escapes
            || self.told.get("client_encoding").is_some_and(|name| unsafe_encodings.contains(&name));
        // What the client has sent already was read as if nothing had changed.
        self.unsure |= std::mem::replace(&mut self.doubtful, doubtful) && !doubtful;
    }

    /// How much of a frame must be there.
    fn needed(&self, bytes: &[u8]) -> Result<Needed, Violation> {
        let Some((kind, length)) = header(bytes)? else { return Ok(Needed::More(HEADER - bytes.len())) };
        let read = match kind {
            client::COPY_DATA | client::COPY_DONE | client::COPY_FAIL | client::FUNCTION_CALL => HEADER,
            client::BIND => {
                // Two names, and what follows may be long.
                let body = &bytes[HEADER..length.min(bytes.len())];
                match split_string(body).and_then(|(_, rest)| split_string(rest)) {
                    // A parameter says what the statement sets.
                    Some((name, _)) if length <= LONGEST_FIRST && self.sets_parameter(name) => length,
                    Some((_, rest)) => HEADER + body.len() - rest.len(),
                    None if bytes.len() >= length => return Err(malformed()),
                    None if bytes.len() > LONGEST_NAMES => {
                        return Err(Violation::protocol("the name of a statement is too long"));
                    }
                    None => return Ok(Needed::More((length - bytes.len()).min(256))),
                }
            }
            _ if length > self.limits.max_message => {
                return Err(Violation::new(ServerError::fatal(
                    "54000",
                    format!("message of {length} bytes is too long"),
                )));
            }
            _ => length,
        };
        if bytes.len() < read {
            Ok(Needed::More(read - bytes.len()))
        } else {
            Ok(Needed::Ready { kind, read, length })
        }
    }
}

pub(super) fn malformed() -> Violation {
    Violation::protocol("invalid message format")
}

const LONGEST_NAMES: usize = 64 << 10;
