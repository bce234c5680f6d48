//! Histories made by hand, each with one anomaly or with something that is allowed.

use std::time::Duration;

use super::checker::check;
use super::order::Kind;
use super::record::{Act, History, Key, Outcome, Transaction, Version, Window};

const PATIENCE: Duration = Duration::from_millis(500);

/// Keys 1 and 2 begin as versions 10 and 20.
fn first() -> Transaction {
    transaction("first", (0, 1), (0, 1)).wrote(1, None, Some(10)).wrote(2, None, Some(20))
}

fn transaction(name: &str, snapshot: (u64, u64), end: (u64, u64)) -> Transaction {
    let window = |(after, before)| Window { after, before };
    Transaction {
        name: name.to_owned(),
        acts: Vec::new(),
        snapshot: window(snapshot),
        end: window(end),
        outcome: Outcome::Committed,
        slowest: Duration::ZERO,
    }
}

impl Transaction {
    fn did(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }

    fn read(self, key: Key, seen: Version) -> Self {
        self.did(Act::Read(key, Some(seen)))
    }

    fn missed(self, key: Key) -> Self {
        self.did(Act::Read(key, None))
    }

    fn locked(self, key: Key, seen: Version) -> Self {
        self.did(Act::Lock(key, Some(seen)))
    }

    fn wrote(self, key: Key, replaced: Option<Version>, made: Option<Version>) -> Self {
        self.did(Act::Write { key, replaced, made })
    }

    fn outcome(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }
}

/// The anomalies of a history, with their explanations.
fn judged(transactions: Vec<Transaction>) -> Vec<(Kind, String)> {
    let history = History { transactions, bystander: Duration::ZERO };
    check(&history, PATIENCE, 8).violations.into_iter().map(|found| (found.kind, found.why)).collect()
}

fn finds(kind: Kind, words: &[&str], transactions: Vec<Transaction>) {
    let found = judged(transactions);
    let one = found.iter().any(|(it, why)| *it == kind && words.iter().all(|word| why.contains(word)));
    assert!(one, "expected {kind:?} with {words:?}, got {found:#?}");
}

