//! The subcommand `temporal`: Temporal's stores under the load of a cluster, with connections from a reservoir, from standard mode,
//! from a plain pool, and from no pool at all.
//!
//! ```text
//!   turn            workers run workflows for some time; counts, and a look at what is stored
//!    ├ contestants  where connections come from
//!    ├ history_host   shards, executions, histories, transfer and timer tasks
//!    │  └ matching_host   task queues and their tasks
//!    └ verify       stored rows and acknowledged ones
//! ```

mod contestants;
mod history_host;
mod latencies;
mod matching_host;
mod outstanding;
mod turn;
mod verify;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use dsql_local::EngineKind;
use forebay::{Config, Lifetime};
use forebay_schema::Migrator;
use forebay_temporal::schema;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::runtime::Runtime;

use crate::cluster::Cluster;
use crate::race::{Figures, Lane, race};
use crate::report::{Report, Table};
use crate::section::{Selection, progress, runtime};
use contestants::{Contestant, Supply};
use latencies::millis;
use matching_host::QUEUES;
use turn::{Arena, Plan, Turn};

/// What is offered, of what fixed connections complete: a little more than the share that must be completed, since some workflows
/// are under way at the end.
const OFFERED: f64 = 0.92;
const SUSTAINED: f64 = 0.9;
/// The share of commits that the server fails with a conflict.
const INJECTED: f64 = 0.01;
/// The contestants whose connections are lent and replaced.
const POOLS: [Contestant; 3] = [Contestant::Reservoir, Contestant::Standard, Contestant::Plain];

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Offer this many workflows per second. Default: 0.92 of what fixed connections complete.
    #[arg(long, value_name = "N", value_parser = positive)]
    wps: Option<f64>,
    /// Shards of the cluster. Fenced transactions of one shard take turns.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(i32).range(1..=4096))]
    shards: i32,
    /// Workflows at once. Each contestant has as many connections.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=512))]
    workers: u16,
    #[command(flatten)]
    selection: Selection<Section>,
}

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// Workflows as fast as possible.
    Capacity,
    /// A load that fixed connections bear, while every connection is replaced.
    Sustained,
}

fn positive(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.001..=1e6).contains(rate));
    rate.ok_or_else(|| format!("'{text}' is not a number of workflows per second, such as 50"))
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Rounds in which every contestant runs as many workflows as it can, and how long each has.
    races: usize,
    race: Duration,
    /// Rounds in which workflows are offered at a rate, and how long each contestant serves them.
    rounds: usize,
    sustained: Duration,
    /// What comes before a turn is counted: statements are prepared, caches are filled.
    ramp: Duration,
}

impl Effort {
    /// For numbers that are published: a quarter of an hour.
    const FULL: Self = Self {
        races: 3,
        race: Duration::from_secs(6),
        rounds: 3,
        sustained: Duration::from_secs(60),
        ramp: Duration::from_secs(2),
    };

    /// For a first look: a minute.
    const QUICK: Self = Self {
        races: 1,
        race: Duration::from_secs(2),
        rounds: 1,
        sustained: Duration::from_secs(8),
        ramp: Duration::from_millis(500),
    };

    /// Lifetimes so short that every connection is replaced three times while workflows are offered, and no more often than with
    /// the same lifetimes in any pool.
    fn lifetime(&self) -> Lifetime {
        let base = self.sustained.mul_f64(0.25);
        Lifetime::new(base).jitter(base.mul_f64(0.2)).guard_window(base.mul_f64(0.05))
    }
}

pub(crate) fn run(load: &Load) -> anyhow::Result<Report> {
    let effort = if load.selection.quick { Effort::QUICK } else { Effort::FULL };
    let arena = Arena {
        cluster: Cluster::start(EngineKind::Postgres)?,
        metrics: PrometheusBuilder::new().install_recorder().context("installing the recorder of metrics")?,
        turns: AtomicU64::new(0),
    };
    progress("the set-up of the schema");
    runtime()?.block_on(set_up(&arena.cluster, load.shards))?;
    let mut report = load.selection.run("temporal", |section, runtime, report| match section {
        Section::Capacity => capacity(runtime, &arena, load, effort, report),
        Section::Sustained => sustained(runtime, &arena, load, effort, report),
    })?;
    report.note(format!(
        "{} shards, {} workers that run one workflow at a time each, and as many connections; {QUEUES} task \
         queues with one writer each. Fenced transactions of one shard take turns within the process. A \
         workflow has 6 fenced transactions (start, workflow task, activity, signal, timer, completion), a load \
         of the whole workflow, 2 tasks through a task queue, reads and deletes of its timer; after every 8 \
         workflows a shard deletes its transfer tasks and writes its row",
        load.shards, load.workers
    ));
    report.note(
        "all contestants use the same stores, the same retries (the default policy) and connections of the same \
         driver on one dsql-local with engine postgres, in a separate process on the same cores. deadpool opens \
         within an acquire, and checks age and state before it lends",
    );
    Ok(report)
}

