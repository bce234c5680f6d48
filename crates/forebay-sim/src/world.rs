//! The world outside the reservoirs: what they talk to, and who watches.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{Runtime, VirtualTime};
use forebay::{BoxError, Instant, Seed};
use parking_lot::Mutex;

use crate::books::Books;
use crate::scenario::Scenario;

mod cluster;
mod connection;
mod credentials;
mod leases;
mod limit;
mod table;

pub(crate) use cluster::{Cluster, Dropped, Refused};
pub(crate) use connection::Link;
pub(crate) use credentials::CredentialService;
pub(crate) use leases::{FleetLeases, Ledger};
pub(crate) use limit::FleetLimit;
pub(crate) use table::SharedTable;

/// Everything that is shared by all instances of one run. Each part has its lock, and none is held while calling out.
pub(crate) struct World {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) time: VirtualTime,
    pub(crate) start: Instant,
    pub(crate) seed: Seed,
    pub(crate) cluster: Mutex<Cluster>,
    pub(crate) credentials: Mutex<CredentialService>,
    pub(crate) table: Mutex<SharedTable>,
    pub(crate) ledger: Option<Arc<Ledger>>,
    pub(crate) books: Mutex<Books>,
}

/// How long a client of the shared store waits for an answer.
const TABLE_TIMEOUT: Duration = Duration::from_secs(5);

impl World {
    pub(crate) fn new(scenario: Arc<Scenario>, seed: Seed) -> Arc<Self> {
        let time = VirtualTime::with_seed(seed.fork("time"));
        let start = time.now();
        Arc::new(Self {
            start,
            cluster: Mutex::new(Cluster::new(&scenario, seed.fork("cluster"), start)),
            credentials: Mutex::new(CredentialService::new(&scenario, seed.fork("credentials"))),
            table: Mutex::new(SharedTable::new(&scenario, seed.fork("table"))),
            ledger: scenario.leases.map(|leases| Ledger::new(leases.limit, scenario.services.len())),
            books: Mutex::new(Books::new(&scenario, start)),
            scenario,
            time,
            seed,
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.time.now()
    }

    /// Lets true time pass. Cancel safe.
    pub(crate) async fn pass(&self, duration: Duration) {
        if !duration.is_zero() {
            self.time.sleep(self.now() + duration).await;
        }
    }

    /// An instance has connected to the cluster, or was refused.
    fn connected(&self, place: usize, refused: Option<&Refused>) {
        let now = self.now();
        let known = self.cluster.lock().known(place);
        let mut books = self.books.lock();
        books.connected(place, now, refused);
        if let Some(ledger) = &self.ledger {
            books.judge.leased(place, now, known, ledger.held_by(place));
        }
    }

    /// How many connections an instance can use has changed.
    pub(crate) fn recount(&self, place: usize) {
        let usable = self.cluster.lock().usable(place);
        let leases = self.ledger.as_ref().map_or(0, |ledger| ledger.held() as u64);
        self.books.lock().judge.resize(place, self.now(), usable, leases);
    }

    /// Tells clients of sessions that the cluster has ended, and returns whose they were.
    pub(crate) fn tell(&self, dropped: Dropped) -> Vec<usize> {
        // It counts for the fleet from the moment it happens, not when somebody notices.
        for place in 0..self.scenario.services.len() {
            self.recount(place);
        }
        dropped.tell()
    }

    /// One call to the shared store, from the instance at `place`. Cancel safe: a call changes nothing by itself.
    pub(crate) async fn call_table(&self, place: usize) -> Result<(), BoxError> {
        if self.scenario.table.is_none() {
            return Ok(());
        }
        if self.cluster.lock().is_cut_off(place) {
            self.pass(TABLE_TIMEOUT).await;
            return Err("the table did not answer in time".into());
        }
        let (latency, outcome) = self.table.lock().call();
        self.pass(latency).await;
        outcome
    }
}
