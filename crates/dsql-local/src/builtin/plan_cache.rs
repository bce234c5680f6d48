//! The plans that are kept for whoever sends the same statement again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::Oid;

/// How many are kept.
const PLANS: usize = 1_024;
/// How many bytes of them: clients choose how long their statements are.
const BYTES: usize = 16 << 20;
/// The length in bytes above which a statement is large: seldom sent again, and slow to read.
pub(super) const LARGE: usize = 16 << 10;
/// The most parameters of a statement that is kept: SQLite has room for each, though it take but two letters to ask for.
pub(super) const PARAMETERS: usize = 1_024;

/// A statement with the types its client knows.
pub(super) type Key = (Arc<str>, Vec<Oid>);

/// PlanCache, all of the schema that is committed.
pub(super) struct PlanCache<T> {
    kept: BTreeMap<Key, Arc<T>>,
    bytes: usize,
    generation: u64,
}

impl<T> Default for PlanCache<T> {
    fn default() -> Self {
        Self { kept: BTreeMap::new(), bytes: 0, generation: 0 }
    }
}

impl<T> PlanCache<T> {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.kept.get(key).cloned()
    }

    /// Which schema plans are made for from now on.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Keeps a plan that takes so many bytes, unless the schema has changed since its making began.
    pub(super) fn keep(&mut self, key: Key, plan: &Arc<T>, bytes: usize, generation: u64) {
        // Another session may have been as quick: what it kept is the same.
        if generation != self.generation || bytes > BYTES || self.kept.contains_key(&key) {
            return;
        }
        if self.kept.len() >= PLANS || self.bytes + bytes > BYTES {
            self.kept.clear();
            self.bytes = 0;
        }
        self.kept.insert(key, plan.clone());
        self.bytes += bytes;
    }

    /// The schema has changed.
    pub(super) fn forget(&mut self) {
        self.kept.clear();
        self.bytes = 0;
        self.generation += 1;
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        (number.to_string().into(), vec![])
    }

    #[test]
    fn plans_have_a_budget() {
        let mut plans = PlanCache::default();
        for number in 0..100 {
            plans.keep(key(number), &Arc::new(()), BYTES / 10, 0);
            assert!(plans.len() <= 10 && plans.bytes <= BYTES);
        }
        let before = plans.bytes;
        plans.keep(key(99), &Arc::new(()), BYTES / 10, 0);
        assert_eq!(plans.bytes, before);
        plans.keep(key(100), &Arc::new(()), BYTES + 1, 0);
        assert!(plans.get(&key(100)).is_none());
        for number in 0..3 * PLANS {
            plans.keep(key(number), &Arc::new(()), 1, 0);
            assert!(plans.len() <= PLANS);
        }
    }

    #[test]
    fn a_plan_of_an_old_schema_comes_too_late() {
        let mut plans = PlanCache::default();
        let began = plans.generation();
        plans.forget();
        plans.keep(key(1), &Arc::new(()), 1, began);
        assert!(plans.get(&key(1)).is_none());
        plans.keep(key(1), &Arc::new(()), 1, plans.generation());
        assert!(plans.get(&key(1)).is_some());
    }
}
