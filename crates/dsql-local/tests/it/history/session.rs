//! A session that runs random transactions over a few rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::generate::Shared;
use super::record::{Act, Key, Outcome, Transaction, Version, Window};

pub(super) type Rows = Vec<(Option<i64>, Option<i64>)>;

pub(super) struct Session {
    name: String,
    client: Client,
    shared: Arc<Shared>,
    chance: Xoshiro256PlusPlus,
    number: usize,
}

struct Running {
    acts: Vec<Act>,
    snapshot: Option<Window>,
    slowest: Duration,
    failure: Option<String>,
}

impl Session {
    pub(super) fn new(name: &str, client: Client, shared: Arc<Shared>, seed: u64) -> Self {
        let chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { name: name.to_owned(), client, shared, chance, number: 0 }
    }

    pub(super) async fn all(mut self, session: usize) -> Vec<Transaction> {
        let shared = self.shared.clone();
        let mut transactions = Vec::new();
        for number in 1..=shared.mix.transactions / shared.mix.sessions {
            shared.pace.keep(session).await;
            let alone = !self.shared.mix.sweeps && self.one_in(6);
            let transaction = if alone { self.statement().await } else { self.transaction().await };
            transactions.push(transaction);
            shared.pace.done(session, number);
        }
        shared.pace.done(session, u32::MAX);
        transactions
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.chance.next_u64() % bound
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn key(&mut self) -> Key {
        let keys = u64::try_from(self.shared.mix.keys).unwrap();
        i64::try_from(self.below(keys)).unwrap() + 1
    }

    /// A single statement, which is its own transaction.
    async fn statement(&mut self) -> Transaction {
        let (key, version, keys) = (self.key(), self.shared.version(), self.shared.mix.keys);
        let kind = self.below(5);
        let sql = match kind {
            0 => select(key),
            1 => ALL.to_owned(),
            2 => update(key, version),
            3 => delete(key),
            // It inserts nothing if the row exists; the version is not known.
            _ => format!(
                "INSERT INTO t (k, v) SELECT {key}, {version}
                 WHERE NOT EXISTS (SELECT FROM t WHERE k = {key}) RETURNING k, v"
            ),
        };
        let (rows, mut transaction) = self.autocommit(&sql).await;
        transaction.acts = match (rows, kind) {
            (None, 0 | 1) => Vec::new(),
            (None, _) => vec![Act::Attempt(key)],
            (Some(rows), 0) => vec![Act::Read(key, value(&rows))],
            (Some(rows), 1) => all(&rows, keys),
            (Some(rows), 2) => vec![updated(&rows, key, version)],
            (Some(rows), 3) => vec![deleted(&rows, key)],
            (Some(rows), _) => rows.iter().map(|_| insert(key, version)).collect(),
        };
        transaction
    }

    pub(super) async fn autocommit(&mut self, sql: &str) -> (Option<Rows>, Transaction) {
        let mut running = Running::new();
        let (answer, window) = self.ask(&mut running, sql).await;
        let (rows, outcome) = match answer {
            Ok(rows) => (Some(rows), Outcome::Committed),
            Err(error) => (None, conflict(&error)),
        };
        let transaction = self.record(running, window, outcome);
        (rows, transaction)
    }

    /// A transaction of several statements.
    async fn transaction(&mut self) -> Transaction {
        let mut running = Running::new();
        let (began, _) = self.ask(&mut running, "BEGIN").await;
        running.note(began);
        running.snapshot = None;
        if self.shared.mix.sweeps {
            self.sweep(&mut running).await;
        } else {
            for _ in 0..=self.below(6) {
                self.act(&mut running).await;
            }
        }
        let commit = running.failure.is_none() && !self.one_in(7);
        let (ended, window) = self.ask(&mut running, if commit { "COMMIT" } else { "ROLLBACK" }).await;
        let outcome = match (running.failure.take(), ended) {
            (Some(failure), _) => Outcome::Failed(failure),
            (None, Ok(_)) if commit => Outcome::Committed,
            (None, Ok(_)) => Outcome::RolledBack,
            (None, Err(error)) => conflict(&error),
        };
        self.record(running, window, outcome)
    }

    async fn act(&mut self, running: &mut Running) {
        let key = self.key();
        match self.below(20) {
            0..5 => drop(self.read(running, key).await),
            5..7 => {
                let keys = self.shared.mix.keys;
                self.step(running, ALL, |rows| all(rows, keys)).await;
            }
            7..14 => self.update(running, key).await,
            14..17 => {
                let sql = format!("{} FOR UPDATE", select(key));
                self.step(running, &sql, |rows| vec![Act::Lock(key, value(rows))]).await;
            }
            _ => match self.read(running, key).await {
                None => {
                    let version = self.shared.version();
                    let sql = format!("INSERT INTO t (k, v) VALUES ({key}, {version})");
                    self.step(running, &sql, |_| vec![insert(key, version)]).await;
                }
                Some(_) => self.step(running, &delete(key), |rows| vec![deleted(rows, key)]).await,
            },
        }
    }

    /// Changes several rows in ascending or descending order.
    async fn sweep(&mut self, running: &mut Running) {
        let keys = self.shared.mix.keys;
        let up = self.one_in(2);
        for key in 1..=keys {
            self.update(running, if up { key } else { keys + 1 - key }).await;
        }
    }

    async fn read(&mut self, running: &mut Running, key: Key) -> Option<Version> {
        let mut seen = None;
        self.step(running, &select(key), |rows| {
            seen = value(rows);
            vec![Act::Read(key, seen)]
        })
        .await;
        seen
    }

    async fn update(&mut self, running: &mut Running, key: Key) {
        let version = self.shared.version();
        self.step(running, &update(key, version), |rows| vec![updated(rows, key, version)]).await;
    }

    /// One statement of a transaction that has not failed.
    async fn step(&mut self, running: &mut Running, sql: &str, acts: impl FnOnce(&Rows) -> Vec<Act>) {
        if running.failure.is_none() {
            let (answer, _) = self.ask(running, sql).await;
            if let Some(rows) = running.note(answer) {
                running.acts.extend(acts(&rows));
            }
        }
    }

    async fn ask(&mut self, running: &mut Running, sql: &str) -> (Result<Rows, Error>, Window) {
        let (asked, after) = (Instant::now(), self.shared.count());
        let answer = self.client.simple_query(sql).await;
        let window = Window { after, before: self.shared.count() };
        running.slowest = running.slowest.max(asked.elapsed());
        running.snapshot = running.snapshot.or(Some(window));
        let number = |row: &tokio_postgres::SimpleQueryRow, column| row.get(column)?.parse().ok();
        let rows = answer.map(|messages| {
            let rows = messages.iter().filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some((number(row, 0), number(row, 1))),
                _ => None,
            });
            rows.collect()
        });
        (rows, window)
    }

    fn record(&mut self, running: Running, end: Window, outcome: Outcome) -> Transaction {
        self.number += 1;
        Transaction {
            name: format!("{}.{}", self.name, self.number),
            acts: running.acts,
            snapshot: running.snapshot.unwrap_or(end),
            end,
            outcome,
            slowest: running.slowest,
        }
    }
}