/// Creates the tables, and the shards without an owner.
async fn set_up(cluster: &Cluster, shards: i32) -> anyhow::Result<()> {
    let pool = contestants::dsql(cluster, true, Config::default().max_open(4)).await?;
    Migrator::new(pool.clone(), schema::migrations()).hook(schema::hook("temporal")).setup().await?;
    let client = pool.acquire().await?;
    let insert = "INSERT INTO shards (shard_id, range_id, data, data_encoding) \
                  SELECT g, 0, ''::bytea, 'Proto3' FROM generate_series(0, $1 - 1) AS g";
    client.execute(insert, &[&shards]).await?;
    drop(client);
    pool.drain(Duration::from_secs(5)).await;
    Ok(())
}

fn plan(load: &Load, effort: Effort, contestant: Contestant) -> Plan {
    let supply = Supply { connections: usize::from(load.workers), lifetime: effort.lifetime() };
    Plan {
        contestant,
        shards: load.shards,
        supply,
        offered: None,
        lasting: effort.race,
        ramp: effort.ramp,
        injected: INJECTED,
    }
}

/// What every contestant completes at most: each worker starts the next workflow when the last is done.
fn capacity(
    runtime: &Runtime,
    arena: &Arena,
    load: &Load,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let measure = |plan: Plan| {
        move || {
            progress(&format!(
                "workflows as fast as possible: {}, {} shards",
                plan.contestant.name(),
                plan.shards
            ));
            let turn = runtime.block_on(arena.run(&plan))?;
            if let Some(error) = turn.error {
                anyhow::bail!("{} workflows failed: {error}", turn.failed);
            }
            Ok(turn.completed)
        }
    };
    let lanes = Contestant::ALL.map(|one| Lane::new(one.name(), measure(plan(load, effort, one))));
    let rows = race(effort.races, lanes.into())?;
    report.table("workflows completed, as fast as possible", "1/s", rows);

    let few = [("4 shards", 4), ("16 shards", 16)].into_iter().filter(|(_, shards)| *shards < load.shards);
    let lanes = few.map(|(name, shards)| {
        Lane::new(name, measure(Plan { shards, ..plan(load, effort, Contestant::Fixed) }))
    });
    let rows = race(effort.races, lanes.collect())?;
    report.table("the same with fewer shards, fixed connections", "1/s", rows);
    Ok(())
}

/// A load that fixed connections bear, for long enough that every connection is replaced.
fn sustained(
    runtime: &Runtime,
    arena: &Arena,
    load: &Load,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut rounds: Vec<(f64, f64, Vec<Turn>)> = Vec::new();
    for round in 0..effort.rounds {
        progress(&format!("fixed connections as fast as possible, before round {}", round + 1));
        let lasting = effort.sustained / 4;
        let fixed = Plan { lasting, ..plan(load, effort, Contestant::Fixed) };
        let fixed = runtime.block_on(arena.run(&fixed))?.completed;
        ensure!(fixed > 0.0, "fixed connections completed no workflow in {lasting:?}");
        let offered = load.wps.unwrap_or(fixed * OFFERED);
        let mut turns = Vec::new();
        for step in 0..POOLS.len() {
            let contestant = POOLS[(round + step) % POOLS.len()];
            progress(&format!(
                "{offered:.1} workflows per second: {}, round {}",
                contestant.name(),
                round + 1
            ));
            let plan = Plan {
                offered: Some(offered),
                lasting: effort.sustained,
                ramp: Duration::ZERO,
                ..plan(load, effort, contestant)
            };
            turns.push((contestant, runtime.block_on(arena.run(&plan))?));
        }
        turns.sort_by_key(|(contestant, _)| POOLS.iter().position(|one| one == contestant));
        rounds.push((fixed, offered, turns.into_iter().map(|(_, turn)| turn).collect()));
    }
    report_sustained(load, effort, &rounds, report)
}

/// The rounds of one contestant.
fn of(rounds: &[(f64, f64, Vec<Turn>)], contestant: Contestant) -> impl Iterator<Item = &Turn> + Clone {
    let at = POOLS.iter().position(|one| *one == contestant).unwrap_or(0);
    rounds.iter().map(move |(_, _, turns)| &turns[at])
}

