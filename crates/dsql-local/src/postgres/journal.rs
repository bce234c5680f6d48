//! What a transaction has done to rows, so that it can be done again.
//!
//! A trigger on every table tells of each row that changes, with its place before and after. From that the journal keeps
//! which row it was, whatever place it has by now: what was done can be undone to free its locks, and be done again later
//! to the same rows with the same values, those that were drawn by lot or from a sequence included.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::engine::Oid;

/// The place of a row's version in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    block: u32,
    offset: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.block, self.offset)
    }
}

impl FromStr for Place {
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
    /// One that was there when the transaction began: the place it had then.
    Found(Place),
    /// One that the transaction made: which of them.
    Made(u32),
}

/// How a row was locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
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
    Lock(Strength),
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

/// One thing done to one row.
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
pub(super) struct Report {
    pub(super) table: Oid,
    pub(super) before: Option<Place>,
    pub(super) after: Option<Place>,
    pub(super) values: Bytes,
    /// Those that it had before.
    pub(super) old: Bytes,
}

/// Where the rows are that the transaction has touched.
#[derive(Debug, Default)]
pub(super) struct Places {
    rows: BTreeMap<(Oid, Place), Row>,
    places: BTreeMap<(Oid, Row), Place>,
}

impl Places {
    /// Which row has this place.
    fn row(&self, table: Oid, place: Place) -> Row {
        self.rows.get(&(table, place)).copied().unwrap_or(Row::Found(place))
    }

    /// Where a row is; none if the transaction made it and it is not there yet.
    pub(super) fn place(&self, table: Oid, row: Row) -> Option<Place> {
        let found = match row {
            Row::Found(place) => Some(place),
            Row::Made(_) => None,
        };
        self.places.get(&(table, row)).copied().or(found)
    }

    /// Follows a row to its new place; `made` is the row if it was not there before.
    pub(super) fn follow(&mut self, report: &Report, made: Row) -> Row {
        let row = report.before.map_or(made, |before| self.row(report.table, before));
        if let Some(before) = report.before {
            self.rows.remove(&(report.table, before));
        }
        match report.after {
            Some(after) => {
                self.rows.insert((report.table, after), row);
                self.places.insert((report.table, row), after);
            }
            None => drop(self.places.remove(&(report.table, row))),
        }
        row
    }
}

/// All that a transaction has done, in order.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: Vec<Entry>,
    places: Places,
    statement: u32,
    made: u32,
    changes: usize,
    size: usize,
}

impl Journal {
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
    pub(super) fn note(&mut self, report: Report) {
        let row = self.places.follow(&report, Row::Made(self.made));
        let change = match (report.before, report.after) {
            (None, _) => {
                self.made += 1;
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
    pub(super) fn lock(&mut self, table: Oid, place: Place, strength: Strength) {
        let row = self.places.row(table, place);
        if row == Row::Found(place) {
            let (statement, change) = (self.statement, Change::Lock(strength));
            self.entries.push(Entry { statement, table, row, change });
        }
    }

    /// The same was done again, and this is where it went.
    pub(super) fn moved(&mut self, places: Places) {
        self.places = places;
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

    fn place(offset: u16) -> Place {
        Place { block: 0, offset }
    }

    fn report(before: Option<u16>, after: Option<u16>, values: &'static str) -> Report {
        let values = Bytes::from_static(values.as_bytes());
        Report { table: 7, before: before.map(place), after: after.map(place), values, old: Bytes::new() }
    }

    #[test]
    fn a_place_is_written_as_postgresql_writes_it() {
        assert_eq!("(4294967295,12)".parse(), Ok(Place { block: u32::MAX, offset: 12 }));
        assert_eq!(place(3).to_string(), "(0,3)");
        for wrong in ["", "(1)", "1,2", "(a,1)", "(1,70000)"] {
            assert_eq!(wrong.parse::<Place>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn a_row_is_followed_from_place_to_place() {
        let mut journal = Journal::default();
        journal.note(report(Some(1), Some(5), "(1,a)"));
        journal.note(report(None, Some(6), "(2,b)"));
        journal.note(report(Some(5), Some(7), "(1,c)"));
        journal.note(report(Some(6), None, ""));
        let rows: Vec<Row> = journal.entries().iter().map(|entry| entry.row).collect();
        assert_eq!(rows, [Row::Found(place(1)), Row::Made(0), Row::Found(place(1)), Row::Made(0)]);
        let outcome = journal.outcome(7);
        assert_eq!(outcome[&Row::Found(place(1))], Some(Bytes::from_static(b"(1,c)")));
        assert_eq!(outcome[&Row::Made(0)], None);
        assert_eq!((journal.changes(), journal.size(), journal.outcome(8).len()), (4, 15, 0));
    }

    #[test]
    fn a_lock_on_ones_own_version_is_none() {
        let mut journal = Journal::default();
        journal.note(report(Some(1), Some(5), "(1,a)"));
        journal.lock(7, place(5), Strength::Update);
        assert_eq!(journal.entries().len(), 1);
        journal.lock(7, place(2), Strength::Update);
        assert_eq!(journal.entries()[1].row, Row::Found(place(2)));
        assert_eq!((journal.changes(), journal.tables().len()), (1, 1));
    }
}
