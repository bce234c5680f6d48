//! Connections to the server are replaced again and again, under clients with settings, prepared statements and transactions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dsql_local::EngineKind;
use hdrhistogram::Histogram;
use tokio::runtime::Runtime;

use super::behind::Behind;
use super::client::{Connection, Failure};
use super::door::Door;
use super::{Arena, Effort, Settings, herd, wire};
use crate::clock::{self, Stopwatch, whole_nanos};
use crate::race::{Figures, histogram};
use crate::report::Report;
use crate::section::progress;

const CLIENTS: usize = 200;
/// One for each client, and some that are ready to replace others.
const BACKENDS: u32 = 210;
/// Every so many turns is a transaction.
const TRANSACTIONS: u32 = 4;
/// It returns its parameter and two settings. Behind that comes which session of the server runs it.
const STATEMENT: &str =
    "SELECT $1::text, current_setting('search_path') || ' ' || current_setting('TimeZone'), ";

/// What clients do, and with which server behind.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// How the server calls the session that runs a statement.
    session: &'static str,
    /// How long a client pauses between two turns.
    pause: Duration,
    replacements: u64,
    lifetime: Duration,
}

/// What a client saw.
#[derive(Debug)]
struct Seen {
    /// Statements that are the first on another connection to the server, and all others.
    first: Histogram<u64>,
    others: Histogram<u64>,
    failures: BTreeMap<String, u64>,
    /// Answers that are not what one connection would have answered.
    wrong: u64,
    lost_settings: u64,
    /// Transactions whose statements ran in two sessions of the server.
    torn: u64,
}

impl Seen {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            first: histogram()?,
            others: histogram()?,
            failures: BTreeMap::new(),
            wrong: 0,
            lost_settings: 0,
            torn: 0,
        })
    }
}

/// What the clients share: when they end, and how often a connection was replaced.
#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    replaced: AtomicU64,
}

pub(super) fn measure(arena: &Arena, runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let Effort { replacements, lifetime, .. } = arena.effort;
    // The local Aurora DSQL needs most of both cores for these: they show that nothing is lost, not how long something takes.
    let name = format!("replacements under {CLIENTS} clients");
    progress(&name);
    let behind = Behind::dsql(EngineKind::Postgres)?;
    let pause = Duration::from_millis(200);
    let load = Load { session: "sys.current_session_id()", pause, replacements, lifetime };
    let seen = under(load, arena, &behind, &name, report)?;
    let opened = runtime.block_on(behind.cluster()?.count("accepted"))?;
    report.note(format!("{name}: the server had {opened} sessions"));
    add_goals(&seen, &name, replacements, report);
    add_times(&seen, &name, report)?;

    let name = format!("replacements under {CLIENTS} clients that ask once a second, PostgreSQL behind");
    progress(&name);
    let (pause, replacements) = (Duration::from_secs(1), replacements.min(1_000));
    let load = Load { session: "pg_backend_pid()::text", pause, replacements, lifetime };
    let seen = under(load, arena, arena.postgres()?, &name, report)?;
    add_goals(&seen, &name, replacements, report);
    add_times(&seen, &name, report)?;
    let others = millis(&seen.others, 0.99) + millis(&seen.others, 0.5);
    report.at_most(
        format!("{name}: p99 of the first statement after one, minus p99 of others and a round trip"),
        millis(&seen.first, 0.99) - others,
        1.0,
        "ms",
    );
    Ok(())
}

/// Replaces connections under clients.
fn under(
    load: Load,
    arena: &Arena,
    behind: &Behind,
    name: &str,
    report: &mut Report,
) -> anyhow::Result<Seen> {
    let lifetime = format!("{}ms", load.lifetime.as_millis());
    let jitter = format!("{}ms", load.lifetime.as_millis() / 3);
    let variables = [
        ("DSQL_RESERVOIR_BASE_LIFETIME", &*lifetime),
        ("DSQL_RESERVOIR_LIFETIME_JITTER", &*jitter),
        ("DSQL_RESERVOIR_GUARD_WINDOW", "1s"),
    ];
    let settings = Settings { backends: BACKENDS, variables: &variables, ..Settings::default() };
    let gateway = arena.gateway(settings, behind)?;
    let (shared, watch) = (Shared::default(), Stopwatch::start());
    // A rate of one for each client in each lifetime, and as much time again.
    let longest = load.lifetime.mul_f64(2.0 * (1.0 + load.replacements as f64 / CLIENTS as f64));
    let clients: Vec<usize> = (0..=CLIENTS).collect();
    let seen = herd::in_threads(clients, |number| {
        if number < CLIENTS {
            return use_it(&gateway.door, number, load, &shared).map(Some);
        }
        // The last one is not a client: it ends the others.
        while shared.replaced.load(Ordering::Relaxed) < load.replacements && watch.elapsed() < longest {
            clock::nap(Duration::from_millis(50));
        }
        shared.over.store(true, Ordering::Relaxed);
        Ok(None)
    });
    let seen = seen.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let took = watch.elapsed().as_secs_f64();
    let mut all = Seen::new()?;
    for one in seen.into_iter().flatten() {
        all.first.add(&one.first)?;
        all.others.add(&one.others)?;
        all.wrong += one.wrong;
        all.lost_settings += one.lost_settings;
        all.torn += one.torn;
        for (failure, count) in one.failures {
            *all.failures.entry(failure).or_default() += count;
        }
    }
    let replaced = all.first.len();
    let rate = replaced as f64 / took;
    let others = all.others.len();
    report.note(format!("{name}: {replaced} in {took:.0} s, {rate:.1} a second; {others} other statements"));
    for (failure, count) in all.failures.iter().take(5) {
        report.note(format!("{name}: {count} times {failure:?}"));
    }
    Ok(all)
}

