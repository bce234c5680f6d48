//! Batches: what is too much for one transaction, in several.

use std::future::Future;

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::persistence::Persistence;

/// Rows in one transaction at most. Aurora DSQL allows 3,000.
pub(crate) const ROWS: usize = 2_500;
/// Bytes of values in one transaction at most. Aurora DSQL allows 10 MiB, but counts more than values: keys, what it adds to each row,
/// and of a row that is replaced perhaps both versions.
pub(crate) const BYTES: usize = 4 << 20;
/// A number of rows, as a statement takes it.
pub(crate) fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

/// How often a batch is repeated whose outcome is unknown, before the caller hears of it.
const REPEATS: u32 = 5;

/// Cuts `rows` into slices that fit into one transaction each. A row that is too large by itself gets a slice of its own: the
/// database says what is wrong with it.
pub(crate) fn slices<T>(rows: &[T], size_of: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let mut bytes = 0_usize;
        let fits = |row: &T| {
            bytes = bytes.saturating_add(size_of(row));
            bytes <= BYTES
        };
        let count = rest.iter().take(ROWS).take_while({
            let mut fits = fits;
            move |row| fits(row)
        });
        let count = count.count().max(1).min(rest.len());
        let (slice, left) = rest.split_at(count);
        rest = left;
        (!slice.is_empty()).then_some(slice)
    })
}

impl Persistence {
    /// Deletes in batches, each a transaction of its own, until a batch finds fewer rows than it may delete. `delete` is one
    /// statement that deletes at most as many rows as it is told, and returns how many.
    ///
    /// What is deleted stays deleted, so whoever is interrupted calls it again. Returns how many rows were deleted, without those
    /// of batches whose outcome is unknown.
    ///
    /// # Cancel safety
    /// Some rows are deleted, the others are not. Call it again.
    pub(crate) async fn delete_in_batches<F>(
        &self,
        operation: &'static str,
        delete: impl Fn(Connection, usize) -> F,
    ) -> Result<u64>
    where
        F: Future<Output = Result<u64>>,
    {
        let (mut at_most, mut deleted, mut repeats) = (ROWS, 0, 0);
        loop {
            match self.write(operation, |connection| delete(connection, at_most)).await {
                Ok(rows) => {
                    deleted += rows;
                    repeats = 0;
                    if usize::try_from(rows).is_ok_and(|rows| rows < at_most) {
                        return Ok(deleted);
                    }
                }
                // Rows may be so wide that fewer of them are too much.
                Err(Error::TooLarge(_)) if at_most > 1 => at_most = at_most.div_ceil(4),
                // To delete what is deleted already does no harm.
                Err(Error::CommitUnknown(_)) if repeats < REPEATS => repeats += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(sizes: &[usize]) -> Vec<usize> {
        slices(sizes, |size| *size).map(<[usize]>::len).collect()
    }

    #[test]
    fn slices_stay_below_both_limits_and_lose_nothing() {
        assert_eq!(lengths(&[]), Vec::<usize>::new());
        assert_eq!(lengths(&[1; 6_000]), [2_500, 2_500, 1_000]);
        assert_eq!(lengths(&[2 << 20; 5]), [2, 2, 1]);
        assert_eq!(lengths(&[1, 20 << 20, 1]), [1, 1, 1], "too large by itself");
        assert_eq!(lengths(&[usize::MAX, usize::MAX]), [1, 1]);
    }
}
