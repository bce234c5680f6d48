//! Real processes that share one budget: each is this program again, with a reservoir of connections to one local Aurora DSQL
//! and its leases in one DynamoDB, and any of them is killed at any time.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use forebay::{Rng, Seed};
use forebay_fleet::operator::Survey;

use crate::checkout::progress;
use crate::clock::{self, Stopwatch};
use crate::report::{Bound, Report};

mod crew;
mod stage;
mod worker;

use crew::Crew;
use stage::Stage;
pub use worker::work;

/// Processes.
const PROCESSES: usize = 8;
/// Connections that all of them may hold together, and each for itself: if nobody is killed, there are enough for all.
const LIMIT: u64 = 200;
const EACH: usize = 25;

/// How long processes are killed, and how long the fleet believes a silent one.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// For so long one is killed now and then.
    pub lasting: Duration,
    /// How often an instance says that it lives.
    pub beat: Duration,
    /// How long it is believed.
    pub lease: Duration,
}

impl Plan {
    /// Three minutes of kills.
    pub const LONG: Self = Self {
        lasting: Duration::from_secs(180),
        beat: Duration::from_secs(2),
        lease: Duration::from_secs(10),
    };
    /// The same in half a minute, most of which is spent on leases that have to run out.
    pub const SHORT: Self =
        Self { lasting: Duration::from_secs(8), beat: Duration::from_secs(1), lease: Duration::from_secs(6) };

    /// Within so long the slots of the dead are free again, also where nearly all die at once: a lease and two beats. The rest is for a
    /// busy machine.
    fn reaped_within(&self) -> Duration {
        self.lease + self.beat * 5 + Duration::from_secs(1)
    }
}

/// Runs them, and adds what came of it to `report`.
///
/// # Errors
/// If a server or a process cannot be started.
pub fn show(report: &mut Report, plan: Plan) -> anyhow::Result<()> {
    progress("real processes, killed at random");
    let stage = Stage::start(plan)?;
    stage.run(play(report, &stage, plan))
}

async fn play(report: &mut Report, stage: &Stage, plan: Plan) -> anyhow::Result<()> {
    let name =
        format!("{PROCESSES} processes, kill -9 at random for {}", forebay::duration::show(plan.lasting));
    let mut crew = Crew::new(stage, plan);
    let mut rng = Seed::new(stage.entropy()).fork("kills").rng();

    let kills = storm(&mut crew, plan, &mut rng).await?;
    crew.start_all()?;
    let settled = crew
        .wait_for(plan.reaped_within() * 2, async |crew| {
            Ok(crew.is_serving() && strangers(&stage.survey().await?, &crew.instances()) == 0)
        })
        .await?;
    let (at_rest, instances) = (stage.survey().await?, crew.instances());
    let inexact = inexact(&at_rest) + strangers(&at_rest, &instances);

    // All but one at once; and then one more that is alone in a shard: nobody who beats there sees that it is silent.
    crew.kill_all_but_first()?;
    let freed = crew
        .wait_for(plan.reaped_within(), async |crew| {
            Ok(strangers(&stage.survey().await?, &crew.instances()) == 0)
        })
        .await?;
    crew.start(1)?;
    ensure!(
        crew.wait_for(plan.reaped_within() * 2, async |crew| Ok(crew.is_serving())).await?.is_some(),
        "a process that started alone did not come to serve"
    );
    let alone = is_alone(&stage.survey().await?, &crew.instances_of(1));
    crew.kill(1)?;
    let lone_freed = crew
        .wait_for(plan.reaped_within(), async |crew| {
            Ok(strangers(&stage.survey().await?, &crew.instances()) == 0)
        })
        .await?;
    let ended = crew.end().await?;
    let last = stage.survey().await?;

    let counters = stage.counters();
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let number = |count: u64| count as f64;
    let stuck = crew.stuck() + u64::from(settled.is_none()) + u64::from(!ended);
    report.goal(
        format!("{name}: connections at the server at once, of a fleet's limit of {LIMIT}"),
        number(counters.live_high_water),
        Bound::AtMost(number(LIMIT)),
        "connections",
    );
    report.goal(
        format!("{name}: slots that do not add up, or are nobody's, at the end"),
        number(inexact + u64::from(last.totals() != (0, LIMIT)) + self::inexact(&last)),
        Bound::AtMost(0.0),
        "slots",
    );
    report.goal(format!("{name}: processes stuck"), number(stuck), Bound::AtMost(0.0), "processes");
    let seconds = |took: Option<Duration>| took.map(|took| took.as_secs_f64());
    let bound = Bound::AtMost(plan.reaped_within().as_secs_f64());
    report.goal(
        format!("{name}: the slots of seven killed at once are free after"),
        seconds(freed),
        bound,
        "s",
    );
    report.goal(
        format!("{name}: those of one alone in its shard are free after"),
        seconds(lone_freed).filter(|_| alone),
        bound,
        "s",
    );
    report.note(format!(
        "{name}: {kills} kills, {} connects, {} statements; a lease of {}, a beat of {}",
        counters.accepted,
        counters.statements,
        forebay::duration::show(plan.lease),
        forebay::duration::show(plan.beat),
    ));
    Ok(())
}

/// Kills one after the other at random, and starts each again after a while: at once, or when it has been taken for dead.
async fn storm(crew: &mut Crew<'_>, plan: Plan, rng: &mut Rng) -> anyhow::Result<u64> {
    let between = plan.lease / 8;
    crew.start_all()?;
    let watch = Stopwatch::start();
    let (mut kills, mut next) = (0, plan.beat * 2);
    while watch.elapsed() < plan.lasting {
        clock::pause(Duration::from_millis(50)).await;
        crew.look()?;
        if watch.elapsed() < next {
            continue;
        }
        let which = usize::try_from(rng.below(PROCESSES as u64)).context("a small number")?;
        if crew.kill_for(which, rng.up_to(plan.lease * 3 / 2))? {
            kills += 1;
        }
        next = watch.elapsed() + rng.up_to(between * 2);
    }
    Ok(kills)
}

/// Slots by which a shard is off.
fn inexact(survey: &Survey) -> u64 {
    survey.shards.iter().map(|(_, shard)| shard.drift.unsigned_abs()).sum()
}

/// Slots of instances that are not among those that live.
fn strangers(survey: &Survey, alive: &BTreeSet<String>) -> u64 {
    survey.instances.iter().filter(|entry| !alive.contains(&entry.instance)).map(|entry| entry.slots).sum()
}

/// Whether one of these instances is alone in a shard.
fn is_alone(survey: &Survey, instances: &BTreeSet<String>) -> bool {
    let neighbours = |shard: u8| survey.instances.iter().filter(|entry| entry.shard == shard).count();
    let mut ours = survey.instances.iter().filter(|entry| instances.contains(&entry.instance));
    ours.any(|entry| neighbours(entry.shard) == 1)
}
