//! A backend comes or goes: settings and statements follow the client.

use std::sync::Arc;

use super::assignment::Assignment;
use super::requests::Request;
use super::scan::Effect;
use super::settings::{Settings, is_own};
use super::{
    Backend, First, Hold, Memory, Outbox, Reported, ReportedNow, TransactionStatus, VirtualSession,
    min_messages, quote,
};
use crate::protocol::{client, write};

/// How often settings are restored before a conflict is told to the client.
const ATTEMPTS: u8 = 3;

/// More settings than this are not kept: the session is pinned to its backend instead.
const MOST_SETTINGS: usize = 16 << 10;

/// What a session has set on its backend. A setting that is a list is written as one. The role is not among the settings. The schema is
/// named, as the client's own may come first.
const READ_SETTINGS: &str = "SELECT name, setting FROM pg_catalog.pg_settings WHERE source = 'session' \
    UNION ALL SELECT 'forebay.role', 'changed' WHERE current_user <> session_user";
/// The name of the row that tells of another role.
const ROLE_CHANGED: &str = "forebay.role";

impl VirtualSession {
    /// Gives the session a backend, with what the backend remembers and what it reported when it was opened. Frames that wait are sent to it.
    pub fn attach(&mut self, memory: Memory, reported: &Reported, out: &mut Outbox) {
        let now = memory.reported.unwrap_or_else(|| ReportedNow::new(reported));
        self.backend = Some(Box::new(Backend {
            reported: now,
            wrote: false,
            spoilt: memory.spoilt,
            ending: false,
            last_words: Box::default(),
            first: Some(First::default()),
            behind: self.changed_schema,
            ahead: false,
            restoring: Arc::default(),
            reading: Settings::default(),
            refusal: Vec::new(),
        }));
        // Of the sessions before: closing cannot fail, and needs no answer of its own.
        for name in &memory.statements {
            write::close_statement(&mut out.to_server, name);
            self.requests.push(Request::OurClose(None));
        }
        self.statements.meet_unnamed(memory.unnamed);
        if !Arc::ptr_eq(&memory.settings, &self.settings) {
            let sql = memory.settings.statements_to(&self.settings);
            if !sql.is_empty() {
                write::query(&mut out.to_server, sql.as_bytes());
                self.statements.meet_unnamed(false);
                self.requests.push(Request::OurRestore(1));
                self.hold = Hold::All;
                if let Some(backend) = &mut self.backend {
                    backend.restoring = memory.settings;
                }
                return;
            }
        }
        if self.held.is_empty() && !self.requests.is_empty() {
            // Nothing follows that would make the server answer.
            write::bare(&mut out.to_server, client::FLUSH);
        }
        self.begin(out);
    }

    /// The backend is as the session needs it.
    fn begin(&mut self, out: &mut Outbox) {
        self.catch_up(out);
        self.release(out);
    }

    /// Tells the client what this backend reports, where it is not what the client knows.
    fn catch_up(&mut self, out: &mut Outbox) {
        let Some(backend) = &self.backend else { return };
        let length = out.to_client.len();
        self.told.catch_up(&backend.reported, &mut out.to_client);
        if out.to_client.len() > length {
            self.told_changed();
        }
    }

    /// The server has answered the statements that restore settings.
    pub(super) fn restored(&mut self, attempts: u8, out: &mut Outbox) {
        let Some(backend) = &mut self.backend else { return };
        let refusal = std::mem::take(&mut backend.refusal);
        if refusal.is_empty() {
            backend.restoring = Arc::default();
            self.catch_up(out);
            self.answered();
            self.go_ahead(out);
            return;
        }
        let fields = crate::protocol::ErrorFields::read(&refusal);
        if fields.is_conflict() && attempts < ATTEMPTS {
            let sql = backend.restoring.statements_to(&self.settings);
            write::query(&mut out.to_server, sql.as_bytes());
            self.requests.push(Request::OurRestore(attempts + 1));
            self.requests.pop();
            return;
        }
        // One Query has set all of them or none: the next client finds the backend as it was.
        self.settings = std::mem::take(&mut backend.restoring);
        self.committed = Arc::clone(&self.settings);
        self.answered();
        // In the server's words: a setting that it refuses is the client's own.
        self.end(&fields.to_fatal(), out);
    }

