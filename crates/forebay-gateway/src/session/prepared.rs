//! Extended requests of the client: Parse, Bind, Describe, Execute, Close. The backend gets the statements that it lacks.

use std::sync::Arc;

use super::client::{Verdict, malformed};
use super::framing::Run;
use super::requests::Request;
use super::scan::{self, Effect, Flags};
use super::statements::{Change, Slot, Statement};
use super::{Hold, Outbox, Violation, VirtualSession};
use crate::protocol::{ServerError, client, split_string, write};

impl VirtualSession {
    pub(super) fn parse(
        &mut self,
        body: &[u8],
        run: &mut Run<'_>,
        out: &mut Outbox,
    ) -> Result<Verdict, Violation> {
        let (name, rest) = split_string(body).ok_or_else(malformed)?;
        let (text, types) = split_string(rest).ok_or_else(malformed)?;
        if types.len() < 2 {
            return Err(malformed());
        }
        if self.keeps_too_much(run, out) || self.has_too_many_names(run, out) {
            return Ok(Verdict::Hold);
        }
        let slot = self.statements.get(name);
        if slot.differs() {
            if !name.is_empty() {
                // The server must find there what the client has there: then it answers what is right.
                run.flush(&mut out.to_server);
                self.agree(name, out);
            }
            self.hold_at_boundary();
        }
        let (statement, replaced) = self.new_statement(name, text, rest);
        self.check_statement(&statement)?;
        let verdict = if replaced {
            run.flush(&mut out.to_server);
            write::parse(&mut out.to_server, name, &statement.parse_rest());
            Verdict::Drop
        } else {
            Verdict::Pass
        };
        let before = self.statements.put(
            name,
            Slot {
                statement: Some(Arc::new(statement)),
                on_backend: true,
                unverified: false,
                since: self.segment,
            },
        );
        self.requests.push(Request::Parse(Box::new(Change { name: name.into(), before })));
        self.unsynced = true;
        Ok(verdict)
    }

    pub(super) fn bind(
        &mut self,
        body: &[u8],
        run: &mut Run<'_>,
        out: &mut Outbox,
    ) -> Result<Verdict, Violation> {
        let (portal, rest) = split_string(body).ok_or_else(malformed)?;
        let (name, rest) = split_string(rest).ok_or_else(malformed)?;
        if self.keeps_too_much(run, out) || !self.provide(name, run, out) {
            return Ok(Verdict::Hold);
        }
        let statement = self.statements.get(name).statement.clone();
        let statement = statement.map(|statement| set_by(&statement, rest).map_or(statement, Arc::new));
        self.check_portal(portal, statement.as_deref())?;
        match statement {
            Some(statement) => self.portals.put(portal, statement, self.segment),
            None => self.portals.remove(portal),
        }
        self.requests.push(Request::Bind);
        self.unsynced = true;
        Ok(Verdict::Pass)
    }

    /// Whether unanswered requests keep too much. Then the client's frames wait until they are answered.
    fn keeps_too_much(&mut self, run: &mut Run<'_>, out: &mut Outbox) -> bool {
        let too_much = self.requests.keep_more_than(self.limits.max_statement_bytes);
        if too_much {
            self.drain(run, out);
        }
        too_much
    }

    /// Whether names without a statement take too much, or the place of others. They are forgotten when everything is answered. Until then, the
    /// client's frames wait.
    fn has_too_many_names(&mut self, run: &mut Run<'_>, out: &mut Outbox) -> bool {
        if self.requests.is_empty() {
            self.statements.tidy();
        }
        let spare = self.statements.spare();
        let takes_place = spare > 0 && self.statements.count() >= self.limits.max_statements;
        if !takes_place && spare <= MOST_SPARE.min(self.limits.max_statement_bytes) {
            return false;
        }
        run.flush(&mut out.to_server);
        // The client has deallocated these, and the backend has them still.
        for name in self.statements.left_on_backend() {
            self.close_on_backend(&name, out);
        }
        self.drain(run, out);
        true
    }

    /// Whether there is no statement of this name, whatever becomes of what is unanswered.
    fn is_settled_free(&self, name: &[u8]) -> bool {
        let slot = self.statements.get(name);
        slot.is_free() && (self.requests.is_empty() || slot.since < self.answered_segment)
    }

