//! Updates that happen only if nothing has changed since.

use std::fmt;

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
mod client;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
mod fenced;

#[cfg(feature = "sqlx")]
pub use client::Bind;

/// A compare-and-swap found another value than expected, or nothing at all. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entity}: expected {expected}, found {}", found.as_deref().unwrap_or("another value, or no such row"))]
pub struct ConditionFailed {
    /// What was to be updated.
    pub entity: String,
    /// The value it should have had.
    pub expected: String,
    /// The value it had, where that was cheap to learn.
    pub found: Option<String>,
}

/// Judges a conditional update of the caller's own: no row means that the condition failed.
///
/// ```
/// use forebay_dsql::swapped;
///
/// assert_eq!(swapped(1, "queue 7", 3)?, 1);
/// let failed = swapped(0, "queue 7", 3).unwrap_err();
/// assert_eq!(failed.to_string(), "queue 7: expected 3, found another value, or no such row");
/// # Ok::<(), forebay_dsql::ConditionFailed>(())
/// ```
///
/// # Errors
/// If no row was changed.
pub fn swapped(
    rows: u64,
    entity: impl fmt::Display,
    expected: impl fmt::Display,
) -> Result<u64, ConditionFailed> {
    if rows > 0 {
        return Ok(rows);
    }
    Err(ConditionFailed { entity: entity.to_string(), expected: expected.to_string(), found: None })
}

/// A table whose rows carry a fencing token: a `bigint` that every change of owner changes. An update names the token
/// it believes in, and does nothing if that has been replaced.
///
/// Names are written into SQL as they are; they belong to the program, never to its users.
///
/// ```
/// use forebay_dsql::Fence;
///
/// const SHARDS: Fence = Fence::new("shards", &["shard_id"], "range_id");
/// assert_eq!(
///     SHARDS.update_sql(&["range_id", "data"]),
///     "UPDATE shards SET range_id = $1, data = $2 WHERE shard_id = $3 AND range_id = $4"
/// );
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    table: &'static str,
    key: &'static [&'static str],
    token: &'static str,
}

impl Fence {
    /// The rows of `table`, named by the columns `key`, with the token in the column `token`.
    #[must_use]
    pub const fn new(table: &'static str, key: &'static [&'static str], token: &'static str) -> Self {
        Self { table, key, token }
    }

    /// The update of `columns`. Its parameters are their values, the key's, and the token expected.
    #[must_use]
    pub fn update_sql(&self, columns: &[&str]) -> String {
        let set: Vec<_> =
            columns.iter().enumerate().map(|(i, column)| format!("{column} = ${}", i + 1)).collect();
        let (row, next) = self.row(columns.len() + 1);
        format!("UPDATE {} SET {} WHERE {row} AND {} = ${next}", self.table, set.join(", "), self.token)
    }

    /// The query for the token. Its parameters are the key's values.
    #[must_use]
    pub fn token_sql(&self) -> String {
        format!("SELECT {} FROM {} WHERE {}", self.token, self.table, self.row(1).0)
    }

    /// The condition for the row, with parameters from number `first` on; and the number after them.
    fn row(&self, first: usize) -> (String, usize) {
        let parts = self.key.iter().enumerate().map(|(i, column)| format!("{column} = ${}", first + i));
        (parts.collect::<Vec<_>>().join(" AND "), first + self.key.len())
    }
}
