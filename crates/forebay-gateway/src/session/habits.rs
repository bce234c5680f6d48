//! Statements that must not reach the server as they are.
//!
//! Drivers clean up with statements that Aurora DSQL refuses, such as DISCARD ALL, or that mean the virtual session, such as DEALLOCATE. The server
//! runs something harmless instead, in the same place of the same transaction. So everything else is as usual: what came before it, what follows
//! it, a failed transaction, and the order of the answers. The client gets the answer that the statement would have had.

use std::collections::BTreeSet;

use crate::protocol::{ServerError, client, server, write};

use super::answer::{Answer, FAILING, HARMLESS, Step};
use super::client::Verdict;
use super::framing::Run;
use super::requests::Request;
use super::scan::{self, Effect, Flags, MOST_STATEMENTS, Piece};
use super::statements::Statement;
use super::{Hold, Outbox, TransactionStatus, VirtualSession, min_messages};

/// A Query as the server gets it.
pub(super) struct Translation {
    /// None: as it is.
    pub(super) text: Option<Vec<u8>>,
    pub(super) steps: Vec<Step>,
    pub(super) flags: Flags,
    /// What follows waits until this is answered: it may need other statements then.
    pub(super) holds: bool,
}

/// What the server gets for a statement.
enum Sent {
    AsIs,
    /// This text.
    Text(String),
    /// The statement, then these for the gateway itself.
    With(Vec<String>),
}

/// With more, a text waits until everything is answered: so not many of them are kept at a time.
const FEW_STATEMENTS: usize = 100;

/// A text does not become longer by more than this.
const MOST_ADDED: usize = 1 << 20;

/// Under this name the gateway prepares what it needs itself. No driver uses it.
const OUR_NAME: &[u8] = b"\x01forebay";

/// No client has prepared this one.
pub(super) const NO_STATEMENT: &[u8] = b"\x01forebay none";

/// What binding it fails with.
pub(super) const NO_STATEMENT_ERROR: &[u8] = b"26000";

impl VirtualSession {
    /// What to send for a Query, and what to expect. None if it waits for requests that are unanswered.
    pub(super) fn translate(&self, text: &[u8], pieces: Vec<Piece>) -> Option<Translation> {
        if pieces.len() > MOST_STATEMENTS {
            return Some(too_long());
        }
        if pieces.len() > FEW_STATEMENTS && !self.requests.is_empty() {
            return None;
        }
        let holds = |effect: &Effect| {
            matches!(effect, Effect::Deallocate(_) | Effect::DeallocateAll | Effect::DiscardAll)
        };
        let mut result = Translation {
            text: None,
            steps: Vec::with_capacity(pieces.len()),
            flags: Flags::default(),
            holds: false,
        };
        let alone =
            pieces.len() == 1 && self.status == TransactionStatus::Idle && !self.implicit && !self.goes_on;
        let mut wrote = self.backend.as_ref().is_some_and(|backend| backend.wrote);
        // Nothing that is under way changes the role, nor did anything that was not understood.
        let mut has_own_role = self.requests.is_empty() && !(self.pinned || self.unsure || self.unsure_now);
        // Statements that are gone when this one runs: some, or all.
        let (mut gone, mut all_gone) = (BTreeSet::new(), false);
        // How far the text is copied.
        let mut copied = 0;
        for piece in pieces {
            result.flags.add(piece.flags);
            wrote |= piece.flags.has(Flags::WRITES);
            if holds(&piece.effect) {
                if !self.requests.is_empty() {
                    return None;
                }
                result.holds = true;
            }
            let original = &text[piece.range.clone()];
            let refusal = match &piece.effect {
                Effect::Deallocate(name) if all_gone || gone.contains(name) => Some(no_such_statement(name)),
                effect => self.refusal(effect, piece.flags, wrote, alone, original),
            };
            match &piece.effect {
                Effect::Deallocate(name) => drop(gone.insert(name.clone())),
                Effect::DeallocateAll => all_gone = true,
                _ => {}
            }
            let (answer, sent) = match (refusal, &piece.effect) {
                (Some(error), _) => (Answer::Refuse(Box::new(error)), Sent::Text(FAILING.to_owned())),
                // Npgsql sends it with every reset, and Aurora DSQL refuses it.
                (None, Effect::Role { name, text: None })
                    if has_own_role && self.settings.get(name).is_none() =>
                {
                    let resets = original.get(..5).is_some_and(|verb| verb.eq_ignore_ascii_case(b"reset"));
                    let tag = if resets { "RESET" } else { "SET" };
                    (Answer::Instead(tag), Sent::Text(HARMLESS.to_owned()))
                }
                (None, effect) => self.send(effect),
            };
            // A function may change it, too.
            has_own_role &= !matches!(piece.effect, Effect::Role { text: Some(_), .. } | Effect::Pin)
                && !piece.flags.has(Flags::UNSURE);
            let mut quiet = 0;
            match sent {
                Sent::AsIs => {}
                Sent::Text(replacement) => {
                    let out = result.text.get_or_insert_with(Vec::new);
                    out.extend_from_slice(&text[copied..piece.range.start]);
                    out.extend_from_slice(replacement.as_bytes());
                    // As long as it was: the positions in the server's errors stay right.
                    let characters = |text: &[u8]| text.iter().filter(|&&byte| byte & 0xc0 != 0x80).count();
                    let padding = characters(original).saturating_sub(characters(replacement.as_bytes()));
                    out.resize(out.len() + padding, b' ');
                    copied = piece.range.end;
                }
                Sent::With(more) => {
                    let out = result.text.get_or_insert_with(Vec::new);
                    let original =
                        if piece.effect == Effect::DiscardAll { b"RESET ALL  ".as_slice() } else { original };
                    out.extend_from_slice(&text[copied..piece.range.start]);
                    out.extend_from_slice(original);
                    for text in &more {
                        out.push(b';');
                        out.extend_from_slice(text.as_bytes());
                    }
                    quiet = more.len();
                    copied = piece.range.end;
                }
            }
            if result.text.as_ref().is_some_and(|out| out.len() > text.len() + MOST_ADDED) {
                return Some(too_long());
            }
            result.steps.push(Step { effect: piece.effect, answer });
            let silent = || Step { effect: Effect::None, answer: Answer::Quiet };
            result.steps.extend(std::iter::repeat_with(silent).take(quiet));
        }
        if let Some(out) = &mut result.text {
            out.extend_from_slice(&text[copied..]);
        }
        Some(result)
    }