    /// Whether the client may have this statement, too.
    pub(super) fn check_statement(&self, statement: &Statement) -> Result<(), Violation> {
        if self.statements.count() < self.limits.max_statements
            && self.kept() + self.portals.size_of_replaced(&self.statements) + statement.size()
                <= self.limits.max_statement_bytes
        {
            return Ok(());
        }
        Err(Violation::new(ServerError::fatal("54000", "too many prepared statements").with_hint(
            "Close prepared statements that are not needed, or raise max_statements or max_statements_size of the gateway.",
        )))
    }

    /// Whether the client may have a portal of this name and this statement, too.
    pub(super) fn check_portal(&self, name: &[u8], statement: Option<&Statement>) -> Result<(), Violation> {
        let own = statement.map_or(0, Statement::size_in_portal);
        if self.portals.count() < self.limits.max_statements
            && self.kept() + name.len() + own <= self.limits.max_statement_bytes
        {
            return Ok(());
        }
        Err(Violation::new(ServerError::fatal("54000", "too many portals")))
    }

    /// How many bytes statements and portals take, roughly.
    fn kept(&self) -> usize {
        self.statements.size() + self.portals.size()
    }

    /// Whether a parameter of the statement says what it sets.
    pub(super) fn sets_parameter(&self, name: &[u8]) -> bool {
        let statement = self.statements.get(name).statement.as_deref();
        let effect = statement.and_then(|statement| statement.step.as_deref()).map(|step| &step.effect);
        matches!(effect, Some(Effect::SetConfigTo { .. }))
    }

    pub(super) fn describe(
        &mut self,
        body: &[u8],
        run: &mut Run<'_>,
        out: &mut Outbox,
    ) -> Result<Verdict, Violation> {
        let (&kind, rest) = body.split_first().ok_or_else(malformed)?;
        let (name, _) = split_string(rest).ok_or_else(malformed)?;
        let request = match kind {
            b'S' => {
                if !self.provide(name, run, out) {
                    return Ok(Verdict::Hold);
                }
                Request::DescribeStatement(self.statements.get(name).statement.clone())
            }
            b'P' => {
                if self.is_undecided(name) {
                    self.drain(run, out);
                    return Ok(Verdict::Hold);
                }
                Request::DescribePortal(self.portals.get(name).map(|portal| Arc::clone(&portal.statement)))
            }
            _ => return Err(malformed()),
        };
        self.requests.push(request);
        self.unsynced = true;
        Ok(Verdict::Pass)
    }

    pub(super) fn execute(
        &mut self,
        body: &[u8],
        run: &mut Run<'_>,
        out: &mut Outbox,
    ) -> Result<Verdict, Violation> {
        let (portal, _) = split_string(body).ok_or_else(malformed)?;
        if self.is_undecided(portal) {
            self.drain(run, out);
            return Ok(Verdict::Hold);
        }
        let statement = self.portals.get(portal).map(|portal| Arc::clone(&portal.statement));
        // A portal that is not known may run anything.
        let flags = statement.as_ref().map_or(Flags::UNSURE, |statement| statement.flags);
        if let Some(statement) = &statement
            && statement.step.is_some()
        {
            return Ok(self.execute_step(portal, statement, run, out));
        }
        self.note(flags);
        self.requests.push(Request::Execute(flags, None));
        self.unsynced = true;
        Ok(Verdict::Pass)
    }

    pub(super) fn close(
        &mut self,
        body: &[u8],
        run: &mut Run<'_>,
        out: &mut Outbox,
    ) -> Result<Verdict, Violation> {
        let (&kind, rest) = body.split_first().ok_or_else(malformed)?;
        let (name, _) = split_string(rest).ok_or_else(malformed)?;
        let change = match kind {
            // Whether this one is skipped or not, there is nothing.
            b'S' if self.is_settled_free(name) => None,
            b'S' => {
                if self.keeps_too_much(run, out) || self.has_too_many_names(run, out) {
                    return Ok(Verdict::Hold);
                }
                if self.statements.get(name).differs() {
                    self.hold_at_boundary();
                }
                let before = self.statements.put(name, Slot::free(self.segment));
                Some(Box::new(Change { name: name.into(), before }))
            }
            b'P' => {
                self.portals.remove(name);
                None
            }
            _ => return Err(malformed()),
        };
        self.requests.push(Request::Close(change));
        self.unsynced = true;
        Ok(Verdict::Pass)
    }

