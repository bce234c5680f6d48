//! What a session knows of its transaction.

use std::fmt;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::sql::Traits;

/// Whether a session has a transaction open, and whose words began it.
#[derive(Clone, Default)]
pub(super) enum Open {
    /// None.
    #[default]
    No,
    /// One that the server has a name for.
    Named(Bytes),
    /// One that a statement began.
    BySql,
    /// The same, and a script should have ended it: but a server may have carried out a part of it only.
    Perhaps,
}

#[derive(Debug, Default)]
struct State {
    open: Open,
    /// Its owner has let go of it: it is rolled back before anything else is done in the session.
    is_abandoned: bool,
}

/// The transaction of a session. What was prepared in the session may begin and end it too.
#[derive(Debug, Default)]
pub(crate) struct Current(Mutex<State>);

impl Current {
    /// Whether one may be open.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.0.lock().open, Open::No)
    }

    /// Whether one is open, and its owner has not let go of it.
    pub(super) fn is_certain(&self) -> bool {
        let state = self.0.lock();
        matches!(state.open, Open::Named(_) | Open::BySql) && !state.is_abandoned
    }

    pub(crate) fn id(&self) -> Option<Bytes> {
        match &self.0.lock().open {
            Open::Named(id) => Some(id.clone()),
            Open::No | Open::BySql | Open::Perhaps => None,
        }
    }

    pub(super) fn open(&self) -> Open {
        self.0.lock().open.clone()
    }

    /// This is how it is, as the server has told.
    pub(super) fn set(&self, open: Open) {
        *self.0.lock() = State { open, is_abandoned: false };
    }

    /// A statement is about to be sent.
    pub(crate) fn note(&self, traits: Traits) {
        let mut state = self.0.lock();
        if traits.begins && matches!(state.open, Open::No | Open::Perhaps) {
            state.open = Open::BySql;
        }
    }

    /// The statement has succeeded, to its end.
    pub(crate) fn conclude(&self, traits: Traits) {
        let mut state = self.0.lock();
        match state.open {
            Open::BySql | Open::Perhaps if traits.ends => state.open = Open::No,
            Open::BySql if traits.ends_last => state.open = Open::Perhaps,
            _ => {}
        }
    }

    /// Its owner lets go of it. Whether there is anything to be rolled back.
    pub(crate) fn abandon(&self) -> bool {
        let mut state = self.0.lock();
        state.is_abandoned = !matches!(state.open, Open::No);
        state.is_abandoned
    }

    /// What its owner has let go of, if that has not been rolled back yet.
    pub(super) fn abandoned(&self) -> Option<Open> {
        let state = self.0.lock();
        state.is_abandoned.then(|| state.open.clone())
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "No",
            Self::Named(_) => "Named",
            Self::BySql => "BySql",
            Self::Perhaps => "Perhaps",
        })
    }
}
