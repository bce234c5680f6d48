//! Judges what a client saw while its backends were cut, cancelled and refused under it.
//!
//! The judge is a PostgreSQL session in which statements fail where the client saw the gateway's errors, and only there. Whatever it says apart
//! from these errors, the client must have seen, in that order, and nothing else. Where PostgreSQL would allow two states, it follows both.

use std::collections::BTreeSet;

use super::server::{Fault, ModelServer, World};
use crate::protocol::{HEADER, ServerError, Severity, header};

/// One frame that the client has begun to send.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    frame: Vec<u8>,
    world: World,
}

/// One state in which a PostgreSQL session may be, given what the client saw.
#[derive(Clone, Debug, PartialEq)]
struct State {
    model: ModelServer,
    /// How many frames it has answered.
    sent: usize,
    /// How many frames that the client saw it explains.
    seen: usize,
    /// What must follow an error, such as ReadyForQuery.
    owed: Vec<Vec<u8>>,
    /// What the client inserted, and was told that nobody knows what became of it.
    unknown: BTreeSet<String>,
}

#[derive(Debug)]
pub(super) struct Judge {
    sent: Vec<Sent>,
    /// What the client saw, frame by frame, without ParameterStatus.
    seen: Vec<Vec<u8>>,
    states: Vec<State>,
    /// Values that the client was told.
    told: std::collections::BTreeMap<String, String>,
    /// An error that ended the session.
    last: Option<(ServerError, bool)>,
    /// Something was done to this session, so errors are to be expected.
    pub(super) disturbed: bool,
    /// Others have changed the schema. Of a change of its own it must not hear.
    pub(super) conflicts: bool,
}

impl Judge {
    pub(super) fn new(start: &[(&str, &str)]) -> Self {
        let mut model = ModelServer::new(start, false);
        model.greeting();
        let state = State { model, sent: 0, seen: 0, owed: Vec::new(), unknown: BTreeSet::new() };
        Self {
            sent: Vec::new(),
            seen: Vec::new(),
            states: vec![state],
            told: std::collections::BTreeMap::new(),
            last: None,
            disturbed: false,
            conflicts: false,
        }
    }

    /// The client begins to send this frame.
    pub(super) fn sends(&mut self, frame: &[u8], world: World) {
        self.sent.push(Sent { frame: frame.to_vec(), world });
    }

    /// The client sees this frame.
    pub(super) fn sees(&mut self, frame: &[u8]) -> Result<(), String> {
        if self.last.is_some() {
            return Err(format!("a frame behind the end: {}", frame.escape_ascii()));
        }
        match frame[0] {
            b'S' => {
                let mut parts = frame[HEADER..].split(|&byte| byte == 0);
                let mut part = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
                self.told.insert(part(), part());
            }
            b'E' if read_error(frame).0.severity == Severity::Fatal => self.last = Some(read_error(frame)),
            _ => self.seen.push(frame.to_vec()),
        }
        Ok(())
    }

    /// Follows the client. An error if no PostgreSQL session explains what it saw.
    pub(super) fn follow(&mut self) -> Result<(), String> {
        self.follow_to(false)
    }

    /// `all`: also past frames that have no answer. Otherwise an error may still come before them.
    fn follow_to(&mut self, all: bool) -> Result<(), String> {
        let mut open = std::mem::take(&mut self.states);
        let mut wrong = String::new();
        while let Some(state) = open.pop() {
            match self.advance(&state, all) {
                Advance::Waits => {
                    if !self.states.contains(&state) {
                        self.states.push(state);
                    }
                }
                Advance::To(states) => open.extend(states),
                Advance::Wrong(why) => wrong = why,
            }
        }
        if self.states.is_empty() { Err(wrong) } else { Ok(()) }
    }

