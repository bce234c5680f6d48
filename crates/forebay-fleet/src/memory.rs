//! A table in memory, for tests and for the simulator.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use forebay::StoreFuture;
use parking_lot::Mutex;

use crate::expression::{self, Condition};
use crate::item::Item;
use crate::store::{read_units, write_units};
use crate::table::{Cancelled, Cursor, Delete, Page, Returning, Table, TableError, Update, Write};

/// A table in memory. Clones share the data. It counts costs as DynamoDB does.
#[derive(Clone, Default)]
pub struct MemoryTable(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    items: BTreeMap<String, Item>,
    /// The size that each item is billed by.
    sizes: BTreeMap<String, usize>,
    /// Completed transactions by token. DynamoDB forgets them after ten minutes; this table does not.
    tokens: BTreeMap<String, Vec<Write>>,
    bills: BTreeMap<String, Bill>,
    witness: Option<Witness>,
}

/// Called with every written item before others can see it.
type Witness = Arc<dyn Fn(&str, Option<&Item>) + Send + Sync>;

/// The cost of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// Write units: one per kilobyte, two in a transaction. Refused writes count as well.
    pub write_units: u64,
    /// Read units: one per four kilobytes.
    pub read_units: u64,
    /// Writes, including refused ones.
    pub writes: u64,
}

/// Items per page of a scan.
const PAGE: usize = 100;

impl MemoryTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `witness` for every write with the key and the new item, while the table is locked.
    pub fn witness(&self, witness: impl Fn(&str, Option<&Item>) + Send + Sync + 'static) {
        self.0.lock().witness = Some(Arc::new(witness));
    }

    /// All items.
    #[must_use]
    pub fn items(&self) -> BTreeMap<String, Item> {
        self.0.lock().items.clone()
    }

    /// The item at `key`.
    #[must_use]
    pub fn item(&self, key: &str) -> Option<Item> {
        self.0.lock().items.get(key).cloned()
    }

    /// Stores an item without cost, as if another program had written it.
    pub fn put(&self, key: &str, item: Item) {
        self.0.lock().store(key, Some(item));
    }

    /// Removes an item without cost, as a time-to-live does.
    pub fn expire(&self, key: &str) {
        self.0.lock().store(key, None);
    }

    /// The cost of all calls.
    #[must_use]
    pub fn bill(&self) -> Bill {
        self.0.lock().bills.values().fold(Bill::default(), |sum, bill| Bill {
            write_units: sum.write_units + bill.write_units,
            read_units: sum.read_units + bill.read_units,
            writes: sum.writes + bill.writes,
        })
    }

    /// The cost of calls for one item.
    #[must_use]
    pub fn bill_of(&self, key: &str) -> Bill {
        self.0.lock().bills.get(key).copied().unwrap_or_default()
    }
}

impl fmt::Debug for MemoryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.0.lock().items).finish()
    }
}

impl Write {
    fn when(&self) -> &[Condition] {
        match self {
            Self::Update(update) => &update.when,
            Self::Put { when, .. } => when,
            Self::Delete(delete) => &delete.when,
        }
    }
}

impl Inner {
    fn store(&mut self, key: &str, item: Option<Item>) {
        match item {
            Some(item) => {
                self.sizes.insert(key.to_owned(), item.size(key));
                self.items.insert(key.to_owned(), item);
            }
            None => {
                self.sizes.remove(key);
                self.items.remove(key);
            }
        }
        if let Some(witness) = self.witness.clone() {
            witness(key, self.items.get(key));
        }
    }

    fn size(&self, key: &str) -> usize {
        self.sizes.get(key).copied().unwrap_or(0)
    }

    fn bill_write(&mut self, key: &str, bytes: usize, times: u64) {
        let bill = self.bills.entry(key.to_owned()).or_default();
        bill.write_units += times * write_units(bytes);
        bill.writes += 1;
    }

    fn holds(&self, key: &str, when: &[Condition]) -> bool {
        let item = self.items.get(key);
        when.iter().all(|condition| condition.holds(item))
    }

    fn changed(&self, update: &Update) -> Result<Item, TableError> {
        let before = self.items.get(&update.key).cloned().unwrap_or_default();
        expression::apply(&before, &update.changes).map_err(TableError::Invalid)
    }

