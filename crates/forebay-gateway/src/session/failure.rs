//! The backend is gone, or there is none, or the statement was cancelled: what the client is told, and how its session goes on.

use std::sync::Arc;

use super::client::Verdict;
use super::framing::Framing;
use super::requests::Request;
use super::scan::{self, Effect, Flags};
use super::statements::{Slot, Statement};
use super::{Hold, Outbox, TransactionStatus, Unanswered, Violation, VirtualSession};
use crate::protocol::{HEADER, ServerError, Severity, client, header, server, split_string, write};

/// What the loss of a backend means to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Nothing: the session needs no backend now, or has sent nothing to this one. Frames that wait go to the next.
    Unnoticed,
    /// It was told, or will be at its next statement, and its session goes on without a backend.
    Told,
    /// Its session ends: close its connection when the outbox is written.
    Ended,
}

/// What became of a cancel request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// No statement is running, or it is a COMMIT, whose outcome the client must learn.
    NothingRunning,
    /// A row is half sent. See [`is_giving_up`](VirtualSession::is_giving_up).
    Soon,
    /// The client was told (57014). The session has no backend any more: drop it.
    DropBackend,
    /// The client was told that its session ends, because it had something on its backend that is lost now.
    Ended,
}

impl VirtualSession {
    /// The backend is gone: its connection ended, or it sent garbage.
    pub fn lost(&mut self, out: &mut Outbox) -> Lost {
        if self.over {
            self.leave(out);
            return Lost::Ended;
        }
        let Some(backend) = &mut self.backend else { return Lost::Unnoticed };
        let last_words = std::mem::take(&mut backend.last_words);
        let said =
            if last_words.is_empty() { String::new() } else { format!(" The server said: {last_words}.") };
        let (sqlstate, message) = if self.may_have_committed() {
            (
                "08007",
                "the connection to the server was lost, and it is not known whether the transaction was committed",
            )
        } else {
            ("08006", "the connection to the server was lost")
        };
        if self.is_noticed() {
            let mut error = ServerError::error(sqlstate, message);
            if !said.is_empty() {
                error = error.with_detail(said.trim_start().to_owned());
            }
            if !self.abandon(&error, &error, out) {
                return Lost::Ended;
            }
            // What waits up to the Sync was never sent, and is skipped.
            self.release(out);
            return Lost::Told;
        }
        if self.pinned || self.unsure {
            // As a server that shuts down says it.
            let error = ServerError::fatal("57P01", "terminating connection due to administrator command")
                .with_routine("ProcessInterrupts");
            self.end(&error, out);
            self.leave(out);
            return Lost::Ended;
        }
        let error = ServerError::error(sqlstate, message)
            .with_detail(format!("The transaction was rolled back.{said}"));
        if self.leave_unnoticed(&error, out) == TransactionStatus::InTransaction {
            Lost::Told
        } else {
            Lost::Unnoticed
        }
    }

    /// Forgets the backend, of which the client waits for nothing. Where the client is in its transaction: the error is for the next statement of
    /// an open one, as the client may be about to commit, and must not take the answer for a success.
    fn leave_unnoticed(&mut self, error: &ServerError, out: &mut Outbox) -> TransactionStatus {
        let status = self.status;
        self.leave(out);
        self.status = status;
        if status == TransactionStatus::InTransaction {
            self.pending = Some(Box::new(error.clone()));
        }
        // In a transaction that is gone, nothing needs a backend up to its end.
        self.release(out);
        status
    }

    /// The client asks to cancel what is running. Aurora DSQL ignores such requests, so the backend is dropped.
    pub fn cancel(&mut self, out: &mut Outbox) -> Cancelled {
        let reason = ServerError::error("57014", "canceling statement due to user request")
            .with_routine("ProcessInterrupts");
        self.give_up(&reason, out)
    }

