//! The tasks of one queue, as whoever inserts and deletes them knows them.

use std::collections::BTreeSet;

/// Tasks by their numbers.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// Numbers that were given out and are not done. No task from the first of them on may be deleted.
    pending: BTreeSet<i64>,
    /// The greatest number that was given out. They are given out in their order.
    last: i64,
    /// Tasks whose insert was acknowledged, and which were not deleted.
    stored: BTreeSet<i64>,
    /// Tasks whose insert failed: they may be stored or not.
    uncertain: BTreeSet<i64>,
}

impl Outstanding {
    pub(super) fn begin(&mut self, task: i64) {
        self.pending.insert(task);
        self.last = task;
    }

    pub(super) fn inserted(&mut self, task: i64) {
        self.stored.insert(task);
    }

    pub(super) fn done(&mut self, task: i64) {
        self.pending.remove(&task);
    }

    pub(super) fn uncertain(&mut self, task: i64) {
        self.pending.remove(&task);
        self.uncertain.insert(task);
    }

    /// All tasks before this number are done.
    pub(super) fn done_until(&self) -> i64 {
        self.pending.first().copied().unwrap_or(self.last + 1)
    }

    pub(super) fn deleted_until(&mut self, end: i64) {
        self.stored = self.stored.split_off(&end);
    }

    /// By how many tasks the stored ones differ from the acknowledged ones.
    pub(super) fn differences(&self, stored: &BTreeSet<i64>) -> usize {
        let differ = self.stored.symmetric_difference(stored);
        differ.filter(|task| !self.uncertain.contains(task)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_deleted_beyond_the_first_pending_task() {
        let mut tasks = Outstanding::default();
        (1..=3).for_each(|task| tasks.begin(task));
        (1..=3).for_each(|task| tasks.inserted(task));
        tasks.done(1);
        tasks.done(3);
        assert_eq!(tasks.done_until(), 2);
        tasks.deleted_until(2);
        assert_eq!(tasks.differences(&BTreeSet::from([2, 3])), 0);
        assert_eq!(tasks.differences(&BTreeSet::from([1, 3])), 2, "one is lost, one came back");
        tasks.done(2);
        assert_eq!(tasks.done_until(), 4);
    }

    #[test]
    fn an_uncertain_task_may_be_stored_or_not() {
        let mut tasks = Outstanding::default();
        tasks.begin(1);
        tasks.uncertain(1);
        assert_eq!(tasks.differences(&BTreeSet::new()), 0);
        assert_eq!(tasks.differences(&BTreeSet::from([1])), 0);
    }
}
