//! Whether a transaction is open, by the statements that ran: Flight SQL has no call for it.

/// What a statement does to the transaction of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Effect {
    #[default]
    None,
    Begin,
    Commit,
    Rollback,
}

/// Whether a transaction is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transaction {
    #[default]
    None,
    Open,
    /// A statement of it has failed. Only a rollback is sent now.
    Failed,
    /// A statement was interrupted. Some servers then undo the whole transaction.
    Doubtful,
}

impl Transaction {
    /// After a statement that succeeded.
    pub(crate) fn after(self, effect: Effect) -> Self {
        match effect {
            Effect::None => self,
            Effect::Begin => Self::Open,
            Effect::Commit | Effect::Rollback => Self::None,
        }
    }

    /// After a statement that was refused. A refused ROLLBACK had nothing to undo, and a COMMIT of a failed transaction rolls
    /// it back.
    pub(crate) fn after_failed(self, effect: Effect) -> Self {
        match (self, effect) {
            (_, Effect::Rollback) | (Self::Failed, Effect::Commit) => Self::None,
            (Self::Open, _) => Self::Failed,
            _ => self,
        }
    }

    /// After a statement that was interrupted, whether or not it was complete.
    pub(crate) fn after_interrupted(self, effect: Effect) -> Self {
        if self == Self::None && effect != Effect::Begin { Self::None } else { Self::Doubtful }
    }

    /// The prompt for the next statement.
    pub(crate) fn prompt(self) -> &'static str {
        match self {
            Self::None => "sql> ",
            Self::Open => "sql*> ",
            Self::Failed => "sql!> ",
            Self::Doubtful => "sql?> ",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_open_from_its_beginning_to_its_end() {
        let open = Transaction::None.after(Effect::Begin);
        assert_eq!((open, open.after(Effect::None)), (Transaction::Open, Transaction::Open));
        assert_eq!(open.after(Effect::Commit), Transaction::None);
        assert_eq!(open.after(Effect::Rollback), Transaction::None);
        assert_eq!(Transaction::None.after_failed(Effect::Begin), Transaction::None);
    }

    #[test]
    fn a_failed_statement_is_remembered_until_the_transaction_ends() {
        let failed = Transaction::Open.after_failed(Effect::None);
        assert_eq!((failed, Transaction::Open.after_failed(Effect::Commit)), (Transaction::Failed, failed));
        assert_eq!((failed.after(Effect::None), failed.after_failed(Effect::None)), (failed, failed));
        for end in [Effect::Commit, Effect::Rollback] {
            assert_eq!(failed.after(end), Transaction::None);
        }
        assert_eq!(failed.after_failed(Effect::Rollback), Transaction::None);
        assert_eq!(failed.after_failed(Effect::Commit), Transaction::None);
        assert_eq!(Transaction::None.after_failed(Effect::None), Transaction::None);
    }

    #[test]
    fn an_interrupted_statement_leaves_doubt_until_commit_or_rollback() {
        let doubtful = Transaction::Open.after_interrupted(Effect::None);
        assert_eq!(doubtful, Transaction::Doubtful);
        assert_eq!(Transaction::None.after_interrupted(Effect::Begin), doubtful);
        assert_eq!(Transaction::None.after_interrupted(Effect::None), Transaction::None);
        assert_eq!(doubtful.after(Effect::None), doubtful);
        assert_eq!(doubtful.after_failed(Effect::Commit), doubtful);
        assert_eq!(doubtful.after_failed(Effect::Rollback), Transaction::None);
        assert_eq!(doubtful.after(Effect::Commit), Transaction::None);
    }
}
