//! A model of a PostgreSQL session: what a client of one connection sees.

use std::collections::BTreeMap;

use super::statement::{Op, split};
use crate::protocol::{HEADER, ServerError, header, server, split_string, write};

/// What a table is made of, and what a server without start-up settings has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct World {
    /// The type of the column of `t`.
    pub(crate) column_type: u32,
}

pub(crate) const REPORTED: [(&str, &str); 5] = [
    ("application_name", ""),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("standard_conforming_strings", "on"),
    ("TimeZone", "UTC"),
];

const OTHERS: [(&str, &str); 3] =
    [("search_path", "public"), ("extra_float_digits", "1"), ("client_min_messages", "notice")];

const LEVELS: [&str; 3] = ["notice", "warning", "error"];

pub(super) type Values = BTreeMap<String, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    None,
    /// One that ends with the Sync or the Query.
    Implicit,
    Block,
    Failed,
}

#[derive(Clone, Debug, PartialEq)]
struct Prepared {
    op: Op,
    parameters: Vec<u32>,
    column_type: u32,
    /// The client has seen its columns.
    described: bool,
    /// It has not, and it may be prepared again on another backend, with other columns.
    free: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Portal {
    prepared: Prepared,
    parameter: String,
    /// The rows that are left, once it has begun.
    rows: Option<Vec<String>>,
    complete: bool,
}

/// A Query that waits for copy data.
#[derive(Clone, Debug, PartialEq)]
struct Copy {
    extended: bool,
    rows: u32,
}

/// What became of the values that were inserted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ledger {
    /// By the transaction that is under way.
    pub(super) pending: Vec<String>,
    pub(super) committed: Vec<String>,
    /// All, whatever became of them.
    pub(super) executed: Vec<String>,
}

/// An error that takes the place of what the server would say.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    /// Behind so many frames of the answer.
    pub(super) at: usize,
    pub(super) error: Box<ServerError>,
    /// It ends a transaction block, too.
    pub(super) ends_block: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelServer {
    input: Vec<u8>,
    out: Vec<u8>,
    flushed: Vec<u8>,
    defaults: Values,
    session: Values,
    local: Values,
    committed: Values,
    /// The name, both kinds of settings, and how much was inserted before.
    savepoints: Vec<(String, Values, Values, usize)>,
    reported: Values,
    statements: BTreeMap<Vec<u8>, Prepared>,
    portals: BTreeMap<Vec<u8>, Portal>,
    transaction: Transaction,
    skipping: bool,
    copy: Option<Copy>,
    /// The rest of the Query that is running.
    queue: Vec<String>,
    /// Whether several statements share an implicit transaction.
    several: bool,
    /// Refuses what Aurora DSQL refuses.
    dsql: bool,
    /// Says nothing about settings.
    quiet: bool,
    /// So many times, a statement outside of a transaction block fails with a conflict.
    pub(super) conflicts: u32,
    /// So many statements come before the first of these, perhaps in the same transaction.
    pub(super) spared: u32,
    /// The transaction that is under way changes the schema.
    changes: bool,
    /// How many transactions have.
    pub(super) changed: u64,
    pub(super) ledger: Ledger,
    /// What is to come.
    fault: Option<Fault>,
    /// It has come, and whether it ends a transaction block.
    fault_came: Option<bool>,
    /// The transaction block is not at the server any more: only its end is possible.
    pub(super) gone: bool,
    /// Extended requests have come, and no Sync behind them.
    unsynced: bool,
}

type Outcome = Result<(), Box<ServerError>>;