fn millis(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1e6
}

fn add_goals(all: &Seen, name: &str, wanted: u64, report: &mut Report) {
    report.at_least(format!("{name}: how many"), all.first.len(), wanted as f64, "replacements");
    report.at_most(format!("{name}: failures"), all.failures.values().sum::<u64>(), 0.0, "failures");
    report.at_most(format!("{name}: lost settings"), all.lost_settings, 0.0, "settings");
    report.at_most(format!("{name}: wrong rows"), all.wrong, 0.0, "rows");
    report.at_most(format!("{name}: transactions in two sessions"), all.torn, 0.0, "transactions");
}

fn add_times(all: &Seen, name: &str, report: &mut Report) -> anyhow::Result<()> {
    for (quantile, share) in [("p50", 0.5), ("p99", 0.99), ("longest", 1.0)] {
        let rows = [("the first after a replacement", &all.first), ("others", &all.others)];
        let rows = rows.map(|(row, times)| Figures::of(row, vec![millis(times, share)]));
        let rows = rows.into_iter().collect::<anyhow::Result<_>>()?;
        report.table(format!("{name}: {quantile} of statements"), "ms", rows);
    }
    Ok(())
}

/// One client, until all are told to end.
fn use_it(door: &Door, number: usize, load: Load, shared: &Shared) -> anyhow::Result<Seen> {
    let (path, zone) = (format!("client_{number}"), format!("Etc/GMT-{}", number % 12 + 1));
    let statement = format!("{STATEMENT}{}", load.session);
    let mut client = Client { path, zone, statement, session: None, seen: Seen::new()?, shared };
    // They do not all ask at the same time.
    clock::nap(load.pause.mul_f64(number as f64 / CLIENTS as f64));
    let mut connection = client.connect(door)?;
    for turn in 0_u32.. {
        if shared.over.load(Ordering::Relaxed) {
            break;
        }
        clock::nap(load.pause);
        let done = if turn % TRANSACTIONS == 0 {
            client.transaction(&mut connection, turn)
        } else {
            client.statement(&mut connection, turn)
        };
        if let Err(failure) = done {
            *client.seen.failures.entry(failure.to_string()).or_default() += 1;
            // A client that lost its connection is counted once, and comes again.
            if connection.ask(wire::SELECT_1).is_err() {
                client.session = None;
                connection = client.connect(door)?;
            }
        }
    }
    Ok(client.seen)
}

struct Client<'a> {
    /// Its settings.
    path: String,
    zone: String,
    statement: String,
    /// The session of the server that answered last.
    session: Option<String>,
    seen: Seen,
    shared: &'a Shared,
}

impl Client<'_> {
    fn connect(&self, door: &Door) -> Result<Connection, Failure> {
        let mut connection = Connection::open(door)?;
        connection.ask(&wire::query(&format!("SET search_path = {}", self.path)))?;
        connection.ask(&wire::query(&format!("SET TimeZone = '{}'", self.zone)))?;
        connection.ask(&wire::prepare("s", &self.statement))?;
        Ok(connection)
    }

    fn statement(&mut self, connection: &mut Connection, turn: u32) -> Result<(), Failure> {
        let (parameter, watch) = (turn.to_string(), Stopwatch::start());
        connection.ask(&wire::execute("s", &parameter))?;
        let time = whole_nanos(watch.elapsed());
        let mut rows = connection.rows();
        let Some([Some(returned), setting, session]) =
            rows.pop().and_then(|row| <[_; 3]>::try_from(row).ok())
        else {
            self.seen.wrong += 1;
            return Ok(());
        };
        self.seen.wrong += u64::from(returned != parameter || !rows.is_empty());
        self.seen.lost_settings += u64::from(setting != Some(format!("{} {}", self.path, self.zone)));
        let is_first = self.session.is_some() && self.session != session;
        self.session = session;
        if is_first {
            self.seen.first.saturating_record(time);
            self.shared.replaced.fetch_add(1, Ordering::Relaxed);
        } else {
            self.seen.others.saturating_record(time);
        }
        Ok(())
    }

    /// Two statements in one transaction.
    fn transaction(&mut self, connection: &mut Connection, turn: u32) -> Result<(), Failure> {
        connection.ask(&wire::query("BEGIN"))?;
        self.statement(connection, turn)?;
        let session = self.session.clone();
        self.statement(connection, turn)?;
        self.seen.torn += u64::from(self.session != session);
        connection.ask(&wire::query("COMMIT"))
    }
}
