//! The same history on the table in memory and on DynamoDB: whatever the network loses, the items end
//! byte-equal. So the simulator can use a table in memory.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use forebay::rt::{self, ProcessClock, VirtualProcess, VirtualTime};
use forebay::{LeaseId, Rng, Seed, StoreFuture};
use forebay_aws::dynamo::DynamoTable;
use forebay_fleet::{
    Cursor, Delete, Faults, FaultyTable, Fleet, FleetSettings, Item, LeaseMode, LeaseSettings, MemoryTable,
    Page, RateMode, RateSettings, Table, TableError, Tables, Update, Value, Write,
};
use serde_json::json;
use tokio::runtime::Handle;

use crate::dynamo::DynamoDb;
use crate::report::Report;
use crate::section::progress;

const TABLE: &str = "fleet";

/// Runs `seeds` histories on both, each with a ledger and a bucket, and with a counter and a window. Adds to
/// `report` how many ended differently.
pub(crate) fn measure(report: &mut Report, seeds: u64) -> anyhow::Result<()> {
    progress("the same histories on two tables");
    let mut different = Vec::new();
    for seed in 1..=seeds {
        for modes in MODES {
            if !same_on_both(modes, seed)? {
                different.push((seed, modes));
            }
        }
    }
    let name = format!(
        "{seeds} histories on the table in memory and on DynamoDB behind lost answers: different ends"
    );
    report.at_most(name, different.len(), 0.0, "histories");
    if let Some((seed, modes)) = different.first() {
        report.note(format!("the first history that ends differently has seed {seed}, with {modes:?}"));
    }
    Ok(())
}

type Modes = (LeaseMode, RateMode);
const MODES: [Modes; 2] = [(LeaseMode::Ledger, RateMode::Bucket), (LeaseMode::Counter, RateMode::Window)];

/// DynamoDB in virtual time: each call takes no time.
#[derive(Clone)]
struct AtOnce(DynamoTable, Handle);

impl AtOnce {
    fn now<'a, T: Send + 'a>(&'a self, call: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move { self.1.block_on(call) })
    }
}

impl Table for AtOnce {
    fn update<'a>(&'a self, update: &'a Update) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        self.now(self.0.update(update))
    }

    fn get<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        self.now(self.0.get(key))
    }

    fn delete<'a>(&'a self, delete: &'a Delete) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        self.now(self.0.delete(delete))
    }

    fn transact<'a>(
        &'a self,
        writes: &'a [Write],
        token: &'a str,
    ) -> StoreFuture<'a, Result<(), TableError>> {
        self.now(self.0.transact(writes, token))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a Cursor>,
    ) -> StoreFuture<'a, Result<Page, TableError>> {
        self.now(self.0.scan(prefix, after))
    }
}

fn settings((leases, rate): Modes) -> FleetSettings {
    let mut settings = FleetSettings::new("abc.dsql.us-east-1.on.aws", "history")
        .leases(LeaseSettings::new("fleet").mode(leases).limit(40))
        .rate(RateSettings::new("fleet").mode(rate));
    settings.max_open = 12;
    settings
}

struct Instance {
    fleet: Fleet,
    process: VirtualProcess,
    held: Vec<LeaseId>,
}

impl Instance {
    async fn open(&mut self) {
        let (Some(leases), Some(limit)) = (self.fleet.leases(), self.fleet.limit()) else { return };
        let patience = Duration::from_secs(10);
        if let Some(Ok(lease)) = rt::within(&self.process, patience, leases.acquire()).await {
            self.held.push(lease);
            if let Some(Ok(permit)) = rt::within(&self.process, patience, limit.acquire()).await {
                permit.spend();
            }
        }
    }

    async fn close(&mut self) {
        let Some(leases) = self.fleet.leases() else { return };
        if let Some(lease) = self.held.pop() {
            // A reservoir retries until the table accepts it.
            while leases.release(&lease).await.is_err() {
                let again = rt::Runtime::now(&self.process) + Duration::from_secs(1);
                rt::Runtime::sleep_until(&self.process, again).await;
            }
        }
    }
}