impl ModelServer {
    pub(crate) fn new(start: &[(&str, &str)], dsql: bool) -> Self {
        let pairs = REPORTED
            .iter()
            .chain(&OTHERS)
            .map(|&(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        let mut defaults: Values = pairs.collect();
        defaults.extend(start.iter().map(|&(name, value)| (name.to_ascii_lowercase(), value.to_owned())));
        let mut model = Self {
            input: Vec::new(),
            out: Vec::new(),
            flushed: Vec::new(),
            defaults,
            session: Values::new(),
            local: Values::new(),
            committed: Values::new(),
            savepoints: Vec::new(),
            reported: Values::new(),
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            transaction: Transaction::None,
            skipping: false,
            copy: None,
            queue: Vec::new(),
            several: false,
            dsql,
            quiet: false,
            conflicts: 0,
            spared: 0,
            changes: false,
            changed: 0,
            ledger: Ledger::default(),
            fault: None,
            fault_came: None,
            gone: false,
            unsynced: false,
        };
        // What a client is told at the start.
        model.report();
        if dsql {
            model.out.clear();
        }
        model
    }

    /// As a client's connection begins, without its key.
    pub(crate) fn greeting(&mut self) -> Vec<u8> {
        write::ready_for_query(&mut self.out, b'I');
        std::mem::take(&mut self.out)
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], world: &World) -> Vec<u8> {
        self.input.extend_from_slice(bytes);
        while let Ok(Some((kind, length))) = header(&self.input)
            && self.input.len() >= length
        {
            let frame: Vec<u8> = self.input.drain(..length).collect();
            self.frame(kind, &frame[HEADER..], world);
        }
        std::mem::take(&mut self.flushed)
    }

    /// None if the client is none that the model understands.
    pub(crate) fn try_feed(&mut self, bytes: &[u8], world: &World) -> Option<Vec<u8>> {
        let understood = |frame: &[u8]| frame.is_ascii() && frame.len() < 4096;
        let mut rest = bytes;
        while let Ok(Some((kind, length))) = header(rest) {
            let frame = rest.get(..length)?;
            let body = &frame[HEADER..];
            let valid = match kind {
                b'Q' => body.ends_with(&[0]) && std::str::from_utf8(&body[..body.len() - 1]).is_ok(),
                b'P' => split_string(body)
                    .and_then(|(_, rest)| split_string(rest))
                    .is_some_and(|(text, _)| std::str::from_utf8(text).is_ok()),
                b'B' => false,
                b'D' | b'C' => body.len() > 1 && split_string(&body[1..]).is_some(),
                b'E' => split_string(body).is_some_and(|(_, rest)| rest.len() == 4),
                kind => b"SHFdcf".contains(&kind),
            };
            if !(valid || kind == b'B' && understood(frame) && body.ends_with(&[0; 6])) {
                return None;
            }
            rest = &rest[length..];
        }
        rest.is_empty().then(|| self.feed(bytes, world))
    }

    fn flush(&mut self) {
        self.flushed.append(&mut self.out);
    }

    fn frame(&mut self, kind: u8, body: &[u8], world: &World) {
        if let Some(mut copy) = self.copy.take() {
            let outcome = match kind {
                b'd' | b'H' | b'S' => {
                    copy.rows += u32::from(kind == b'd');
                    self.copy = Some(copy);
                    return;
                }
                b'c' => self.guarded(|model| {
                    write::command_complete(&mut model.out, &format!("COPY {}", copy.rows));
                    Ok(())
                }),
                b'f' => self.guarded(|_| Err(error("57014", "COPY from stdin failed"))),
                _ => self.guarded(|_| Err(error("57014", "unexpected message during COPY"))),
            };
            match outcome {
                Err(error) => self.fail(&error, copy.extended),
                Ok(()) if !copy.extended => self.run_queue(world),
                Ok(()) => {}
            }
            return;
        }
        if self.skipping && kind != b'S' {
            return;
        }
        self.unsynced = b"PBDEC".contains(&kind) || self.unsynced && !b"QSF".contains(&kind);
        let outcome = match kind {
            b'Q' => {
                let (text, _) = split_string(body).expect("a text");
                self.query(std::str::from_utf8(text).expect("text"), world);
                return;
            }
            b'S' => {
                self.skipping = false;
                return self.finish();
            }
            b'H' => {
                self.flush();
                return;
            }
            b'F' => {
                match self.guarded(Self::call) {
                    Ok(()) => self.finish(),
                    Err(error) => self.fail(&error, false),
                }
                return;
            }
            b'd' | b'c' | b'f' => return,
            b'P' => self.guarded(|model| model.parse(body, world)),
            b'B' => self.guarded(|model| model.bind(body, world)),
            b'D' => self.guarded(|model| model.describe(body, world)),
            b'E' => self.guarded(|model| model.execute(body, world)),
            b'C' => self.guarded(|model| {
                let name = split_string(&body[1..]).expect("a name").0;
                if body[0] == b'S' {
                    model.statements.remove(name);
                } else {
                    model.portals.remove(name);
                }
                write::bare(&mut model.out, server::CLOSE_COMPLETE);
                Ok(())
            }),
            kind => panic!("a frame of type {kind}"),
        };
        if let Err(error) = outcome {
            self.fail(&error, true);
        }
    }

    /// A function call.
    fn call(&mut self) -> Outcome {
        if self.transaction == Transaction::Failed {
            return Err(aborted());
        }
        self.begin();
        write::frame(&mut self.out, server::FUNCTION_RESULT, |out| out.extend_from_slice(&[0xff; 4]));
        Ok(())
    }

    /// The end of what has ReadyForQuery behind it.
    fn finish(&mut self) {
        let outcome = self.guarded(|model| {
            model.end_implicit(true);
            model.ready();
            Ok(())
        });
        if let Err(error) = outcome {
            self.fail(&error, false);
        }
    }

    /// Does something, unless a fault comes in between: then nothing of it is done, and only the frames before the fault are said.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        let Some(fault) = self.fault.clone() else { return work(self) };
        let before = self.clone();
        let outcome = work(self);
        let mut said = std::mem::take(&mut self.flushed);
        said.append(&mut self.out);
        let ends = ends_of_frames(&said);
        if fault.at >= ends.len() + usize::from(outcome.is_err()) {
            self.flushed = said;
            return outcome;
        }
        said.truncate(fault.at.checked_sub(1).map_or(0, |last| ends[last]));
        *self = before;
        (self.flushed, self.out) = (said, Vec::new());
        (self.fault, self.fault_came) = (None, Some(fault.ends_block));
        Err(fault.error)
    }