fn report_sustained(
    load: &Load,
    effort: Effort,
    rounds: &[(f64, f64, Vec<Turn>)],
    report: &mut Report,
) -> anyhow::Result<()> {
    let seconds = effort.sustained.as_secs();
    let table = |name: &str, unit, value: &dyn Fn(&Turn) -> f64| {
        let row = |one: Contestant| Figures::of(one.name(), of(rounds, one).map(value).collect());
        let rows = POOLS.into_iter().map(row).collect::<anyhow::Result<_>>()?;
        anyhow::Ok(Table::new(format!("{seconds} s under load: {name}"), unit, rows))
    };

    // How much of the load.
    let fixed: Vec<f64> = rounds.iter().map(|(fixed, _, _)| *fixed).collect();
    let offered: Vec<f64> = rounds.iter().map(|(_, offered, _)| *offered).collect();
    let rate = |turn: &Turn| turn.completed;
    let mut completed = table("workflows completed", "1/s", &rate)?;
    completed.rows.push(Figures::of("offered", offered.clone())?);
    completed.rows.push(Figures::of("fixed connections, as fast as possible", fixed.clone())?);
    report.tables.push(completed);
    let (of_what, whole, least) = match load.wps {
        Some(_) => ("of the offered ones", &offered, 0.98),
        None => ("of what fixed connections complete", &fixed, SUSTAINED),
    };
    for contestant in [Contestant::Reservoir, Contestant::Standard] {
        let shares = of(rounds, contestant).zip(whole).map(|(turn, whole)| turn.completed / whole).collect();
        let name = format!("{seconds} s under load, {}: workflows, {of_what}", contestant.name());
        report.at_least(name, Figures::of(contestant.name(), shares)?.median, least, "times");
    }

    // Nothing fails, although every connection is replaced.
    let connections = f64::from(load.workers);
    let replaced = of(rounds, Contestant::Reservoir).map(|turn| turn.replaced as f64 / connections);
    let least = replaced.min_by(f64::total_cmp);
    report.at_least("the same, reservoir: every connection was replaced", least, 3.0, "times");
    for contestant in [Contestant::Reservoir, Contestant::Standard] {
        let sum = |value: fn(&Turn) -> u64| of(rounds, contestant).map(value).sum::<u64>();
        let name = contestant.name();
        let goal = format!("the same, {name}: failed checkouts, and workflows that failed");
        report.at_most(goal, sum(|turn| turn.failed_checkouts + turn.failed), 0.0, "failures");
        let natural = sum(|turn| turn.conflicts.saturating_sub(turn.injected_conflicts));
        let share = natural as f64 * 100.0 / sum(|turn| turn.commits) as f64;
        report.at_most(
            format!("the same, {name}: conflicts per commit, without injected ones"),
            share,
            1.0,
            "%",
        );
    }
    let differences: usize =
        POOLS.into_iter().flat_map(|one| of(rounds, one)).map(|turn| turn.differences).sum();
    report.at_most("the same, all: stored rows that are not as acknowledged", differences, 0.0, "rows");

    // Waits.
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("longest", 1.0)] {
        let wait = |turn: &Turn| millis(&turn.waits, quantile);
        let table = table(&format!("{name} wait for a connection"), "ms", &wait)?;
        if quantile == 0.99 || quantile == 1.0 {
            let goal = format!("the same: {name} wait for a connection, the reservoir's over deadpool's");
            let ratio = table.ratio(Contestant::Reservoir.name(), Contestant::Plain.name())?;
            report.at_most(goal, ratio, 1.0, "times");
        }
        report.tables.push(table);
    }

    // Operations.
    for contestant in POOLS {
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("longest", 1.0)] {
            let mut operations: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
            for turn in of(rounds, contestant) {
                for (operation, times) in &turn.latencies.0 {
                    operations.entry(operation).or_default().push(millis(times, quantile));
                }
            }
            let rows = operations.into_iter().map(|(operation, values)| Figures::of(operation, values));
            let rows = rows.collect::<anyhow::Result<_>>()?;
            report.table(format!("{}: {name} of operations, with retries", contestant.name()), "ms", rows);
        }
    }
    for contestant in POOLS {
        for (number, turn) in of(rounds, contestant).enumerate() {
            report.note(describe(contestant, number + 1, turn));
        }
    }
    Ok(())
}

fn describe(contestant: Contestant, round: usize, turn: &Turn) -> String {
    let operations = |counts: &BTreeMap<String, u64>| {
        let all: u64 = counts.values().sum();
        let each: Vec<String> =
            counts.iter().map(|(operation, count)| format!("{operation} {count}")).collect();
        format!("{all} ({})", each.join(", "))
    };
    let Turn { workflows, failed, commits, conflicts, injected_conflicts, replaced, .. } = turn;
    let empties = turn.empties.map_or_else(|| "not counted".to_owned(), |count| count.to_string());
    let slow = turn.waits.count_between(1_000_000, u64::MAX);
    let error = turn.error.as_deref().map_or_else(String::new, |error| format!("; the first error: {error}"));
    format!(
        "{}, round {round}: {workflows} workflows, {failed} failed; {commits} commits, {conflicts} conflicts at the server, of which \
         {injected_conflicts} were injected; conflicts {}; retries {}; {} acquires, {} failed, {slow} longer than 1 ms, \
         empties {empties}; {replaced} connections opened meanwhile{error}",
        contestant.name(),
        operations(&turn.conflicts_of),
        operations(&turn.retries_of),
        turn.waits.len(),
        turn.failed_checkouts,
    )
}
