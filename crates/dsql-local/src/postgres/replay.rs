//! Repeats the changes of a log.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::backend::Backend;
use super::change_log::{Change, ChangeLog, Entry, LockStrength, Row, RowLocations};
use super::request::Request;
use super::table_info::{TableCache, TableInfo};
use crate::engine::Oid;
use crate::error::SqlError;

/// How many statements are sent together.
const BATCH: usize = 64;

/// Repeats all changes in the same order, on the same rows and with the same values.
///
/// # Errors
/// 40001 if another transaction has changed one of the rows; 23505 or 23503 if another has inserted a row
/// with the same key, or deleted a row that is needed.
pub(super) async fn replay(
    backend: &mut Backend,
    log: &mut ChangeLog,
    (tables, version): (&TableCache, Option<u64>),
) -> Result<(), SqlError> {
    let mut locations = RowLocations::default();
    let mut batch = Batch::default();
    for group in groups(&log.entries) {
        let table = tables.of(group.table, version, backend).await?;
        // The new ctid of a row is known only after the response.
        if batch.groups.len() == BATCH || group.entries.iter().any(|entry| batch.has_touched(entry)) {
            batch.send(backend, &mut locations).await?;
        }
        batch.add(group, &table, &locations);
    }
    batch.send(backend, &mut locations).await?;
    log.set_locations(locations);
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Insert,
    Update,
    Delete,
    LockForUpdate,
    LockForKeyShare,
}

impl Verb {
    fn of(change: &Change) -> Self {
        match change {
            Change::Insert(_) => Self::Insert,
            Change::Update(..) => Self::Update,
            Change::Delete(_) => Self::Delete,
            Change::Lock(LockStrength::Update) => Self::LockForUpdate,
            Change::Lock(LockStrength::KeyShare) => Self::LockForKeyShare,
        }
    }
}

/// Consecutive changes of one statement in one table. They run as one statement again, because some
/// constraints are checked at its end.
#[derive(Debug)]
struct Group<'a> {
    table: Oid,
    verb: Verb,
    entries: Vec<&'a Entry>,
}

fn groups(entries: &[Entry]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut statement = None;
    for entry in entries {
        let verb = Verb::of(&entry.change);
        match groups.last_mut() {
            Some(group)
                if statement == Some(entry.statement)
                    && (group.table, group.verb) == (entry.table, verb)
                    && group.entries.iter().all(|before| before.row != entry.row) =>
            {
                group.entries.push(entry);
            }
            _ => groups.push(Group { table: entry.table, verb, entries: vec![entry] }),
        }
        statement = Some(entry.statement);
    }
    groups
}

#[derive(Default)]
struct Batch<'a> {
    request: Request,
    groups: Vec<Group<'a>>,
    touched: BTreeSet<(Oid, Row)>,
}

impl<'a> Batch<'a> {
    fn has_touched(&self, entry: &Entry) -> bool {
        self.touched.contains(&(entry.table, entry.row))
    }

    fn add(&mut self, group: Group<'a>, table: &TableInfo, locations: &RowLocations) {
        self.request.parse(&sql(group.verb, table), &[]);
        let mut given = Vec::new();
        if matches!(group.verb, Verb::Insert | Verb::Update) {
            given.push(Some(array(group.entries.iter().map(|entry| entry.change.after().cloned()))));
        }
        if group.verb != Verb::Insert {
            // A row that no longer exists has no ctid, and nothing is done to it.
            let ctid =
                |entry: &&Entry| locations.ctid(entry.table, entry.row).map(|ctid| ctid.to_string().into());
            given.push(Some(array(group.entries.iter().map(ctid))));
        }
        self.request.bind_texts(&given);
        self.request.execute();
        self.touched.extend(group.entries.iter().map(|entry| (entry.table, entry.row)));
        self.groups.push(group);
    }