    /// The error that the client gets for a statement, if it is known without the server.
    fn refusal(
        &self,
        effect: &Effect,
        flags: Flags,
        wrote: bool,
        alone: bool,
        text: &[u8],
    ) -> Option<ServerError> {
        match effect {
            Effect::Deallocate(name) if self.statements.get(name).statement.is_none() => {
                Some(no_such_statement(name))
            }
            Effect::DiscardAll if !alone => Some(
                ServerError::error("25001", "DISCARD ALL cannot run inside a transaction block")
                    .with_routine("PreventInTransactionBlock"),
            ),
            Effect::Set { .. } | Effect::SetMinMessagesLocal(_) => min_messages::refusal(effect),
            _ if flags.has(Flags::READS_SEQUENCE) && !wrote => Some(no_last_value(text)),
            _ => None,
        }
    }

    /// What the server gets, and how its answer is passed on.
    fn send(&self, effect: &Effect) -> (Answer, Sent) {
        let harmless = |answer| (answer, Sent::Text(HARMLESS.to_owned()));
        let start = self.start.settings();
        match effect {
            Effect::Deallocate(_) => harmless(Answer::Instead("DEALLOCATE")),
            Effect::DeallocateAll => harmless(Answer::Instead("DEALLOCATE ALL")),
            Effect::Discard(tag) => harmless(Answer::Instead(tag)),
            Effect::ShowMinMessages => harmless(Answer::ShowMinMessages),
            Effect::SetMinMessagesLocal(_) => harmless(Answer::Instead("SET")),
            Effect::Reset(name) if &**name == min_messages::NAME => harmless(Answer::Instead("RESET")),
            Effect::Set { name, .. } | Effect::SetDefault(name) | Effect::LocalDefault(name)
                if &**name == min_messages::NAME =>
            {
                harmless(Answer::Instead("SET"))
            }
            // A session that is pinned may have what these end.
            Effect::Unlisten if !self.pinned => harmless(Answer::Instead("UNLISTEN")),
            Effect::CloseAll if !self.pinned => harmless(Answer::Instead("CLOSE CURSOR ALL")),
            Effect::UnlockAll if !self.pinned => harmless(Answer::Void),
            Effect::DiscardAll => (Answer::Tag("DISCARD ALL"), Sent::With(self.after_reset_all(true))),
            // The backend does not know what the client asked for at its start, and RESET returns to it.
            Effect::ResetAll if start.of_server().next().is_some() => {
                (Answer::Pass, Sent::With(self.after_reset_all(false)))
            }
            Effect::Reset(name) | Effect::SetDefault(name) | Effect::LocalDefault(name) => {
                let Some(assignment) = start.get(name) else { return (Answer::Pass, Sent::AsIs) };
                let sql = match effect {
                    // What a client asks for at its start is SET, so it can be SET LOCAL.
                    Effect::LocalDefault(_) => format!("SET LOCAL {}", assignment.text()),
                    _ => assignment.to_string(),
                };
                let tag = if matches!(effect, Effect::Reset(_)) { "RESET" } else { "SET" };
                (Answer::Tag(tag), Sent::Text(sql))
            }
            _ => (Answer::Pass, Sent::AsIs),
        }
    }

