//! The transaction: where it is, its savepoints, and what becomes of what it inserts.

use super::ModelServer;
use super::error::{Outcome, error};
use super::settings::Saved;
use crate::protocol::{ServerError, Severity, write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transaction {
    None,
    /// One that ends with the Sync or the Query.
    Implicit,
    Block,
    Failed,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Savepoint {
    name: String,
    settings: Saved,
    /// How much was inserted before.
    inserted: usize,
}

/// What became of the values that were inserted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::session::model) struct Ledger {
    /// By the transaction that is under way.
    pub(in crate::session::model) pending: Vec<String>,
    pub(in crate::session::model) committed: Vec<String>,
    /// All, whatever became of them.
    pub(in crate::session::model) executed: Vec<String>,
}

/// The tag of a statement.
type Tag = Result<&'static str, Box<ServerError>>;

impl ModelServer {
    pub(in crate::session::model) fn is_in_block(&self) -> bool {
        matches!(self.transaction, Transaction::Block | Transaction::Failed)
    }

    pub(in crate::session::model) fn is_failed(&self) -> bool {
        self.transaction == Transaction::Failed
    }

    pub(super) fn begin(&mut self) {
        if self.transaction == Transaction::None {
            self.transaction = Transaction::Implicit;
            self.settings.begin();
        }
    }

    pub(super) fn end_implicit(&mut self, commit: bool) {
        if matches!(self.transaction, Transaction::None | Transaction::Implicit) {
            self.end(
                commit && self.transaction == Transaction::Implicit || self.transaction == Transaction::None,
            );
        }
    }

    pub(super) fn end(&mut self, commit: bool) {
        let inserted = std::mem::take(&mut self.ledger.pending);
        self.changed += u64::from(std::mem::take(&mut self.changes) && commit);
        if commit {
            self.ledger.committed.extend(inserted);
        }
        self.settings.end(commit);
        (self.gone, self.executed) = (false, false);
        self.savepoints.clear();
        self.portals.clear();
        self.transaction = Transaction::None;
    }

    /// Of a block that fails. Settings are rolled back now, and reported: to the last savepoint, or to the beginning.
    pub(super) fn fail_block(&mut self) {
        match self.savepoints.last() {
            Some(savepoint) => self.settings.restore(savepoint.settings.clone()),
            None => self.settings.roll_back(),
        }
        self.transaction = Transaction::Failed;
    }

    /// BEGIN.
    pub(super) fn begin_block(&mut self) -> &'static str {
        if self.transaction == Transaction::Block {
            self.warn("25001", "there is already a transaction in progress");
        }
        self.begun = self.transaction != Transaction::Block;
        self.transaction = Transaction::Block;
        "BEGIN"
    }

    /// COMMIT.
    pub(super) fn commit(&mut self) -> &'static str {
        let failed = self.transaction == Transaction::Failed;
        self.warn_outside();
        self.end(!failed);
        if failed { "ROLLBACK" } else { "COMMIT" }
    }

    /// ROLLBACK.
    pub(super) fn roll_back(&mut self) -> &'static str {
        self.warn_outside();
        self.end(false);
        "ROLLBACK"
    }

    pub(super) fn savepoint(&mut self, name: String) -> Tag {
        self.block("SAVEPOINT")?;
        let (settings, inserted) = (self.settings.save(), self.ledger.pending.len());
        self.savepoints.push(Savepoint { name, settings, inserted });
        Ok("SAVEPOINT")
    }

    pub(super) fn roll_back_to(&mut self, name: &str) -> Tag {
        self.block("ROLLBACK TO SAVEPOINT")?;
        let place = self.place_of(name)?;
        let Savepoint { settings, inserted, .. } = self.savepoints[place].clone();
        self.settings.restore(settings);
        self.ledger.pending.truncate(inserted);
        self.savepoints.truncate(place + 1);
        self.transaction = Transaction::Block;
        Ok("ROLLBACK")
    }

    pub(super) fn release(&mut self, name: &str) -> Tag {
        self.block("RELEASE SAVEPOINT")?;
        let place = self.place_of(name)?;
        self.savepoints.truncate(place);
        Ok("RELEASE")
    }

    fn place_of(&self, savepoint: &str) -> Result<usize, Box<ServerError>> {
        let place = self.savepoints.iter().rposition(|other| other.name == savepoint);
        place.ok_or_else(|| error("3B001", format!("savepoint \"{savepoint}\" does not exist")))
    }

    fn block(&self, what: &str) -> Outcome {
        if matches!(self.transaction, Transaction::Block | Transaction::Failed) {
            return Ok(());
        }
        Err(error("25P01", format!("{what} can only be used in transaction blocks")))
    }

    fn warn_outside(&mut self) {
        if self.transaction == Transaction::Implicit {
            self.warn("25P01", "there is no transaction in progress");
        }
    }

    fn warn(&mut self, sqlstate: &'static str, message: &'static str) {
        if self.settings.says("warning") {
            let warning =
                ServerError { severity: Severity::Warning, ..ServerError::notice(sqlstate, message) };
            write::notice(&mut self.out, &warning);
        }
    }
}