fn passes(transactions: Vec<Transaction>) {
    let found = judged(transactions);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_lost_update() {
    let a = || transaction("A", (2, 3), (6, 7)).read(1, 10).wrote(1, Some(10), Some(11));
    let b = || transaction("B", (4, 5), (8, 9)).read(1, 10).wrote(1, Some(10), Some(12));
    let last = |version| transaction("last", (10, 11), (10, 11)).read(1, version).read(2, 20);
    finds(Kind::LostUpdate, &["A and B", "version 10 of key 1"], vec![first(), a(), b(), last(12)]);
    passes(vec![first(), a(), b().outcome(Outcome::Conflict), last(11)]);
    passes(vec![first(), a().outcome(Outcome::RolledBack), b(), last(12)]);
    // The failure must have a cause: a transaction that committed before.
    let late = transaction("A", (2, 3), (20, 21)).wrote(1, Some(10), Some(11));
    let early = b().outcome(Outcome::Conflict);
    let last = transaction("last", (30, 31), (30, 31)).read(1, 11);
    finds(Kind::SpuriousConflict, &["B failed"], vec![first(), late, early, last]);
}

#[test]
fn an_update_of_a_row_that_another_locked() {
    let lock = transaction("A", (2, 3), (6, 7)).locked(1, 10);
    let write = |snapshot| transaction("B", snapshot, (8, 9)).wrote(1, Some(10), Some(12));
    let last = || transaction("last", (10, 11), (10, 11)).read(1, 12);
    finds(Kind::LostUpdate, &["A locked version 10"], vec![first(), lock.clone(), write((4, 5)), last()]);
    // A snapshot that may have come after the commit is accepted.
    passes(vec![first(), lock, write((4, 7)), last()]);
}

#[test]
fn two_locks_of_one_row() {
    let lock = |name, snapshot, end| transaction(name, snapshot, end).locked(1, 10);
    let last = || transaction("last", (10, 11), (10, 11)).read(1, 10);
    let overlapping = vec![first(), lock("A", (2, 3), (6, 7)), lock("B", (4, 5), (8, 9)), last()];
    finds(Kind::LostUpdate, &["B locked version 10 of key 1", "A"], overlapping);
    passes(vec![first(), lock("A", (2, 3), (4, 5)), lock("B", (6, 7), (8, 9)), last()]);
}

#[test]
fn two_inserts_of_one_key() {
    let insert =
        |name, snapshot, end, version| transaction(name, snapshot, end).wrote(3, None, Some(version));
    let last = || transaction("last", (20, 21), (20, 21)).read(3, 32);
    let (a, b) = (insert("A", (2, 3), (6, 7), 31), insert("B", (4, 5), (8, 9), 32));
    finds(Kind::LostUpdate, &["A and B", "inserted key 3"], vec![first(), a.clone(), b, last()]);
    let delete = transaction("D", (8, 9), (10, 11)).wrote(3, Some(31), None);
    let again = insert("B", (12, 13), (14, 15), 32);
    let between = transaction("R", (10, 13), (10, 13)).missed(3);
    passes(vec![first(), a.clone(), delete.clone(), again.clone(), between, last()]);
    let too_early = transaction("R", (7, 8), (7, 8)).missed(3);
    finds(Kind::StaleRead, &["R saw no key 3", "A had"], vec![first(), a, delete, again, too_early, last()]);
}

#[test]
fn a_dirty_read() {
    let writer = |outcome| transaction("A", (2, 3), (8, 9)).wrote(1, Some(10), Some(11)).outcome(outcome);
    let reader = || transaction("B", (4, 5), (6, 7)).read(1, 11);
    let last = |version| transaction("last", (10, 11), (10, 11)).read(1, version);
    finds(
        Kind::DirtyRead,
        &["B read version 11"],
        vec![first(), writer(Outcome::Committed), reader(), last(11)],
    );
    let aborted = vec![first(), writer(Outcome::RolledBack), reader(), last(10)];
    finds(Kind::AbortedRead, &["B read version 11", "A"], aborted);
    let loser = reader().outcome(Outcome::RolledBack);
    finds(
        Kind::DirtyRead,
        &["B read version 11"],
        vec![first(), writer(Outcome::Committed), loser, last(11)],
    );
}

#[test]
fn an_intermediate_read() {
    let writer = transaction("A", (2, 3), (4, 5)).wrote(1, Some(10), Some(11)).wrote(1, Some(11), Some(12));
    let reader = transaction("B", (6, 7), (8, 9)).read(1, 11);
    let last = transaction("last", (10, 11), (10, 11)).read(1, 12);
    finds(Kind::IntermediateRead, &["B read version 11", "A replaced"], vec![first(), writer, reader, last]);
}

#[test]
fn a_non_repeatable_read() {
    let writer = || transaction("A", (2, 3), (4, 5)).wrote(1, Some(10), Some(11));
    let reader = transaction("B", (2, 3), (6, 7)).read(1, 10).read(1, 11);
    let last = || transaction("last", (10, 11), (10, 11)).read(1, 11);
    finds(
        Kind::NonRepeatableRead,
        &["B had seen Some(10)", "Some(11)"],
        vec![first(), writer(), reader, last()],
    );
    let own = transaction("B", (6, 7), (8, 9)).wrote(1, Some(11), Some(12)).read(1, 11);
    let last = transaction("last", (10, 11), (10, 11)).read(1, 12);
    finds(Kind::OwnWriteUnseen, &["B wrote Some(12)"], vec![first(), writer(), own, last]);
}

#[test]
fn a_read_skew() {
    // A changes both; B sees one before and one after, and the windows are too wide to decide.
    let writer =
        || transaction("A", (2, 20), (3, 21)).wrote(1, Some(10), Some(11)).wrote(2, Some(20), Some(21));
    let last = || transaction("last", (30, 31), (30, 31)).read(1, 11).read(2, 21);
    let reader = transaction("B", (4, 18), (5, 19)).read(1, 10).read(2, 21);
    finds(
        Kind::ReadSkew,
        &["B read version 10", "B read version 21"],
        vec![first(), writer(), reader, last()],
    );
    for (one, two) in [(10, 20), (11, 21)] {
        let reader = transaction("B", (4, 18), (5, 19)).read(1, one).read(2, two);
        passes(vec![first(), writer(), reader, last()]);
    }
    // Two readers see two writes in opposite orders.
    let a = transaction("A", (2, 20), (3, 21)).wrote(1, Some(10), Some(11));
    let b = transaction("B", (4, 22), (5, 23)).wrote(2, Some(20), Some(21));
    let c = transaction("C", (6, 24), (7, 25)).read(1, 11).read(2, 20);
    let d = transaction("D", (8, 26), (9, 27)).read(1, 10).read(2, 21);
    finds(Kind::ReadSkew, &["C read", "D read"], vec![first(), a, b, c, d, last()]);
}

#[test]
fn a_stale_read() {
    let writer = transaction("A", (2, 3), (4, 5)).wrote(1, Some(10), Some(11));
    let reader = |snapshot| transaction("B", snapshot, (8, 9)).read(1, 10);
    let last = || transaction("last", (10, 11), (10, 11)).read(1, 11);
    finds(
        Kind::StaleRead,
        &["B read version 10", "A"],
        vec![first(), writer.clone(), reader((6, 7)), last()],
    );
    passes(vec![first(), writer, reader((4, 7)), last()]);
}

#[test]
fn a_spurious_conflict() {
    let other = |end| transaction("A", (2, 3), end).wrote(1, Some(10), Some(11));
    let loser = |key, replaced| {
        let loser = transaction("B", (6, 7), (8, 9)).wrote(key, Some(replaced), Some(22));
        loser.outcome(Outcome::Conflict)
    };
    let last = || transaction("last", (20, 21), (20, 21)).read(1, 11);
    // On another row, and before it began.
    finds(Kind::SpuriousConflict, &["B failed"], vec![first(), other((6, 10)), loser(2, 20), last()]);
    finds(Kind::SpuriousConflict, &["B failed"], vec![first(), other((4, 5)), loser(1, 11), last()]);
    finds(Kind::SpuriousConflict, &["B failed"], vec![first(), other((10, 11)), loser(1, 10), last()]);
    passes(vec![first(), other((4, 8)), loser(1, 10), last()]);
    let reader = transaction("B", (6, 7), (8, 9)).read(1, 10).outcome(Outcome::Conflict);
    finds(Kind::SpuriousConflict, &["B failed"], vec![first(), other((4, 8)), reader, last()]);
}

#[test]
fn a_wrong_final_state() {
    let writer = || transaction("A", (2, 3), (4, 5)).wrote(1, Some(10), Some(11));
    let last = |it: fn(Transaction) -> Transaction| it(transaction("last", (6, 7), (6, 7)));
    let old = last(|last| last.read(1, 10));
    finds(Kind::FinalState, &["last read version 10", "A"], vec![first(), writer(), old]);
    let gone = last(|last| last.missed(1));
    finds(Kind::FinalState, &["last saw no key 1"], vec![first(), writer(), gone]);
    let unknown = last(|last| last.read(1, 99));
    finds(Kind::UnknownRead, &["version 99", "nobody wrote"], vec![first(), writer(), unknown]);
}

#[test]
fn a_wait_and_an_unexpected_answer() {
    let slow = Transaction { slowest: PATIENCE * 2, ..transaction("A", (2, 3), (4, 5)).read(1, 10) };
    let last = || transaction("last", (6, 7), (6, 7)).read(1, 10);
    finds(Kind::Waited, &["A waited"], vec![first(), slow, last()]);
    let failed = transaction("A", (2, 3), (4, 5)).outcome(Outcome::Failed("40P01 deadlock".to_owned()));
    finds(Kind::Unexpected, &["A failed: 40P01"], vec![first(), failed, last()]);
}

#[test]
fn write_skew_is_permitted() {
    let a = transaction("A", (2, 3), (6, 7)).read(1, 10).read(2, 20).wrote(1, Some(10), Some(11));
    let b = transaction("B", (4, 5), (8, 9)).read(1, 10).read(2, 20).wrote(2, Some(20), Some(21));
    let last = transaction("last", (10, 11), (10, 11)).read(1, 11).read(2, 21);
    passes(vec![first(), a, b, last]);
}