    async fn send(&mut self, backend: &mut Backend, locations: &mut RowLocations) -> Result<(), SqlError> {
        let Self { mut request, groups, .. } = std::mem::take(self);
        if groups.is_empty() {
            return Ok(());
        }
        request.sync();
        let (mut answered, mut made) = (0, 0);
        backend
            .request(request, |tag, body| {
                match tag {
                    b'C' => (answered, made) = (answered + 1, 0),
                    b'N' => {
                        let Some(report) = body.report() else { return Ok(()) };
                        let own = groups.get(answered).filter(|group| group.table == report.table);
                        let row = own.and_then(|group| group.entries.get(made)).map(|entry| entry.row);
                        if report.before.is_none() {
                            made += 1;
                        }
                        // Other reports, such as those of a cascade, are about rows that exist.
                        locations.follow(&report, row.unwrap_or(Row::Inserted(u32::MAX)));
                    }
                    _ => {}
                }
                Ok(())
            })
            .await
    }
}

/// PostgreSQL's text format of an array.
fn array(items: impl Iterator<Item = Option<Bytes>>) -> Bytes {
    let mut array = b"{".to_vec();
    for item in items {
        if array.len() > 1 {
            array.push(b',');
        }
        match item {
            None => array.extend(b"NULL"),
            Some(item) => {
                array.push(b'"');
                for byte in item {
                    if matches!(byte, b'"' | b'\\') {
                        array.push(b'\\');
                    }
                    array.push(byte);
                }
                array.push(b'"');
            }
        }
    }
    array.push(b'}');
    array.into()
}

/// The statement for a group: its values, then its ctids.
fn sql(verb: Verb, info: &TableInfo) -> String {
    let table = &info.name;
    // Unlikely names of columns.
    let of = |columns: &[String]| {
        columns.iter().map(|column| format!("\"?row\".{column}")).collect::<Vec<_>>().join(", ")
    };
    match verb {
        Verb::Insert => {
            let (columns, values) = (info.written.join(", "), of(&info.written));
            format!(
                "INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {values} FROM unnest($1::text[]) \"?text\",
                 LATERAL (SELECT (\"?text\"::{table}).*) \"?row\""
            )
        }
        // No column can be changed, but the row must count as changed.
        Verb::Update if info.changed.is_empty() => {
            format!("SELECT $1::text[] FROM {table} WHERE ctid = ANY ($2::tid[]) FOR UPDATE")
        }
        Verb::Update => {
            let (columns, values) = (info.changed.join(", "), of(&info.changed));
            format!(
                "UPDATE {table} \"?old\" SET ({columns}) = (SELECT {values} FROM (SELECT (\"?new\".\"?text\"::{table}).*) \"?row\")
                 FROM unnest($1::text[], $2::tid[]) \"?new\" (\"?text\", \"?ctid\") WHERE \"?old\".ctid = \"?new\".\"?ctid\""
            )
        }
        Verb::Delete => format!("DELETE FROM {table} WHERE ctid = ANY ($1::tid[])"),
        Verb::LockForUpdate => format!("SELECT 1 FROM {table} WHERE ctid = ANY ($1::tid[]) FOR UPDATE"),
        Verb::LockForKeyShare => format!("SELECT 1 FROM {table} WHERE ctid = ANY ($1::tid[]) FOR KEY SHARE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_keeps_what_is_in_it() {
        let items = [Some(Bytes::from_static(br#"(1,"a \ b")"#)), None, Some(Bytes::new())];
        assert_eq!(&array(items.into_iter())[..], br#"{"(1,\"a \\ b\")",NULL,""}"#);
        assert_eq!(&array(std::iter::empty())[..], b"{}");
    }

    #[test]
    fn changes_of_one_statement_are_replayed_as_one() {
        let entry = |statement: u32, table: Oid, row: u32, change: Change| Entry {
            statement,
            table,
            row: Row::Inserted(row),
            change,
        };
        let insert = || Change::Insert(Bytes::new());
        let entries = [
            entry(1, 7, 0, insert()),
            entry(1, 7, 1, insert()),
            entry(1, 8, 2, insert()),
            entry(2, 8, 3, insert()),
            entry(3, 7, 0, Change::Update(Bytes::new(), Bytes::new())),
            entry(3, 7, 0, Change::Update(Bytes::new(), Bytes::new())),
        ];
        let sizes: Vec<usize> = groups(&entries).iter().map(|group| group.entries.len()).collect();
        assert_eq!(sizes, [2, 1, 1, 1, 1]);
    }
}