    /// Whether the statement that runs is still to be given up, once its row is sent of which a half was sent when that was asked. Call it when
    /// the server has answered more, and then [`give_up_now`](Self::give_up_now). If the statement is complete, it was too late.
    #[must_use]
    pub fn is_giving_up(&self) -> bool {
        self.giving_up.as_ref().is_some_and(|(answers, _)| *answers == self.answers)
    }

    /// Gives the statement up for the reason for which that was asked. See [`is_giving_up`](Self::is_giving_up).
    pub fn give_up_now(&mut self, out: &mut Outbox) -> Cancelled {
        match self.giving_up.take() {
            Some((answers, reason)) if answers == self.answers => self.give_up(&reason, out),
            _ => Cancelled::NothingRunning,
        }
    }

    /// As [`cancel`](Self::cancel), for another reason: the statement has taken too long.
    pub fn give_up(&mut self, error: &ServerError, out: &mut Outbox) -> Cancelled {
        // The client was told its last word, or is gone.
        if self.over {
            return Cancelled::NothingRunning;
        }
        if self.backend.is_none() {
            if !self.wants_backend() {
                return Cancelled::NothingRunning;
            }
            self.fail(error, out);
            return Cancelled::DropBackend;
        }
        if !self.is_running() || self.commits_now() {
            return Cancelled::NothingRunning;
        }
        if self.server_side.is_halfway() {
            self.giving_up = Some((self.answers, Box::new(error.clone())));
            return Cancelled::Soon;
        }
        let rest = ServerError::error(
            "08007",
            "the connection to the server was given up, and it is not known whether this statement was executed",
        );
        if !self.is_noticed() {
            // Only requests of the gateway were sent for it.
            if self.pinned || self.unsure {
                self.end(&ServerError { severity: Severity::Fatal, ..error.clone() }, out);
                self.leave(out);
                return Cancelled::Ended;
            }
            self.leave_unnoticed(error, out);
            self.fail(error, out);
            return Cancelled::DropBackend;
        }
        let mut error = error.clone();
        if self.may_have_committed() {
            error = error.with_detail(
                "The server cannot be stopped: the statement may have been executed and committed.",
            );
        }
        if !self.abandon(&error, &rest, out) {
            return Cancelled::Ended;
        }
        // What waits up to the Sync was never sent, and is skipped.
        self.release(out);
        Cancelled::DropBackend
    }

    /// No backend could be had. The statement that waits gets this error, once, and its session goes on.
    pub fn fail(&mut self, error: &ServerError, out: &mut Outbox) {
        let Ok(Some((kind, length))) = header(&self.held) else { return };
        if self.backend.is_some() || self.over {
            return;
        }
        let held = std::mem::take(&mut self.held);
        self.goes_on = false;
        write::error(&mut out.to_client, error);
        match kind {
            client::QUERY | client::FUNCTION_CALL => {
                write::ready_for_query(&mut out.to_client, self.status.as_byte())
            }
            _ => self.skipping = true,
        }
        // What is missing of the frame goes nowhere.
        let rest = held.get(length..).unwrap_or_default();
        self.client_side.drop_next(length.saturating_sub(held.len()));
        if let Err(Violation(error)) = self.client_bytes(rest, out) {
            self.terminate(&error, out);
        }
    }

