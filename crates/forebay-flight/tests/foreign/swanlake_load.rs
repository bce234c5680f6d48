//! Mixed load on a real SwanLake: reads, writes, transactions, timeouts, temporary tables, settings, and two `kill -9` of
//! the server. No write is lost or doubled, no caller is locked out, and the server's sessions stay within the
//! pool's.
//!
//! `SWANLAKE_LOAD_SECONDS` is how long it runs (default 20), `SWANLAKE_LOAD_CALLERS` how many callers it has
//! (default 16). The server is killed only if `SWANLAKE_PID_FILE` names the file with its process id, and whoever
//! made that file starts it again.

#![allow(clippy::disallowed_methods, reason = "other people's servers keep real time")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use forebay_flight::{AsyncFlightSQLPool, Error, PoolConfig, QueryOptions, Result};

use super::pause;
use super::swanlake::{SwanLake, numbers, pool, preset, sleep};

const POOL_SIZE: usize = 16;
const BUDGET: usize = 32;
/// The longest that a caller may go without an answer other than an error, except while the server is down.
const LOCKED_OUT: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Ledger {
    acknowledged: BTreeSet<i64>,
    unknown: BTreeSet<i64>,
    not_executed: BTreeSet<i64>,
    done: BTreeMap<&'static str, usize>,
    errors: BTreeMap<String, usize>,
    longest_gap: Duration,
}

impl Ledger {
    fn merge(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.unknown.extend(other.unknown);
        self.not_executed.extend(other.not_executed);
        for (what, count) in other.done {
            *self.done.entry(what).or_default() += count;
        }
        for (what, count) in other.errors {
            *self.errors.entry(what).or_default() += count;
        }
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }
}

struct Load {
    pool: AsyncFlightSQLPool,
    /// A table of whole numbers for what callers write, and one of 1 to 1,000 to read.
    written: String,
    read: String,
    next: AtomicI64,
    until: Instant,
}

impl Load {
    async fn read(&self) -> Result<()> {
        let result = self.pool.query(&format!("SELECT count(*) FROM {} WHERE a > 500", self.read)).await?;
        assert_eq!(result.row_count(), 1);
        Ok(())
    }

    async fn write(&self, id: i64, how: usize) -> Result<()> {
        let insert = format!("INSERT INTO {} VALUES ({id})", self.written);
        match how % 3 {
            0 => self.pool.update(&insert).await.map(drop),
            1 => {
                let sql = format!("INSERT INTO {} VALUES (?)", self.written);
                self.pool.update_with_record_batch(&sql, numbers([id])).await.map(drop)
            }
            _ => {
                let mut session = self.pool.acquire_session().await?;
                let mut transaction = session.begin().await?;
                transaction.update(&insert).await?;
                transaction.commit().await
            }
        }
    }

    async fn temporary(&self) -> Result<()> {
        let mut session = self.pool.acquire_session().await?;
        session.update("CREATE TEMP TABLE mine AS SELECT 1 AS a").await?;
        let rows = session.query("SELECT a FROM mine").await?.row_count();
        assert_eq!(rows, 1);
        Ok(())
    }

    async fn setting(&self) -> Result<()> {
        let mut session = self.pool.acquire_session().await?;
        let changed = session.query("SELECT current_setting('default_null_order')").await?;
        let before = changed.batches()[0].column(0).as_string::<i32>().value(0).to_lowercase();
        assert!(before.contains("last"), "the setting of another caller: {before}");
        session.update("SET default_null_order = 'nulls_first'").await.map(drop)
    }

