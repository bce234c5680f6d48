//! Which statement each portal runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::statements::{Statement, Statements};

/// A portal, as the client has bound it.
#[derive(Debug)]
pub(super) struct Portal {
    pub(super) statement: Arc<Statement>,
    /// The segment of the client's frames that bound it.
    pub(super) since: u64,
    /// It has run something else instead, or has set what it sets, and does not do so again. The server does not know that.
    pub(super) spent: bool,
}

/// All portals. They end with the transaction.
#[derive(Debug, Default)]
pub(super) struct Portals {
    unnamed: Option<Portal>,
    named: BTreeMap<Box<[u8]>, Portal>,
    /// How many bytes their names take.
    names: usize,
}

/// What a portal takes beside its name, roughly.
const OVERHEAD: usize = 100;

impl Portals {
    pub(super) fn get(&self, name: &[u8]) -> Option<&Portal> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    /// Whether it has run what runs only once.
    pub(super) fn is_spent(&self, name: &[u8]) -> bool {
        self.get(name).is_some_and(|portal| portal.spent)
    }

    /// It runs what runs only once.
    pub(super) fn spend(&mut self, name: &[u8]) {
        let portal = if name.is_empty() { self.unnamed.as_mut() } else { self.named.get_mut(name) };
        if let Some(portal) = portal {
            portal.spent = true;
        }
    }

    pub(super) fn put(&mut self, name: &[u8], statement: Arc<Statement>, since: u64) {
        let portal = Portal { statement, since, spent: false };
        if name.is_empty() {
            self.unnamed = Some(portal);
        } else if self.named.insert(name.into(), portal).is_none() {
            self.names += name.len();
        }
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.unnamed = None;
        } else if self.named.remove(name).is_some() {
            self.names -= name.len();
        }
    }

    /// How many bytes they take, roughly, without their statements.
    pub(super) fn size(&self) -> usize {
        self.names + self.named.len() * OVERHEAD
    }

    /// How many bytes the statements take, roughly, that nothing but portals with a name keeps: others have their names now.
    pub(super) fn size_of_replaced(&self, statements: &Statements) -> usize {
        let replaced = self.named.values().map(|portal| &portal.statement).filter(|statement| {
            let now = statements.get(&statement.name).statement.as_ref();
            !now.is_some_and(|now| Arc::ptr_eq(now, statement))
        });
        let each: BTreeMap<_, usize> =
            replaced.map(|statement| (Arc::as_ptr(statement), statement.size())).collect();
        each.values().sum()
    }

    pub(super) fn count(&self) -> usize {
        self.named.len()
    }

    /// The transaction of the segments before this one has ended.
    pub(super) fn end(&mut self, segment: u64) {
        self.unnamed.take_if(|portal| portal.since < segment);
        if !self.named.is_empty() {
            self.named.retain(|_, portal| portal.since >= segment);
            self.names = self.named.keys().map(|name| name.len()).sum();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
