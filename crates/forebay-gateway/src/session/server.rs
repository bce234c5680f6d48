//! Frames of the backend: which pass, which are swallowed, and what they say about the session.

use std::sync::Arc;

use super::answer::{Answer, FAILED, void_description};
use super::columns::Columns;
use super::framing::Run;
use super::habits::NO_STATEMENT_ERROR;
use super::min_messages;
use super::requests::Request;
use super::scan::{Effect, Flags};
use super::statements::{Slot, Statement};
use super::{Garbage, Hold, Outbox, TransactionStatus, VirtualSession};
use crate::protocol::{ErrorFields, HEADER, ServerError, client, header, server, split_string, write};

/// Whether a frame reaches the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Pass,
    Drop,
}

/// The longest frame of a server that is read whole. A row description of 1,664 columns has 130 KB. Of errors and notices this much is read: what
/// a session looks at comes first, and the rest may be any text of the client's.
const LONGEST: usize = 1 << 20;

impl VirtualSession {
    pub(super) fn server_bytes(&mut self, bytes: &[u8], out: &mut Outbox) -> Result<(), Garbage> {
        let mut bytes = bytes;
        while !self.server_side.partial.is_empty() {
            let missing = match header(&self.server_side.partial)? {
                None => HEADER - self.server_side.partial.len(),
                Some((kind, length)) => {
                    self.to_read(kind, length)?.saturating_sub(self.server_side.partial.len())
                }
            };
            if missing == 0 {
                let frame = std::mem::take(&mut self.server_side.partial);
                self.whole_answers(&frame, out)?;
                continue;
            }
            let (part, rest) = bytes.split_at(missing.min(bytes.len()));
            self.server_side.partial.extend_from_slice(part);
            bytes = rest;
            if part.len() < missing {
                return Ok(());
            }
        }
        self.whole_answers(bytes, out)
    }

    fn whole_answers(&mut self, bytes: &[u8], out: &mut Outbox) -> Result<(), Garbage> {
        let mut run = Run::new(bytes);
        let result = self.answers_in(&mut run, out);
        run.flush(&mut out.to_client);
        result
    }

    fn answers_in(&mut self, run: &mut Run<'_>, out: &mut Outbox) -> Result<(), Garbage> {
        loop {
            self.server_side.go_on(run, &mut out.to_client);
            let rest = run.rest();
            if rest.is_empty() {
                return Ok(());
            }
            let Some((kind, length)) = header(rest)? else {
                self.server_side.keep(run, &mut out.to_client);
                return Ok(());
            };
            let read = self.to_read(kind, length)?;
            if rest.len() < read {
                self.server_side.keep(run, &mut out.to_client);
                return Ok(());
            }
            // Nothing follows the last word, but what the server says still counts for the backend.
            let last = self.told_end.then(|| {
                run.flush(&mut out.to_client);
                out.to_client.len()
            });
            match self.answer_frame(kind, &rest[HEADER..read], run, out)? {
                Way::Pass if last.is_none() => {
                    if !matches!(kind, server::NOTICE | server::PARAMETER_STATUS) {
                        self.next_first(kind);
                    }
                    self.server_side.pass(length, run);
                    // Rows follow rows.
                    while kind == server::DATA_ROW
                        && !self.server_side.is_in_body()
                        && let Some((server::DATA_ROW, length)) = header(run.rest())?
                    {
                        self.server_side.pass(length, run);
                    }
                }
                Way::Pass | Way::Drop => {
                    self.server_side.skip(length, run, &mut out.to_client);
                }
            }
            if let Some(last) = last {
                out.to_client.truncate(last);
            }
        }
    }