    /// Half of them end in time.
    async fn slow(&self, number: usize) -> Result<()> {
        let (seconds, limit) = if number.is_multiple_of(2) { (0.1, 5_000) } else { (1.5, 200) };
        let options = QueryOptions::new().with_timeout_ms(limit);
        match self.pool.query_with_options(&sleep(seconds), options).await {
            Err(Error::QueryTimeout { .. }) if limit == 200 => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    async fn caller(&self, number: usize) -> Ledger {
        let mut ledger = Ledger::default();
        let mut last_answer = Instant::now();
        for round in number * 7.. {
            if Instant::now() >= self.until {
                break;
            }
            let (what, outcome) = match round % 20 {
                3 | 8 | 13 => {
                    let id = self.next.fetch_add(1, Ordering::Relaxed);
                    let outcome = self.write(id, round / 5).await;
                    match &outcome {
                        Ok(()) => ledger.acknowledged.insert(id),
                        Err(error) if error.is_not_executed() => ledger.not_executed.insert(id),
                        Err(_) => ledger.unknown.insert(id),
                    };
                    ("write", outcome)
                }
                5 => ("temporary table", self.temporary().await),
                15 => ("setting", self.setting().await),
                17 if round % 40 == 17 => ("slow", self.slow(round / 40).await),
                _ => ("read", self.read().await),
            };
            match outcome {
                Ok(()) => {
                    *ledger.done.entry(what).or_default() += 1;
                    ledger.longest_gap = ledger.longest_gap.max(last_answer.elapsed());
                    last_answer = Instant::now();
                }
                Err(error) => {
                    *ledger.errors.entry(kind(what, &error)).or_default() += 1;
                    pause(Duration::from_millis(20)).await;
                }
            }
        }
        ledger.longest_gap = ledger.longest_gap.max(last_answer.elapsed());
        ledger
    }
}

/// The error without its numbers, to count those of a kind.
fn kind(what: &str, error: &Error) -> String {
    let text: String =
        error.to_string().chars().filter(|letter| !letter.is_ascii_digit()).take(160).collect();
    format!("{what}: {text}")
}

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |value| value.parse().expect("a whole number"))
}

