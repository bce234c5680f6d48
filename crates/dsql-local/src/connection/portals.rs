//! Prepared statements and portals.

use std::mem::size_of;
use std::sync::Arc;

use bytes::Bytes;

use crate::engine::{Description, Rows};
use crate::error::SqlError;
use crate::statement::Statement;
use crate::transaction_state::Outcome;
use crate::wire::Format;

/// The OIDs of text, bpchar and varchar.
const TEXTS: [u32; 3] = [25, 1042, 1043];

#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) statement: Statement,
    pub(super) description: Arc<Description>,
}

impl Prepared {
    /// How many bytes it keeps, as far as a client can make them many.
    pub(super) fn size(&self) -> usize {
        self.statement.text().len() + self.description.parameters.len() * size_of::<u32>()
    }
}

pub(super) struct Portal {
    pub(super) prepared: Arc<Prepared>,
    pub(super) values: Vec<Option<Bytes>>,
    pub(super) formats: Vec<Format>,
    pub(super) results: Vec<Format>,
    pub(super) progress: Progress,
}

/// The state of a portal. A portal runs once.
#[derive(Default)]
pub(super) enum Progress {
    New,
    /// Rows that the client has not fetched yet, and the outcome for the end.
    Suspended(Box<(Rows, Outcome)>),
    #[default]
    Done,
}

impl Portal {
    /// Creates a portal with the values of a Bind message.
    pub(super) fn new(
        prepared: Arc<Prepared>,
        values: &[Option<Bytes>],
        formats: Vec<Format>,
        results: Vec<Format>,
    ) -> Result<Self, SqlError> {
        for (index, (value, oid)) in values.iter().zip(&prepared.description.parameters).enumerate() {
            let is_text = TEXTS.contains(oid) || Format::of(&formats, index) == Format::Text;
            if let Some(value) = value.as_ref().filter(|_| is_text) {
                check_text(value)?;
            }
        }
        // Copied, because a slice would keep the whole buffer of its message.
        let values = values.iter().map(|value| value.as_deref().map(Bytes::copy_from_slice)).collect();
        Ok(Self { prepared, values, formats, results, progress: Progress::New })
    }

    /// How many bytes it keeps. The statement counts too: it may be closed and live on here only.
    pub(super) fn size(&self) -> usize {
        let values: usize = self.values.iter().flatten().map(Bytes::len).sum();
        let lists = size_of::<Option<Bytes>>() * self.values.len()
            + size_of::<Format>() * (self.formats.len() + self.results.len());
        let rows = match &self.progress {
            Progress::Suspended(pending) => pending.0.size(),
            Progress::New | Progress::Done => 0,
        };
        self.prepared.size() + values + lists + rows
    }
}

/// Checks that bytes are text for PostgreSQL: UTF-8 without NUL.
pub(super) fn check_text(bytes: &[u8]) -> Result<(), SqlError> {
    let problem = match std::str::from_utf8(bytes) {
        Ok(_) if !bytes.contains(&0) => return Ok(()),
        Ok(_) => "invalid byte sequence for encoding \"UTF8\": 0x00",
        Err(_) => "invalid byte sequence for encoding \"UTF8\"",
    };
    Err(SqlError::new("22021", problem))
}

/// The name in a DEALLOCATE; none for ALL.
pub(super) fn deallocated(statement: &Statement) -> Option<String> {
    let text = statement.text();
    let mut name = text.get("DEALLOCATE".len()..).unwrap_or("").trim_start();
    if statement.word(1) == "PREPARE" && name.len() > "PREPARE".len() {
        name = name["PREPARE".len()..].trim_start();
    }
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => Some(quoted.replace("\"\"", "\"")),
        None if name.eq_ignore_ascii_case("all") => None,
        None => Some(name.to_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_folded_unless_they_are_quoted() {
        let named = |sql: &str| deallocated(&Statement::split(sql)[0]);
        assert_eq!(named("deallocate Abc").as_deref(), Some("abc"));
        assert_eq!(named("DEALLOCATE PREPARE \"A\"\"b\"").as_deref(), Some("A\"b"));
        assert_eq!(named("DEALLOCATE prepare all"), None);
        assert_eq!(named("DEALLOCATE ALL"), None);
        assert_eq!(named("DEALLOCATE \"all\"").as_deref(), Some("all"));
        for odd in ["DEALLOCATE", "DEALLOCATE PREPARE", "DEALLOCATE/**/é", "DEALLOCATE \""] {
            assert!(named(odd).is_some(), "{odd}");
        }
    }
}