    /// How much of a frame must be there before it can be handled.
    fn to_read(&self, kind: u8, length: usize) -> Result<usize, Garbage> {
        let whole = match kind {
            server::ERROR | server::NOTICE => return Ok(length.min(LONGEST)),
            server::PARAMETER_STATUS | server::READY_FOR_QUERY => true,
            server::ROW_DESCRIPTION | server::PARAMETER_DESCRIPTION => matches!(
                self.requests.first(),
                Some(Request::DescribeStatement(_) | Request::DescribePortal(_) | Request::OurDescribe(_))
            ),
            server::DATA_ROW => matches!(self.requests.first(), Some(Request::OurReading)),
            _ => false,
        };
        match (whole, length) {
            (false, _) => Ok(HEADER),
            (true, ..=LONGEST) => Ok(length),
            (true, _) => Err(Garbage),
        }
    }

    fn answer_frame(
        &mut self,
        kind: u8,
        body: &[u8],
        run: &mut Run<'_>,
        out: &mut Outbox,
    ) -> Result<Way, Garbage> {
        use Request as R;
        let unwanted = kind == server::NOTICE && !self.wants_notice(body);
        let first = self.requests.first_mut();
        Ok(match (kind, first) {
            (server::DATA_ROW, Some(R::Query(_) | R::Execute(_, None))) => Way::Pass,
            (server::DATA_ROW | server::ROW_DESCRIPTION, Some(R::Batch(batch))) => {
                let passes = batch.steps.get(batch.at).is_none_or(|step| step.answer.passes_rows());
                if passes { Way::Pass } else { Way::Drop }
            }
            (server::DATA_ROW | server::ROW_DESCRIPTION, Some(R::Execute(_, Some(statement)))) => {
                if statement.answer().passes_rows() { Way::Pass } else { Way::Drop }
            }
            (server::DATA_ROW, Some(R::OurReading)) => {
                self.read_setting(body);
                Way::Drop
            }
            (
                server::ROW_DESCRIPTION | server::DATA_ROW | server::COMMAND_COMPLETE | server::EMPTY_QUERY,
                Some(R::OurRestore(_) | R::OurReading | R::OurBlock),
            ) => Way::Drop,
            (server::COMMAND_COMPLETE, Some(R::Query(flags))) => {
                self.answers += 1;
                if flags.has(Flags::COMMITS) {
                    // Whatever becomes of the connection before the next ReadyForQuery.
                    self.apply(&Effect::Commit);
                }
                Way::Pass
            }
            (server::COMMAND_COMPLETE, Some(R::Batch(batch))) => {
                self.answers += 1;
                let at = batch.at;
                batch.at += 1;
                self.unsure_now |= batch.flags.has(Flags::UNSURE);
                let Some(step) = batch.steps.get_mut(at).map(std::mem::take) else { return Ok(Way::Pass) };
                self.complete(&step.effect, &step.answer, true, run, out)
            }
            (server::COMMAND_COMPLETE, Some(R::Execute(flags, statement))) => {
                self.unsure_now |= flags.has(Flags::UNSURE);
                let statement = statement.take();
                (self.copying, self.implicit) = (false, true);
                self.answered();
                if statement.is_none() {
                    self.unknown_completed();
                }
                match statement.as_deref().and_then(|statement| statement.step.as_deref()) {
                    Some(step) => self.complete(&step.effect, &step.answer, false, run, out),
                    None => Way::Pass,
                }
            }
            (server::EMPTY_QUERY, Some(R::Query(_) | R::Batch(_))) => Way::Pass,
            (server::EMPTY_QUERY | server::PORTAL_SUSPENDED, Some(R::Execute(flags, statement))) => {
                self.unsure_now |= flags.has(Flags::UNSURE);
                let statement = statement.take();
                self.implicit |= kind == server::PORTAL_SUSPENDED;
                self.answered();
                // Its first row is its last, though the server has not looked for another.
                if let Some(step) = statement.as_deref().and_then(|statement| statement.step.as_deref()) {
                    self.apply(&step.effect);
                }
                Way::Pass
            }
            (server::PARSE_COMPLETE, Some(R::Parse(_))) | (server::BIND_COMPLETE, Some(R::Bind)) => {
                self.answered();
                Way::Pass
            }
            (server::CLOSE_COMPLETE, Some(R::Close(_))) => {
                self.answered();
                Way::Pass
            }
            (server::PARSE_COMPLETE, Some(R::OurParse(_)))
            | (server::CLOSE_COMPLETE, Some(R::OurClose(_))) => {
                self.answered();
                Way::Drop
            }
            (kind, Some(R::OurSetting(expected))) if kind == *expected => {
                self.answered();
                Way::Drop
            }
            (server::PARAMETER_DESCRIPTION, Some(R::DescribeStatement(statement))) => {
                if let Some(statement) = statement {
                    let limit = self.limits.max_statement_bytes;
                    // It could not be prepared on another backend as the client knows it.
                    self.pinned |= !self.statements.saw_parameters(statement, body, limit);
                }
                Way::Pass
            }
            (server::PARAMETER_DESCRIPTION, Some(R::OurDescribe(_))) => Way::Drop,
            (
                server::ROW_DESCRIPTION | server::NO_DATA,
                Some(R::DescribeStatement(statement) | R::DescribePortal(statement)),
            ) => {
                let statement = statement.take();
                self.answered();
                self.described(statement.as_deref(), body, run, out)
            }
            (server::ROW_DESCRIPTION | server::NO_DATA, Some(R::OurDescribe(statement))) => {
                let statement = Arc::clone(statement);
                self.verify(&statement, body, out);
                Way::Drop
            }
            (server::ROW_DESCRIPTION, Some(R::Query(_) | R::Execute(_, None))) => Way::Pass,
            (
                server::COPY_IN | server::COPY_BOTH,
                Some(request @ (R::Query(_) | R::Batch(_) | R::Execute(..))),
            ) => {
                let extended = matches!(request, R::Execute(..));
                self.copying = self.requests.begin_copy(&mut self.statements);
                // A Sync that came too early is ignored.
                self.unsynced |= extended && !self.requests.iter().any(|request| matches!(request, R::Sync));
                Way::Pass
            }
            (
                server::COPY_OUT | server::COPY_DATA | server::COPY_DONE,
                Some(R::Query(_) | R::Batch(_) | R::Execute(..)),
            ) => Way::Pass,
            (server::FUNCTION_RESULT, Some(R::FunctionCall)) => {
                // It was any function: it may have locked something, or set what cannot be read.
                self.unsure_now = true;
                if let Some(backend) = &mut self.backend {
                    backend.spoilt = true;
                }
                Way::Pass
            }
            (server::NOTICE, Some(request)) if request.is_ours() => Way::Drop,
            (server::NOTICE, _) if unwanted => Way::Drop,
            (server::NOTICE | server::NOTIFICATION, _) => Way::Pass,
            (server::PARAMETER_STATUS, _) => self.reported(body)?,
            (server::READY_FOR_QUERY, Some(request)) if request.ends_with_ready() => {
                self.ready(body, run, out)?
            }
            (server::ERROR, _) => self.error(body, run, out),
            _ => return Err(Garbage),
        })
    }

