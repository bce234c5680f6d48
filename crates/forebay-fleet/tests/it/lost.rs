//! An instance whose entry is removed while it lives.

use std::sync::Arc;
use std::time::Duration;

use forebay::Seed;
use forebay::rt::{ProcessClock, VirtualTime};
use forebay_fleet::{Faults, FaultyTable, Fleet, LeaseMode, MemoryTable, Tables, operator};

use crate::support::{ENDPOINT, leases, seconds, settings};

#[test]
fn an_evicted_instance_in_an_outage_lends_no_more_than_it_had() {
    let (time, table) = (VirtualTime::new(), MemoryTable::new());
    let mut settings = settings();
    settings.leases = Some(leases(LeaseMode::Ledger, 100));
    settings.max_open = 100;
    let seed = Seed::new(1);
    let faulty = Arc::new(FaultyTable::new(table.clone(), time.clone(), seed));
    let latency = (Duration::from_millis(50), Duration::from_millis(60));
    faulty.set(Faults { latency, ..Faults::default() });
    let tables = Tables { leases: Arc::clone(&faulty) as _, rate: Arc::clone(&faulty) as _ };
    let runtime = time.process(ProcessClock::default());
    let fleet = time.run(Fleet::start(settings, tables, runtime, seed)).unwrap();
    let leases = fleet.leases().unwrap();
    let held: Vec<_> = (0..10).map(|_| time.run(leases.acquire()).unwrap()).collect();
    time.advance(seconds(400));
    let had = fleet.status().slots;
    assert!((10..50).contains(&had), "it has given back what it does not need: {had}");
    time.run(operator::evict(&table, &time, ENDPOINT, &fleet.status().instance)).unwrap();
    // Its next heartbeat is refused. After that, no call is answered.
    let writes = table.bill().writes;
    while table.bill().writes == writes {
        time.advance(Duration::from_millis(1));
    }
    faulty.set(Faults { outage: true, ..Faults::default() });
    time.advance(seconds(60));
    assert_eq!((fleet.status().node, fleet.status().slots), (None, 0));
    let mut lent = held.len() as u64;
    while lent <= 100 && time.run(leases.acquire()).is_ok() {
        lent += 1;
    }
    assert_eq!(lent, had);
    time.shut_down();
}
