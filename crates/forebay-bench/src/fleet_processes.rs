//! Real processes that share one budget: each is this program again, with a reservoir of connections to one
//! local Aurora DSQL and its leases in one DynamoDB. Any of them is killed at any time.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use forebay::rt::Runtime as _;
use forebay::{Rng, Seed};
use forebay_fleet::operator::Survey;

use crate::clock::{self, Stopwatch};
use crate::report::Report;
use crate::section::progress;

mod servers;
mod worker;
mod workers;

use servers::Servers;
pub(crate) use worker::work;
use workers::Workers;

const PROCESSES: usize = 8;
/// Connections that all processes may hold together, and each of them: if none is killed, all have enough.
const LIMIT: u64 = 200;
const EACH: usize = 25;

/// How long processes are killed, and when the fleet takes a silent one for dead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How long processes are killed at random.
    lasting: Duration,
    /// The time between two heartbeats of an instance.
    heartbeat: Duration,
    /// How long an instance may miss its heartbeat before it counts as dead.
    lease: Duration,
}

impl Plan {
    /// Three minutes of kills.
    pub(crate) const LONG: Self = Self {
        lasting: Duration::from_secs(180),
        heartbeat: Duration::from_secs(2),
        lease: Duration::from_secs(10),
    };
    /// The same in half a minute, most of it spent waiting for leases to expire.
    pub(crate) const SHORT: Self = Self {
        lasting: Duration::from_secs(8),
        heartbeat: Duration::from_secs(1),
        lease: Duration::from_secs(6),
    };

    /// The slots of dead instances are free again within a lease and two heartbeats, even where nearly all
    /// die at once. The rest is for a busy machine.
    fn reaped_within(&self) -> Duration {
        self.lease + self.heartbeat * 5 + Duration::from_secs(1)
    }
}

/// Runs the processes, and adds the goals to `report`.
pub(crate) fn measure(report: &mut Report, plan: Plan) -> anyhow::Result<()> {
    progress("real processes, killed at random");
    let servers = Servers::start(plan)?;
    servers.dynamo.run(kill_and_watch(report, &servers, plan))
}

async fn kill_and_watch(report: &mut Report, servers: &Servers, plan: Plan) -> anyhow::Result<()> {
    let name =
        format!("{PROCESSES} processes, kill -9 at random for {}", forebay::duration::show(plan.lasting));
    let mut workers = Workers::new(servers, plan);
    let is_freed = async |workers: &Workers<'_>| -> anyhow::Result<bool> {
        Ok(slots_of_dead(&servers.survey().await?, &workers.instances()) == 0)
    };
    let mut rng = Seed::new(servers.dynamo.clock().entropy()).fork("kills").rng();

    let kills = kill_at_random(&mut workers, plan, &mut rng).await?;
    workers.start_all()?;
    let settled = workers
        .wait_for(plan.reaped_within() * 2, async |workers| {
            Ok(workers.is_serving() && is_freed(workers).await?)
        })
        .await?;
    let (at_rest, instances) = (servers.survey().await?, workers.instances());
    let inexact = inexact(&at_rest) + slots_of_dead(&at_rest, &instances);

    // Kill all but one at once. Then kill one that is alone in its shard: no neighbour there misses its
    // heartbeat.
    workers.kill_all_but_first()?;
    let freed = workers.wait_for(plan.reaped_within(), &is_freed).await?;
    workers.start(1)?;
    ensure!(
        workers.wait_for(plan.reaped_within() * 2, async |workers| Ok(workers.is_serving())).await?.is_some(),
        "a process that started alone served no caller"
    );
    let alone = is_alone(&servers.survey().await?, &workers.instances_of(1));
    workers.kill(1)?;
    let lone_freed = workers.wait_for(plan.reaped_within(), &is_freed).await?;
    let ended = workers.end().await?;
    let last = servers.survey().await?;

    let counters = servers.cluster.counters();
    let stuck = workers.stuck + u64::from(settled.is_none()) + u64::from(!ended);
    let goal = format!("{name}: connections at the server at once, of a fleet's limit of {LIMIT}");
    report.at_most(goal, counters.live_high_water, LIMIT as f64, "connections");
    let goal = format!("{name}: slots that do not add up, or belong to no instance, at the end");
    let lost = inexact + u64::from(last.totals() != (0, LIMIT)) + self::inexact(&last);
    report.at_most(goal, lost, 0.0, "slots");
    report.at_most(format!("{name}: processes stuck"), stuck, 0.0, "processes");
    let seconds = |took: Option<Duration>| took.map(|took| took.as_secs_f64());
    let bound = plan.reaped_within().as_secs_f64();
    let goal = format!("{name}: the slots of seven killed at once are free after");
    report.at_most(goal, seconds(freed), bound, "s");
    let goal = format!("{name}: those of one alone in its shard are free after");
    report.at_most(goal, seconds(lone_freed).filter(|_| alone), bound, "s");
    report.note(format!(
        "{name}: {kills} kills, {} connects, {} statements; a lease of {}, a heartbeat of {}",
        counters.accepted,
        counters.statements,
        forebay::duration::show(plan.lease),
        forebay::duration::show(plan.heartbeat),
    ));
    Ok(())
}

/// Kills one process after another at random, and starts each again: at once, or after the fleet took it for
/// dead.
async fn kill_at_random(workers: &mut Workers<'_>, plan: Plan, rng: &mut Rng) -> anyhow::Result<u64> {
    let between = plan.lease / 8;
    workers.start_all()?;
    let watch = Stopwatch::start();
    let (mut kills, mut next) = (0, plan.heartbeat * 2);
    while watch.elapsed() < plan.lasting {
        clock::pause(Duration::from_millis(50)).await;
        workers.check()?;
        if watch.elapsed() < next {
            continue;
        }
        let which = usize::try_from(rng.below(PROCESSES as u64)).context("a small number")?;
        if workers.kill_for(which, rng.up_to(plan.lease * 3 / 2))? {
            kills += 1;
        }
        next = watch.elapsed() + rng.up_to(between * 2);
    }
    Ok(kills)
}

/// Slots by which the shards are off.
fn inexact(survey: &Survey) -> u64 {
    survey.shards.iter().map(|(_, shard)| shard.drift.unsigned_abs()).sum()
}

/// Slots of instances that are not alive.
fn slots_of_dead(survey: &Survey, alive: &BTreeSet<String>) -> u64 {
    survey.instances.iter().filter(|entry| !alive.contains(&entry.instance)).map(|entry| entry.slots).sum()
}

/// Whether one of these instances is alone in a shard.
fn is_alone(survey: &Survey, instances: &BTreeSet<String>) -> bool {
    let neighbours = |shard: u8| survey.instances.iter().filter(|entry| entry.shard == shard).count();
    let mut ours = survey.instances.iter().filter(|entry| instances.contains(&entry.instance));
    ours.any(|entry| neighbours(entry.shard) == 1)
}