    fn after_reset_all(&self, roles: bool) -> Vec<String> {
        let mut statements = Vec::new();
        if roles {
            for (name, reset) in
                [("session_authorization", "RESET SESSION AUTHORIZATION"), ("role", "RESET ROLE")]
            {
                if self.settings.get(name).is_some() {
                    statements.push(reset.to_owned());
                }
            }
        }
        statements.extend(self.start.settings().of_server().map(|(_, assignment)| assignment.to_string()));
        statements
    }

    /// A statement as it is prepared, and whether the server gets another text.
    pub(super) fn new_statement(&self, name: &[u8], text: &[u8], rest: &[u8]) -> (Statement, bool) {
        let (flags, effect) = scan::single(text, self.backslash_escapes());
        if effect == Effect::None {
            return (Statement::new(name, rest.to_vec(), flags, None), false);
        }
        let (answer, sent) = self.send(&effect);
        let replacement = match sent {
            Sent::AsIs => None,
            Sent::Text(text) => Some(text),
            // What follows it is sent when it is executed.
            Sent::With(_) => (effect == Effect::DiscardAll).then(|| "RESET ALL".to_owned()),
        };
        let step = Some(Box::new(Step { effect, answer }));
        let Some(replacement) = replacement else {
            return (Statement::new(name, rest.to_vec(), flags, step), false);
        };
        let mut sent = replacement.into_bytes();
        sent.extend_from_slice(&rest[text.len()..]);
        (Statement::new(name, sent, flags, step), true)
    }

    /// Execute of a statement that leaves something in the session.
    pub(super) fn execute_step(
        &mut self,
        portal: &[u8],
        statement: &std::sync::Arc<Statement>,
        run: &mut Run<'_>,
        out: &mut Outbox,
    ) -> Verdict {
        let Some(step) = statement.step.as_deref() else { return Verdict::Pass };
        let on_statements =
            matches!(step.effect, Effect::Deallocate(_) | Effect::DeallocateAll | Effect::DiscardAll);
        if on_statements && !self.requests.is_empty() {
            self.drain(run, out);
            return Verdict::Hold;
        }
        let once = matches!(step.answer, Answer::Instead(_) | Answer::Void | Answer::ShowMinMessages)
            || matches!(step.effect, Effect::SetConfig { .. });
        if once && self.portals.is_spent(portal) {
            return self.execute_again(portal, step, run, out);
        }
        let wrote =
            self.backend.as_ref().is_some_and(|backend| backend.wrote) || statement.flags.has(Flags::WRITES);
        let alone = self.status == TransactionStatus::Idle && !self.implicit;
        if let Some(error) = self.refusal(&step.effect, statement.flags, wrote, alone, statement.text()) {
            // Something unanswered may make the transaction fail, or end one that has failed.
            if !self.requests.is_empty() {
                self.drain(run, out);
                return Verdict::Hold;
            }
            if self.status != TransactionStatus::Failed {
                run.flush(&mut out.to_server);
                self.unsynced = true;
                self.refuse(error, out);
                return Verdict::Drop;
            }
        }
        self.unsynced = true;
        if once {
            self.portals.spend(portal);
        }
        self.note(statement.flags);
        let more = match &step.effect {
            Effect::ResetAll | Effect::DiscardAll => self.after_reset_all(step.effect == Effect::DiscardAll),
            _ => Vec::new(),
        };
        self.requests.push(Request::Execute(statement.flags, Some(std::sync::Arc::clone(statement))));
        if matches!(step.answer, Answer::Pass) && more.is_empty() {
            return Verdict::Pass;
        }
        run.flush(&mut out.to_server);
        // Without a limit of rows: the client does not see these rows.
        write::execute(&mut out.to_server, portal);
        for text in &more {
            self.set_quietly(text, out);
        }
        if on_statements || !more.is_empty() {
            write::bare(&mut out.to_server, client::FLUSH);
            self.hold = Hold::All;
        }
        Verdict::Drop
    }