/// Instances start, open, close, crash and leave, behind a network that loses messages. Returns a log of the
/// steps.
fn history(table: impl Table + Clone, settings: &FleetSettings, seed: u64) -> anyhow::Result<String> {
    let (time, seed) = (VirtualTime::with_seed(Seed::new(seed)), Seed::new(seed));
    let network = Arc::new(FaultyTable::new(table, time.clone(), seed));
    let latency = (Duration::from_millis(2), Duration::from_millis(30));
    let faults = Faults {
        latency,
        lost_requests: 40,
        lost_answers: 120,
        late_requests: 20,
        throttled: 30,
        conflicts: 30,
        ..Faults::default()
    };
    let mut rng: Rng = seed.fork("history").rng();
    let (mut instances, mut log): (Vec<Instance>, String) = (Vec::new(), String::new());
    for step in 0..80 {
        network.set(faults);
        let which = usize::try_from(rng.below(4))?;
        let word = match (rng.below(10), instances.get_mut(which)) {
            (_, None) => {
                let process = time.process(ProcessClock::default());
                let tables = Tables { leases: Arc::clone(&network) as _, rate: Arc::clone(&network) as _ };
                let seed = seed.fork(&format!("instance {step}"));
                let fleet = time.run(Fleet::start(settings.clone(), tables, process.clone(), seed));
                instances.push(Instance { fleet: fleet?, process, held: Vec::new() });
                "start"
            }
            (0, Some(_)) => {
                instances.swap_remove(which).process.kill();
                "crash"
            }
            (1, Some(instance)) => {
                while !instance.held.is_empty() {
                    time.run(instance.close());
                }
                time.run(instance.fleet.leave(Duration::from_secs(60)));
                instances.swap_remove(which);
                "leave"
            }
            (2..=6, Some(instance)) => {
                for _ in 0..rng.below(6) {
                    time.run(instance.open());
                }
                "open"
            }
            (_, Some(instance)) => {
                for _ in 0..rng.below(4) {
                    time.run(instance.close());
                }
                "close"
            }
        };
        time.advance(rng.up_to(Duration::from_secs(25)));
        log += &format!("{step} {word} {:?}\n", time.run(async { rt::Runtime::now(&time) }));
    }
    // Calls that are under way arrive.
    network.set(Faults::default());
    for instance in instances.drain(..) {
        instance.process.kill();
    }
    time.advance(Duration::from_secs(60));
    time.shut_down();
    Ok(log)
}

/// An item as DynamoDB stores it.
fn stored(key: &str, item: &Item) -> serde_json::Value {
    let mut stored = json!({ "pk": { "S": key } });
    for (name, value) in item.iter() {
        stored[name] = attribute(value);
    }
    stored
}

fn attribute(value: &Value) -> serde_json::Value {
    match value {
        Value::Text(text) => json!({ "S": text }),
        Value::Number(number) => json!({ "N": number.to_string() }),
        Value::Map(map) => {
            let inner: serde_json::Map<_, _> =
                map.iter().map(|(name, value)| (name.clone(), attribute(value))).collect();
            json!({ "M": inner })
        }
    }
}

/// Whether a history has the same log on both tables, and leaves the same items.
fn same_on_both(modes: Modes, seed: u64) -> anyhow::Result<bool> {
    let (settings, memory) = (settings(modes), MemoryTable::new());
    let in_memory = history(memory.clone(), &settings, seed)?;
    let server = DynamoDb::with_tables(&[TABLE])?;
    let on_dynamo = history(AtOnce(server.table(TABLE)?, server.handle()), &settings, seed)?;
    let expected: Vec<_> = memory.items().iter().map(|(key, item)| stored(key, item)).collect();
    ensure!(expected.len() > 1, "seed {seed} left nothing to compare");
    let text = |items: &[serde_json::Value]| serde_json::to_string_pretty(items);
    Ok(in_memory == on_dynamo && text(&expected)? == text(&server.items(TABLE)?)?)
}