    /// What a client sees of a frame, without ParameterStatus, whenever that is flushed.
    pub(super) fn step(&mut self, frame: &[u8], world: &World) -> Vec<u8> {
        self.quiet = true;
        let mut seen = self.feed(frame, world);
        seen.append(&mut self.out);
        seen
    }

    /// As `step`, with an error in place of a frame of the answer. None if there is no place for it.
    pub(super) fn step_with_fault(&mut self, frame: &[u8], world: &World, fault: Fault) -> Option<Vec<u8>> {
        self.fault = Some(fault);
        let seen = self.step(frame, world);
        self.fault.take().is_none().then_some(seen)
    }

    /// An error between two frames of the client. None if the client does not wait for anything.
    pub(super) fn fault_now(&mut self, fault: Fault) -> Option<Vec<u8>> {
        let extended = match self.copy.take() {
            Some(copy) => copy.extended,
            None if self.unsynced && !self.skipping => true,
            None => return None,
        };
        self.quiet = true;
        self.fault_came = Some(fault.ends_block);
        self.fail(&fault.error, extended);
        let mut seen = std::mem::take(&mut self.flushed);
        seen.append(&mut self.out);
        Some(seen)
    }

    /// Those of all portals.
    pub(super) fn parameters(&self) -> impl Iterator<Item = String> {
        self.portals.values().map(|portal| portal.parameter.clone())
    }

    pub(super) fn is_in_block(&self) -> bool {
        matches!(self.transaction, Transaction::Block | Transaction::Failed)
    }

    pub(super) fn is_failed(&self) -> bool {
        self.transaction == Transaction::Failed
    }

    /// Whether there are statements whose columns may change.
    pub(super) fn has_free_statements(&self) -> bool {
        self.statements.values().any(|prepared| prepared.free)
    }

    /// Whether this Execute runs a COMMIT.
    pub(super) fn portal_commits(&self, body: &[u8]) -> bool {
        split_string(body)
            .and_then(|(name, _)| self.portals.get(name))
            .is_some_and(|portal| portal.prepared.op == Op::Commit)
    }

    /// Takes away the unnamed statement, or puts back the one that there was. Whether there is such a thing.
    pub(super) fn exchange_unnamed(&mut self, before: &Self) -> bool {
        let unnamed = &b""[..];
        match (self.statements.remove(unnamed), before.statements.get(unnamed)) {
            (Some(_), _) => true,
            (None, Some(prepared)) => {
                self.statements.insert(unnamed.to_vec(), prepared.clone());
                true
            }
            (None, None) => false,
        }
    }

    /// Values that were reported.
    pub(super) const fn reported(&self) -> &Values {
        &self.reported
    }

    /// What the pool does to a backend whose client has left.
    pub(super) fn clean(&mut self, reset_all: bool) {
        self.end(false);
        if reset_all {
            self.session.clear();
            self.committed.clear();
        }
        self.report();
        self.out.clear();
    }

    /// The connection ends.
    pub(super) fn disconnect(&mut self) {
        self.end(false);
    }

    fn fail(&mut self, error: &ServerError, extended: bool) {
        write::error(&mut self.out, error);
        let fault = self.fault_came.take();
        match self.transaction {
            Transaction::Block | Transaction::Failed if fault == Some(true) => self.end(false),
            Transaction::Block => {
                // Settings are rolled back now, and reported: to the last savepoint, or to the beginning.
                let savepoint =
                    self.savepoints.last().map(|(_, session, local, _)| (session.clone(), local.clone()));
                (self.session, self.local) = savepoint.unwrap_or((self.committed.clone(), Values::new()));
                self.transaction = Transaction::Failed;
            }
            Transaction::Failed => {}
            _ => self.end_implicit(false),
        }
        if fault.is_some() {
            self.backend_is_gone();
        }
        self.queue.clear();
        if extended {
            self.skipping = true;
            // PostgreSQL flushes behind every error.
            self.flush();
        } else {
            self.ready();
        }
    }

