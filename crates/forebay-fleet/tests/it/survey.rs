//! The operator's view of the ledger, and the log lines of instances.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{ProcessClock, VirtualTime};
use forebay::{LeaseError, Seed};
use forebay_fleet::operator::{self, Survey};
use forebay_fleet::{Fleet, FleetSettings, LeaseMode, MemoryTable, Tables};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use crate::support::{ENDPOINT, leases, seconds, settings};

fn rules(limit: u64, max_open: u64) -> FleetSettings {
    let mut settings = settings();
    settings.leases = Some(leases(LeaseMode::Ledger, limit));
    settings.max_open = max_open;
    settings
}

fn start(time: &VirtualTime, table: &MemoryTable, settings: FleetSettings, seed: u64) -> Fleet {
    let runtime = time.process(ProcessClock::default());
    time.run(Fleet::start(settings, Tables::one(table.clone()), runtime, Seed::new(seed))).unwrap()
}

fn survey(time: &VirtualTime, table: &MemoryTable) -> Survey {
    time.run(operator::survey(table, time, ENDPOINT)).unwrap()
}

#[test]
fn the_capacity_is_known_after_the_first_join() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let fleet = start(&time, &table, rules(203, 20), 1);
    time.advance(seconds(1));
    let seen = survey(&time, &table);
    assert_eq!((seen.totals(), seen.shards.len()), ((20, 203), 8));
    assert_eq!(fleet.status().limit, 203);
    time.shut_down();
}

#[test]
fn an_invalid_shard_is_reported() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let fleet = start(&time, &table, rules(80, 80), 1);
    time.advance(seconds(5));
    assert!(survey(&time, &table).is_exact() && fleet.status().slots > 0);
    let key = format!("forebay_ledger#{ENDPOINT}#3");
    let item = table.item(&key).unwrap();
    table.put(&key, item.with("free", -5));
    let seen = survey(&time, &table);
    assert_eq!((seen.broken.as_slice(), seen.is_exact()), (&[3][..], false));
    time.shut_down();
}

#[test]
fn extreme_limits_do_no_harm() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let fleet = start(&time, &table, rules(u64::MAX, u64::MAX), 1);
    let leases = fleet.leases().unwrap();
    assert!((0..50).all(|_| time.run(leases.acquire()).is_ok()));
    time.advance(seconds(300));
    assert!(fleet.status().slots >= 50 && survey(&time, &table).is_exact());
    time.shut_down();
}

#[test]
fn a_length_with_a_fraction_is_rounded_up_for_all() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let mut settings = rules(80, 10);
    if let Some(leases) = &mut settings.leases {
        (leases.heartbeat, leases.length) = (Duration::from_millis(2500), Duration::from_millis(7_200));
    }
    let fleets: Vec<Fleet> = (0..2).map(|seed| start(&time, &table, settings.clone(), seed)).collect();
    time.advance(seconds(1));
    let seen = survey(&time, &table);
    assert!(seen.instances.iter().all(|entry| entry.lease == seconds(8)), "{seen:?}");
    time.advance(seconds(60));
    assert!(fleets.iter().all(|fleet| fleet.status().node.is_some()));
    time.shut_down();
}

#[test]
fn an_instance_at_its_share_gets_that_reason() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let first = start(&time, &table, rules(40, 40), 1).leases().unwrap();
    let mut held: Vec<_> = (0..40).map(|_| time.run(first.acquire()).unwrap()).collect();
    let second = start(&time, &table, rules(40, 40), 2).leases().unwrap();
    // The second announces its want, and the first reads it. The second gets its part of what the first closes.
    for _ in 0..30 {
        let refused = time.run(second.acquire());
        assert!(matches!(refused, Err(LeaseError::Limit { limit: 40 })), "{refused:?}");
        time.advance(seconds(4));
    }
    for lease in held.drain(..30) {
        time.run(first.release(&lease)).unwrap();
    }
    let refused = loop {
        match time.run(first.acquire()) {
            Ok(lease) => held.push(lease),
            Err(error) => break error,
        }
    };
    let LeaseError::Share { share, limit: 40 } = refused else { panic!("{refused}") };
    assert!(share == held.len() as u64 && (20..40).contains(&share), "{share}");
    time.shut_down();
}

/// Warnings about limits.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Subscriber for Heard {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

#[test]
fn a_different_limit_is_logged_once() {
    let heard = Heard::default();
    let guard = tracing::subscriber::set_default(heard.clone());
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let _first = start(&time, &table, rules(400, 10), 1);
    time.advance(seconds(5));
    let _second = start(&time, &table, rules(200, 10), 2);
    time.advance(seconds(600));
    drop(guard);
    let heard = heard.0.lock();
    let told: Vec<&String> = heard.iter().filter(|line| line.contains("a different limit")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("ours=200") && told[0].contains("theirs=400"), "{told:?}");
    time.shut_down();
}
