//! What owners were told, and the judge.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::journal::{Entry, ShardState};

/// What an owner was told about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is committed, with this number in the journal.
    Committed(i64),
    /// Nothing was committed.
    Refused,
    /// It may be committed. The journal tells.
    Unknown,
}

/// An owner has taken over a shard, and the journal had this length afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Takeover {
    pub(crate) shard_id: i32,
    pub(crate) range_id: i64,
    pub(crate) journal_length: i64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<(i32, Entry, Outcome)>,
    pub(crate) takeovers: Vec<Takeover>,
}

impl History {
    pub(crate) fn extend(&mut self, other: Self) {
        self.operations.extend(other.operations);
        self.takeovers.extend(other.takeovers);
    }

    fn count(&self, of: fn(&Outcome) -> bool) -> usize {
        self.operations.iter().filter(|(_, _, outcome)| of(outcome)).count()
    }
}

/// What has happened so far. A run in which nothing happened proves nothing.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    committed: AtomicU64,
    refused: AtomicU64,
    takeovers: AtomicU64,
}

impl Progress {
    pub(crate) fn operation(&self, outcome: Outcome) {
        match outcome {
            Outcome::Committed(_) => self.committed.fetch_add(1, Ordering::Relaxed),
            Outcome::Refused => self.refused.fetch_add(1, Ordering::Relaxed),
            Outcome::Unknown => 0,
        };
    }

