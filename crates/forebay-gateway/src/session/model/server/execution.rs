//! What each statement does.

use super::ModelServer;
use super::copy::Copy;
use super::error::{Outcome, error, routine, unknown};
use super::portal::Portal;
use super::transaction::Transaction;
use crate::protocol::{ServerError, server, write};
use crate::session::model::statement::Op;

impl ModelServer {
    pub(super) fn run(&mut self, name: &[u8], portal: &mut Portal, limit: u32, extended: bool) -> Outcome {
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
                let value = self.settings.value(&name).ok_or_else(|| unknown(&name))?;
                self.data_row(&[&value]);
                "SHOW"
            }
            Op::SetConfig { name, value } => {
                // It is called once, whatever else is asked of the portal.
                let value = if value == "$1" { portal.parameter.clone() } else { value };
                if portal.rows.is_some() {
                    return self.rows(portal, vec![value], limit);
                }
                self.settings.set(&name, Some(value.clone()), false)?;
                return self.rows(portal, vec![value], limit);
            }
            Op::Set { name, value, local } => {
                self.settings.set(&name, value, local)?;
                "SET"
            }
            Op::Reset(name) => {
                self.settings.set(&name, None, false)?;
                "RESET"
            }
            Op::ResetAll => {
                self.settings.reset_all();
                "RESET"
            }
            Op::ReadSettings => {
                for (name, value) in self.settings.of_session().clone() {
                    self.data_row(&[&name, &value]);
                }
                "SELECT 1"
            }
            Op::Begin => self.begin_block(),
            Op::Commit => self.commit(),
            Op::Rollback => self.roll_back(),
            Op::Savepoint(name) => self.savepoint(name)?,
            Op::RollbackTo(name) => self.roll_back_to(&name)?,
            Op::Release(name) => self.release(&name)?,
            Op::Divides => return Err(error("22012", "division by zero")),
            Op::Insert(value) => {
                let value = if value == "$1" { portal.parameter.clone() } else { value };
                self.ledger.executed.push(value.clone());
                self.ledger.pending.push(value);
                "INSERT 0 1"
            }
            Op::Change(tag, value) => {
                self.changes = true;
                self.ledger.executed.extend(value.clone());
                self.ledger.pending.extend(value);
                tag
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
                "COPY 2"
            }
            Op::Notice => {
                if self.settings.says("notice") {
                    write::notice(&mut self.out, &ServerError::notice("00000", "a notice"));
                }
                "DO"
            }
            Op::Deallocate(name) => {
                if self.statements.remove(name.as_bytes()).is_none() {
                    return Err(routine(
                        error("26000", format!("prepared statement \"{name}\" does not exist")),
                        "FetchPreparedStatement",
                    ));
                }
                "DEALLOCATE"
            }
            Op::DeallocateAll => {
                self.statements.retain(|name, _| name.is_empty());
                "DEALLOCATE ALL"
            }
            Op::DiscardAll => {
                if self.transaction != Transaction::Implicit || self.several || self.executed {
                    return Err(routine(
                        error("25001", "DISCARD ALL cannot run inside a transaction block"),
                        "PreventInTransactionBlock",
                    ));
                }
                self.statements.retain(|name, _| name.is_empty());
                self.settings.reset_session();
                "DISCARD ALL"
            }
            Op::CloseAll => "CLOSE CURSOR ALL",
            Op::Unlisten => "UNLISTEN",
            Op::UnlockAll => return self.rows(portal, vec![String::new()], 0),
            Op::Wrong => return Err(error("42703", "column \"wrong\" does not exist")),
            Op::Empty => {
                write::bare(&mut self.out, server::EMPTY_QUERY);
                return Ok(());
            }
        };
        write::command_complete(&mut self.out, tag);
        Ok(())
    }
}
