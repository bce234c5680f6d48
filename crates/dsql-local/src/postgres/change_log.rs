//! The rows that a transaction has changed, so that its work can be undone and done again.
//!
//! A trigger on every table reports each changed row with its ctid before and after. The log follows each row
//! from ctid to ctid. So the work can be rolled back to release its locks, and later be repeated on the same
//! rows with the same values, including random values and sequence numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::engine::Oid;

/// The ctid of a row version: its block and offset in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ctid {
    block: u32,
    offset: u16,
}

impl fmt::Display for Ctid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.block, self.offset)
    }
}

impl FromStr for Ctid {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).ok_or(())?;
        let (block, offset) = inner.split_once(',').ok_or(())?;
        Ok(Self { block: block.parse().map_err(drop)?, offset: offset.parse().map_err(drop)? })
    }
}

/// A row, independent of its versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Row {
    /// A row that existed when the transaction began, by its ctid at that time.
    Existing(Ctid),
    /// A row that the transaction inserted, by number.
    Inserted(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockStrength {
    Update,
    KeyShare,
}

/// A change of a row. Values are in PostgreSQL's text format of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Insert(Bytes),
    /// The new values and the old ones.
    Update(Bytes, Bytes),
    /// The old values.
    Delete(Bytes),
    Lock(LockStrength),
}

impl Change {
    /// The new values.
    pub(super) fn after(&self) -> Option<&Bytes> {
        match self {
            Self::Insert(values) | Self::Update(values, _) => Some(values),
            Self::Delete(_) | Self::Lock(_) => None,
        }
    }

    /// The old values.
    pub(super) fn before(&self) -> Option<&Bytes> {
        match self {
            Self::Delete(values) | Self::Update(_, values) => Some(values),
            Self::Insert(_) | Self::Lock(_) => None,
        }
    }
}

/// One change of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The number of the statement.
    pub(super) statement: u32,
    pub(super) table: Oid,
    pub(super) row: Row,
    pub(super) change: Change,
}

/// A report of the trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowReport {
    pub(super) table: Oid,
    pub(super) before: Option<Ctid>,
    pub(super) after: Option<Ctid>,
    pub(super) values: Bytes,
    /// The old values.
    pub(super) old: Bytes,
}

/// The current ctids of the rows that the transaction has changed.
#[derive(Debug, Default)]
pub(super) struct RowLocations {
    rows: BTreeMap<(Oid, Ctid), Row>,
    locations: BTreeMap<(Oid, Row), Ctid>,
}

impl RowLocations {
    fn row(&self, table: Oid, ctid: Ctid) -> Row {
        self.rows.get(&(table, ctid)).copied().unwrap_or(Row::Existing(ctid))
    }

    /// The current ctid of a row; none for an inserted row that does not exist yet.
    pub(super) fn ctid(&self, table: Oid, row: Row) -> Option<Ctid> {
        let found = match row {
            Row::Existing(ctid) => Some(ctid),
            Row::Inserted(_) => None,
        };
        self.locations.get(&(table, row)).copied().or(found)
    }

    /// Records the new ctid of a row; `inserted` is the row if it did not exist before.
    pub(super) fn follow(&mut self, report: &RowReport, inserted: Row) -> Row {
        let row = report.before.map_or(inserted, |before| self.row(report.table, before));
        if let Some(before) = report.before {
            self.rows.remove(&(report.table, before));
        }
        match report.after {
            Some(after) => {
                self.rows.insert((report.table, after), row);
                self.locations.insert((report.table, row), after);
            }
            None => drop(self.locations.remove(&(report.table, row))),
        }
        row
    }
}

/// All changes of a transaction, in order.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    pub(super) entries: Vec<Entry>,
    locations: RowLocations,
    statement: u32,
    inserted: u32,
    /// The number of changes, not of rows.
    pub(super) changes: usize,
    /// The size of the written values in bytes.
    pub(super) size: usize,
}

impl ChangeLog {
    /// Later changes belong to the next statement.
    pub(super) fn next_statement(&mut self) {
        self.statement += 1;
    }