fn kill_server(file: &str) {
    let id = std::fs::read_to_string(file).unwrap();
    println!("swanlake: load: kill -9 {}", id.trim());
    assert!(Command::new("kill").args(["-9", id.trim()]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swanlake_mixed_load_loses_nothing() {
    let Some(server) = SwanLake::find().await else { return };
    let seconds = setting("SWANLAKE_LOAD_SECONDS", 20);
    let callers = usize::try_from(setting("SWANLAKE_LOAD_CALLERS", 16)).unwrap();
    let before = server.sessions();
    let config = PoolConfig { session_budget: Some(BUDGET), ..preset(POOL_SIZE) };
    let pool = pool(&server, config).await;
    let read = server.table("a BIGINT").await;
    pool.update(&format!("INSERT INTO {read} SELECT * FROM range(1, 1001)")).await.unwrap();
    let begun = Instant::now();
    let load = Arc::new(Load {
        pool: pool.clone(),
        written: server.table("a BIGINT").await,
        read,
        next: AtomicI64::new(1),
        until: begun + Duration::from_secs(seconds),
    });
    let (most, most_said) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let running: Vec<_> = (0..callers)
        .map(|number| {
            let load = Arc::clone(&load);
            tokio::spawn(async move { load.caller(number).await })
        })
        .collect();

    let pid_file = env::var("SWANLAKE_PID_FILE").ok();
    let mut kills = pid_file.iter().flat_map(|file| [(seconds / 3, file), (seconds * 2 / 3, file)]);
    let mut next_kill = kills.next();
    // What others have is gone after a kill.
    let mut others = before;
    let mut last_report = Instant::now();
    while Instant::now() < load.until {
        pause(Duration::from_millis(250)).await;
        if let Some((at, file)) = next_kill
            && begun.elapsed() >= Duration::from_secs(at)
        {
            kill_server(file);
            (others, next_kill) = (0, kills.next());
        }
        let said = pool.status().sessions;
        most_said.fetch_max(said, Ordering::Relaxed);
        if let Some(sessions) = server.try_sessions() {
            most.fetch_max(sessions.saturating_sub(others), Ordering::Relaxed);
            if last_report.elapsed() > Duration::from_secs(30) {
                last_report = Instant::now();
                println!(
                    "swanlake: load: {:?}: the server has {} sessions, {:?}",
                    begun.elapsed(),
                    sessions.saturating_sub(others),
                    pool.status()
                );
            }
        }
    }
    let mut all = Ledger::default();
    for caller in running {
        all.merge(caller.await.unwrap());
    }
    let elapsed = begun.elapsed();
    // What was given up may still run.
    pause(Duration::from_secs(5)).await;
    server.reconnect().await;
    let mut stored: BTreeMap<i64, usize> = BTreeMap::new();
    for id in server.integers(&format!("SELECT a FROM {}", load.written)).await {
        *stored.entry(id).or_default() += 1;
    }
    let doubled: Vec<_> = stored.iter().filter(|(_, count)| **count > 1).collect();
    let lost: Vec<_> = all.acknowledged.iter().filter(|id| !stored.contains_key(id)).collect();
    let ghosts: Vec<_> = all.not_executed.iter().filter(|id| stored.contains_key(id)).collect();
    let done: usize = all.done.values().sum();
    let (most, most_said) = (most.load(Ordering::Relaxed), most_said.load(Ordering::Relaxed));
    println!(
        "swanlake: load: {elapsed:?}, {callers} callers, {:.0} statements a second: {:?}",
        done as f64 / elapsed.as_secs_f64(),
        all.done
    );
    println!(
        "swanlake: load: {} writes acknowledged, {} unknown, {} not executed; {} stored; lost {lost:?}, doubled {doubled:?}, stored in spite of `not executed` {ghosts:?}",
        all.acknowledged.len(),
        all.unknown.len(),
        all.not_executed.len(),
        stored.len()
    );
    println!(
        "swanlake: load: at most {most} sessions on the server, {most_said} by the pool's count; the longest a caller waited {:?}; errors {:#?}",
        all.longest_gap, all.errors
    );
    let after = pool.query("SELECT 1").await;
    pool.drain(Duration::from_secs(10)).await;
    assert!(lost.is_empty() && doubled.is_empty() && ghosts.is_empty());
    assert!(most <= POOL_SIZE + BUDGET, "{most} sessions");
    assert!(all.longest_gap < LOCKED_OUT, "a caller waited {:?}", all.longest_gap);
    assert!(after.is_ok(), "{after:?}");
}

/// How many statements a second 16 callers get: reads without a table, reads of DuckLake, and those with three
/// writes in twenty statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swanlake_throughput() {
    let Some(server) = SwanLake::find().await else { return };
    let callers = usize::try_from(setting("SWANLAKE_LOAD_CALLERS", 16)).unwrap();
    let seconds = setting("SWANLAKE_THROUGHPUT_SECONDS", 3);
    let pool = pool(&server, preset(POOL_SIZE)).await;
    let read = server.table("a BIGINT").await;
    pool.update(&format!("INSERT INTO {read} SELECT * FROM range(1, 1001)")).await.unwrap();
    // All sessions are open before the first measurement.
    let mut held = Vec::new();
    for _ in 0..POOL_SIZE {
        held.push(pool.acquire_session().await.unwrap());
    }
    drop(held);
    for (name, writes, small) in
        [("small reads", 0, true), ("DuckLake reads", 0, false), ("DuckLake reads and writes", 3, false)]
    {
        let begun = Instant::now();
        let load = Arc::new(Load {
            pool: pool.clone(),
            written: server.table("a BIGINT").await,
            read: read.clone(),
            next: AtomicI64::new(1),
            until: begun + Duration::from_secs(seconds),
        });
        let run = |number: usize| {
            let load = Arc::clone(&load);
            tokio::spawn(async move {
                let mut done = 0_usize;
                for round in number.. {
                    if Instant::now() >= load.until {
                        break;
                    }
                    if round % 20 < writes {
                        load.write(load.next.fetch_add(1, Ordering::Relaxed), 0).await.unwrap();
                    } else if small {
                        load.pool.query("SELECT 42 AS a").await.unwrap();
                    } else {
                        load.read().await.unwrap();
                    }
                    done += 1;
                }
                done
            })
        };
        let mut done = 0;
        for caller in (0..callers).map(run).collect::<Vec<_>>() {
            done += caller.await.unwrap();
        }
        println!(
            "swanlake: throughput: {name}: {:.0} a second, {callers} callers",
            done as f64 / begun.elapsed().as_secs_f64()
        );
        assert!(done > 0);
    }
    pool.drain(Duration::from_secs(5)).await;
}