    pub(crate) fn takeover(&self) {
        self.takeovers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_worth_judging(&self, cut: u64) -> bool {
        let reached = |counter: &AtomicU64, least| counter.load(Ordering::Relaxed) >= least;
        reached(&self.committed, 50) && reached(&self.refused, 1) && reached(&self.takeovers, 16) && cut > 0
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let committed = self.count(|outcome| matches!(outcome, Outcome::Committed(_)));
        let (refused, unknown) = (
            self.count(|outcome| *outcome == Outcome::Refused),
            self.count(|outcome| *outcome == Outcome::Unknown),
        );
        let takeovers = self.takeovers.len();
        write!(f, "{committed} committed, {refused} refused, {unknown} unknown, {takeovers} takeovers")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    LostUpdate { shard_id: i32, id: i64 },
    RefusedButCommitted { shard_id: i32, id: i64 },
    BrokenJournal { shard_id: i32 },
    WriteOfDeposedOwner { shard_id: i32, number: i64 },
    SameId(i64),
    NotWhatAReplayLeaves { shard_id: i32, told: String },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// `finals` are the shards from number 0 on.
pub(crate) fn judge(history: &History, finals: &[ShardState]) -> Result<(), Violation> {
    let mut ids = BTreeSet::new();
    for (_, entry, _) in &history.operations {
        if !ids.insert(entry.id) {
            return Err(Violation::SameId(entry.id));
        }
    }
    for (state, shard_id) in finals.iter().zip(0..) {
        let counted = i64::try_from(state.journal.len()).unwrap();
        if state.count != counted || !state.numbers.iter().copied().eq(1..=counted) {
            return Err(Violation::BrokenJournal { shard_id });
        }
        let numbers: BTreeMap<i64, (i64, &Entry)> =
            state.journal.iter().zip(1..).map(|(entry, number)| (entry.id, (number, entry))).collect();
        for (_, entry, outcome) in history.operations.iter().filter(|(shard, _, _)| *shard == shard_id) {
            let (found, id) = (numbers.get(&entry.id), entry.id);
            match outcome {
                Outcome::Committed(number) if found != Some(&(*number, entry)) => {
                    return Err(Violation::LostUpdate { shard_id, id });
                }
                Outcome::Refused if found.is_some() => {
                    return Err(Violation::RefusedButCommitted { shard_id, id });
                }
                _ => {}
            }
        }
        // After a takeover, nothing of an earlier range.
        for takeover in history.takeovers.iter().filter(|takeover| takeover.shard_id == shard_id) {
            let late = state.journal.iter().zip(1..).find(|(entry, number)| {
                *number > takeover.journal_length && entry.range_id < takeover.range_id
            });
            if let Some((_, number)) = late {
                return Err(Violation::WriteOfDeposedOwner { shard_id, number });
            }
        }
        // Nor after the first write of a successor, even if its takeover was never confirmed.
        let pairs = state.journal.windows(2).zip(2..);
        if let Some((_, number)) = { pairs }.find(|(pair, _)| pair[0].range_id > pair[1].range_id) {
            return Err(Violation::WriteOfDeposedOwner { shard_id, number });
        }
        let (runs, tasks) = ShardState::replay(&state.journal);
        if runs != state.runs || tasks != state.tasks {
            let told = format!("{runs:?} {tasks:?} expected, found {:?} {:?}", state.runs, state.tasks);
            return Err(Violation::NotWhatAReplayLeaves { shard_id, told });
        }
    }
    Ok(())
}

mod tests {
    use super::super::journal::Change;
    use super::*;

    fn entry(id: i64, range_id: i64) -> Entry {
        Entry { id, range_id, run: 0, change: Change::SetActivity(id % 2) }
    }

    /// Four operations by two owners, as they should be.
    fn good() -> (History, Vec<ShardState>) {
        let journal = vec![entry(1, 1), entry(2, 1), entry(3, 2), entry(4, 2)];
        let (runs, tasks) = ShardState::replay(&journal);
        let operations =
            journal.iter().zip(1..).map(|(entry, number)| (0, entry.clone(), Outcome::Committed(number)));
        let operations = operations.chain([(0, entry(9, 1), Outcome::Refused)]).collect();
        let takeovers = vec![Takeover { shard_id: 0, range_id: 2, journal_length: 2 }];
        (
            History { operations, takeovers },
            vec![ShardState { numbers: vec![1, 2, 3, 4], count: 4, journal, runs, tasks }],
        )
    }

    fn judged(plant: impl Fn(&mut History, &mut ShardState)) -> Option<Violation> {
        let (mut history, mut finals) = good();
        plant(&mut history, &mut finals[0]);
        judge(&history, &finals).err()
    }

    /// A judge that finds nothing wrong with these would find nothing at all.
    #[test]
    fn the_judge_notices_what_is_wrong() {
        assert_eq!(judged(|_, _| {}), None);
        assert_eq!(judged(|history, _| history.operations[1].2 = Outcome::Unknown), None);
        let lost = judged(|history, _| history.operations[4].2 = Outcome::Committed(5));
        assert_eq!(lost, Some(Violation::LostUpdate { shard_id: 0, id: 9 }));
        let overwritten = judged(|history, _| history.operations[3].2 = Outcome::Committed(3));
        assert_eq!(overwritten, Some(Violation::LostUpdate { shard_id: 0, id: 4 }));
        let refused = judged(|history, _| history.operations[3].2 = Outcome::Refused);
        assert_eq!(refused, Some(Violation::RefusedButCommitted { shard_id: 0, id: 4 }));
        let twice = judged(|history, _| history.operations[0].1.id = 9);
        assert_eq!(twice, Some(Violation::SameId(9)));
        let broken = judged(|_, state| state.count = 3);
        assert_eq!(broken, Some(Violation::BrokenJournal { shard_id: 0 }));
        let early = judged(|history, _| history.takeovers[0].journal_length = 1);
        assert_eq!(early, Some(Violation::WriteOfDeposedOwner { shard_id: 0, number: 2 }));
        let late = judged(|history, state| {
            history.takeovers.clear();
            history.operations.clear();
            state.journal[3].range_id = 1;
        });
        assert_eq!(late, Some(Violation::WriteOfDeposedOwner { shard_id: 0, number: 4 }));
        let other = judged(|_, state| state.runs[0].last = 1);
        assert!(matches!(other, Some(Violation::NotWhatAReplayLeaves { .. })));
        let task = judged(|_, state| assert!(state.tasks.insert(1)));
        assert!(matches!(task, Some(Violation::NotWhatAReplayLeaves { .. })));
    }
}
