//! Which transactions have committed since another began, as far as that matters.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::journal::{Change, Journal, Place, Row, Strength};
use crate::engine::Oid;

/// How many commits had been begun and done at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    done: u64,
    begun: u64,
}

/// All commits.
#[derive(Debug, Default)]
pub(super) struct Commits {
    begun: AtomicU64,
    done: AtomicU64,
    /// The locks of those that committed. A lock leaves no trace in its row; the service counts it like a change.
    locks: Mutex<Vec<Locks>>,
}

#[derive(Debug)]
struct Locks {
    /// Of the commit: how many had begun before.
    number: u64,
    /// How many were done when it was, it included.
    done: u64,
    update: BTreeSet<(Oid, Place)>,
    key_share: BTreeSet<(Oid, Place)>,
}

impl Commits {
    pub(super) fn mark(&self) -> Mark {
        // In this order: a commit that is under way counts as begun since.
        let done = self.done.load(Ordering::SeqCst);
        Mark { done, begun: self.begun.load(Ordering::SeqCst) }
    }

    /// Whether anybody may have committed something since.
    pub(super) fn any_since(&self, mark: Mark) -> bool {
        mark.begun != mark.done || self.begun.load(Ordering::SeqCst) != mark.begun
    }

    /// A commit begins; it ends when the guard is dropped, whatever came of it. Its locks are known from now on: whoever gets a
    /// row that it held can only have waited for it. `oldest` is when the oldest transaction began that is not over yet: what
    /// was committed before that concerns nobody.
    pub(super) fn begin(&self, journal: &Journal, oldest: Option<Mark>) -> UnderWay<'_> {
        let of = |wanted: Strength| {
            let locks = journal.entries().iter().filter(|entry| entry.change == Change::Lock(wanted));
            locks.filter_map(|entry| found(entry.table, entry.row)).collect()
        };
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        let kept =
            Locks { number, done: u64::MAX, update: of(Strength::Update), key_share: of(Strength::KeyShare) };
        let mut locks = self.locks.lock();
        locks.retain(|locks| oldest.is_some_and(|oldest| oldest.done < locks.done));
        if !(kept.update.is_empty() && kept.key_share.is_empty()) {
            locks.push(kept);
        }
        UnderWay { commits: self, number }
    }

    /// Whether one that committed since had locked a row that this one has changed or locked.
    pub(super) fn conflict(&self, journal: &Journal, mark: Mark) -> bool {
        let locks = self.locks.lock();
        let mut since = locks.iter().filter(|locks| locks.done > mark.done);
        since.any(|locks| {
            journal.entries().iter().any(|entry| {
                let Some(row) = found(entry.table, entry.row) else { return false };
                // A key that others rely on may be kept with other values, but not go.
                let gone = entry.change == Change::Delete;
                locks.update.contains(&row) || (gone && locks.key_share.contains(&row))
            })
        })
    }
}

/// A commit that has begun and not ended.
#[derive(Debug)]
pub(super) struct UnderWay<'a> {
    commits: &'a Commits,
    number: u64,
}

impl UnderWay<'_> {
    /// Nothing came of it.
    pub(super) fn failed(self) {
        self.commits.locks.lock().retain(|locks| locks.number != self.number);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let done = self.commits.done.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(locks) = self.commits.locks.lock().iter_mut().find(|locks| locks.number == self.number) {
            locks.done = done;
        }
    }
}

fn found(table: Oid, row: Row) -> Option<(Oid, Place)> {
    match row {
        Row::Found(place) => Some((table, place)),
        Row::Made(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::journal::Report;

    fn journal(act: impl FnOnce(&mut Journal, Place)) -> Journal {
        let mut journal = Journal::default();
        act(&mut journal, "(0,1)".parse().unwrap());
        journal
    }

    fn delete(journal: &mut Journal, place: Place) {
        journal.note(Report { table: 1, before: Some(place), after: None, values: bytes::Bytes::new() });
    }

    fn update(journal: &mut Journal, place: Place) {
        let after = Some("(0,9)".parse().unwrap());
        journal.note(Report { table: 1, before: Some(place), after, values: bytes::Bytes::new() });
    }

    #[test]
    fn a_commit_under_way_may_land_at_any_moment() {
        let commits = Commits::default();
        let before = commits.mark();
        assert!(!commits.any_since(before));
        let under_way = commits.begin(&Journal::default(), None);
        let during = commits.mark();
        assert!(commits.any_since(before) && commits.any_since(during));
        drop(under_way);
        assert!(!commits.any_since(commits.mark()) && commits.any_since(during));
    }

    #[test]
    fn a_committed_lock_beats_those_that_began_before() {
        for (strength, beats_update) in [(Strength::Update, true), (Strength::KeyShare, false)] {
            let commits = Commits::default();
            let before = commits.mark();
            let locked = journal(|journal, place| journal.lock(1, place, strength));
            let under_way = commits.begin(&locked, Some(before));
            assert!(commits.conflict(&journal(delete), commits.mark()));
            commits.begin(&locked, Some(before)).failed();
            assert_eq!(commits.locks.lock().len(), 1);
            drop(under_way);
            assert!(commits.conflict(&journal(delete), before));
            assert_eq!(commits.conflict(&journal(update), before), beats_update);
            assert!(!commits.conflict(&journal(delete), commits.mark()));
            // The next one to commit throws away what concerns nobody any more.
            drop(commits.begin(&Journal::default(), None));
            assert!(commits.locks.lock().is_empty());
        }
    }
}
