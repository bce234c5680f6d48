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

impl Portal {
    /// How many bytes it takes under this name, roughly, without a statement that others have, too.
    fn size(&self, name: &[u8]) -> usize {
        OVERHEAD + name.len() + self.statement.size_in_portal()
    }
}

/// All portals. They end with the transaction.
#[derive(Debug, Default)]
pub(super) struct Portals {
    unnamed: Option<Portal>,
    named: BTreeMap<Box<[u8]>, Portal>,
    /// How many bytes those with a name take, roughly, without statements that others have, too.
    size: usize,
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
        } else {
            self.size += portal.size(name);
            let before = self.named.insert(name.into(), portal);
            self.size -= before.map_or(0, |before| before.size(name));
        }
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            self.size -= self.named.remove(name).map_or(0, |portal| portal.size(name));
        }
    }

    /// How many bytes they take, roughly, without statements that others have, too.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// How many bytes the statements take, roughly, that nothing but portals with a name keeps: others have their names now.
    pub(super) fn size_of_replaced(&self, statements: &Statements) -> usize {
        let replaced = self.named.values().map(|portal| &portal.statement).filter(|statement| {
            let now = statements.get(&statement.name).statement.as_ref();
            !now.is_some_and(|now| now.shares_text(statement))
        });
        let each: BTreeMap<_, usize> =
            replaced.map(|statement| (statement.place(), statement.size())).collect();
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
            self.size = self.named.iter().map(|(name, portal)| portal.size(name)).sum();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