    fn advance(&self, state: &State, all: bool) -> Advance {
        let seen = &self.seen[state.seen..];
        if let Some((owed, rest)) = state.owed.split_first() {
            return match seen.first() {
                None => Advance::Waits,
                Some(frame) if equal(owed, frame) => {
                    let next = State { seen: state.seen + 1, owed: rest.to_vec(), ..state.clone() };
                    Advance::To(vec![next])
                }
                Some(frame) => {
                    Advance::Wrong(format!("{} follows an error, not {}", show(frame), show(owed)))
                }
            };
        }
        let Some(sent) = self.sent.get(state.sent) else {
            let Some(frame) = seen.first() else { return Advance::Waits };
            let Some(error) = self.fault(frame, state) else {
                return Advance::Wrong(format!("more than it asked for: {}", show(frame)));
            };
            return Advance::of(state.between(&error, &self.sent), || {
                format!("{} out of the blue", show(frame))
            });
        };
        let mut next = state.clone();
        let said = split(&next.model.step(&sent.frame, &sent.world));
        let same = said.iter().zip(seen).take_while(|(said, seen)| equal(said, seen)).count();
        if said.is_empty() && seen.is_empty() && !all {
            return Advance::Waits;
        }
        if same == said.len() {
            (next.sent, next.seen) = (state.sent + 1, state.seen + same);
            let mut states = vec![next];
            // Of a frame without an answer, nobody knows whether it came before the error.
            if said.is_empty()
                && let Some(error) = seen.first().and_then(|frame| self.fault(frame, state))
            {
                states.extend(state.between(&error, &self.sent));
            }
            return Advance::To(states);
        }
        let Some(frame) = seen.get(same) else { return Advance::Waits };
        let Some(error) = self.fault(frame, state) else {
            return Advance::Wrong(format!(
                "to {} it saw {} instead of {}",
                show(&sent.frame),
                show(frame),
                show(&said[same])
            ));
        };
        let mut states = state.within(sent, same, &error, &self.sent);
        if same == 0 {
            states.extend(state.between(&error, &self.sent));
        }
        Advance::of(states, || format!("{} has another answer", show(&sent.frame)))
    }

    /// The error, if it is one that the gateway may say now.
    fn fault(&self, frame: &[u8], state: &State) -> Option<(ServerError, bool)> {
        if frame[0] != b'E' || !self.disturbed {
            return None;
        }
        let (error, unknown) = read_error(frame);
        let expected = match &*error.sqlstate {
            "08006" | "08007" | "57014" | "53300" => true,
            "40001" => self.conflicts,
            "25P02" => state.model.is_failed(),
            "0A000" => state.model.has_free_statements(),
            _ => false,
        };
        expected.then_some((error, unknown))
    }

    /// Everything is quiet. What was asked for with Sync, Flush or a Query is answered.
    pub(super) fn rest(&mut self) -> Result<(), String> {
        self.follow_to(true)?;
        let complete = |state: &State| {
            let left = &self.sent[state.sent..];
            state.seen == self.seen.len() && !left.iter().any(|sent| b"SHQF".contains(&sent.frame[0]))
        };
        if self.states.iter().any(complete) {
            return Ok(());
        }
        let left = self.states.first().map_or(0, |state| state.sent);
        Err(format!(
            "it waits for the answer to {}",
            self.sent.get(left).map_or_else(String::new, |sent| show(&sent.frame))
        ))
    }

    /// The client knows the values that are in force.
    pub(super) fn check_values(&self) -> Result<(), String> {
        let known = |state: &State| {
            state.model.reported().iter().all(|(name, value)| self.told.get(name) == Some(value))
        };
        if self.states.iter().any(known) {
            return Ok(());
        }
        Err(format!("told {:?}, but it is {:?}", self.told, self.states[0].model.reported()))
    }

    /// Whether it has been told the end of its session.
    pub(super) fn has_ended(&self) -> bool {
        self.last.is_some()
    }