    /// Whether a commit is under way: of a transaction block, or of statements outside of one.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        let ends = |request: &Request| commits(request) || request.ends_segment();
        // A COPY whose data has not ended is not committed, nor is what came before it in its transaction.
        self.unanswered.may_commit && !self.copying && self.requests.iter().any(ends)
    }

    /// Whether something that is unanswered may be committed. Extended requests are not before their Sync, unless they change the schema: a
    /// server may commit that at once.
    #[must_use]
    pub fn may_have_committed(&self) -> bool {
        self.unanswered.may_change_schema || self.is_committing()
    }

    /// Whether the statement that runs is the COMMIT of a transaction block.
    fn commits_now(&self) -> bool {
        match self.requests.iter().find(|request| !request.is_ours()) {
            Some(Request::Batch(batch)) => batch
                .steps
                .get(batch.at)
                .is_some_and(|step| matches!(step.effect, Effect::Commit | Effect::CommitAndChain)),
            Some(request) => commits(request),
            None => false,
        }
    }

    /// Whether the client waits for something that the backend was asked, or has half a frame there.
    fn is_noticed(&self) -> bool {
        self.unsynced
            || self.copying
            || self.client_side.is_in_body()
            || self.server_side.is_halfway()
            || self.requests.iter().any(|request| !request.is_ours() && !matches!(request, Request::CopyEnd))
    }

    /// Answers everything that is unanswered: the first segment with `first`, those behind it with `rest`. Whether the session goes on.
    fn abandon(&mut self, first: &ServerError, rest: &ServerError, out: &mut Outbox) -> bool {
        if self.server_side.is_halfway() || self.pinned || self.unsure {
            let error = ServerError { severity: Severity::Fatal, ..first.clone() };
            self.end(&error, out);
            self.leave(out);
            return false;
        }
        let mut status = match self.status {
            TransactionStatus::Idle => TransactionStatus::Idle,
            _ => TransactionStatus::Failed,
        };
        let mut error = Some(first);
        // The server may have said already why this segment fails. Then a COMMIT in it was not executed.
        let (mut told, mut failed) = (self.told_error, self.told_error);
        // Behind an extended request that fails, a server skips everything up to the Sync.
        let mut skips = false;
        // A refusal stands for a request of the client.
        let of_client = |request: &&Request| !request.is_ours() || matches!(request, Request::OurRefusal(_));
        for request in self.requests.iter().filter(of_client) {
            if matches!(request, Request::CopyEnd | Request::Forgets(_)) {
                continue;
            }
            if skips && !matches!(request, Request::Sync) {
                continue;
            }
            // Also a Sync alone: what it ends was answered, but perhaps not committed.
            if !std::mem::replace(&mut told, true) {
                write::error(&mut out.to_client, error.take().unwrap_or(rest));
            }
            if commits(request) && !failed {
                // That ends the block, whatever became of it.
                status = TransactionStatus::Idle;
            }
            skips = !request.ends_with_ready();
            if !skips {
                write::ready_for_query(&mut out.to_client, status.as_byte());
                (told, failed) = (false, false);
            }
        }
        if self.unsynced && !told {
            write::error(&mut out.to_client, error.unwrap_or(rest));
        }
        let skipping = self.unsynced || skips;
        self.leave(out);
        (self.status, self.skipping, self.unsynced) = (status, skipping, skipping);
        true
    }

    /// Forgets the backend and everything that was asked there.
    fn leave(&mut self, out: &mut Outbox) {
        out.to_server.clear();
        self.backend = None;
        self.requests.undo_all(&mut self.statements);
        self.statements.leave_backend();
        self.answered_segment = self.segment;
        self.portals.clear();
        self.savepoints = Vec::new();
        self.settings = Arc::clone(&self.committed);
        self.status = TransactionStatus::Idle;
        self.hold = Hold::None;
        if self.held.len() < HEADER {
            // Too little to be answered with an error.
            self.client_side.partial.append(&mut self.held);
        }
        self.server_side = Framing::default();
        self.client_side.drop_rest();
        self.giving_up = None;
        (self.failed, self.told_error) = (false, false);
        (self.skipping, self.unsynced, self.copying) = (false, false, false);
        self.unanswered = Unanswered::default();
        (self.unsure_now, self.implicit) = (false, false);
    }

    /// Whether a frame of this kind cannot be answered here.
    pub(super) fn needs_backend(&self, kind: u8) -> bool {
        let here = self.skipping || self.status != TransactionStatus::Idle;
        let never = matches!(
            kind,
            client::TERMINATE
                | client::FLUSH
                | client::SYNC
                | client::COPY_DATA
                | client::COPY_DONE
                | client::COPY_FAIL
        );
        !here && !never
    }

    /// A frame that needs no backend, or is in a transaction whose backend is gone.
    pub(super) fn without_backend(
        &mut self,
        kind: u8,
        body: &[u8],
        out: &mut Outbox,
    ) -> Result<Verdict, Violation> {
        match kind {
            client::TERMINATE => self.over = true,
            client::SYNC => {
                (self.skipping, self.unsynced) = (false, false);
                write::ready_for_query(&mut out.to_client, self.status.as_byte());
            }
            _ if self.skipping => {}
            client::FLUSH | client::COPY_DATA | client::COPY_DONE | client::COPY_FAIL => {}
            client::QUERY => self.query_in_failed(body.strip_suffix(b"\0").unwrap_or(body), out),
            client::FUNCTION_CALL => {
                self.answer_failed(out);
                write::ready_for_query(&mut out.to_client, self.status.as_byte());
            }
            client::PARSE | client::BIND | client::DESCRIBE | client::EXECUTE | client::CLOSE => {
                self.unsynced = true;
                if self.extended_in_failed(kind, body, out).transpose()?.is_none() {
                    self.answer_failed(out);
                    self.skipping = true;
                }
            }
            kind => return Err(Violation::protocol(format!("invalid frontend message type {kind}"))),
        }
        Ok(Verdict::Drop)
    }

    /// The transaction has failed: as PostgreSQL says it, or why, if the client does not know yet.
    fn answer_failed(&mut self, out: &mut Outbox) {
        self.status = TransactionStatus::Failed;
        let error = match self.pending.take() {
            Some(error) => *error,
            None => ServerError::error(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            )
            .with_routine("exec_simple_query"),
        };
        write::error(&mut out.to_client, &error);
    }

    fn query_in_failed(&mut self, text: &[u8], out: &mut Outbox) {
        self.statements.put(b"", Slot::default());
        let pieces = scan::pieces(text, self.backslash_escapes());
        match pieces.first() {
            None => write::bare(&mut out.to_client, server::EMPTY_QUERY),
            Some(piece) if matches!(piece.effect, Effect::Commit | Effect::Rollback) => {
                if self.end_failed(&piece.effect, out) && pieces.len() > 1 {
                    // The rest is a new transaction, on another backend.
                    let mut frame = Vec::new();
                    write::query(&mut frame, &text[pieces[1].range.start..]);
                    frame.append(&mut self.held);
                    self.held = frame;
                    self.goes_on = true;
                    return;
                }
            }
            Some(_) => self.answer_failed(out),
        }
        write::ready_for_query(&mut out.to_client, self.status.as_byte());
    }

    /// The client ends its transaction. Whether that succeeded: a commit of what is lost fails, unless the client knows already.
    fn end_failed(&mut self, effect: &Effect, out: &mut Outbox) -> bool {
        self.status = TransactionStatus::Idle;
        match self.pending.take() {
            Some(error) if *effect == Effect::Commit => {
                write::error(&mut out.to_client, &error);
                false
            }
            _ => {
                write::command_complete(&mut out.to_client, "ROLLBACK");
                true
            }
        }
    }

    /// Only the end of the transaction can be prepared and executed. None: it fails.
    fn extended_in_failed(
        &mut self,
        kind: u8,
        body: &[u8],
        out: &mut Outbox,
    ) -> Option<Result<(), Violation>> {
        let ends = |statement: &Statement| {
            matches!(statement.step.as_deref()?.effect, Effect::Commit | Effect::Rollback).then_some(())
        };
        match kind {
            client::PARSE => {
                let (name, rest) = split_string(body)?;
                let (text, types) = split_string(rest)?;
                let (statement, _) = self.new_statement(name, text, rest);
                if name.is_empty() {
                    // It is gone, whatever becomes of this.
                    self.statements.put(b"", Slot::default());
                }
                ends(&statement)?;
                if types.len() < 2 || !name.is_empty() && self.statements.get(name).statement.is_some() {
                    return None;
                }
                if let Err(violation) = self.check_statement(&statement) {
                    return Some(Err(violation));
                }
                self.statements.put(
                    name,
                    Slot {
                        statement: Some(Arc::new(statement)),
                        on_backend: false,
                        unverified: false,
                        since: self.segment,
                    },
                );
                write::bare(&mut out.to_client, server::PARSE_COMPLETE);
            }
            client::BIND => {
                let (portal, rest) = split_string(body)?;
                let (name, _) = split_string(rest)?;
                let statement = Arc::clone(self.statements.get(name).statement.as_ref()?);
                ends(&statement)?;
                if let Err(violation) = self.check_portal(portal, Some(&statement)) {
                    return Some(Err(violation));
                }
                self.portals.put(portal, statement, self.segment);
                write::bare(&mut out.to_client, server::BIND_COMPLETE);
            }
            client::DESCRIBE => {
                let (&what, rest) = body.split_first()?;
                let (name, _) = split_string(rest)?;
                let statement = match what {
                    b'S' => self.statements.get(name).statement.as_ref()?,
                    _ => &self.portals.get(name)?.statement,
                };
                ends(statement)?;
                if what == b'S' {
                    write::frame(&mut out.to_client, server::PARAMETER_DESCRIPTION, |out| {
                        out.extend_from_slice(&[0, 0])
                    });
                }
                write::bare(&mut out.to_client, server::NO_DATA);
            }
            client::EXECUTE => {
                let (portal, _) = split_string(body)?;
                let statement = Arc::clone(&self.portals.get(portal)?.statement);
                ends(&statement)?;
                let effect = statement.step.as_deref().map(|step| step.effect.clone())?;
                if !self.end_failed(&effect, out) {
                    self.skipping = true;
                }
            }
            _ => {
                let (&what, rest) = body.split_first()?;
                let (name, _) = split_string(rest)?;
                if what == b'S' {
                    self.statements.forget(name);
                } else {
                    self.portals.remove(name);
                }
                write::bare(&mut out.to_client, server::CLOSE_COMPLETE);
            }
        }
        Some(Ok(()))
    }
}