    /// Adds a change.
    pub(super) fn record(&mut self, report: RowReport) {
        let row = self.locations.follow(&report, Row::Inserted(self.inserted));
        let change = match (report.before, report.after) {
            (None, _) => {
                self.inserted += 1;
                Change::Insert(report.values)
            }
            (Some(_), Some(_)) => Change::Update(report.values, report.old),
            (Some(_), None) => Change::Delete(report.values),
        };
        self.changes += 1;
        if let Change::Insert(values) | Change::Update(values, _) = &change {
            self.size += values.len();
        }
        self.entries.push(Entry { statement: self.statement, table: report.table, row, change });
    }

    /// Adds a lock. A version of the transaction's own needs none: nobody else sees it.
    pub(super) fn lock(&mut self, table: Oid, ctid: Ctid, strength: LockStrength) {
        let row = self.locations.row(table, ctid);
        if row == Row::Existing(ctid) {
            let (statement, change) = (self.statement, Change::Lock(strength));
            self.entries.push(Entry { statement, table, row, change });
        }
    }

    /// Sets the ctids after a replay.
    pub(super) fn set_locations(&mut self, locations: RowLocations) {
        self.locations = locations;
    }

    pub(super) fn tables(&self) -> BTreeSet<Oid> {
        let changes = self.entries.iter().filter(|entry| !matches!(entry.change, Change::Lock(_)));
        changes.map(|entry| entry.table).collect()
    }

    /// The final values of the changed rows of a table; none for deleted rows.
    pub(super) fn outcome(&self, table: Oid) -> BTreeMap<Row, Option<Bytes>> {
        let mut rows = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.table == table) {
            match &entry.change {
                Change::Insert(values) | Change::Update(values, _) => {
                    rows.insert(entry.row, Some(values.clone()));
                }
                Change::Delete(_) => drop(rows.insert(entry.row, None)),
                Change::Lock(_) => {}
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ctid(offset: u16) -> Ctid {
        Ctid { block: 0, offset }
    }

    fn report(before: Option<u16>, after: Option<u16>, values: &'static str) -> RowReport {
        let values = Bytes::from_static(values.as_bytes());
        RowReport { table: 7, before: before.map(ctid), after: after.map(ctid), values, old: Bytes::new() }
    }

    #[test]
    fn a_ctid_has_postgresqls_text_format() {
        assert_eq!("(4294967295,12)".parse(), Ok(Ctid { block: u32::MAX, offset: 12 }));
        assert_eq!(ctid(3).to_string(), "(0,3)");
        for wrong in ["", "(1)", "1,2", "(a,1)", "(1,70000)"] {
            assert_eq!(wrong.parse::<Ctid>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn a_row_is_followed_from_ctid_to_ctid() {
        let mut log = ChangeLog::default();
        log.record(report(Some(1), Some(5), "(1,a)"));
        log.record(report(None, Some(6), "(2,b)"));
        log.record(report(Some(5), Some(7), "(1,c)"));
        log.record(report(Some(6), None, ""));
        let rows: Vec<Row> = log.entries.iter().map(|entry| entry.row).collect();
        assert_eq!(
            rows,
            [Row::Existing(ctid(1)), Row::Inserted(0), Row::Existing(ctid(1)), Row::Inserted(0)]
        );
        let outcome = log.outcome(7);
        assert_eq!(outcome[&Row::Existing(ctid(1))], Some(Bytes::from_static(b"(1,c)")));
        assert_eq!(outcome[&Row::Inserted(0)], None);
        assert_eq!((log.changes, log.size, log.outcome(8).len()), (4, 15, 0));
    }

    #[test]
    fn a_lock_on_the_transactions_own_version_is_not_logged() {
        let mut log = ChangeLog::default();
        log.record(report(Some(1), Some(5), "(1,a)"));
        log.lock(7, ctid(5), LockStrength::Update);
        assert_eq!(log.entries.len(), 1);
        log.lock(7, ctid(2), LockStrength::Update);
        assert_eq!(log.entries[1].row, Row::Existing(ctid(2)));
        assert_eq!((log.changes, log.tables().len()), (1, 1));
    }
}
