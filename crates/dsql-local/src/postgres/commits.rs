//! The commits since a transaction began, as far as they can conflict with it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::change_log::{Change, ChangeLog, Ctid, LockStrength, Row};
use super::record::Key;
use crate::engine::Oid;

/// How many commits had begun and ended at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CommitMark {
    done: u64,
    begun: u64,
}

#[derive(Debug, Default)]
pub(super) struct Commits {
    begun: AtomicU64,
    done: AtomicU64,
    /// The locks and deletions of recent commits.
    recent: Mutex<Vec<RecentCommit>>,
}

/// Locks and deletions leave no row version that PostgreSQL could compare, but the service treats them like
/// changes.
#[derive(Debug, Default)]
pub(super) struct LocksAndDeletes {
    update: BTreeSet<(Oid, Ctid)>,
    key_share: BTreeSet<(Oid, Ctid)>,
    /// The keys of deleted rows. A transaction that does not see the deletion may insert them again.
    pub(super) gone: BTreeSet<(Oid, Key)>,
}

impl LocksAndDeletes {
    /// The locks of a transaction.
    pub(super) fn of(log: &ChangeLog) -> Self {
        let locks = |wanted: LockStrength| {
            let locks = log.entries.iter().filter(|entry| entry.change == Change::Lock(wanted));
            locks.filter_map(|entry| found(entry.table, entry.row)).collect()
        };
        Self {
            update: locks(LockStrength::Update),
            key_share: locks(LockStrength::KeyShare),
            gone: BTreeSet::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.update.is_empty() && self.key_share.is_empty() && self.gone.is_empty()
    }

    fn concerns(&self, log: &ChangeLog, made: &BTreeSet<(Oid, Key)>) -> bool {
        let locked = log.entries.iter().any(|entry| {
            let Some(row) = found(entry.table, entry.row) else { return false };
            // A row with a key-share lock may get other values, but must not be deleted.
            let goes = matches!(entry.change, Change::Delete(_));
            self.update.contains(&row) || (goes && self.key_share.contains(&row))
        });
        locked || made.iter().any(|key| self.gone.contains(key))
    }
}

#[derive(Debug)]
struct RecentCommit {
    /// How many commits had begun before.
    number: u64,
    /// The transaction id on the server.
    xid: String,
    /// How many commits had ended after it.
    done: u64,
    effects: LocksAndDeletes,
}

impl Commits {
    pub(super) fn mark(&self) -> CommitMark {
        // In this order: a commit in progress counts as one that began later.
        let done = self.done.load(Ordering::SeqCst);
        CommitMark { done, begun: self.begun.load(Ordering::SeqCst) }
    }

    pub(super) fn any_since(&self, mark: CommitMark) -> bool {
        mark.begun != mark.done || self.begun.load(Ordering::SeqCst) != mark.begun
    }

    /// Begins a commit; it ends when the guard is dropped. Its locks and deletions count from now on: a
    /// transaction that gets one of its rows can only have waited for it. `oldest` is the mark of the oldest
    /// open transaction; earlier commits are dropped.
    pub(super) fn begin(
        &self,
        effects: LocksAndDeletes,
        xid: String,
        oldest: Option<CommitMark>,
    ) -> CommitInProgress<'_> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        let mut recent = self.recent.lock();
        recent.retain(|recent| oldest.is_some_and(|oldest| oldest.done < recent.done));
        if !effects.is_empty() {
            recent.push(RecentCommit { number, xid, done: u64::MAX, effects });
        }
        CommitInProgress { commits: self, number }
    }

    /// Whether a commit since the mark has locks or deletions.
    pub(super) fn has_recent(&self, mark: CommitMark) -> bool {
        self.recent.lock().iter().any(|recent| recent.done > mark.done)
    }

    /// The transaction ids of commits since the mark whose locks or deletions concern a changed, locked or
    /// inserted row; `made` are the keys of inserted rows. Only the server knows which of them are in the
    /// snapshot.
    pub(super) fn conflicting(
        &self,
        log: &ChangeLog,
        made: &BTreeSet<(Oid, Key)>,
        mark: CommitMark,
    ) -> Vec<String> {
        let recent = self.recent.lock();
        let since = recent.iter().filter(|recent| recent.done > mark.done);
        let conflicting = since.filter(|recent| recent.effects.concerns(log, made));
        conflicting.map(|recent| recent.xid.clone()).collect()
    }
}