    /// A fault has taken the backend, and with it the transaction block and the portals.
    fn backend_is_gone(&mut self) {
        self.gone = self.transaction == Transaction::Failed;
        if self.gone {
            self.portals.clear();
            (self.session, self.local) = (self.committed.clone(), Values::new());
        }
        for prepared in self.statements.values_mut() {
            prepared.free |= !prepared.described;
        }
    }

    fn begin(&mut self) {
        if self.transaction == Transaction::None {
            self.transaction = Transaction::Implicit;
            self.committed = self.session.clone();
        }
    }

    fn end_implicit(&mut self, commit: bool) {
        if matches!(self.transaction, Transaction::None | Transaction::Implicit) {
            self.end(
                commit && self.transaction == Transaction::Implicit || self.transaction == Transaction::None,
            );
        }
    }

    fn end(&mut self, commit: bool) {
        let inserted = std::mem::take(&mut self.ledger.pending);
        self.changed += u64::from(std::mem::take(&mut self.changes) && commit);
        if commit {
            self.ledger.committed.extend(inserted);
        } else {
            self.session = self.committed.clone();
        }
        self.gone = false;
        self.local.clear();
        self.savepoints.clear();
        self.portals.clear();
        self.transaction = Transaction::None;
        self.committed = self.session.clone();
    }

    fn ready(&mut self) {
        self.report();
        let status = match self.transaction {
            Transaction::Block => b'T',
            Transaction::Failed => b'E',
            _ => b'I',
        };
        write::ready_for_query(&mut self.out, status);
        self.flush();
    }

    fn report(&mut self) {
        for (name, _) in REPORTED {
            let value = self.value(&name.to_ascii_lowercase()).unwrap_or_default();
            if self.reported.get(name) != Some(&value) {
                if !self.quiet {
                    write::parameter_status(&mut self.out, name, &value);
                }
                self.reported.insert(name.to_owned(), value);
            }
        }
    }

    /// Whether the client wants to hear of this.
    fn says(&self, severity: &str) -> bool {
        let level = self.value("client_min_messages");
        let place = |name: &str| LEVELS.iter().position(|level| *level == name);
        level.as_deref().and_then(place) <= place(severity)
    }

    fn value(&self, name: &str) -> Option<String> {
        self.local.get(name).or_else(|| self.session.get(name)).or_else(|| self.defaults.get(name)).cloned()
    }

    fn query(&mut self, text: &str, world: &World) {
        self.statements.remove(&b""[..]);
        self.portals.remove(&b""[..]);
        self.queue = split(text);
        // PostgreSQL parses all of it before it runs any of it; analysis comes one by one.
        if self.queue.iter().any(|statement| statement.trim() == "SYNTAX") {
            return self.fail(&error("42601", "syntax error at or near \"SYNTAX\""), false);
        }
        self.several = self.queue.len() > 1 || self.transaction == Transaction::Implicit;
        let outcome = self.guarded(|model| {
            if model.queue.is_empty() {
                write::bare(&mut model.out, server::EMPTY_QUERY);
            }
            Ok(())
        });
        match outcome {
            Ok(()) => self.run_queue(world),
            Err(error) => self.fail(&error, false),
        }
    }

    fn run_queue(&mut self, world: &World) {
        while !self.queue.is_empty() {
            let sql = self.queue.remove(0);
            let outcome = self.guarded(|model| model.statement(&sql, world));
            if let Err(error) = outcome {
                return self.fail(&error, false);
            }
            if self.copy.is_some() {
                return self.flush();
            }
        }
        self.finish();
    }

    /// A statement of a Query.
    fn statement(&mut self, sql: &str, world: &World) -> Outcome {
        let op = Op::read(sql);
        self.admit(&op)?;
        let prepared = Prepared {
            op,
            parameters: Vec::new(),
            column_type: world.column_type,
            described: false,
            free: false,
        };
        // The planner divides, before anything is described.
        if let Some(column) = prepared.column(self).filter(|_| prepared.op != Op::Divides) {
            row_description(&mut self.out, &column);
        }
        let mut portal = Portal { prepared, parameter: String::new(), rows: None, complete: false };
        self.run(b"", &mut portal, 0, false)?;
        // Without a block around them, these end what came before them in the same text.
        if matches!(portal.prepared.op, Op::Commit | Op::Rollback)
            && self.several
            && !self.queue.is_empty()
            && self.transaction == Transaction::None
        {
            self.begin();
        }
        Ok(())
    }