    /// A portal has run that is not known here, such as one that its successor's failed Bind has left in place. In a transaction that has
    /// failed, it can only have ended that, or gone back to a savepoint.
    fn unknown_completed(&mut self) {
        if self.status != TransactionStatus::Failed {
            return;
        }
        if self.savepoints.is_empty() {
            self.apply(&Effect::Rollback);
        } else {
            (self.status, self.failed) = (TransactionStatus::InTransaction, false);
        }
    }

    /// The first request is answered.
    pub(super) fn answered(&mut self) -> Option<Request> {
        let request = self.requests.pop();
        self.answers += 1;
        self.all_answered();
        request
    }

    /// If everything is answered, nothing need wait any more.
    fn all_answered(&mut self) {
        if self.requests.is_empty() {
            self.hold = Hold::None;
            self.answered_segment = self.segment;
            self.statements.tidy();
        }
    }

    /// A statement is complete: what it leaves in the session counts from now on.
    fn complete(
        &mut self,
        effect: &Effect,
        answer: &Answer,
        described: bool,
        run: &mut Run<'_>,
        out: &mut Outbox,
    ) -> Way {
        self.apply(effect);
        if matches!(answer, Answer::Pass | Answer::Refuse(_)) {
            return Way::Pass;
        }
        run.flush(&mut out.to_client);
        if matches!(answer, Answer::ShowMinMessages) {
            self.show_min_messages(described, &mut out.to_client);
        }
        match answer.complete(described, &mut out.to_client) {
            Some(()) => Way::Drop,
            None => Way::Pass,
        }
    }

