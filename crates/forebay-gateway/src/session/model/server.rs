//! A model of a PostgreSQL session: what a client of one connection sees.
//!
//! ```text
//!  frames ──▶ server ──┬─ query ──────────────────────────┬──▶ admission ──▶ execution ──▶ frames
//!                      ├─ prepared, portal: the extended ─┘                    ├ settings
//!                      └─ copy                                                 ├ transaction
//!  fault: an error from outside takes the place of an answer                   └ rows
//! ```

mod admission;
mod copy;
mod error;
mod execution;
mod fault;
mod portal;
mod prepared;
mod query;
mod rows;
mod settings;
mod transaction;

use std::collections::BTreeMap;

pub(super) use self::fault::Fault;
pub(crate) use self::settings::REPORTED;
pub(super) use self::settings::Values;
pub(super) use self::transaction::Ledger;

use self::copy::Copy;
use self::error::{Outcome, aborted};
use self::portal::Portal;
use self::prepared::Prepared;
use self::settings::Settings;
use self::transaction::{Savepoint, Transaction};
use crate::protocol::{HEADER, ServerError, header, server, split_string, write};

/// What a table is made of, and what a server without start-up settings has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct World {
    /// The type of the column of `t`.
    pub(crate) column_type: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelServer {
    input: Vec<u8>,
    out: Vec<u8>,
    flushed: Vec<u8>,
    settings: Settings,
    savepoints: Vec<Savepoint>,
    statements: BTreeMap<Vec<u8>, Prepared>,
    portals: BTreeMap<Vec<u8>, Portal>,
    transaction: Transaction,
    skipping: bool,
    copy: Option<Copy>,
    /// The rest of the Query that is running.
    queue: Vec<String>,
    /// Whether several statements share an implicit transaction.
    several: bool,
    /// Extended requests have executed something in the transaction that is under way.
    executed: bool,
    /// Refuses what Aurora DSQL refuses.
    dsql: bool,
    /// Says nothing about settings.
    quiet: bool,
    /// So many times, a statement fails with a conflict: one outside of a transaction block, or the first one in it.
    pub(super) conflicts: u32,
    /// So many statements come before the first of these, perhaps in the same transaction.
    pub(super) spared: u32,
    /// A block has just begun.
    begun: bool,
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

impl ModelServer {
    pub(crate) fn new(start: &[(&str, &str)], dsql: bool) -> Self {
        let mut model = Self {
            input: Vec::new(),
            out: Vec::new(),
            flushed: Vec::new(),
            settings: Settings::new(start),
            savepoints: Vec::new(),
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            transaction: Transaction::None,
            skipping: false,
            copy: None,
            queue: Vec::new(),
            several: false,
            executed: false,
            dsql,
            quiet: false,
            conflicts: 0,
            spared: 0,
            begun: false,
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
        if let Some(copy) = self.copy.take() {
            return self.copy_frame(copy, kind, world);
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
            b'E' => self.guarded(|model| model.execute(body)),
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

    fn fail(&mut self, error: &ServerError, extended: bool) {
        write::error(&mut self.out, error);
        let fault = self.fault_came.take();
        match self.transaction {
            Transaction::Block | Transaction::Failed if fault == Some(true) => self.end(false),
            Transaction::Block => self.fail_block(),
            Transaction::Failed => {}
            _ => self.end_implicit(false),
        }
        if fault.is_some() {
            // A conflict leaves the backend as it is.
            if error.sqlstate != "40001" {
                self.backend_is_gone();
            }
            self.free_statements();
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
        self.settings.report(self.quiet, &mut self.out);
    }

    /// Values that were reported.
    pub(super) const fn reported(&self) -> &Values {
        self.settings.reported()
    }

    /// What the pool does to a backend whose client has left.
    pub(super) fn clean(&mut self, reset_all: bool) {
        self.end(false);
        if reset_all {
            self.settings.reset_session();
            self.settings.begin();
        }
        self.report();
        self.out.clear();
    }

    /// The connection ends.
    pub(super) fn disconnect(&mut self) {
        self.end(false);
    }
}
