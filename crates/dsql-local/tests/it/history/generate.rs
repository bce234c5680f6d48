//! Runs random transactions in several sessions and records them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::pace::Pace;
use super::record::{History, Key, Version};
use super::session::{ALL, Session, all, insert};

#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    pub(super) sessions: u32,
    pub(super) transactions: u32,
    pub(super) keys: Key,
    /// Each transaction changes some keys in ascending or descending order.
    pub(super) sweeps: bool,
}

/// What all sessions share.
pub(super) struct Shared {
    pub(super) mix: Mix,
    /// Counted before each request and after each answer, so that it orders them.
    count: AtomicU64,
    versions: AtomicI64,
    pub(super) pace: Pace,
    over: AtomicBool,
}

impl Shared {
    pub(super) fn count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn version(&self) -> Version {
        self.versions.fetch_add(1, Ordering::SeqCst)
    }
}

/// Creates the table, runs all sessions concurrently, and reads the final state.
pub(super) async fn run(mix: Mix, seed: u64, mut clients: Vec<Client>) -> History {
    let (bystander, setter) = (clients.pop().unwrap(), clients.pop().unwrap());
    let pace = Pace::of(clients.len());
    let (count, versions, over) = (AtomicU64::new(0), AtomicI64::new(1), AtomicBool::new(false));
    let shared = Arc::new(Shared { mix, count, versions, pace, over });
    setter.batch_execute("CREATE TABLE t (k bigint PRIMARY KEY, v bigint, old bigint)").await.unwrap();
    for client in clients.iter().chain([&bystander]) {
        // So that none of them gets OC001 for the new table.
        drop(client.simple_query("SELECT 1").await);
    }
    let mut setter = Session::new("first", setter, shared.clone(), seed);
    let rows = (1..=mix.keys).step_by(2).map(|key| (key, shared.version())).collect::<Vec<_>>();
    let values: Vec<_> = rows.iter().map(|(key, version)| format!("({key}, {version})")).collect();
    let mut first = setter.autocommit(&format!("INSERT INTO t (k, v) VALUES {}", values.join(", "))).await.1;
    first.acts = rows.iter().map(|(key, version)| insert(*key, *version)).collect();

    let pulse = tokio::spawn(pulse(bystander, shared.clone()));
    let mut sessions = Vec::new();
    for (number, client) in clients.into_iter().enumerate() {
        let fork = seed ^ (u64::try_from(number).unwrap() + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let session = Session::new(&format!("T{number}"), client, shared.clone(), fork);
        sessions.push(tokio::spawn(session.all(number)));
    }
    let mut history = History { transactions: vec![first], bystander: Duration::ZERO };
    for session in sessions {
        history.transactions.extend(session.await.unwrap());
    }
    shared.over.store(true, Ordering::SeqCst);
    history.bystander = pulse.await.unwrap();
    let (rows, mut last) = setter.autocommit(ALL).await;
    last.name = "the final state".to_owned();
    last.acts = all(&rows.unwrap(), mix.keys);
    history.transactions.push(last);
    history
}

/// Runs empty queries repeatedly, to measure the delay of the machine.
async fn pulse(client: Client, shared: Arc<Shared>) -> Duration {
    let mut slowest = Duration::ZERO;
    while !shared.over.load(Ordering::SeqCst) {
        let asked = Instant::now();
        client.simple_query("SELECT 1").await.unwrap();
        slowest = slowest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    slowest
}