    fn admit(&mut self, op: &Op) -> Outcome {
        if self.transaction == Transaction::Failed && !self.is_exit(op) {
            return Err(aborted());
        }
        self.meet_conflict()?;
        self.begin();
        if self.dsql && op.is_refused() {
            return Err(error("0A000", format!("the gateway let {op:?} pass")));
        }
        if *op == Op::Wrong {
            return Err(error("42703", "column \"wrong\" does not exist"));
        }
        Ok(())
    }

    fn meet_conflict(&mut self) -> Outcome {
        if self.is_in_block() || self.conflicts == 0 {
            return Ok(());
        }
        if self.spared > 0 {
            self.spared -= 1;
            return Ok(());
        }
        self.conflicts -= 1;
        Err(error("40001", "schema has been updated by another transaction, please retry: (OC001)"))
    }

    /// Whether a failed transaction lets it pass.
    fn is_exit(&self, op: &Op) -> bool {
        op.is_exit() && !(self.gone && matches!(op, Op::RollbackTo(_)))
    }

    fn parse(&mut self, body: &[u8], world: &World) -> Outcome {
        let (name, rest) = split_string(body).expect("a name");
        let (text, types) = split_string(rest).expect("a text");
        if name.is_empty() {
            self.statements.remove(name);
        }
        let text = std::str::from_utf8(text).expect("text");
        let texts = split(text);
        if texts.len() > 1 {
            return Err(error("42601", "cannot insert multiple commands into a prepared statement"));
        }
        let op = Op::read(texts.first().map_or("", |text| text));
        if op != Op::Empty {
            self.admit(&op)?;
        }
        if !name.is_empty() && self.statements.contains_key(name) {
            return Err(error(
                "42P05",
                format!("prepared statement \"{}\" already exists", String::from_utf8_lossy(name)),
            ));
        }
        let mut parameters = Vec::new();
        let is_parameter = |value: &str| value == "$1";
        if matches!(&op, Op::Parameter)
            || matches!(&op, Op::Insert(value) | Op::SetConfig { value, .. } if is_parameter(value))
        {
            let given = types.get(2..6).map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]));
            parameters.push(given.filter(|&oid| oid != 0).unwrap_or(25));
        }
        let prepared =
            Prepared { op, parameters, column_type: world.column_type, described: false, free: false };
        self.statements.insert(name.to_vec(), prepared);
        write::bare(&mut self.out, server::PARSE_COMPLETE);
        Ok(())
    }

    fn prepared(&self, name: &[u8]) -> Result<Prepared, Box<ServerError>> {
        self.statements.get(name).cloned().ok_or_else(|| {
            let message = match name {
                b"" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name)),
            };
            error("26000", message)
        })
    }

    /// A statement whose columns nobody has seen takes those of today.
    fn adopt(&mut self, name: &[u8], world: &World) {
        if let Some(prepared) = self.statements.get_mut(name).filter(|prepared| prepared.free) {
            prepared.column_type = world.column_type;
        }
    }

    fn revalidate(&mut self, prepared: &Prepared, world: &World) -> Outcome {
        if self.transaction == Transaction::Failed && !self.is_exit(&prepared.op) && prepared.op != Op::Empty
        {
            return Err(aborted());
        }
        self.meet_conflict()?;
        self.begin();
        if prepared.op == Op::Table && prepared.column_type != world.column_type && !prepared.free {
            return Err(routine(
                error("0A000", "cached plan must not change result type"),
                "RevalidateCachedQuery",
            ));
        }
        Ok(())
    }

    fn bind(&mut self, body: &[u8], world: &World) -> Outcome {
        let (portal, rest) = split_string(body).expect("a portal");
        let (name, rest) = split_string(rest).expect("a name");
        self.adopt(name, world);
        let prepared = self.prepared(name)?;
        // PostgreSQL counts first. The gateway verifies first, and of two errors it does not matter which one a client gets.
        self.revalidate(&prepared, world)?;
        let counted = |bytes: &[u8]| bytes.first_chunk().map(|count| usize::from(u16::from_be_bytes(*count)));
        let read = counted(rest).and_then(|formats| {
            let rest = rest.get(2 + 2 * formats..)?;
            // A count, and a count of formats behind the parameters, each of which has a length.
            counted(rest).filter(|count| rest.len() >= 4 + 4 * count).map(|count| (count, rest))
        });
        let Some((count, rest)) = read else {
            return Err(error("08P01", "insufficient data left in message"));
        };
        // The end of a transaction takes any: in one that is gone, the gateway does not look at them.
        if count != prepared.parameters.len() && !prepared.op.is_exit() {
            return Err(error("08P01", format!("bind message supplies {count} parameters")));
        }
        let parameter = if count == 1 {
            String::from_utf8_lossy(&rest[6..rest.len() - 2]).into_owned()
        } else {
            String::new()
        };
        if portal.is_empty() {
            self.portals.remove(portal);
        } else if self.portals.contains_key(portal) && !prepared.op.is_exit() {
            // The gateway may have lost them with the backend. Then nothing can be bound but the end of the transaction.
            return Err(error("42P03", "cursor already exists"));
        }
        self.portals.insert(portal.to_vec(), Portal { prepared, parameter, rows: None, complete: false });
        write::bare(&mut self.out, server::BIND_COMPLETE);
        Ok(())
    }

    fn describe(&mut self, body: &[u8], world: &World) -> Outcome {
        let (name, _) = split_string(&body[1..]).expect("a name");
        let prepared = if body[0] == b'S' {
            self.adopt(name, world);
            let prepared = self.prepared(name)?;
            self.revalidate(&prepared, world)?;
            if let Some(prepared) = self.statements.get_mut(name) {
                (prepared.described, prepared.free) = (true, false);
            }
            write::frame(&mut self.out, server::PARAMETER_DESCRIPTION, |out| {
                out.extend_from_slice(&u16::try_from(prepared.parameters.len()).expect("few").to_be_bytes());
                out.extend(prepared.parameters.iter().flat_map(|oid| oid.to_be_bytes()));
            });
            prepared
        } else {
            let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?.prepared.clone();
            if self.transaction == Transaction::Failed && !self.is_exit(&portal.op) {
                return Err(aborted());
            }
            portal
        };
        match prepared.column(self) {
            Some(column) => row_description(&mut self.out, &column),
            None => write::bare(&mut self.out, server::NO_DATA),
        }
        Ok(())
    }

    fn execute(&mut self, body: &[u8], _world: &World) -> Outcome {
        let (name, rest) = split_string(body).expect("a portal");
        let limit = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
        let mut portal = self.portals.get(name).cloned().ok_or_else(|| no_portal(name))?;
        if self.transaction == Transaction::Failed
            && !self.is_exit(&portal.prepared.op)
            && portal.prepared.op != Op::Empty
        {
            return Err(aborted());
        }
        self.begin();
        self.several = false;
        let result = self.run(name, &mut portal, limit, true);
        if let Some(place) = self.portals.get_mut(name) {
            *place = portal;
        }
        if self.copy.is_some() {
            self.flush();
        }
        result
    }

    fn run(&mut self, name: &[u8], portal: &mut Portal, limit: u32, extended: bool) -> Outcome {
        let warn = |out: &mut Vec<u8>, sqlstate: &'static str, message: &'static str| {
            write::notice(
                out,
                &ServerError {
                    severity: crate::protocol::Severity::Warning,
                    ..ServerError::notice(sqlstate, message)
                },
            );
        };
        let warns = self.says("warning");
        if std::mem::replace(&mut portal.complete, true) && portal.rows.is_none() {
            let name = String::from_utf8_lossy(name);
            return Err(routine(error("55000", format!("portal \"{name}\" cannot be run")), "PortalRun"));
        }
        let tag = match portal.prepared.op.clone() {
            Op::Rows { rows, .. } => return self.rows(portal, rows, limit),
            Op::Table => return self.rows(portal, vec!["7".to_owned()], limit),
            Op::Parameter => {
                let row = portal.parameter.clone();
                return self.rows(portal, vec![row], limit);
            }
            Op::Show(name) => {
                let value = self.value(&name).ok_or_else(|| unknown(&name))?;
                self.data_row(&[&value]);
                "SHOW".to_owned()
            }
            Op::SetConfig { name, value } => {
                // It is called once, whatever else is asked of the portal.
                let value = if value == "$1" { portal.parameter.clone() } else { value };
                if portal.rows.is_some() {
                    return self.rows(portal, vec![value], limit);
                }
                self.set(&name, Some(value.clone()), false)?;
                return self.rows(portal, vec![value], limit);
            }
            Op::Set { name, value, local } => {
                self.set(&name, value, local)?;
                "SET".to_owned()
            }
            Op::Reset(name) => {
                self.set(&name, None, false)?;
                "RESET".to_owned()
            }
            Op::ResetAll => {
                self.session.clear();
                self.local.clear();
                "RESET".to_owned()
            }
            Op::ReadSettings => {
                for (name, value) in self.session.clone() {
                    self.data_row(&[&name, &value]);
                }
                "SELECT 1".to_owned()
            }
            Op::Begin => {
                if self.transaction == Transaction::Block && warns {
                    warn(&mut self.out, "25001", "there is already a transaction in progress");
                }
                self.transaction = Transaction::Block;
                "BEGIN".to_owned()
            }
            Op::Commit => {
                let failed = self.transaction == Transaction::Failed;
                if self.transaction == Transaction::Implicit && warns {
                    warn(&mut self.out, "25P01", "there is no transaction in progress");
                }
                self.end(!failed);
                if failed { "ROLLBACK" } else { "COMMIT" }.to_owned()
            }
            Op::Rollback => {
                if self.transaction == Transaction::Implicit && warns {
                    warn(&mut self.out, "25P01", "there is no transaction in progress");
                }
                self.end(false);
                "ROLLBACK".to_owned()
            }
            Op::Savepoint(name) => {
                self.block("SAVEPOINT")?;
                let inserted = self.ledger.pending.len();
                self.savepoints.push((name, self.session.clone(), self.local.clone(), inserted));
                "SAVEPOINT".to_owned()
            }
            Op::RollbackTo(name) => {
                self.block("ROLLBACK TO SAVEPOINT")?;
                let place = self.savepoints.iter().rposition(|(other, ..)| *other == name);
                let Some(place) = place else {
                    return Err(error("3B001", format!("savepoint \"{name}\" does not exist")));
                };
                let (_, session, local, inserted) = self.savepoints[place].clone();
                (self.session, self.local) = (session, local);
                self.ledger.pending.truncate(inserted);
                self.savepoints.truncate(place + 1);
                self.transaction = Transaction::Block;
                "ROLLBACK".to_owned()
            }
            Op::Release(name) => {
                self.block("RELEASE SAVEPOINT")?;
                let place = self.savepoints.iter().rposition(|(other, ..)| *other == name);
                let Some(place) = place else {
                    return Err(error("3B001", format!("savepoint \"{name}\" does not exist")));
                };
                self.savepoints.truncate(place);
                "RELEASE".to_owned()
            }
            Op::Divides => return Err(error("22012", "division by zero")),
            Op::Insert(value) => {
                let value = if value == "$1" { portal.parameter.clone() } else { value };
                self.ledger.executed.push(value.clone());
                self.ledger.pending.push(value);
                "INSERT 0 1".to_owned()
            }
            Op::Change(tag, value) => {
                self.changes = true;
                self.ledger.executed.extend(value.clone());
                self.ledger.pending.extend(value);
                tag.to_owned()
            }
            Op::CopyIn => {
                write::frame(&mut self.out, server::COPY_IN, |out| out.extend_from_slice(&[0, 0, 1, 0, 0]));
                self.copy = Some(Copy { extended, rows: 0 });
                return Ok(());
            }
            Op::CopyOut => {
                write::frame(&mut self.out, server::COPY_OUT, |out| out.extend_from_slice(&[0, 0, 1, 0, 0]));
                for row in [&b"1\n"[..], b"2\n"] {
                    write::frame(&mut self.out, server::COPY_DATA, |out| out.extend_from_slice(row));
                }
                write::bare(&mut self.out, server::COPY_DONE);
                "COPY 2".to_owned()
            }
            Op::Notice => {
                if self.says("notice") {
                    write::notice(&mut self.out, &ServerError::notice("00000", "a notice"));
                }
                "DO".to_owned()
            }
            Op::Deallocate(name) => {
                if self.statements.remove(name.as_bytes()).is_none() {
                    return Err(routine(
                        error("26000", format!("prepared statement \"{name}\" does not exist")),
                        "FetchPreparedStatement",
                    ));
                }
                "DEALLOCATE".to_owned()
            }
            Op::DeallocateAll => {
                self.statements.retain(|name, _| name.is_empty());
                "DEALLOCATE ALL".to_owned()
            }
            Op::DiscardAll => {
                if self.transaction != Transaction::Implicit || self.several {
                    return Err(routine(
                        error("25001", "DISCARD ALL cannot run inside a transaction block"),
                        "PreventInTransactionBlock",
                    ));
                }
                self.statements.retain(|name, _| name.is_empty());
                self.session.clear();
                "DISCARD ALL".to_owned()
            }
            Op::CloseAll => "CLOSE CURSOR ALL".to_owned(),
            Op::Unlisten => "UNLISTEN".to_owned(),
            Op::UnlockAll => return self.rows(portal, vec![String::new()], 0),
            Op::Wrong => return Err(error("42703", "column \"wrong\" does not exist")),
            Op::Empty => {
                write::bare(&mut self.out, server::EMPTY_QUERY);
                return Ok(());
            }
        };
        write::command_complete(&mut self.out, &tag);
        Ok(())
    }

    fn block(&self, what: &str) -> Outcome {
        if matches!(self.transaction, Transaction::Block | Transaction::Failed) {
            return Ok(());
        }
        Err(error("25P01", format!("{what} can only be used in transaction blocks")))
    }

    fn set(&mut self, name: &str, value: Option<String>, local: bool) -> Outcome {
        if !self.defaults.contains_key(name) {
            return Err(unknown(name));
        }
        let level = value.as_deref().is_none_or(|value| LEVELS.contains(&value));
        if name == "client_min_messages" && !level {
            let value = value.unwrap_or_default();
            let error = error("22023", format!("invalid value for parameter \"{name}\": \"{value}\""));
            let hint =
                "Available values: debug5, debug4, debug3, debug2, debug1, log, notice, warning, error.";
            return Err(Box::new(error.with_hint(hint)));
        }
        if value.as_deref() == Some("bad") {
            return Err(error("22023", format!("invalid value for parameter \"{name}\": \"bad\"")));
        }
        if local {
            let value = value.unwrap_or_else(|| self.defaults[name].clone());
            self.local.insert(name.to_owned(), value);
            return Ok(());
        }
        self.local.remove(name);
        match value {
            Some(value) => drop(self.session.insert(name.to_owned(), value)),
            None => drop(self.session.remove(name)),
        }
        Ok(())
    }

    fn rows(&mut self, portal: &mut Portal, rows: Vec<String>, limit: u32) -> Outcome {
        let left = portal.rows.get_or_insert(rows);
        let count = if limit == 0 { left.len() } else { left.len().min(limit as usize) };
        let now: Vec<String> = left.drain(..count).collect();
        for row in &now {
            self.data_row(&[row]);
        }
        if limit > 0 && count == limit as usize {
            write::bare(&mut self.out, server::PORTAL_SUSPENDED);
        } else {
            write::command_complete(&mut self.out, &format!("SELECT {count}"));
        }
        Ok(())
    }

    fn data_row(&mut self, values: &[&str]) {
        write::frame(&mut self.out, server::DATA_ROW, |out| {
            out.extend_from_slice(&u16::try_from(values.len()).expect("few").to_be_bytes());
            for value in values {
                out.extend_from_slice(&u32::try_from(value.len()).expect("short").to_be_bytes());
                out.extend_from_slice(value.as_bytes());
            }
        });
    }
}