    /// Execute of a portal that is complete.
    fn execute_again(&mut self, portal: &[u8], step: &Step, run: &mut Run<'_>, out: &mut Outbox) -> Verdict {
        let server_answers = matches!(step.answer, Answer::Void | Answer::Pass);
        if !server_answers && !self.requests.is_empty() {
            // One of them may make the transaction fail, and then this fails with that. Or it may end one that has failed.
            self.drain(run, out);
            return Verdict::Hold;
        }
        if server_answers || self.status == TransactionStatus::Failed {
            // The server has no row left, either.
            self.unsynced = true;
            self.requests.push(Request::Execute(Flags::default(), None));
            return Verdict::Pass;
        }
        run.flush(&mut out.to_server);
        self.unsynced = true;
        let name = String::from_utf8_lossy(portal);
        self.refuse(
            ServerError::error("55000", format!("portal \"{name}\" cannot be run")).with_routine("PortalRun"),
            out,
        );
        Verdict::Drop
    }

    /// Runs a statement within the client's segment. Its answers are swallowed.
    fn set_quietly(&mut self, text: &str, out: &mut Outbox) {
        let rest: Vec<u8> = text.bytes().chain([0, 0, 0]).collect();
        // One that failed behind its Parse has left it.
        write::close_statement(&mut out.to_server, OUR_NAME);
        write::parse(&mut out.to_server, OUR_NAME, &rest);
        write::bind(&mut out.to_server, OUR_NAME, OUR_NAME);
        write::execute(&mut out.to_server, OUR_NAME);
        write::close_statement(&mut out.to_server, OUR_NAME);
        write::frame(&mut out.to_server, client::CLOSE, |out| {
            out.push(b'P');
            out.extend_from_slice(OUR_NAME);
            out.push(0);
        });
        let answers = [
            server::CLOSE_COMPLETE,
            server::PARSE_COMPLETE,
            server::BIND_COMPLETE,
            server::COMMAND_COMPLETE,
            server::CLOSE_COMPLETE,
            server::CLOSE_COMPLETE,
        ];
        for answer in answers {
            self.requests.push(Request::OurSetting(answer));
        }
    }

    /// Makes the server fail in the client's segment. The client gets this error.
    pub(super) fn refuse(&mut self, error: ServerError, out: &mut Outbox) {
        write::bind(&mut out.to_server, b"", NO_STATEMENT);
        self.requests.push(Request::OurRefusal(Box::new(error)));
    }
}

/// Instead of a text that would take much more memory than its length.
fn too_long() -> Translation {
    let error = ServerError::error("54000", "too many statements in one query")
        .with_detail(format!(
            "It is limited to {MOST_STATEMENTS} if one of them is SET, RESET, BEGIN, COMMIT or the like."
        ))
        .with_hint("Send its statements one by one, or in parts.");
    Translation {
        text: Some(FAILING.into()),
        steps: vec![Step { effect: Effect::None, answer: Answer::Refuse(Box::new(error)) }],
        flags: Flags::default(),
        holds: false,
    }
}

fn no_such_statement(name: &[u8]) -> ServerError {
    let name = String::from_utf8_lossy(name);
    ServerError::error("26000", format!("prepared statement \"{name}\" does not exist"))
        .with_routine("FetchPreparedStatement")
}

fn no_last_value(text: &[u8]) -> ServerError {
    let lower = text.to_ascii_lowercase();
    let function = if lower.windows(7).any(|part| part == b"lastval") { "lastval" } else { "currval" };
    ServerError::error("55000", format!("{function} is not yet defined in this session"))
        .with_detail("The session has not used a sequence on the connection that it has now.")
        .with_hint("Use INSERT ... RETURNING.")
        .with_routine(if function == "lastval" { "lastval" } else { "currval_oid" })
}