    /// Reads the settings from the backend, because a statement may have changed them in a way that was not understood. Call it only if
    /// [`can_detach`](Self::can_detach) asks for it. When the answer is there, `can_detach` is asked again.
    pub fn read_settings(&mut self, out: &mut Outbox) {
        let Some(backend) = &mut self.backend else { return };
        backend.reading = Settings::default();
        backend.refusal = Vec::new();
        let mut sql = READ_SETTINGS.to_owned();
        for (name, _) in self.settings.own() {
            let name = quote::literal(name);
            sql += &format!(" UNION ALL SELECT {name}, pg_catalog.current_setting({name}, true)");
        }
        write::query(&mut out.to_server, sql.as_bytes());
        // A Query removes the unnamed statement there.
        self.statements.meet_unnamed(false);
        self.requests.push(Request::OurReading);
        self.hold = Hold::All;
    }

    /// A row of the answer.
    pub(super) fn read_setting(&mut self, row: &[u8]) {
        let mut rest = row.get(2..).unwrap_or_default();
        let mut column = || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            // NULL, of one that is not set, has a length that is negative.
            let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
            let (value, behind) = behind.split_at_checked(length)?;
            rest = behind;
            Some(std::str::from_utf8(value))
        };
        let (name, value) = match (column(), column()) {
            (Some(Ok(name)), Some(Ok(value))) => (name.to_ascii_lowercase(), value),
            (Some(Ok(_)), None) => return,
            // In another encoding, it could not be carried over.
            _ => {
                self.pinned = true;
                return;
            }
        };
        if name == ROLE_CHANGED {
            // A role that the client has set itself is carried over; one that a function has set is not known.
            self.pinned |= self.settings.get("role").is_none();
            return;
        }
        let assignment = match self.settings.get(&name) {
            // The server lets this one be SET.
            Some(Assignment::Set(_)) if is_own(&name) => Some(Assignment::to(&name, value)),
            _ => Assignment::carried(&name, value),
        };
        if let (Some(assignment), Some(backend)) = (assignment, &mut self.backend) {
            backend.reading.set(&name, assignment);
        }
    }

    pub(super) fn settings_read(&mut self) {
        self.answered();
        let Some(backend) = &mut self.backend else { return };
        let mut read = std::mem::take(&mut backend.reading);
        let refusal = std::mem::take(&mut backend.refusal);
        if crate::protocol::ErrorFields::read(&refusal).is_conflict() {
            // It may be asked again.
            return;
        }
        if !refusal.is_empty() || read.size() > MOST_SETTINGS {
            // They cannot be carried over.
            self.pinned = true;
            return;
        }
        // These are not among them.
        for name in ["role", "session_authorization", min_messages::NAME] {
            if let Some(assignment) = self.settings.get(name) {
                read.set(name, assignment.clone());
            }
        }
        self.unsure = false;
        if *self.settings != read {
            self.settings = Arc::new(read);
        }
        self.committed = Arc::clone(&self.settings);
    }

    /// Takes the backend away, with what it remembers. Call it only if [`can_detach`](Self::can_detach) is `Now`.
    pub fn detach(&mut self) -> Memory {
        let (statements, unnamed) = self.statements.leave_backend();
        let Some(backend) = self.backend.take() else { return Memory::default() };
        let roles = ["role", "session_authorization"].iter().any(|name| self.settings.get(name).is_some());
        Memory {
            settings: Arc::clone(&self.settings),
            statements,
            unnamed,
            spoilt: backend.spoilt || roles || self.settings.are_lasting() || self.pinned || self.unsure,
            reported: Some(backend.reported),
        }
    }

    /// What a statement leaves in the session.
    pub(super) fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::None
            | Effect::ShowMinMessages
            | Effect::SetConfigTo { .. }
            | Effect::Unlisten
            | Effect::CloseAll
            | Effect::UnlockAll => {}
            Effect::Set { name, text } => self.set(name, Assignment::Set(text.clone())),
            Effect::SetConfig { name, assignment } => self.set(name, assignment.clone()),
            Effect::SetMinMessagesLocal(text) => {
                Arc::make_mut(&mut self.settings).set(min_messages::LOCAL, Assignment::Set(text.clone()));
            }
            Effect::LocalDefault(name) => {
                if &**name == min_messages::NAME {
                    let start = self.start.settings().get(name).cloned();
                    let start = start.unwrap_or_else(|| Assignment::Set("notice".into()));
                    Arc::make_mut(&mut self.settings).set(min_messages::LOCAL, start);
                }
            }
            Effect::SetDefault(name) | Effect::Reset(name) => {
                self.end_local(name);
                self.reset(name);
            }
            Effect::ResetAll => self.reset_all(),
            // It has its own role, and this changes nothing.
            Effect::Role { name, text: None } if self.settings.get(name).is_none() && !self.pinned => {}
            Effect::Role { name, text } => {
                match text {
                    Some(text) => Arc::make_mut(&mut self.settings).set(name, Assignment::Set(text.clone())),
                    // Npgsql does so whenever it resets a connection. If there was a role, it has spoilt the backend already.
                    None if self.settings.get(name).is_none() => return,
                    None => Arc::make_mut(&mut self.settings).remove(name),
                }
                if let Some(backend) = &mut self.backend {
                    backend.spoilt = true;
                }
            }
            // The next ReadyForQuery says so, too. But other statements may come before it.
            Effect::Begin => self.status = TransactionStatus::InTransaction,
            // The COMMIT of a failed transaction is a ROLLBACK.
            Effect::CommitAndChain | Effect::RollbackAndChain => {
                let ends = *effect == Effect::CommitAndChain;
                self.apply(if ends { &Effect::Commit } else { &Effect::Rollback });
                self.status = TransactionStatus::InTransaction;
            }
            Effect::Commit if !self.failed => {
                self.implicit = false;
                self.status = TransactionStatus::Idle;
                self.unsure |= std::mem::take(&mut self.unsure_now);
                self.commit_settings();
                self.savepoints.clear();
            }
            Effect::Commit | Effect::Rollback => {
                (self.failed, self.implicit, self.status) = (false, false, TransactionStatus::Idle);
                self.settings = Arc::clone(&self.committed);
                self.savepoints.clear();
            }
            Effect::Savepoint(name) => {
                if self.savepoints.len() < MOST_SAVEPOINTS && name.len() <= LONGEST_SAVEPOINT {
                    self.savepoints.push((name.clone(), Arc::clone(&self.settings)));
                } else {
                    self.unsure = true;
                }
            }
            Effect::Release(name) => {
                if let Some(place) = self.savepoints.iter().rposition(|(other, _)| other == name) {
                    self.savepoints.truncate(place);
                }
            }
            Effect::RollbackTo(name) => {
                if let Some(place) = self.savepoints.iter().rposition(|(other, _)| other == name) {
                    self.failed = false;
                    self.settings = Arc::clone(&self.savepoints[place].1);
                    self.savepoints.truncate(place + 1);
                }
            }
            Effect::Pin => self.pinned = true,
            Effect::Deallocate(name) => {
                let mut slot = self.statements.get(name).clone();
                slot.statement = None;
                self.statements.put(name, slot);
            }
            Effect::DeallocateAll => self.statements.deallocate_all(),
            Effect::Discard(tag) => {
                if *tag == "DISCARD SEQUENCES" {
                    self.forget_sequences();
                }
            }
            Effect::DiscardAll => {
                // It commits at once.
                self.implicit = false;
                self.statements.deallocate_all();
                self.settings = Arc::clone(self.start.settings());
                self.forget_sequences();
            }
        }
    }

    /// What was set counts from now on, apart from what was set until here.
    pub(super) fn commit_settings(&mut self) {
        self.end_local(min_messages::NAME);
        self.committed = Arc::clone(&self.settings);
    }

    /// SET ends what SET LOCAL said.
    fn end_local(&mut self, name: &str) {
        if name == min_messages::NAME && self.settings.get(min_messages::LOCAL).is_some() {
            Arc::make_mut(&mut self.settings).remove(min_messages::LOCAL);
        }
    }

    fn set(&mut self, name: &str, assignment: Assignment) {
        self.end_local(name);
        // Where the backend stays, nobody needs to know it. Nor need it be kept, then, for each savepoint.
        if self.settings.get(name) == Some(&assignment) || self.pinned && name != min_messages::NAME {
            return;
        }
        Arc::make_mut(&mut self.settings).set(name, assignment);
        // Too much to carry over.
        self.pinned |= self.settings.size() > MOST_SETTINGS;
    }

    fn reset(&mut self, name: &str) {
        let wanted = self.start.settings().get(name);
        if self.settings.get(name) == wanted {
            return;
        }
        match wanted {
            Some(assignment) => Arc::make_mut(&mut self.settings).set(name, assignment.clone()),
            None => Arc::make_mut(&mut self.settings).remove(name),
        }
    }

    /// The role stays.
    fn reset_all(&mut self) {
        let mut wanted = Arc::clone(self.start.settings());
        for name in ["role", "session_authorization"] {
            if let Some(assignment) = self.settings.get(name) {
                Arc::make_mut(&mut wanted).set(name, assignment.clone());
            }
        }
        self.settings = wanted;
    }

    fn forget_sequences(&mut self) {
        if let Some(backend) = &mut self.backend {
            backend.wrote = false;
        }
    }
}

const MOST_SAVEPOINTS: usize = 1_000;

/// PostgreSQL cuts longer names, so that two of them may be one.
const LONGEST_SAVEPOINT: usize = 63;