    /// Sees to it that the backend has the statement that the client has under this name, or none if it has none. Whether the client's frame may
    /// follow; otherwise it waits until the statement is verified.
    fn provide(&mut self, name: &[u8], run: &mut Run<'_>, out: &mut Outbox) -> bool {
        let slot = self.statements.get(name);
        // An earlier segment that is not answered may have changed it, or may have failed to. Which one it is decides what this one means.
        if self.is_unanswered(slot.since) {
            self.drain(run, out);
            return false;
        }
        if !slot.differs() && !slot.unverified {
            return true;
        }
        run.flush(&mut out.to_server);
        if !slot.differs() {
            // It is there, but from a time when it did not matter what it returns.
            self.close_on_backend(name, out);
        }
        self.agree(name, out);
        let slot = self.statements.get(name);
        let Some(statement) = slot.statement.clone().filter(|_| slot.unverified) else {
            self.hold_at_boundary();
            return true;
        };
        // The client reads rows by the description that it has seen. So nothing is executed before it is known to be still right.
        write::describe_statement(&mut out.to_server, name);
        write::bare(&mut out.to_server, client::FLUSH);
        self.requests.push(Request::OurDescribe(statement));
        self.hold = Hold::All;
        false
    }

    /// Whether this is an earlier segment, and may be unanswered.
    fn is_unanswered(&self, segment: u64) -> bool {
        segment != self.segment && segment >= self.answered_segment && !self.requests.is_empty()
    }

    /// Whether it depends on what is unanswered what this portal runs.
    fn is_undecided(&self, portal: &[u8]) -> bool {
        self.portals.get(portal).is_some_and(|portal| self.is_unanswered(portal.since))
    }

    /// Parse or Close, so that the backend has what the client has.
    pub(super) fn agree(&mut self, name: &[u8], out: &mut Outbox) {
        let Some(statement) = self.statements.get(name).statement.clone() else {
            return self.close_on_backend(name, out);
        };
        let before = self.statements.set_on_backend(name, true, self.segment);
        write::parse(&mut out.to_server, name, &statement.parse_rest());
        self.requests.push(Request::OurParse(Box::new(Change { name: name.into(), before })));
    }

    pub(super) fn close_on_backend(&mut self, name: &[u8], out: &mut Outbox) {
        let before = self.statements.set_on_backend(name, false, self.segment);
        write::close_statement(&mut out.to_server, name);
        self.requests.push(Request::OurClose(Some(Box::new(Change { name: name.into(), before }))));
    }
}

/// How many bytes names without a statement take at most, roughly: some hundreds of them. For the server, they are statements still.
const MOST_SPARE: usize = 64 << 10;

/// The statement of a portal, if a parameter says what it sets. `rest` is what follows the names in its Bind.
fn set_by(statement: &Statement, rest: &[u8]) -> Option<Statement> {
    let Effect::SetConfigTo { name, parameter } = &statement.step.as_deref()?.effect else { return None };
    // Of NULL, or of much text, nothing is kept.
    let effect = value(*parameter, rest).and_then(|value| scan::set_config(name, value));
    Some(statement.that_does(effect.unwrap_or(Effect::Pin)))
}

/// A parameter of a Bind. As text or in binary, a text is the same.
fn value(parameter: usize, rest: &[u8]) -> Option<&str> {
    let (formats, rest) = count(rest)?;
    let (parameters, mut rest) = count(rest.get(2 * formats..)?)?;
    let mut value = None;
    for at in 0..parameters {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        // NULL has a length that is negative. It means the default.
        let (this, behind) = behind.split_at_checked(usize::try_from(i32::from_be_bytes(*length)).ok()?)?;
        value = if at == parameter { Some(this) } else { value };
        rest = behind;
    }
    std::str::from_utf8(value?).ok().filter(|value| !value.contains('\0'))
}

fn count(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<2>()?;
    Some((usize::from(u16::from_be_bytes(*count)), rest))
}
