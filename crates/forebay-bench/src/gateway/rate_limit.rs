//! A thousand clients connect while others use up the server's rate of new connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dsql_local::EngineKind;
use tokio::runtime::Runtime;

use super::behind::Behind;
use super::client::{Connection, Failure};
use super::door::Door;
use super::forebay::Mode;
use super::{Arena, Settings, herd, wire};
use crate::clock;
use crate::report::Report;
use crate::section::progress;

/// Connections that the gateway wants, and what the server allows all its clients in a second.
const BACKENDS: u32 = 50;
const RATE: u32 = 2;
/// How long the rival has been there when the gateway starts, and its pause after each connect.
const HEAD_START: Duration = Duration::from_secs(8);
const RIVAL_PAUSE: Duration = Duration::from_millis(100);
/// The time between the arrivals of two clients.
const APART: Duration = Duration::from_millis(2);
/// How long a client of an elastic gateway is in its transaction.
const HOLDS: Duration = Duration::from_millis(20);
/// Who was overtaken by less than this was served in order: threads do not run to the millisecond.
const SLACK: u64 = 100_000_000;
/// The SQLSTATE of a server whose rate is exhausted.
const TOO_FAST: &str = "53400";

/// What became of a client.
#[derive(Debug)]
struct Outcome {
    /// When it asked, and when it was answered.
    asked: u64,
    answered: u64,
    failure: Option<Failure>,
    /// Whether a notice told it what it waits for.
    noticed: bool,
}

