//! Thousands of random transactions on the engine `postgres`, and whether their results are possible.

mod checker;
mod generate;
mod order;
mod pace;
mod plants;
mod record;
mod session;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use dsql_local::Cluster;
use dsql_local::postgres::Postgres;
use tokio::sync::{Mutex, MutexGuard};
use tokio_postgres::{Client, NoTls};

use crate::harness::{config, connect};
use checker::{Verdict, check};
use generate::{Mix, run};
use order::Kind;
use record::{Act, History, Outcome, Transaction};

/// How long a statement may take beyond the delay of the machine, for each session that may go first. A wait
/// for a lock never ends.
const PATIENCE: Duration = Duration::from_millis(500);

const COMMON: Mix = Mix { sessions: 8, transactions: 2_000, keys: 20, sweeps: false };
const HOT: Mix = Mix { keys: 3, transactions: 400, ..COMMON };
const SWEEPS: Mix = Mix { keys: 4, transactions: 320, sweeps: true, ..COMMON };

/// One history at a time: sessions are to meet each other, not other tests.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

fn seed() -> u64 {
    std::env::var("FOREBAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(42)
}

/// A cluster, and the socket of its PostgreSQL.
fn cluster() -> (Cluster, PathBuf) {
    let mut directory = PathBuf::new();
    let cluster = Cluster::start_with(config(), |_, clock| {
        let postgres = Postgres::start(&config(), clock)?;
        postgres.directory().clone_into(&mut directory);
        Ok(postgres)
    });
    (cluster.unwrap(), directory)
}

async fn is_explained(name: &str, mix: Mix) {
    let _alone = alone().await;
    let (cluster, _) = cluster();
    let mut clients = Vec::new();
    for _ in 0..mix.sessions + 2 {
        clients.push(connect(&cluster).await);
    }
    let history = run(mix, seed(), clients).await;
    let verdict = check(&history, PATIENCE, mix.sessions);
    let counts = counts(&history, &verdict);
    println!("{name}: {counts}");
    assert!(
        verdict.violations.is_empty(),
        "{}\n{counts}\nseed {}; the same transactions, though not the same course: FOREBAY_SEED={} cargo test -p dsql-local --test it history::{name}",
        told(&history, &verdict),
        seed(),
        seed()
    );
    // Otherwise the test has shown little.
    let many = history.transactions.len();
    let ended = |outcome: &Outcome| history.transactions.iter().filter(|it| it.outcome == *outcome).count();
    for outcome in [Outcome::Committed, Outcome::Conflict, Outcome::RolledBack] {
        assert!(ended(&outcome) * 20 > many, "hardly any {outcome:?}: {counts}");
    }
    // On a busy machine more transactions overlap.
    assert!(verdict.open * 8 < many, "too much is left open: {counts}");
}

/// The anomalies and their transactions.
fn told(history: &History, verdict: &Verdict) -> String {
    let mut told = format!("{} violations:\n", verdict.violations.len());
    for violation in verdict.violations.iter().take(5) {
        writeln!(told, "{:?}: {}", violation.kind, violation.why).unwrap();
        let words: BTreeSet<&str> = violation.why.split([' ', ',', ';']).collect();
        for it in history.transactions.iter().filter(|it| words.contains(it.name.as_str())) {
            let Transaction { name, acts, snapshot, end, outcome, .. } = it;
            writeln!(told, "  {name}: {outcome:?}, {snapshot:?}, end {end:?}, {acts:?}").unwrap();
        }
    }
    told
}

fn counts(history: &History, verdict: &Verdict) -> String {
    let ended = |outcome: &Outcome| history.transactions.iter().filter(|it| it.outcome == *outcome).count();
    let acts = |kind: fn(&Act) -> bool| {
        history.transactions.iter().flat_map(|transaction| &transaction.acts).filter(|act| kind(act)).count()
    };
    let slowest = history.transactions.iter().map(|transaction| transaction.slowest).max();
    format!(
        "{} committed, {} conflicts, {} rolled back; {} reads, {} locks, {} writes; slowest statement {:?}, bystander {:?}; {} left open",
        ended(&Outcome::Committed),
        ended(&Outcome::Conflict),
        ended(&Outcome::RolledBack),
        acts(|act| matches!(act, Act::Read(..))),
        acts(|act| matches!(act, Act::Lock(..))),
        acts(|act| matches!(act, Act::Write { .. })),
        slowest.unwrap_or_default(),
        history.bystander,
        verdict.open,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_transactions_are_snapshot_isolated() {
    is_explained("random_transactions_are_snapshot_isolated", COMMON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_rows_are_snapshot_isolated() {
    is_explained("hot_rows_are_snapshot_isolated", HOT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_in_opposite_orders_are_snapshot_isolated() {
    is_explained("rows_in_opposite_orders_are_snapshot_isolated", SWEEPS).await;
}

/// The checker does find anomalies: the same sessions on a plain PostgreSQL at read committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_committed_is_rejected() {
    let _alone = alone().await;
    let (_cluster, directory) = cluster();
    let mix = Mix { transactions: 320, ..COMMON };
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..mix.sessions + 2 {
        let mut options = tokio_postgres::Config::new();
        options
            .host_path(&directory)
            .user(Postgres::SUPERUSER)
            .dbname("postgres")
            .options("-c lock_timeout=0");
        let (client, connection) = options.connect(NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        clients.push(client);
    }
    let history = run(mix, seed(), clients).await;
    let verdict = check(&history, PATIENCE, mix.sessions);
    let kinds: BTreeSet<Kind> = verdict.violations.iter().map(|violation| violation.kind).collect();
    assert!(kinds.contains(&Kind::NonRepeatableRead), "{}", told(&history, &verdict));
}
