//! A process that takes shards over and works on them until another takes them away.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use forebay::{Rng, Seed};
use forebay_temporal::shard::{self, ShardRow};
use forebay_temporal::{Error, Persistence, ShardOwner};

use super::SHARDS;
use super::history::{History, Outcome, Progress, Takeover};
use super::journal::{self, Change, Entry, RUNS};
use crate::cluster::blob;

pub(crate) struct Owner {
    store: Persistence,
    /// The shards it believes to own, with their range ids.
    owned: Mutex<BTreeMap<i32, i64>>,
    /// Tasks it has added, by shard, for others to remove.
    tasks: Mutex<Vec<(i32, i64)>>,
    progress: Arc<Progress>,
}

impl Owner {
    pub(crate) fn new(store: Persistence, progress: Arc<Progress>) -> Self {
        Self { store, owned: Mutex::default(), tasks: Mutex::default(), progress }
    }

    /// One caller of this owner.
    pub(crate) async fn work(self: Arc<Self>, seed: Seed, stop: Arc<AtomicBool>) -> History {
        let (mut rng, mut history) = (seed.rng(), History::default());
        while !stop.load(Ordering::Relaxed) {
            let shard_id = i32::try_from(rng.below(u64::try_from(SHARDS).unwrap())).unwrap();
            let range_id = self.owned.lock().unwrap().get(&shard_id).copied();
            match range_id {
                Some(range_id) => {
                    let entry = self.entry(shard_id, range_id, &mut rng);
                    let outcome = self.apply(shard_id, &entry).await;
                    self.progress.operation(outcome);
                    history.operations.push((shard_id, entry, outcome));
                }
                // Not too often: an owner should get something done.
                None if rng.below(12) == 0 => history.takeovers.extend(self.take_over(shard_id).await),
                None => tokio::task::yield_now().await,
            }
        }
        history
    }

    fn entry(&self, shard_id: i32, range_id: i64, rng: &mut Rng) -> Entry {
        let activity = i64::try_from(rng.below(5)).unwrap();
        let change = match rng.below(8) {
            0..=2 => Change::SetActivity(activity),
            3 => Change::RemoveActivity(activity),
            4 => Change::Buffer(1 + rng.below(3)),
            5 => Change::Flush,
            6 => Change::AddTask,
            _ => {
                let mut tasks = self.tasks.lock().unwrap();
                match tasks.iter().position(|(shard, _)| *shard == shard_id) {
                    Some(at) => Change::RemoveTask(tasks.remove(at).1),
                    None => Change::AddTask,
                }
            }
        };
        let id = self.store.ids().next().unwrap();
        if change == Change::AddTask {
            self.tasks.lock().unwrap().push((shard_id, id));
        }
        Entry { id, range_id, run: rng.below(RUNS), change }
    }

    async fn apply(&self, shard_id: i32, entry: &Entry) -> Outcome {
        let owner = ShardOwner { shard_id, range_id: entry.range_id };
        let applied =
            self.store.fenced(owner, "apply", |tx| async move { journal::apply(&tx, shard_id, entry).await });
        match applied.await {
            Ok(number) => Outcome::Committed(number),
            Err(Error::CommitUnknown(_)) => Outcome::Unknown,
            Err(Error::ConditionFailed { .. }) => {
                self.lose(shard_id, entry.range_id);
                Outcome::Refused
            }
            Err(Error::Conflict(_) | Error::Unavailable(_)) => Outcome::Refused,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn lose(&self, shard_id: i32, range_id: i64) {
        let mut owned = self.owned.lock().unwrap();
        if owned.get(&shard_id) == Some(&range_id) {
            owned.remove(&shard_id);
        }
    }

    async fn take_over(&self, shard_id: i32) -> Option<Takeover> {
        let store = &self.store;
        let select = || store.read("select_shard", async |c| shard::select(&c, shard_id).await);
        let found = select().await.ok()?;
        // A text of its own, by which it knows its row again.
        let mine = ShardRow {
            range_id: found.range_id + 1,
            info: blob(&store.ids().next().unwrap().to_string()),
            ..found.clone()
        };
        match store.update_shard(&mine, found.range_id).await {
            Ok(()) => {}
            Err(Error::CommitUnknown(_)) => {
                let now = select().await.ok()?;
                // A statement whose answer was lost may still be under way: what is not there yet counts as failed only if the
                // owner never acts on it.
                if now != mine {
                    return None;
                }
            }
            Err(Error::ConditionFailed { .. } | Error::Conflict(_) | Error::Unavailable(_)) => return None,
            Err(error) => panic!("{error:?}"),
        }
        // From here on, whoever had it before must not add anything.
        let journal_length = journal::length(store, shard_id).await.ok()?;
        self.owned.lock().unwrap().insert(shard_id, mine.range_id);
        self.progress.takeover();
        Some(Takeover { shard_id, range_id: mine.range_id, journal_length })
    }
}
