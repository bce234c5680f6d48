//! Which statement each portal runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::statements::Statement;

/// A portal, as the client has bound it.
#[derive(Debug)]
pub(super) struct Portal {
    pub(super) statement: Arc<Statement>,
    /// The segment of the client's frames that bound it.
    pub(super) since: u64,
    /// It has run something else instead, and cannot run again. The server does not know that.
    pub(super) spent: bool,
}

/// All portals. They end with the transaction.
#[derive(Debug, Default)]
pub(super) struct Portals {
    unnamed: Option<Portal>,
    named: BTreeMap<Box<[u8]>, Portal>,
}

impl Portals {
    pub(super) fn get(&self, name: &[u8]) -> Option<&Portal> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    /// It has run something else instead. Whether it had before.
    pub(super) fn spend(&mut self, name: &[u8]) -> bool {
        let portal = if name.is_empty() { self.unnamed.as_mut() } else { self.named.get_mut(name) };
        portal.is_some_and(|portal| std::mem::replace(&mut portal.spent, true))
    }

    pub(super) fn put(&mut self, name: &[u8], statement: Arc<Statement>, since: u64) {
        let portal = Portal { statement, since, spent: false };
        if name.is_empty() {
            self.unnamed = Some(portal);
        } else {
            self.named.insert(name.into(), portal);
        }
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            self.named.remove(name);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.named.len()
    }

    /// The transaction of the segments before this one has ended.
    pub(super) fn end(&mut self, segment: u64) {
        self.unnamed.take_if(|portal| portal.since < segment);
        if !self.named.is_empty() {
            self.named.retain(|_, portal| portal.since >= segment);
        }
    }

    pub(super) fn clear(&mut self) {
        self.unnamed = None;
        self.named.clear();
    }
}
