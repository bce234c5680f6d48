//! Which transactions have committed since another began, as far as that matters.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::journal::{Change, Journal, Place, Row, Strength};
use super::record::Key;
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
    /// What those did that committed, as far as it left no trace in the database.
    traces: Mutex<Vec<Traces>>,
}

/// What a transaction did to rows of which nothing can be seen afterwards; the service counts it like a change.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    update: BTreeSet<(Oid, Place)>,
    key_share: BTreeSet<(Oid, Place)>,
    /// The keys of rows that are gone: another may make them anew without seeing that they were there.
    pub(super) gone: BTreeSet<(Oid, Key)>,
}

impl Unseen {
    /// Its locks.
    pub(super) fn of(journal: &Journal) -> Self {
        let locks = |wanted: Strength| {
            let locks = journal.entries().iter().filter(|entry| entry.change == Change::Lock(wanted));
            locks.filter_map(|entry| found(entry.table, entry.row)).collect()
        };
        Self { update: locks(Strength::Update), key_share: locks(Strength::KeyShare), gone: BTreeSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.update.is_empty() && self.key_share.is_empty() && self.gone.is_empty()
    }

    fn concerns(&self, journal: &Journal, made: &BTreeSet<(Oid, Key)>) -> bool {
        let locked = journal.entries().iter().any(|entry| {
            let Some(row) = found(entry.table, entry.row) else { return false };
            // A key that others rely on may be kept with other values, but not go.
            let goes = matches!(entry.change, Change::Delete(_));
            self.update.contains(&row) || (goes && self.key_share.contains(&row))
        });
        locked || made.iter().any(|key| self.gone.contains(key))
    }
}

#[derive(Debug)]
struct Traces {
    /// Of the commit: how many had begun before.
    number: u64,
    /// By which the server knows the transaction.
    xid: String,
    /// How many were done when it was, it included.
    done: u64,
    unseen: Unseen,
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

    /// A commit begins; it ends when the guard is dropped, whatever came of it. What it leaves unseen is known from now on: whoever gets
    /// a row that it held can only have waited for it. `oldest` is when the oldest transaction began that is not over yet: what
    /// was committed before that concerns nobody.
    pub(super) fn begin(&self, unseen: Unseen, xid: String, oldest: Option<Mark>) -> UnderWay<'_> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        let mut traces = self.traces.lock();
        traces.retain(|traces| oldest.is_some_and(|oldest| oldest.done < traces.done));
        if !unseen.is_empty() {
            traces.push(Traces { number, xid, done: u64::MAX, unseen });
        }
        UnderWay { commits: self, number }
    }

    /// Whether any that may have committed since left something unseen.
    pub(super) fn left_traces(&self, mark: Mark) -> bool {
        self.traces.lock().iter().any(|traces| traces.done > mark.done)
    }

    /// Those that may have committed since and did something unseen to a row that this one has changed, locked or made; `made`
    /// are the keys of those. Which of them its snapshot shows, only the server can tell.
    pub(super) fn rivals(&self, journal: &Journal, made: &BTreeSet<(Oid, Key)>, mark: Mark) -> Vec<String> {
        let traces = self.traces.lock();
        let since = traces.iter().filter(|traces| traces.done > mark.done);
        let rivals = since.filter(|traces| traces.unseen.concerns(journal, made));
        rivals.map(|traces| traces.xid.clone()).collect()
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
        self.commits.traces.lock().retain(|traces| traces.number != self.number);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let done = self.commits.done.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(traces) =
            self.commits.traces.lock().iter_mut().find(|traces| traces.number == self.number)
        {
            traces.done = done;
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
        journal.note(Report {
            table: 1,
            before: Some(place),
            after: None,
            values: bytes::Bytes::new(),
            old: bytes::Bytes::new(),
        });
    }

    fn update(journal: &mut Journal, place: Place) {
        let after = Some("(0,9)".parse().unwrap());
        journal.note(Report {
            table: 1,
            before: Some(place),
            after,
            values: bytes::Bytes::new(),
            old: bytes::Bytes::new(),
        });
    }

    #[test]
    fn a_commit_under_way_may_land_at_any_moment() {
        let commits = Commits::default();
        let before = commits.mark();
        assert!(!commits.any_since(before));
        let under_way = commits.begin(Unseen::default(), String::new(), None);
        let during = commits.mark();
        assert!(commits.any_since(before) && commits.any_since(during));
        drop(under_way);
        assert!(!commits.any_since(commits.mark()) && commits.any_since(during));
    }

    #[test]
    fn what_leaves_no_trace_beats_those_that_began_before() {
        let none = BTreeSet::new();
        for (strength, beats_update) in [(Strength::Update, true), (Strength::KeyShare, false)] {
            let commits = Commits::default();
            let before = commits.mark();
            let locked = journal(|journal, place| journal.lock(1, place, strength));
            let begin = || commits.begin(Unseen::of(&locked), "7".to_owned(), Some(before));
            let under_way = begin();
            assert_eq!(commits.rivals(&journal(delete), &none, commits.mark()), ["7"]);
            begin().failed();
            assert_eq!(commits.traces.lock().len(), 1);
            drop(under_way);
            assert!(commits.left_traces(before) && !commits.left_traces(commits.mark()));
            assert_eq!(commits.rivals(&journal(delete), &none, before), ["7"]);
            assert_eq!(!commits.rivals(&journal(update), &none, before).is_empty(), beats_update);
            assert!(commits.rivals(&journal(delete), &none, commits.mark()).is_empty());
            // The next one to commit throws away what concerns nobody any more.
            drop(commits.begin(Unseen::default(), String::new(), None));
            assert!(commits.traces.lock().is_empty());
        }
    }

    #[test]
    fn a_key_that_is_gone_is_not_made_anew_by_one_who_did_not_see_it() {
        let (commits, keys) = (Commits::default(), |key: &'static str| {
            BTreeSet::from([(1, vec![Some(bytes::Bytes::from_static(key.as_bytes()))])])
        });
        let before = commits.mark();
        let unseen = Unseen { gone: keys("a"), ..Unseen::default() };
        drop(commits.begin(unseen, "8".to_owned(), Some(before)));
        assert_eq!(commits.rivals(&Journal::default(), &keys("a"), before), ["8"]);
        assert!(commits.rivals(&Journal::default(), &keys("b"), before).is_empty());
    }
}
