//! Owners compete for shards while conflicts are injected, sockets are cut and the schema changes. Afterwards a judge looks at what they were told and at
//! what the database holds.
//!
//! By default this takes a few seconds. `FOREBAY_CHECKER_SECONDS=120` makes it as long as one likes; `FOREBAY_CHECKER_SEED` varies it.

mod history;
mod journal;
mod owner;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dsql_local::Rules;
use forebay::Seed;
use forebay_temporal::shard::{self, ShardRow};

use crate::cluster::{blob, change_the_schema, own, store_of};
use history::{History, Progress, judge};
use owner::Owner;

const OWNERS: u64 = 4;
const SHARDS: i32 = 8;
/// Concurrent callers of each owner.
const CALLERS: u64 = 2;

const FAULTS: [&str; 6] = [
    "conflict:p=0.03",
    "drop:at=before-commit,p=0.004",
    "drop:at=after-commit,p=0.004",
    "unavailable:at=commit,p=0.004",
    "stale-schema:p=0.002",
    "stale-schema:after=ddl",
];

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_owners_leave_what_a_sequential_replay_would() {
    let (seconds, seed) = (setting("FOREBAY_CHECKER_SECONDS", 4), setting("FOREBAY_CHECKER_SEED", 1));
    let cluster = own(Rules::Today).await;
    let referee = store_of(&cluster, 2).await;
    for shard_id in 0..SHARDS {
        let row = &ShardRow { shard_id, range_id: 0, info: blob("nobody") };
        referee.write("insert_shard", async |c| shard::insert(&c, row).await).await.unwrap();
        journal::create(&referee, shard_id).await;
    }

    for fault in FAULTS {
        cluster.inject(fault.parse().unwrap());
    }
    let neighbour = Arc::clone(&cluster);
    std::thread::spawn(move || change_the_schema(&neighbour));
    let (stop, progress) = (Arc::new(AtomicBool::new(false)), Arc::new(Progress::default()));
    let mut callers = Vec::new();
    for number in 0..OWNERS {
        let owner = Arc::new(Owner::new(store_of(&cluster, 3).await, Arc::clone(&progress)));
        for caller in 0..CALLERS {
            let seed = Seed::new(seed).fork(&format!("{number}/{caller}"));
            callers.push(tokio::spawn(Arc::clone(&owner).work(seed, Arc::clone(&stop))));
        }
    }
    let (mut cut, mut ticks) = (0, 0);
    // On a slow machine it takes longer until enough has happened.
    while ticks < seconds * 4 || ticks < (seconds + 60) * 4 && !progress.is_worth_judging(cut) {
        tokio::time::sleep(Duration::from_millis(250)).await;
        cut += cluster.sever(0.2);
        ticks += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let mut history = History::default();
    for caller in callers {
        history.extend(caller.await.unwrap());
    }
    cluster.heal_all();

    // No caller is left, and no transaction: what the database holds now is final.
    let mut finals = Vec::new();
    for shard_id in 0..SHARDS {
        finals.push(journal::read(&referee, shard_id).await);
    }
    let conflicts = cluster.counters().conflicts;
    println!("{history}; {cut} sockets cut, {conflicts} conflicts");
    if let Err(violation) = judge(&history, &finals) {
        panic!("{violation} ({history})");
    }
    assert!(progress.is_worth_judging(cut), "{history}");
}
