//! A Query: several statements, which share a transaction.

use super::error::{Outcome, error};
use super::portal::Portal;
use super::prepared::Prepared;
use super::rows::row_description;
use super::transaction::Transaction;
use super::{ModelServer, World};
use crate::protocol::{server, write};
use crate::session::model::statement::{Op, split};

impl ModelServer {
    pub(super) fn query(&mut self, text: &str, world: &World) {
        self.statements.remove(&b""[..]);
        self.queue = split(text);
        // PostgreSQL parses all of it before it runs any of it; analysis comes one by one.
        if self.queue.iter().any(|statement| statement.trim() == "SYNTAX") {
            return self.fail(&error("42601", "syntax error at or near \"SYNTAX\""), false);
        }
        self.several = self.queue.len() > 1 || self.executed;
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

    pub(super) fn run_queue(&mut self, world: &World) {
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
        // Each statement that is let in gets the unnamed portal.
        self.portals.remove(&b""[..]);
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
}
