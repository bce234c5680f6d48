//! A model of a PostgreSQL session: what a client of one connection sees.

use std::collections::BTreeMap;

use super::statement::{Op, split};
use crate::protocol::{HEADER, ServerError, header, server, split_string, write};

/// What a table is made of, and what a server without start-up settings has.
#[derive(Clone, Debug, Default)]
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

const OTHERS: [(&str, &str); 2] = [("search_path", "public"), ("extra_float_digits", "1")];

type Values = BTreeMap<String, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    None,
    /// One that ends with the Sync or the Query.
    Implicit,
    Block,
    Failed,
}

#[derive(Clone, Debug)]
struct Prepared {
    op: Op,
    parameters: Vec<u32>,
    column_type: u32,
}

#[derive(Clone, Debug)]
struct Portal {
    prepared: Prepared,
    parameter: String,
    /// The rows that are left, once it has begun.
    rows: Option<Vec<String>>,
    complete: bool,
}

/// A Query that waits for copy data.
#[derive(Debug)]
struct Copy {
    extended: bool,
    rows: u32,
}

#[derive(Debug)]
pub(crate) struct ModelServer {
    input: Vec<u8>,
    out: Vec<u8>,
    flushed: Vec<u8>,
    defaults: Values,
    session: Values,
    local: Values,
    committed: Values,
    savepoints: Vec<(String, Values, Values)>,
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
    /// The next transaction fails with a conflict.
    pub(super) conflicts: u32,
    /// Every statement that was executed.
    pub(super) executed: Vec<String>,
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
            conflicts: 0,
            executed: Vec::new(),
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
        if let Some(copy) = &mut self.copy {
            match kind {
                b'd' => copy.rows += 1,
                b'H' | b'S' => {}
                b'c' => {
                    let tag = format!("COPY {}", copy.rows);
                    let extended = copy.extended;
                    self.copy = None;
                    write::command_complete(&mut self.out, &tag);
                    if !extended {
                        self.run_queue(world);
                    }
                }
                _ => {
                    let extended = copy.extended;
                    self.copy = None;
                    let message = if kind == b'f' {
                        "COPY from stdin failed"
                    } else {
                        "unexpected message during COPY"
                    };
                    self.fail(&error("57014", message), extended);
                }
            }
            return;
        }
        if self.skipping && kind != b'S' {
            return;
        }
        let outcome = match kind {
            b'Q' => {
                let (text, _) = split_string(body).expect("a text");
                self.query(std::str::from_utf8(text).expect("text"), world);
                return;
            }
            b'S' => {
                self.skipping = false;
                self.end_implicit(true);
                self.ready();
                return;
            }
            b'H' => {
                self.flush();
                return;
            }
            b'F' => {
                self.begin();
                write::frame(&mut self.out, server::FUNCTION_RESULT, |out| out.extend_from_slice(&[0xff; 4]));
                self.end_implicit(true);
                self.ready();
                return;
            }
            b'd' | b'c' | b'f' => return,
            b'P' => self.parse(body, world),
            b'B' => self.bind(body, world),
            b'D' => self.describe(body, world),
            b'E' => self.execute(body, world),
            b'C' => {
                let name = split_string(&body[1..]).expect("a name").0;
                if body[0] == b'S' {
                    self.statements.remove(name);
                } else {
                    self.portals.remove(name);
                }
                write::bare(&mut self.out, server::CLOSE_COMPLETE);
                Ok(())
            }
            kind => panic!("a frame of type {kind}"),
        };
        if let Err(error) = outcome {
            self.fail(&error, true);
        }
    }

    fn fail(&mut self, error: &ServerError, extended: bool) {
        write::error(&mut self.out, error);
        match self.transaction {
            Transaction::Block => {
                // Settings are rolled back now, and reported: to the last savepoint, or to the beginning.
                let savepoint =
                    self.savepoints.last().map(|(_, session, local)| (session.clone(), local.clone()));
                (self.session, self.local) = savepoint.unwrap_or((self.committed.clone(), Values::new()));
                self.transaction = Transaction::Failed;
            }
            Transaction::Failed => {}
            _ => self.end_implicit(false),
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
        if !commit {
            self.session = self.committed.clone();
        }
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
                write::parameter_status(&mut self.out, name, &value);
                self.reported.insert(name.to_owned(), value);
            }
        }
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
        if self.queue.is_empty() {
            write::bare(&mut self.out, server::EMPTY_QUERY);
        }
        self.run_queue(world);
    }

    fn run_queue(&mut self, world: &World) {
        while !self.queue.is_empty() {
            let sql = self.queue.remove(0);
            let outcome = self.statement(&sql, world);
            if let Err(error) = outcome {
                return self.fail(&error, false);
            }
            if self.copy.is_some() {
                return self.flush();
            }
        }
        self.end_implicit(true);
        self.ready();
    }

    /// A statement of a Query.
    fn statement(&mut self, sql: &str, world: &World) -> Outcome {
        let op = Op::read(sql);
        self.admit(&op)?;
        let prepared = Prepared { op, parameters: Vec::new(), column_type: world.column_type };
        // The planner divides, before anything is described.
        if let Some(column) = prepared.column(self).filter(|_| prepared.op != Op::Divides) {
            row_description(&mut self.out, &column);
        }
        self.executed.push(sql.trim().to_owned());
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
        if self.transaction == Transaction::Failed && !op.is_exit() {
            return Err(error(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        if self.transaction == Transaction::None && self.conflicts > 0 {
            self.conflicts -= 1;
            return Err(error(
                "40001",
                "schema has been updated by another transaction, please retry: (OC001)",
            ));
        }
        self.begin();
        if self.dsql && op.is_refused() {
            return Err(error("0A000", format!("the gateway let {op:?} pass")));
        }
        if *op == Op::Wrong {
            return Err(error("42703", "column \"wrong\" does not exist"));
        }
        Ok(())
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
        if op == Op::Parameter {
            let given = types.get(2..6).map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]));
            parameters.push(given.filter(|&oid| oid != 0).unwrap_or(25));
        }
        self.statements.insert(name.to_vec(), Prepared { op, parameters, column_type: world.column_type });
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

    fn revalidate(&mut self, prepared: &Prepared, world: &World) -> Outcome {
        if self.transaction == Transaction::Failed && !prepared.op.is_exit() && prepared.op != Op::Empty {
            return Err(error(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        self.begin();
        if prepared.op == Op::Table && prepared.column_type != world.column_type {
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
        let prepared = self.prepared(name)?;
        // PostgreSQL counts first. The gateway verifies first, and of two errors it does not matter which one a client gets.
        self.revalidate(&prepared, world)?;
        let formats = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        let rest = &rest[2 + 2 * formats..];
        let count = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        if count != prepared.parameters.len() {
            return Err(error("08P01", format!("bind message supplies {count} parameters")));
        }
        let parameter = if count == 1 {
            String::from_utf8_lossy(&rest[6..rest.len() - 2]).into_owned()
        } else {
            String::new()
        };
        if portal.is_empty() {
            self.portals.remove(portal);
        } else if self.portals.contains_key(portal) {
            return Err(error("42P03", "cursor already exists"));
        }
        self.portals.insert(portal.to_vec(), Portal { prepared, parameter, rows: None, complete: false });
        write::bare(&mut self.out, server::BIND_COMPLETE);
        Ok(())
    }

    fn describe(&mut self, body: &[u8], world: &World) -> Outcome {
        let (name, _) = split_string(&body[1..]).expect("a name");
        let prepared = if body[0] == b'S' {
            let prepared = self.prepared(name)?;
            self.revalidate(&prepared, world)?;
            write::frame(&mut self.out, server::PARAMETER_DESCRIPTION, |out| {
                out.extend_from_slice(&u16::try_from(prepared.parameters.len()).expect("few").to_be_bytes());
                out.extend(prepared.parameters.iter().flat_map(|oid| oid.to_be_bytes()));
            });
            prepared
        } else {
            let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?.prepared.clone();
            if self.transaction == Transaction::Failed && !portal.op.is_exit() {
                return Err(error(
                    "25P02",
                    "current transaction is aborted, commands ignored until end of transaction block",
                ));
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
            && !portal.prepared.op.is_exit()
            && portal.prepared.op != Op::Empty
        {
            return Err(error(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        self.begin();
        self.executed.push(format!("{:?}", portal.prepared.op));
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
                if self.transaction == Transaction::Block {
                    warn(&mut self.out, "25001", "there is already a transaction in progress");
                }
                self.transaction = Transaction::Block;
                "BEGIN".to_owned()
            }
            Op::Commit => {
                let failed = self.transaction == Transaction::Failed;
                if self.transaction == Transaction::Implicit {
                    warn(&mut self.out, "25P01", "there is no transaction in progress");
                }
                self.end(!failed);
                if failed { "ROLLBACK" } else { "COMMIT" }.to_owned()
            }
            Op::Rollback => {
                if self.transaction == Transaction::Implicit {
                    warn(&mut self.out, "25P01", "there is no transaction in progress");
                }
                self.end(false);
                "ROLLBACK".to_owned()
            }
            Op::Savepoint(name) => {
                self.block("SAVEPOINT")?;
                self.savepoints.push((name, self.session.clone(), self.local.clone()));
                "SAVEPOINT".to_owned()
            }
            Op::RollbackTo(name) => {
                self.block("ROLLBACK TO SAVEPOINT")?;
                let place = self.savepoints.iter().rposition(|(other, ..)| *other == name);
                let Some(place) = place else {
                    return Err(error("3B001", format!("savepoint \"{name}\" does not exist")));
                };
                (self.session, self.local) =
                    (self.savepoints[place].1.clone(), self.savepoints[place].2.clone());
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
            Op::Insert => "INSERT 0 1".to_owned(),
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
                write::notice(&mut self.out, &ServerError::notice("00000", "a notice"));
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
