//! What a session knows about its transaction.

use std::fmt;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::sql::StatementTraits;

/// Whether a session has an open transaction, and how it was begun.
#[derive(Clone, Default)]
pub(super) enum Open {
    #[default]
    No,
    /// Begun by the server's action, which returned this id.
    ByAction(Bytes),
    /// Begun by a statement.
    BySql,
    /// Begun by a statement of a script that also ends it. A server may have executed only a part of the
    /// script.
    Uncertain,
}

#[derive(Debug, Default)]
struct State {
    open: Open,
    /// Its owner has given it up: it is rolled back before anything else runs in the session.
    is_abandoned: bool,
    /// The statement that begins it has not been answered yet.
    is_beginning: bool,
    /// What failed in it first.
    failure: Option<String>,
}

/// The transaction of a session. A prepared statement of the session may begin and end it, too.
#[derive(Debug, Default)]
pub(crate) struct TransactionState(Mutex<State>);

impl TransactionState {
    /// Whether one may be open.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.0.lock().open, Open::No)
    }

    /// Whether one is certainly open, and not abandoned.
    pub(super) fn is_certain(&self) -> bool {
        let state = self.0.lock();
        matches!(state.open, Open::ByAction(_) | Open::BySql) && !state.is_abandoned
    }

    pub(crate) fn id(&self) -> Option<Bytes> {
        match &self.0.lock().open {
            Open::ByAction(id) => Some(id.clone()),
            Open::No | Open::BySql | Open::Uncertain => None,
        }
    }

    pub(super) fn open(&self) -> Open {
        self.0.lock().open.clone()
    }

    pub(super) fn set(&self, open: Open) {
        *self.0.lock() = State { open, ..State::default() };
    }

    /// To be called before a statement is sent.
    pub(crate) fn statement_sent(&self, traits: StatementTraits) {
        let mut state = self.0.lock();
        state.is_beginning = traits.begins && matches!(state.open, Open::No | Open::Uncertain);
        if state.is_beginning {
            state.open = Open::BySql;
        }
    }

    /// To be called once the statement has succeeded and its result is read.
    pub(crate) fn statement_succeeded(&self, traits: StatementTraits) {
        let mut state = self.0.lock();
        state.is_beginning = false;
        match state.open {
            Open::BySql | Open::Uncertain if traits.ends => *state = State::default(),
            // The action's own transaction has probably ended, too.
            Open::ByAction(_) if traits.ends => *state = State { open: Open::Uncertain, ..State::default() },
            Open::BySql if traits.ends_last => state.open = Open::Uncertain,
            _ => {}
        }
    }

    /// A statement has failed. If it was part of a transaction, no other may follow: the server may have rolled back.
    pub(crate) fn fail(&self, error: &Error) {
        let mut state = self.0.lock();
        let is_part = matches!(state.open, Open::ByAction(_) | Open::BySql) && !state.is_beginning;
        if is_part && state.failure.is_none() {
            state.failure = Some(error.to_string());
        }
    }

    /// Fails if a statement of the transaction has failed.
    pub(crate) fn check(&self) -> Result<()> {
        let state = self.0.lock();
        match &state.failure {
            Some(message) if !state.is_abandoned => {
                Err(Error::TransactionFailed { message: message.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Its owner gives it up. Returns whether there is anything to roll back.
    pub(crate) fn abandon(&self) -> bool {
        let mut state = self.0.lock();
        state.is_abandoned = !matches!(state.open, Open::No);
        state.is_abandoned
    }

    /// Whether its owner has given it up, and it is not rolled back yet.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.lock().is_abandoned
    }

    /// The abandoned transaction, until it is rolled back.
    pub(super) fn abandoned(&self) -> Option<Open> {
        let state = self.0.lock();
        state.is_abandoned.then(|| state.open.clone())
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "No",
            Self::ByAction(_) => "ByAction",
            Self::BySql => "BySql",
            Self::Uncertain => "Uncertain",
        })
    }
}