/// The columns of a result: name, type and length.
type Column = (&'static str, u32, u16);

impl Prepared {
    fn column(&self, server: &ModelServer) -> Option<Column> {
        Some(match &self.op {
            Op::Rows { column, .. } => (column, 23, 4),
            Op::Divides => ("?column?", 23, 4),
            Op::Table => ("a", self.column_type, 8),
            Op::Parameter => ("?column?", self.parameters.first().copied().unwrap_or(25), 8),
            Op::Show(name) if name == "client_min_messages" => ("client_min_messages", 25, 0xffff),
            Op::Show(name) if server.defaults.contains_key(name) => ("setting", 25, 0xffff),
            Op::SetConfig { .. } => ("set_config", 25, 0xffff),
            Op::ReadSettings => ("name", 25, 0xffff),
            Op::UnlockAll => ("pg_advisory_unlock_all", 2278, 4),
            _ => return None,
        })
    }
}

fn row_description(out: &mut Vec<u8>, (name, oid, length): &Column) {
    write::frame(out, server::ROW_DESCRIPTION, |out| {
        out.extend_from_slice(&[0, 1]);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&[0; 7]);
        out.extend_from_slice(&oid.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0]);
    });
}

fn error(sqlstate: &'static str, message: impl Into<std::borrow::Cow<'static, str>>) -> Box<ServerError> {
    Box::new(ServerError::error(sqlstate, message))
}

fn aborted() -> Box<ServerError> {
    error("25P02", "current transaction is aborted, commands ignored until end of transaction block")
}

/// Where each of these frames ends.
fn ends_of_frames(bytes: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while let Ok(Some((_, length))) = header(&bytes[at..]) {
        at += length;
        ends.push(at);
    }
    ends
}

fn no_portal(name: &[u8]) -> Box<ServerError> {
    error("34000", format!("portal \"{}\" does not exist", String::from_utf8_lossy(name)))
}

fn unknown(name: &str) -> Box<ServerError> {
    error("42704", format!("unrecognized configuration parameter \"{name}\""))
}

fn routine(mut error: Box<ServerError>, routine: &'static str) -> Box<ServerError> {
    error.routine = Some(routine.into());
    error
}