    /// The session is over. `cut`: the client left or was left without a word, and knows nothing of what was unanswered.
    pub(super) fn end(mut self, cut: bool) -> Result<Verdict, String> {
        self.follow_to(true)?;
        let unknown = match &self.last {
            Some((_, unknown)) => *unknown,
            None => cut,
        };
        let sent = &self.sent;
        let states = self.states.drain(..).map(|mut state| {
            if unknown {
                state.does_not_know(sent.len(), sent);
            }
            (state.model.ledger.committed, state.unknown)
        });
        Ok(Verdict(states.collect()))
    }
}

/// Of each possible state: what was committed, and of what the client does not know it.
#[derive(Debug)]
pub(super) struct Verdict(Vec<(Vec<String>, BTreeSet<String>)>);

impl Verdict {
    /// Compares it with what was committed. `all` is by all clients; `own` tells which are of this one.
    pub(super) fn check(&self, all: &BTreeSet<String>, own: &BTreeSet<String>) -> Result<(), String> {
        let mut wrong = String::new();
        for (committed, unknown) in &self.0 {
            let lost = committed.iter().find(|value| !all.contains(*value) && !unknown.contains(*value));
            let silent = all.iter().find(|value| {
                own.contains(*value) && !committed.contains(value) && !unknown.contains(*value)
            });
            match (lost, silent) {
                (None, None) => return Ok(()),
                (Some(value), _) => wrong = format!("{value} was told to be committed, and is not"),
                (_, Some(value)) => {
                    wrong = format!("{value} is committed, and the client was told another thing")
                }
            }
        }
        Err(wrong)
    }
}

enum Advance {
    Waits,
    To(Vec<State>),
    Wrong(String),
}

impl Advance {
    fn of(states: Vec<State>, why: impl FnOnce() -> String) -> Self {
        if states.is_empty() { Self::Wrong(why()) } else { Self::To(states) }
    }
}

impl State {
    /// The error comes within the answer to a frame.
    fn within(&self, sent: &Sent, at: usize, error: &(ServerError, bool), all: &[Sent]) -> Vec<Self> {
        let mut states = Vec::new();
        for ends_block in [false, true] {
            let may_end = error.1 || commits(&self.model, &sent.frame) || begins(&self.model, &sent.frame);
            if ends_block && !may_end {
                continue;
            }
            let mut next = self.clone();
            next.note(error.1, all);
            let fault = Fault { at, error: Box::new(error.0.clone()), ends_block };
            let Some(said) = next.model.step_with_fault(&sent.frame, &sent.world, fault) else { continue };
            (next.sent, next.seen) = (self.sent + 1, self.seen + at + 1);
            next.owed = split(&said).split_off(at + 1);
            states.extend(next.or_otherwise(self));
        }
        states
    }

    /// The error comes between two frames.
    fn between(&self, error: &(ServerError, bool), all: &[Sent]) -> Vec<Self> {
        let mut states = Vec::new();
        for ends_block in [false, true] {
            if ends_block && !error.1 {
                continue;
            }
            let mut next = self.clone();
            let fault = Fault { at: 0, error: Box::new(error.0.clone()), ends_block };
            next.note(error.1, all);
            let Some(said) = next.model.fault_now(fault) else { break };
            next.seen += 1;
            next.owed = split(&said).split_off(1);
            states.extend(next.or_otherwise(self));
        }
        states
    }

    /// Notes what the error ends, if it leaves open what became of that.
    fn note(&mut self, unknown: bool, all: &[Sent]) {
        if unknown {
            // A Query behind extended requests is skipped with them.
            let alone = all.get(self.sent).is_some_and(|sent| b"QF".contains(&sent.frame[0]));
            let segment = all[self.sent..].iter().position(|sent| alone || sent.frame[0] == b'S');
            self.does_not_know(segment.map_or(all.len(), |count| self.sent + count + 1), all);
        }
    }

    /// Of the open transaction, and of the frames up to here, the client does not know what became.
    fn does_not_know(&mut self, to: usize, all: &[Sent]) {
        self.unknown.extend(self.model.ledger.pending.iter().cloned());
        // Bound, and perhaps executed.
        self.unknown.extend(self.model.parameters());
        for sent in all.get(self.sent..to).unwrap_or_default() {
            self.unknown.extend(values(&sent.frame));
        }
    }

