//! Caches plans, for statements that are sent again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::Oid;

const PLANS: usize = 1_024;
/// The largest size of all plans. Clients choose how long their statements are.
const BYTES: usize = 16 << 20;
/// A statement with more bytes is large: it is rarely sent again and slow to parse.
pub(super) const LARGE: usize = 16 << 10;
/// A statement with more parameters is not cached: SQLite reserves space for each, and `$30000` is cheap to
/// write.
pub(super) const PARAMETERS: usize = 1_024;

/// A statement and the parameter types that the client declared.
pub(super) type Key = (Arc<str>, Vec<Oid>);

/// The plans, all for the committed schema.
pub(super) struct PlanCache<T> {
    kept: BTreeMap<Key, Arc<T>>,
    bytes: usize,
    /// The version of the schema that new plans are for.
    pub(super) generation: u64,
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

    /// Caches a plan, unless the schema has changed since `generation`.
    pub(super) fn keep(&mut self, key: Key, plan: &Arc<T>, bytes: usize, generation: u64) {
        // Another session may have cached the same plan meanwhile.
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

    /// Call this when the schema has changed.
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
    fn a_plan_of_an_old_schema_is_not_cached() {
        let mut plans = PlanCache::default();
        let began = plans.generation;
        plans.forget();
        plans.keep(key(1), &Arc::new(()), 1, began);
        assert!(plans.get(&key(1)).is_none());
        plans.keep(key(1), &Arc::new(()), 1, plans.generation);
        assert!(plans.get(&key(1)).is_some());
    }
}
