//! What a transaction has done to rows, so that it can be done again.
//!
//! A trigger on every table tells of each row that changes, with its ctid before and after. From that the log keeps
//! which row it was, whatever ctid it has by now: what was done can be undone to free its locks, and be done again later
//! to the same rows with the same values, those that were drawn by lot or from a sequence included.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::engine::Oid;

/// The ctid of a row's version in its table.
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

/// A row, whichever version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Row {
    /// One that was there when the transaction began: the ctid it had then.
    Existing(Ctid),
    /// One that the transaction inserted: which of them.
    Inserted(u32),
}

/// How a row was locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockStrength {
    Update,
    KeyShare,
}

/// What was done to a row. A row's values are written as PostgreSQL writes a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Insert(Bytes),
    /// To these values, from those.
    Update(Bytes, Bytes),
    /// With the values that it had.
    Delete(Bytes),
    Lock(LockStrength),
}

impl Change {
    /// The values that a row has got.
    pub(super) fn after(&self) -> Option<&Bytes> {
        match self {
            Self::Insert(values) | Self::Update(values, _) => Some(values),
            Self::Delete(_) | Self::Lock(_) => None,
        }
    }

    /// The values that a row has no more.
    pub(super) fn before(&self) -> Option<&Bytes> {
        match self {
            Self::Delete(values) | Self::Update(_, values) => Some(values),
            Self::Insert(_) | Self::Lock(_) => None,
        }
    }
}

/// One object done to one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// By which statement.
    pub(super) statement: u32,
    pub(super) table: Oid,
    pub(super) row: Row,
    pub(super) change: Change,
}

/// What the trigger tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowReport {
    pub(super) table: Oid,
    pub(super) before: Option<Ctid>,
    pub(super) after: Option<Ctid>,
    pub(super) values: Bytes,
    /// Those that it had before.
    pub(super) old: Bytes,
}

/// Where the rows are that the transaction has touched.
#[derive(Debug, Default)]
pub(super) struct RowLocations {
    rows: BTreeMap<(Oid, Ctid), Row>,
    locations: BTreeMap<(Oid, Row), Ctid>,
}

impl RowLocations {
    /// Which row has this ctid.
    fn row(&self, table: Oid, ctid: Ctid) -> Row {
        self.rows.get(&(table, ctid)).copied().unwrap_or(Row::Existing(ctid))
    }

    /// Where a row is; none if the transaction inserted it and it is not there yet.
    pub(super) fn ctid(&self, table: Oid, row: Row) -> Option<Ctid> {
        let found = match row {
            Row::Existing(ctid) => Some(ctid),
            Row::Inserted(_) => None,
        };
        self.locations.get(&(table, row)).copied().or(found)
    }

    /// Follows a row to its new ctid; `inserted` is the row if it was not there before.
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

/// All that a transaction has done, in order.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    entries: Vec<Entry>,
    locations: RowLocations,
    statement: u32,
    inserted: u32,
    changes: usize,
    size: usize,
}

impl ChangeLog {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many rows were changed, each as often as it was.
    pub(super) fn changes(&self) -> usize {
        self.changes
    }

    /// How many bytes of values were written.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// What is added from now on was done by another statement.
    pub(super) fn next_statement(&mut self) {
        self.statement += 1;
    }

    /// Adds what the trigger told.
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

    /// Adds a lock. One's own version of a row needs none: nobody else sees it.
    pub(super) fn lock(&mut self, table: Oid, ctid: Ctid, strength: LockStrength) {
        let row = self.locations.row(table, ctid);
        if row == Row::Existing(ctid) {
            let (statement, change) = (self.statement, Change::Lock(strength));
            self.entries.push(Entry { statement, table, row, change });
        }
    }

    /// The same was done again, and this is where it went.
    pub(super) fn set_locations(&mut self, locations: RowLocations) {
        self.locations = locations;
    }

    /// The tables of which rows were changed.
    pub(super) fn tables(&self) -> BTreeSet<Oid> {
        let changes = self.entries.iter().filter(|entry| !matches!(entry.change, Change::Lock(_)));
        changes.map(|entry| entry.table).collect()
    }

    /// What became of the rows of a table: their values now, or none if they are gone.
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
    fn a_place_is_written_as_postgresql_writes_it() {
        assert_eq!("(4294967295,12)".parse(), Ok(Ctid { block: u32::MAX, offset: 12 }));
        assert_eq!(ctid(3).to_string(), "(0,3)");
        for wrong in ["", "(1)", "1,2", "(a,1)", "(1,70000)"] {
            assert_eq!(wrong.parse::<Ctid>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn a_row_is_followed_from_place_to_place() {
        let mut log = ChangeLog::default();
        log.record(report(Some(1), Some(5), "(1,a)"));
        log.record(report(None, Some(6), "(2,b)"));
        log.record(report(Some(5), Some(7), "(1,c)"));
        log.record(report(Some(6), None, ""));
        let rows: Vec<Row> = log.entries().iter().map(|entry| entry.row).collect();
        assert_eq!(
            rows,
            [Row::Existing(ctid(1)), Row::Inserted(0), Row::Existing(ctid(1)), Row::Inserted(0)]
        );
        let outcome = log.outcome(7);
        assert_eq!(outcome[&Row::Existing(ctid(1))], Some(Bytes::from_static(b"(1,c)")));
        assert_eq!(outcome[&Row::Inserted(0)], None);
        assert_eq!((log.changes(), log.size(), log.outcome(8).len()), (4, 15, 0));
    }

    #[test]
    fn a_lock_on_ones_own_version_is_none() {
        let mut log = ChangeLog::default();
        log.record(report(Some(1), Some(5), "(1,a)"));
        log.lock(7, ctid(5), LockStrength::Update);
        assert_eq!(log.entries().len(), 1);
        log.lock(7, ctid(2), LockStrength::Update);
        assert_eq!(log.entries()[1].row, Row::Existing(ctid(2)));
        assert_eq!((log.changes(), log.tables().len()), (1, 1));
    }
}