#[derive(Debug)]
pub(super) struct CommitInProgress<'a> {
    commits: &'a Commits,
    number: u64,
}

impl CommitInProgress<'_> {
    pub(super) fn failed(self) {
        self.commits.recent.lock().retain(|recent| recent.number != self.number);
    }
}

impl Drop for CommitInProgress<'_> {
    fn drop(&mut self) {
        let done = self.commits.done.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(recent) =
            self.commits.recent.lock().iter_mut().find(|recent| recent.number == self.number)
        {
            recent.done = done;
        }
    }
}

fn found(table: Oid, row: Row) -> Option<(Oid, Ctid)> {
    match row {
        Row::Existing(ctid) => Some((table, ctid)),
        Row::Inserted(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::change_log::RowReport;

    fn log(act: impl FnOnce(&mut ChangeLog, Ctid)) -> ChangeLog {
        let mut log = ChangeLog::default();
        act(&mut log, "(0,1)".parse().unwrap());
        log
    }

    fn delete(log: &mut ChangeLog, ctid: Ctid) {
        log.record(RowReport {
            table: 1,
            before: Some(ctid),
            after: None,
            values: bytes::Bytes::new(),
            old: bytes::Bytes::new(),
        });
    }

    fn update(log: &mut ChangeLog, ctid: Ctid) {
        let after = Some("(0,9)".parse().unwrap());
        log.record(RowReport {
            table: 1,
            before: Some(ctid),
            after,
            values: bytes::Bytes::new(),
            old: bytes::Bytes::new(),
        });
    }

    #[test]
    fn a_commit_in_progress_counts_as_later() {
        let commits = Commits::default();
        let before = commits.mark();
        assert!(!commits.any_since(before));
        let in_progress = commits.begin(LocksAndDeletes::default(), String::new(), None);
        let during = commits.mark();
        assert!(commits.any_since(before) && commits.any_since(during));
        drop(in_progress);
        assert!(!commits.any_since(commits.mark()) && commits.any_since(during));
    }

    #[test]
    fn locks_and_deletes_conflict_with_older_transactions() {
        let none = BTreeSet::new();
        for (strength, beats_update) in [(LockStrength::Update, true), (LockStrength::KeyShare, false)] {
            let commits = Commits::default();
            let before = commits.mark();
            let locked = log(|log, ctid| log.lock(1, ctid, strength));
            let begin = || commits.begin(LocksAndDeletes::of(&locked), "7".to_owned(), Some(before));
            let in_progress = begin();
            assert_eq!(commits.conflicting(&log(delete), &none, commits.mark()), ["7"]);
            begin().failed();
            assert_eq!(commits.recent.lock().len(), 1);
            drop(in_progress);
            assert!(commits.has_recent(before) && !commits.has_recent(commits.mark()));
            assert_eq!(commits.conflicting(&log(delete), &none, before), ["7"]);
            assert_eq!(!commits.conflicting(&log(update), &none, before).is_empty(), beats_update);
            assert!(commits.conflicting(&log(delete), &none, commits.mark()).is_empty());
            // The next commit drops what no open transaction needs.
            drop(commits.begin(LocksAndDeletes::default(), String::new(), None));
            assert!(commits.recent.lock().is_empty());
        }
    }

    #[test]
    fn inserting_a_key_that_another_deleted_is_a_conflict() {
        let (commits, keys) = (Commits::default(), |key: &'static str| {
            BTreeSet::from([(1, vec![Some(bytes::Bytes::from_static(key.as_bytes()))])])
        });
        let before = commits.mark();
        let effects = LocksAndDeletes { gone: keys("a"), ..LocksAndDeletes::default() };
        drop(commits.begin(effects, "8".to_owned(), Some(before)));
        assert_eq!(commits.conflicting(&ChangeLog::default(), &keys("a"), before), ["8"]);
        assert!(commits.conflicting(&ChangeLog::default(), &keys("b"), before).is_empty());
    }
}