impl Running {
    fn new() -> Self {
        Self { acts: Vec::new(), snapshot: None, slowest: Duration::ZERO, failure: None }
    }

    fn note(&mut self, answer: Result<Rows, Error>) -> Option<Rows> {
        match answer {
            Ok(rows) => Some(rows),
            Err(error) => {
                self.failure = Some(format!("before its commit, with {}", said(&error)));
                None
            }
        }
    }
}

pub(super) const ALL: &str = "SELECT k, v FROM t";

fn select(key: Key) -> String {
    format!("SELECT k, v FROM t WHERE k = {key}")
}

/// The old version is kept in the row, because RETURNING has only the new one.
fn update(key: Key, version: Version) -> String {
    format!("UPDATE t SET old = v, v = {version} WHERE k = {key} RETURNING k, old")
}

fn delete(key: Key) -> String {
    format!("DELETE FROM t WHERE k = {key} RETURNING k, v")
}

fn value(rows: &Rows) -> Option<Version> {
    rows.first().and_then(|(_, version)| *version)
}

pub(super) fn all(rows: &Rows, keys: Key) -> Vec<Act> {
    let seen = |key| rows.iter().find(|(at, _)| *at == Some(key)).and_then(|(_, version)| *version);
    (1..=keys).map(|key| Act::Read(key, seen(key))).collect()
}

pub(super) fn insert(key: Key, version: Version) -> Act {
    Act::Write { key, replaced: None, made: Some(version) }
}

/// An update of no row is a read.
fn updated(rows: &Rows, key: Key, version: Version) -> Act {
    match value(rows) {
        None => Act::Read(key, None),
        replaced => Act::Write { key, replaced, made: Some(version) },
    }
}

fn deleted(rows: &Rows, key: Key) -> Act {
    match value(rows) {
        None => Act::Read(key, None),
        replaced => Act::Write { key, replaced, made: None },
    }
}

fn conflict(error: &Error) -> Outcome {
    let said = said(error);
    if said == "40001 change conflicts with another transaction (OC000)" {
        Outcome::Conflict
    } else {
        Outcome::Failed(said)
    }
}

fn said(error: &Error) -> String {
    error
        .as_db_error()
        .map_or_else(|| error.to_string(), |told| format!("{} {}", told.code().code(), told.message()))
}
