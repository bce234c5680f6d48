//! The responses to a pipeline of statements.

use std::sync::Arc;

use bytes::Bytes;

use super::backend::Body;
use super::change_log::{Ctid, LockStrength, RowReport};
use super::writes;
use crate::engine::{Call, Description, Done, Oid, Rows};
use crate::error::SqlError;

/// The responses to a pipeline: queries for locked rows, and the client's statement.
pub(super) struct PipelineResponse {
    /// The description of the client's statement.
    pub(super) description: Description,
    pub(super) reports: Vec<RowReport>,
    pub(super) locked: Vec<(Oid, Ctid, LockStrength)>,
    changed: u64,
    pub(super) answered: usize,
    /// The index of the client's statement.
    pub(super) itself: usize,
}

impl PipelineResponse {
    pub(super) fn of(call: &Call<'_>) -> Self {
        let description = match call.description {
            Some(known) => Description { columns: None, ..Description::clone(known) },
            None => Description { writes: writes(call.statement), ..Description::default() },
        };
        Self { description, reports: Vec::new(), locked: Vec::new(), changed: 0, answered: 0, itself: 0 }
    }

    pub(super) fn done(self, call: &Call<'_>) -> Done {
        let description = call.description.cloned().unwrap_or_else(|| Arc::new(self.description));
        Done { changed: self.changed, description }
    }

    /// Takes a message; `locking` is set if it belongs to a query for locked rows.
    pub(super) fn take(
        &mut self,
        tag: u8,
        body: Body,
        locking: Option<LockStrength>,
        call: &Call<'_>,
        rows: &mut Rows,
    ) -> Result<(), SqlError> {
        let itself = self.answered == self.itself;
        match tag {
            b'C' => {
                if itself {
                    self.changed = affected(&body.0);
                }
                self.answered += 1;
            }
            b'N' => self.reports.extend(body.report()),
            b'D' if itself => rows.whole(&body.0),
            // COPY TO STDOUT: its format, its data and its end.
            b'H' | b'd' | b'c' if itself => rows.copy_message(tag, &body.0),
            b'D' => {
                for pair in body.all()?.chunks_exact(2) {
                    if let (Ok(table), Ok(ctid), Some(strength)) = (pair[0].parse(), pair[1].parse(), locking)
                    {
                        self.locked.push((table, ctid, strength));
                    }
                }
            }
            b'T' if itself => {
                self.description.columns = Some(body.columns()?);
                if call.description.is_some_and(|described| described.columns != self.description.columns) {
                    return Err(SqlError::unsupported("cached plan must not change result type"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The row count at the end of a command tag such as `INSERT 0 3`.
fn affected(tag: &Bytes) -> u64 {
    let tag = std::str::from_utf8(tag).unwrap_or_default().trim_end_matches('\0');
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_at_the_end_of_the_tag() {
        for (tag, expected) in [("INSERT 0 3\0", 3), ("UPDATE 12\0", 12), ("CREATE TABLE\0", 0), ("", 0)] {
            assert_eq!(affected(&Bytes::from(tag)), expected, "{tag}");
        }
    }
}