    fn update(&mut self, update: &Update) -> Result<Option<Item>, TableError> {
        let (key, before) = (&update.key, self.size(&update.key));
        if !self.holds(key, &update.when) {
            self.bill_write(key, before, 1);
            return Err(TableError::ConditionFailed(self.items.get(key).cloned().map(Box::new)));
        }
        let old = self.items.get(key).filter(|_| update.returning == Returning::Old).cloned();
        // Taken out, it is changed in place, unless someone still reads it.
        let found = self.items.remove(key);
        let is_new = found.is_none();
        let mut item = found.unwrap_or_default();
        if let Err(error) = expression::change(&mut item, &update.changes) {
            self.items.extend((!is_new).then(|| (key.clone(), item)));
            return Err(TableError::Invalid(error));
        }
        let new = (update.returning == Returning::New).then(|| item.clone());
        self.store(key, Some(item));
        self.bill_write(key, before.max(self.size(key)), 1);
        Ok(old.or(new))
    }

    fn delete(&mut self, delete: &Delete) -> Result<Option<Item>, TableError> {
        let key = &delete.key;
        self.bill_write(key, self.size(key), 1);
        if !self.holds(key, &delete.when) {
            return Err(TableError::ConditionFailed(self.items.get(key).cloned().map(Box::new)));
        }
        let old = self.items.get(key).cloned();
        self.store(key, None);
        Ok(old)
    }

    fn transact(&mut self, writes: &[Write], token: &str) -> Result<(), TableError> {
        match self.tokens.get(token) {
            Some(made) if made == writes => {
                for write in writes {
                    let bytes = self.size(write.key());
                    self.bills.entry(write.key().to_owned()).or_default().read_units += 2 * read_units(bytes);
                }
                return Ok(());
            }
            Some(_) => return Err(TableError::Invalid("this token was used for other changes".into())),
            None => {}
        }
        // All conditions come before the first change. An invalid change matters only if all conditions hold.
        let holds: Vec<bool> = writes.iter().map(|write| self.holds(write.key(), write.when())).collect();
        if holds.contains(&false) {
            for write in writes {
                self.bill_write(write.key(), self.size(write.key()), 2);
            }
            let reasons = writes.iter().zip(holds).map(|(write, holds)| {
                let item = || self.items.get(write.key()).cloned().map(Box::new);
                if holds { Cancelled::Fine } else { Cancelled::ConditionFailed(item()) }
            });
            return Err(TableError::Cancelled(reasons.collect()));
        }
        let results: Vec<Option<Item>> = writes
            .iter()
            .map(|write| match write {
                Write::Update(update) => self.changed(update).map(Some),
                Write::Put { item, .. } => Ok(Some(item.clone())),
                Write::Delete(_) => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        for (write, result) in writes.iter().zip(results) {
            let bytes = result.as_ref().map_or(0, |item| item.size(write.key()));
            self.bill_write(write.key(), bytes.max(self.size(write.key())), 2);
            self.store(write.key(), result);
        }
        self.tokens.insert(token.to_owned(), writes.to_vec());
        Ok(())
    }

    fn scan(&mut self, prefix: &str, after: Option<&Cursor>) -> Page {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let from = after.map_or(Included(prefix), |cursor| Excluded(cursor.0.as_str()));
        let mut items: Vec<(String, Item)> = self
            .items
            .range::<str, _>((from, Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(PAGE + 1)
            .map(|(key, item)| (key.clone(), item.clone()))
            .collect();
        for (key, item) in &items {
            self.bills.entry(key.clone()).or_default().read_units += read_units(item.size(key));
        }
        let more = items.len() > PAGE;
        items.truncate(PAGE);
        let next = if more { items.last().map(|(key, _)| Cursor(key.clone())) } else { None };
        Page { items, next }
    }
}

impl Table for MemoryTable {
    fn update<'a>(&'a self, update: &'a Update) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        Box::pin(async { self.0.lock().update(update) })
    }

    fn get<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        Box::pin(async {
            let mut inner = self.0.lock();
            let units = read_units(inner.size(key));
            inner.bills.entry(key.to_owned()).or_default().read_units += units;
            Ok(inner.items.get(key).cloned())
        })
    }

    fn delete<'a>(&'a self, delete: &'a Delete) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        Box::pin(async { self.0.lock().delete(delete) })
    }

    fn transact<'a>(
        &'a self,
        writes: &'a [Write],
        token: &'a str,
    ) -> StoreFuture<'a, Result<(), TableError>> {
        Box::pin(async { self.0.lock().transact(writes, token) })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a Cursor>,
    ) -> StoreFuture<'a, Result<Page, TableError>> {
        Box::pin(async move { Ok(self.0.lock().scan(prefix, after)) })
    }
}
