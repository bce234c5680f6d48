//! The pools of a gateway: one for each role and database.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::backends::Backends;

/// A role and a database.
pub(super) type RoleKey = (String, String);

/// The backends of each role and database.
#[derive(Default)]
pub(super) struct Pools {
    /// Those that users have.
    pub(super) active: BTreeMap<RoleKey, Arc<Backends>>,
    /// Those that no user has any more. Their clients keep them open.
    retired: BTreeMap<RoleKey, Weak<Backends>>,
}

impl Pools {
    pub(super) fn find(&self, key: &RoleKey) -> Option<Arc<Backends>> {
        let retired = || self.retired.get(key).and_then(Weak::upgrade);
        self.active.get(key).cloned().or_else(retired)
    }

    /// From now on, these are the ones that users have. Returns the others: drop them without a lock.
    pub(super) fn replace(
        &mut self,
        active: BTreeMap<RoleKey, Arc<Backends>>,
    ) -> BTreeMap<RoleKey, Arc<Backends>> {
        let before = std::mem::replace(&mut self.active, active);
        self.retired.extend(before.iter().map(|(key, backends)| (key.clone(), Arc::downgrade(backends))));
        self.retired.retain(|key, backends| !self.active.contains_key(key) && backends.strong_count() > 0);
        before
    }

    /// All that are open.
    pub(super) fn all(&self) -> Vec<Arc<Backends>> {
        let retired = self.retired.values().filter_map(Weak::upgrade);
        self.active.values().cloned().chain(retired).collect()
    }
}
