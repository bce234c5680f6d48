//! Portals: Bind, and Execute.

use super::error::{Outcome, aborted, error, no_portal};
use super::prepared::Prepared;
use super::transaction::Transaction;
use super::{ModelServer, World};
use crate::protocol::{server, split_string, write};
use crate::session::model::statement::Op;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Portal {
    pub(super) prepared: Prepared,
    pub(super) parameter: String,
    /// The rows that are left, once it has begun.
    pub(super) rows: Option<Vec<String>>,
    pub(super) complete: bool,
}

impl ModelServer {
    pub(super) fn bind(&mut self, body: &[u8], world: &World) -> Outcome {
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

    pub(super) fn execute(&mut self, body: &[u8]) -> Outcome {
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
        // DISCARD ALL commits at once.
        let stays = !matches!(portal.prepared.op, Op::Empty | Op::DiscardAll);
        self.executed |= result.is_ok() && stays && self.transaction != Transaction::None;
        if let Some(place) = self.portals.get_mut(name) {
            *place = portal;
        }
        if self.copy.is_some() {
            self.flush();
        }
        result
    }

    pub(super) fn rows(&mut self, portal: &mut Portal, rows: Vec<String>, limit: u32) -> Outcome {
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

    /// Those of all portals.
    pub(in crate::session::model) fn parameters(&self) -> impl Iterator<Item = String> {
        self.portals.values().map(|portal| portal.parameter.clone())
    }

    /// Whether this Execute runs a COMMIT.
    pub(in crate::session::model) fn portal_commits(&self, body: &[u8]) -> bool {
        split_string(body)
            .and_then(|(name, _)| self.portals.get(name))
            .is_some_and(|portal| portal.prepared.op == Op::Commit)
    }

    /// Puts back portals that end a failed transaction. Whether there are any: they may have been bound when the backend was gone already.
    pub(in crate::session::model) fn keep_exits(&mut self, before: &Self) -> bool {
        let exits =
            before.portals.iter().filter(|(_, portal)| self.gone && self.is_exit(&portal.prepared.op));
        let exits: Vec<_> = exits.map(|(name, portal)| (name.clone(), portal.clone())).collect();
        let any = exits.iter().any(|(name, _)| !self.portals.contains_key(name));
        self.portals.extend(exits);
        any
    }
}