pub(super) fn measure(arena: &Arena, runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let behind = Behind::dsql(EngineKind::Builtin)?;
    let cluster = behind.cluster()?;
    for mode in [Mode::Elastic, Mode::Session] {
        let clients = arena.effort.rushing;
        let name = format!("{clients} clients while the rate limit is exhausted, {mode}");
        progress(&name);
        // The gateway's own limit is far above the server's, so that the server refuses it again and again.
        let variables = [
            ("DSQL_CONNECTION_RATE_LIMIT", "100"),
            ("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "100ms"),
            ("DSQL_RESERVOIR_ACQUIRE_TIMEOUT", "60s"),
        ];
        let settings = Settings { mode, backends: BACKENDS, variables: &variables, ..Settings::default() };
        runtime.block_on(cluster.limit_rate(RATE))?;
        let rival = Rival { door: behind.door()?, over: AtomicBool::new(false), connects: AtomicU64::new(0) };
        let (outcomes, refused) = std::thread::scope(|scope| {
            scope.spawn(|| rival.connect_again_and_again());
            clock::nap(HEAD_START);
            let found = rush(arena, settings, &behind, clients);
            rival.over.store(true, Ordering::Relaxed);
            let refused = runtime.block_on(cluster.refused())?;
            anyhow::Ok((found?, refused))
        })?;
        runtime.block_on(cluster.reset())?;
        add_goals(&name, &outcomes, report);
        report.note(format!(
            "{name}: the server refused {refused} connects of the gateway and of a rival, which made {}",
            rival.connects.load(Ordering::Relaxed)
        ));
    }
    Ok(())
}

/// Another client of the server, which takes every connection that the rate allows.
struct Rival {
    door: Door,
    over: AtomicBool,
    connects: AtomicU64,
}

impl Rival {
    fn connect_again_and_again(&self) {
        while !self.over.load(Ordering::Relaxed) {
            if Connection::open(&self.door).is_ok() {
                self.connects.fetch_add(1, Ordering::Relaxed);
            }
            clock::nap(RIVAL_PAUSE);
        }
    }
}

/// Starts the gateway, and all clients a little later.
fn rush(
    arena: &Arena,
    settings: Settings<'_>,
    behind: &Behind,
    clients: usize,
) -> anyhow::Result<Vec<Outcome>> {
    let gateway = arena.gateway(settings, behind)?;
    let clients: Vec<u32> = (0..u32::try_from(clients)?).collect();
    let over = AtomicU64::new(clients.len() as u64);
    Ok(herd::in_threads(clients, |number| {
        clock::nap(APART * number);
        let outcome = be_served(&gateway.door, settings.mode, &over);
        over.fetch_sub(1, Ordering::Relaxed);
        outcome
    }))
}

/// One client. In session mode it leaves after its statement, or the others would wait for it.
fn be_served(door: &Door, mode: Mode, waiting: &AtomicU64) -> Outcome {
    let mut outcome = Outcome { asked: clock::nanos(), answered: 0, failure: None, noticed: false };
    let mut ask = || -> Result<Connection, Failure> {
        let mut connection = Connection::open(door)?;
        outcome.asked = clock::nanos();
        connection.ask(&wire::query("BEGIN"))?;
        outcome.answered = clock::nanos();
        outcome.noticed = !connection.notices().is_empty();
        clock::nap(HOLDS);
        connection.ask(&wire::query("COMMIT"))?;
        Ok(connection)
    };
    match ask() {
        // It stays until all are served.
        Ok(connection) if mode == Mode::Elastic => {
            while waiting.load(Ordering::Relaxed) > 1 && clock::nanos() < outcome.answered + 1_000_000_000 {
                clock::nap(Duration::from_millis(100));
            }
            drop(connection);
        }
        Ok(connection) => drop(connection),
        Err(failure) => outcome.failure = Some(failure),
    }
    outcome
}

fn add_goals(name: &str, outcomes: &[Outcome], report: &mut Report) {
    let code = |outcome: &Outcome| match &outcome.failure {
        None => "served".to_owned(),
        Some(failure @ Failure::Server(_)) => format!("told {failure:?}", failure = failure.to_string()),
        Some(failure) => format!("not told: {failure}"),
    };
    let mut fates: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in outcomes {
        *fates.entry(code(outcome)).or_default() += 1;
    }
    let too_fast = outcomes
        .iter()
        .filter(|outcome| matches!(&outcome.failure, Some(Failure::Server(error)) if error.code == TOO_FAST));
    report.at_most(format!("{name}: clients that saw {TOO_FAST}"), too_fast.count(), 0.0, "clients");
    let untold =
        outcomes.iter().filter(|outcome| matches!(&outcome.failure, Some(Failure::Closed | Failure::Io(_))));
    report.at_most(format!("{name}: neither served nor told why"), untold.count(), 0.0, "clients");
    report.at_most(format!("{name}: overtaken"), overtaken(outcomes), 0.0, "clients");
    let mut waits: Vec<f64> = outcomes
        .iter()
        .filter(|outcome| outcome.failure.is_none())
        .map(|outcome| outcome.answered.saturating_sub(outcome.asked) as f64 / 1e6)
        .collect();
    waits.sort_by(f64::total_cmp);
    let fates: Vec<String> = fates.iter().map(|(fate, count)| format!("{count} {fate}")).collect();
    let noticed = outcomes.iter().filter(|outcome| outcome.noticed).count();
    report.note(format!(
        "{name}: {}; {noticed} got a notice while they waited; waits p50 {:.0} ms, longest {:.0} ms",
        fates.join(", "),
        waits.get(waits.len() / 2).unwrap_or(&0.0),
        waits.last().unwrap_or(&0.0),
    ));
}

/// Clients that asked clearly earlier than another one, and were served clearly later.
fn overtaken(outcomes: &[Outcome]) -> usize {
    let served: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.failure.is_none()).collect();
    let overtakes = |other: &Outcome, one: &Outcome| {
        one.asked + SLACK < other.asked && other.answered + SLACK < one.answered
    };
    served.iter().filter(|one| served.iter().any(|other| overtakes(other, one))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_served_long_after_a_later_one_is_overtaken() {
        let outcome = |asked: u64, answered: u64| Outcome {
            asked: asked * SLACK,
            answered: answered * SLACK,
            failure: None,
            noticed: false,
        };
        assert_eq!(overtaken(&[outcome(0, 10), outcome(5, 10), outcome(6, 11)]), 0);
        assert_eq!(overtaken(&[outcome(0, 20), outcome(5, 10), outcome(6, 11)]), 1);
    }
}
