//! Does what is in a journal again.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::backend::Backend;
use super::journal::{Change, Entry, Journal, Places, Row, Strength};
use super::request::Request;
use super::shape::{Shape, Shapes};
use crate::engine::Oid;
use crate::error::SqlError;

/// How many things are asked for at a time.
const BATCH: usize = 256;

/// Does it all again, in the same order, to the same rows and with the same values.
///
/// # Errors
/// As the database says it: 40001 if another transaction has changed one of the rows since, 23505 or 23503 if another has
/// made a row that stands in the way, or removed one that is needed.
pub(super) async fn replay(
    backend: &mut Backend,
    journal: &mut Journal,
    shapes: &Shapes,
) -> Result<(), SqlError> {
    let mut places = Places::default();
    let mut batch = Batch::default();
    for entry in journal.entries() {
        let shape = shapes.of(entry.table, backend).await?;
        // Where a row went is known when the answer is there.
        if batch.touched.contains(&(entry.table, entry.row)) || batch.entries.len() == BATCH {
            batch.send(backend, &mut places).await?;
        }
        batch.add(entry, &shape, &places);
    }
    batch.send(backend, &mut places).await?;
    journal.moved(places);
    Ok(())
}

/// Things that are asked for together.
#[derive(Default)]
struct Batch<'a> {
    request: Request,
    entries: Vec<&'a Entry>,
    touched: BTreeSet<(Oid, Row)>,
    /// What the server has understood last: the same need not be said twice.
    parsed: Option<(Oid, Verb)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Insert,
    Update,
    Delete,
    LockForUpdate,
    LockForKeyShare,
}

impl<'a> Batch<'a> {
    fn add(&mut self, entry: &'a Entry, shape: &Arc<Shape>, places: &Places) {
        let (verb, values) = match &entry.change {
            Change::Insert(values) => (Verb::Insert, Some(values)),
            Change::Update(values) => (Verb::Update, Some(values)),
            Change::Delete(_) => (Verb::Delete, None),
            Change::Lock(Strength::Update) => (Verb::LockForUpdate, None),
            Change::Lock(Strength::KeyShare) => (Verb::LockForKeyShare, None),
        };
        if self.parsed != Some((entry.table, verb)) {
            self.parsed = Some((entry.table, verb));
            self.request.parse(&sql(verb, shape), &[]);
        }
        let mut given: Vec<Option<Bytes>> = values.into_iter().map(|values| Some(values.clone())).collect();
        if verb != Verb::Insert {
            // A row that is not there any more has no place, and nothing is done to it.
            given.push(places.place(entry.table, entry.row).map(|place| place.to_string().into()));
        }
        self.request.bind_texts(&given);
        self.request.execute();
        self.entries.push(entry);
        self.touched.insert((entry.table, entry.row));
    }

    async fn send(&mut self, backend: &mut Backend, places: &mut Places) -> Result<(), SqlError> {
        let Self { mut request, entries, .. } = std::mem::take(self);
        if entries.is_empty() {
            return Ok(());
        }
        request.sync();
        let mut answered = 0;
        backend
            .ask(request, |tag, body| {
                match tag {
                    b'C' => answered += 1,
                    b'N' => {
                        if let (Some(report), Some(entry)) = (body.report(), entries.get(answered)) {
                            places.follow(&report, entry.row);
                        }
                    }
                    _ => {}
                }
                Ok(())
            })
            .await
    }
}

/// The statement that does it, of the values and then the place.
fn sql(verb: Verb, shape: &Shape) -> String {
    let table = &shape.name;
    match verb {
        Verb::Insert => {
            let columns = shape.written.join(", ");
            format!(
                "INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM (SELECT ($1::{table}).*) x"
            )
        }
        // None of its columns can be changed, but it shall count as changed.
        Verb::Update if shape.changed.is_empty() => {
            format!("SELECT $1::{table} FROM {table} WHERE ctid = $2::tid FOR UPDATE")
        }
        Verb::Update => {
            let columns = shape.changed.join(", ");
            format!(
                "UPDATE {table} SET ({columns}) = (SELECT {columns} FROM (SELECT ($1::{table}).*) x) WHERE ctid = $2::tid"
            )
        }
        Verb::Delete => format!("DELETE FROM {table} WHERE ctid = $1::tid"),
        Verb::LockForUpdate => format!("SELECT 1 FROM {table} WHERE ctid = $1::tid FOR UPDATE"),
        Verb::LockForKeyShare => format!("SELECT 1 FROM {table} WHERE ctid = $1::tid FOR KEY SHARE"),
    }
}
