//! Errors, by what the caller does next.

use std::error::Error as _;
use std::fmt;

use forebay_dsql::{ErrorKind, IdError, Limit};
use tokio_postgres::error::SqlState;

use crate::bounded_value::MessageTooLong;

/// What went wrong, by what the caller does next. Nothing was committed, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A conditional write found another value. Read again and decide again; never repeat it as it is.
    #[error("{condition}")]
    ConditionFailed {
        /// What was expected.
        condition: Condition,
        /// The same as a [`forebay_dsql::ConditionFailed`], by which the metrics count it as `condition_failed`.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is a row with this key, or this unique value, already. Which one, the database says in words only.
    #[error("{0}")]
    AlreadyExists(#[source] forebay_dsql::Error),
    /// There is no such row.
    #[error("there is no {entity} {key}")]
    NotFound {
        /// What was looked for.
        entity: &'static str,
        /// Its key.
        key: String,
    },
    /// Every attempt that the retry policy allows lost against another transaction. Try again later.
    #[error("{0}")]
    Conflict(#[source] forebay_dsql::Error),
    /// It may have been committed or not. Read what it would have written, before doing anything again.
    #[error("{0}")]
    CommitUnknown(#[source] forebay_dsql::Error),
    /// The database cannot be reached at the moment. Try again later.
    #[error("{0}")]
    Unavailable(#[source] forebay_dsql::Error),
    /// The transaction is too large or too old for Aurora DSQL. Write less at a time.
    #[error("{0}")]
    TooLarge(#[source] forebay_dsql::Error),
    /// An argument makes no sense. Fix the caller.
    #[error("{0}")]
    InvalidInput(String),
    /// This database cannot do it.
    #[error("{operation} is not supported on Aurora DSQL: {instead}")]
    Unsupported {
        /// What was asked for.
        operation: &'static str,
        /// What to use instead.
        instead: &'static str,
    },
    /// No id could be made for a new row.
    #[error("{0}")]
    Id(#[from] IdError),
    /// Anything else: missing tables, missing permissions, wrong configuration. An operator must act.
    #[error("{0}")]
    Database(#[source] forebay_dsql::Error),
}

/// What a conditional write expected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// The shard still has this owner. If not, stop working on the shard.
    ShardOwner {
        /// The shard.
        shard_id: i32,
        /// The range id that its owner believes in.
        expected_range_id: i64,
        /// The range id that it has, if that is known and the shard exists.
        found: Option<i64>,
    },
    /// A row still has this version, or range id, or run.
    Row {
        /// The kind of row, such as `execution`.
        entity: &'static str,
        /// Its key.
        key: String,
        /// What it should have had.
        expected: String,
        /// What it has, if that is known and the row exists.
        found: Option<String>,
    },
}

impl Condition {
    /// A row whose version, or other fence, must be `expected`.
    pub fn row(entity: &'static str, key: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self::Row { entity, key: key.to_string(), expected: expected.to_string(), found: None }
    }

    fn cause(&self) -> forebay_dsql::ConditionFailed {
        match self.clone() {
            Self::ShardOwner { shard_id, expected_range_id, found } => forebay_dsql::ConditionFailed {
                entity: format!("range_id of shard {shard_id}"),
                expected: expected_range_id.to_string(),
                found: found.map(|found| found.to_string()),
            },
            Self::Row { entity, key, expected, found } => {
                forebay_dsql::ConditionFailed { entity: format!("{entity} {key}"), expected, found }
            }
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause().fmt(f)
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// There is no such row.
    pub(crate) fn not_found(entity: &'static str, key: impl fmt::Display) -> Self {
        Self::NotFound { entity, key: key.to_string() }
    }

    /// An argument makes no sense; `told` says what to give instead.
    pub(crate) fn invalid(told: impl Into<String>) -> Self {
        Self::InvalidInput(told.into())
    }

    /// Whether the row, or its unique value, was there already.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::AlreadyExists(_))
    }

    /// Whether there is no such row.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// The condition that failed, if one did.
    #[must_use]
    pub fn condition(&self) -> Option<&Condition> {
        match self {
            Self::ConditionFailed { condition, .. } => Some(condition),
            _ => None,
        }
    }
}

impl From<Condition> for Error {
    fn from(condition: Condition) -> Self {
        let cause = Box::new(condition.cause());
        Self::ConditionFailed { condition, cause }
    }
}

impl From<forebay_dsql::Error> for Error {
    fn from(error: forebay_dsql::Error) -> Self {
        match error.kind() {
            ErrorKind::Conflict(_) => Self::Conflict(error),
            ErrorKind::CommitUnknown => Self::CommitUnknown(error),
            ErrorKind::Throttled(_)
            | ErrorKind::Unavailable
            | ErrorKind::Disconnected
            | ErrorKind::NoConnection
            | ErrorKind::TimedOut => Self::Unavailable(error),
            ErrorKind::Limit(_) => Self::TooLarge(error),
            _ => match sql_state(&error).map(SqlState::code) {
                Some("23505") => Self::AlreadyExists(error),
                // A value that its column cannot hold: a text that is too long, or has a NUL.
                Some(code) if code.starts_with("22") => Self::InvalidInput(error.to_string()),
                _ => Self::Database(error),
            },
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        let is_too_long = error.source().is_some_and(|cause| cause.is::<MessageTooLong>());
        if is_too_long {
            return forebay_dsql::Error::new(ErrorKind::Limit(Limit::Message), error).into();
        }
        forebay_dsql::Error::from(error).into()
    }
}

fn sql_state(error: &forebay_dsql::Error) -> Option<&SqlState> {
    error.get_ref().downcast_ref::<tokio_postgres::Error>()?.code()
}

#[cfg(test)]
mod tests {
    use forebay_dsql::Conflict;

    use super::*;

    fn of(kind: ErrorKind) -> Error {
        forebay_dsql::Error::new(kind, "as told").into()
    }

    /// Retries go by the kind, which must survive the conversion: an error that became text is never retried.
    #[test]
    fn the_kind_survives() {
        for kind in [
            ErrorKind::Conflict(Conflict::Change),
            ErrorKind::CommitUnknown,
            ErrorKind::Disconnected,
            ErrorKind::Permanent,
        ] {
            assert_eq!(ErrorKind::of(&of(kind)), kind);
        }
        let failed = Error::from(Condition::ShardOwner { shard_id: 3, expected_range_id: 7, found: Some(8) });
        assert_eq!(ErrorKind::of(&failed), ErrorKind::ConditionFailed);
        assert_eq!(failed.to_string(), "range_id of shard 3: expected 7, found 8");
    }

    #[test]
    fn variants_say_what_to_do_next() {
        assert!(matches!(of(ErrorKind::Conflict(Conflict::Schema)), Error::Conflict(_)));
        assert!(matches!(of(ErrorKind::CommitUnknown), Error::CommitUnknown(_)));
        assert!(matches!(of(ErrorKind::NoConnection), Error::Unavailable(_)));
        assert!(matches!(of(ErrorKind::Limit(Limit::Rows)), Error::TooLarge(_)));
        assert!(matches!(of(ErrorKind::Permanent), Error::Database(_)));
    }
}