    /// The client sees a description. What it saw first counts.
    fn described(
        &mut self,
        statement: Option<&Statement>,
        body: &[u8],
        run: &mut Run<'_>,
        out: &mut Outbox,
    ) -> Way {
        let Some(statement) = statement else { return Way::Pass };
        match statement.answer() {
            Answer::Instead(_) | Answer::Quiet => {
                run.flush(&mut out.to_client);
                write::bare(&mut out.to_client, server::NO_DATA);
                Way::Drop
            }
            Answer::ShowMinMessages => {
                run.flush(&mut out.to_client);
                min_messages::description(&mut out.to_client);
                Way::Drop
            }
            Answer::Void => {
                run.flush(&mut out.to_client);
                void_description(&mut out.to_client);
                Way::Drop
            }
            _ => {
                statement.saw_columns(body);
                Way::Pass
            }
        }
    }

    /// A statement is on the new backend. Is it what the client has seen?
    fn verify(&mut self, statement: &Arc<Statement>, body: &[u8], out: &mut Outbox) {
        if statement.columns.get().is_none_or(|seen| *seen == Columns::of(body)) {
            self.statements.verified(&statement.name);
            self.answered();
            return;
        }
        if self.requests.are_ahead() {
            // It stays as it is. When the client uses it, this is found again.
            self.answered();
            return;
        }
        self.requests.pop();
        self.close_on_backend(&statement.name, out);
        // Drivers prepare again only if all of this is as PostgreSQL has it.
        let error = ServerError::error("0A000", "cached plan must not change result type")
            .with_routine("RevalidateCachedQuery");
        self.refuse(error, out);
        write::bare(&mut out.to_server, client::FLUSH);
    }