    /// What else may be, of what the client cannot see: a failed request may have removed the unnamed statement, or the server may not have got so far;
    /// and the backend may have been gone before the error, or not.
    fn or_otherwise(self, before: &Self) -> Vec<Self> {
        let mut states = vec![self];
        for change in [ModelServer::exchange_unnamed, ModelServer::keep_exits] {
            for place in 0..states.len() {
                let mut other = states[place].clone();
                if change(&mut other.model, &before.model) {
                    states.push(other);
                }
            }
        }
        states
    }
}

/// Whether the error may belong to a COMMIT, so that the transaction has ended.
fn commits(model: &ModelServer, frame: &[u8]) -> bool {
    let text = frame.windows(6).any(|part| part == b"COMMIT");
    text || frame[0] == b'E' && model.portal_commits(&frame[HEADER..])
}

/// Whether it begins the block, so that a client to which it fails need not end it.
fn begins(model: &ModelServer, frame: &[u8]) -> bool {
    !model.is_in_block() && frame.windows(5).any(|part| part == b"BEGIN")
}

/// The values that a frame inserts: numbers of nine digits.
pub(super) fn values(frame: &[u8]) -> impl Iterator<Item = String> {
    frame
        .split(|byte| !byte.is_ascii_digit())
        .filter(|digits| digits.len() == 9)
        .map(|digits| String::from_utf8_lossy(digits).into_owned())
}

/// A portal that has run may have ended with a transaction since then. It cannot be run in either case.
fn cannot_run(said: &ServerError, seen: &ServerError) -> bool {
    (&*said.sqlstate, &*seen.sqlstate) == ("34000", "55000")
}

/// Puts what the client saw in place of the next frame, if that cannot matter to it.
pub(super) fn allow(expected: &mut Vec<u8>, seen: &[u8], at: usize) -> bool {
    let frame = |bytes: &[u8]| {
        header(bytes).ok().flatten().and_then(|(_, length)| Some(bytes.get(..length)?.to_vec()))
    };
    let (Some(said), Some(seen)) = (frame(&expected[at..]), frame(&seen[at..])) else { return false };
    let allowed =
        said[0] == b'E' && seen[0] == b'E' && cannot_run(&read_error(&said).0, &read_error(&seen).0);
    if allowed {
        expected.splice(at..at + said.len(), seen);
    }
    allowed
}

/// Whether two frames are the same to a client. Of an error, what it matches on.
fn equal(a: &[u8], b: &[u8]) -> bool {
    if a[0] == b'E' && b[0] == b'E' {
        let (a, b) = (read_error(a).0, read_error(b).0);
        if cannot_run(&a, &b) {
            return true;
        }
        return (a.severity, a.sqlstate, a.message) == (b.severity, b.sqlstate, b.message);
    }
    a == b
}

/// The error, and whether it leaves open what became of the statement.
fn read_error(frame: &[u8]) -> (ServerError, bool) {
    let field = |kind: u8| {
        let mut fields = frame[HEADER..].split(|&byte| byte == 0);
        let value = fields.find(|field| field.first() == Some(&kind)).map(|field| &field[1..]);
        String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
    };
    let severity = if field(b'V') == "FATAL" { Severity::Fatal } else { Severity::Error };
    let (sqlstate, detail) = (field(b'C'), field(b'D'));
    let unknown = sqlstate == "08007" || detail.contains("may have been executed");
    let error = ServerError { severity, sqlstate: sqlstate.into(), ..ServerError::error("", field(b'M')) };
    (error, unknown)
}

pub(super) fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Ok(Some((_, length))) = header(bytes)
        && bytes.len() >= length
    {
        let (frame, rest) = bytes.split_at(length);
        frames.push(frame.to_vec());
        bytes = rest;
    }
    frames
}

fn show(frame: &[u8]) -> String {
    format!("{} {}", char::from(frame[0]), frame[HEADER..].escape_ascii())
}