/// Whether it is the COMMIT of a transaction block.
pub(super) fn commits(request: &Request) -> bool {
    match request {
        Request::Query(flags) | Request::Execute(flags, _) => flags.has(Flags::COMMITS),
        Request::Batch(batch) => batch.flags.has(Flags::COMMITS),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Memory, Reported, SessionLimits, StartSettings};

    /// A COPY that the server takes data for. With `ends`, the client has sent its end.
    fn copying(ends: bool) -> VirtualSession {
        let mut session = VirtualSession::new(StartSettings::default(), SessionLimits::default());
        let mut out = Outbox::default();
        session.attach(Memory::default(), &Reported::default(), &mut out);
        let mut frames = Vec::new();
        write::query(&mut frames, b"COPY t FROM STDIN");
        session.from_client(&frames, &mut out).unwrap();
        frames.clear();
        write::frame(&mut frames, server::COPY_IN, |out| out.extend_from_slice(&[0; 3]));
        session.from_server(&frames, &mut out).unwrap();
        frames.clear();
        write::frame(&mut frames, client::COPY_DATA, |out| out.extend_from_slice(b"1\n"));
        if ends {
            write::bare(&mut frames, client::COPY_DONE);
        }
        session.from_client(&frames, &mut out).unwrap();
        session
    }

    #[test]
    fn a_copy_that_was_not_ended_is_known_not_to_be_committed() {
        for (ends, lost) in [(false, "08006"), (true, "08007")] {
            let mut out = Outbox::default();
            assert_eq!(copying(ends).cancel(&mut out), Cancelled::DropBackend);
            let told = String::from_utf8_lossy(&out.to_client).into_owned();
            assert!(told.contains("57014"), "{told}");
            assert_eq!(told.contains("may have been executed and committed"), ends, "{told}");
            let mut out = Outbox::default();
            assert_eq!(copying(ends).lost(&mut out), Lost::Told);
            let told = String::from_utf8_lossy(&out.to_client).into_owned();
            assert!(told.contains(lost), "{told}");
        }
    }
}