    fn reported(&mut self, body: &[u8]) -> Result<Way, Garbage> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Garbage);
        let (name, rest) = split_string(body).ok_or(Garbage)?;
        let (value, _) = split_string(rest).ok_or(Garbage)?;
        let (name, value) = (text(name)?, text(value)?);
        let Some(backend) = &mut self.backend else { return Ok(Way::Drop) };
        backend.reported.set(name, value);
        // While settings are restored, values pass that the client never had.
        let ours = matches!(self.requests.first(), Some(Request::OurRestore(_)));
        if ours || !self.told.set(name, value) {
            return Ok(Way::Drop);
        }
        self.told_changed();
        Ok(Way::Pass)
    }

    fn ready(&mut self, body: &[u8], run: &mut Run<'_>, out: &mut Outbox) -> Result<Way, Garbage> {
        let status = match body {
            b"I" => TransactionStatus::Idle,
            b"T" => TransactionStatus::InTransaction,
            b"E" => TransactionStatus::Failed,
            _ => return Err(Garbage),
        };
        match self.requests.first() {
            Some(Request::OurRestore(attempts)) => {
                let attempts = *attempts;
                run.flush(&mut out.to_client);
                self.restored(attempts, out);
                return Ok(Way::Drop);
            }
            Some(Request::OurSync) => {
                self.answered();
                return Ok(Way::Drop);
            }
            Some(Request::OurReading) => {
                self.settings_read();
                return Ok(Way::Drop);
            }
            Some(Request::OurBlock) => {
                self.block_begun(status, out);
                return Ok(Way::Drop);
            }
            _ => {}
        }
        // Unless it has failed, each statement has an answer.
        let misread = !self.told_error
            && matches!(self.requests.first(), Some(Request::Batch(batch)) if batch.at != batch.steps.len());
        self.copying = false;
        if let Some(Request::Query(flags)) = self.answered() {
            self.unsure_now |= flags.has(Flags::UNSURE);
        }
        if self.again(out) {
            return Ok(Way::Drop);
        }
        if misread && let Some(backend) = &mut self.backend {
            // The server has read other statements in the text than the scanner.
            (self.unsure, backend.spoilt) = (true, true);
        }
        self.unsure_now |= self.doubtful;
        (self.implicit, self.told_error) = (false, false);
        self.status = status;
        self.unanswered.may_commit &= !self.requests.is_empty() || self.unsynced;
        self.unanswered.may_change_schema &= self.unanswered.may_commit;
        self.unanswered.may_end_block &= !self.requests.is_empty();
        match status {
            TransactionStatus::Idle => {
                if !Arc::ptr_eq(&self.committed, &self.settings) {
                    if self.failed {
                        self.settings = Arc::clone(&self.committed);
                    } else {
                        self.commit_settings();
                    }
                }
                self.unsure |= std::mem::take(&mut self.unsure_now) && !self.failed;
                self.failed = false;
                if !self.savepoints.is_empty() {
                    self.savepoints = Vec::new();
                }
                // Later segments may have bound theirs already.
                self.portals.end(self.segment - self.requests.segments());
            }
            TransactionStatus::InTransaction => self.failed = false,
            TransactionStatus::Failed => self.failed = true,
        }
        Ok(Way::Pass)
    }

    fn error(&mut self, body: &[u8], run: &mut Run<'_>, out: &mut Outbox) -> Way {
        let fields = ErrorFields::read(body);
        if fields.is_fatal() {
            return self.fatal(fields.message);
        }
        if self.requests.are_ahead() {
            self.requests.skip_to_sync(&mut self.statements);
            return Way::Drop;
        }
        self.copying = false;
        match self.requests.first_mut() {
            Some(Request::OurRestore(_) | Request::OurReading | Request::OurBlock) => {
                if let Some(backend) = &mut self.backend {
                    backend.refusal = body.to_vec();
                }
                return Way::Drop;
            }
            Some(Request::Parse(change)) if change.name.is_empty() => change.before = Slot::default(),
            _ => {}
        }
        let again = fields.is_schema_conflict() && self.is_met_again();
        self.failed = true;
        let instead = match self.requests.first() {
            Some(Request::Batch(batch)) if fields.sqlstate == FAILED => {
                match batch.steps.get(batch.at).map(|step| &step.answer) {
                    Some(Answer::Refuse(error)) => Some(error.clone()),
                    _ => None,
                }
            }
            Some(Request::OurRefusal(error)) if fields.sqlstate == NO_STATEMENT_ERROR => Some(error.clone()),
            _ => None,
        };
        if !self.requests.first().is_some_and(Request::ends_with_ready) {
            // Those of its segment were not bound, or ended with it.
            self.portals.end(self.segment - self.requests.segments() + 1);
            if self.requests.skip_to_sync(&mut self.statements) {
                (self.skipping, self.unsynced) = (true, true);
            }
            self.all_answered();
        }
        if again {
            // The client does not hear of it. What it sends until then must not come first. But the server waits for the Sync.
            self.hold = if self.unsynced { Hold::AtBoundary } else { Hold::All };
            return Way::Drop;
        }
        self.told_error = true;
        let Some(error) = instead else { return Way::Pass };
        run.flush(&mut out.to_client);
        write::error(&mut out.to_client, &error);
        Way::Drop
    }

    /// The server closes the connection behind this. What that means to the client is told then.
    fn fatal(&mut self, message: &[u8]) -> Way {
        if let Some(backend) = &mut self.backend {
            backend.ending = true;
            backend.last_words = String::from_utf8_lossy(message).into();
        }
        Way::Drop
    }
}
