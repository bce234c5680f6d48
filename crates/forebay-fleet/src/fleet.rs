//! One process in a fleet: the leases and the rate for all its pools to one endpoint.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Builder, ConfigError, Connect, Leases, Limit, Seed};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::bucket::Bucket;
use crate::counter::{Counter, CounterLeases};
use crate::ledger::{Ledger, LedgerLeases};
use crate::metrics::Telemetry;
use crate::name::Name;
use crate::node_number::NodeNumber;
use crate::params::LeaseParams;
use crate::rate::{self, Allowance, Rate, Source};
use crate::settings::{FleetSettings, LeaseMode, LeaseSettings, RateMode, RateSettings, StoreOutagePolicy};
use crate::share::Share;
use crate::store::Store;
use crate::table::{Table, TableError};
use crate::token_bucket::Budget;
use crate::window::Window;
use crate::wiring::Wiring;

mod mode_check;
mod recall;

use recall::RecalledLeases;

/// The tables that a fleet shares. Both may be the same.
#[derive(Clone)]
pub struct Tables {
    /// The table of the leases.
    pub leases: Arc<dyn Table>,
    /// The table of the rate.
    pub rate: Arc<dyn Table>,
}

impl Tables {
    /// One table for both.
    pub fn one(table: impl Table) -> Self {
        let table: Arc<dyn Table> = Arc::new(table);
        Self { leases: Arc::clone(&table), rate: table }
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tables")
    }
}

/// Why a process cannot join its fleet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// Other instances of the endpoint use the other lease mode. Two modes would be two budgets.
    #[error(
        "other instances of this endpoint use lease mode {theirs}, and this one is set to {ours}; two modes would be two \
         budgets: set DSQL_DISTRIBUTED_CONN_LEASE_MODE to {theirs} here, or stop the others and start again after {wait:?}"
    )]
    OtherMode {
        /// The mode of this instance.
        ours: &'static str,
        /// The mode of the other instances.
        theirs: &'static str,
        /// How long after their end the other instances count as gone.
        wait: Duration,
    },
    /// The table is not usable.
    #[error("{table}: {error}{}", .error.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default())]
    Table {
        /// Its configured name.
        table: String,
        /// The problem.
        error: TableError,
    },
}

/// One process in a fleet. The process leaves when this and all leases and limits from it are dropped.
pub struct Fleet {
    /// The name at the start.
    instance: String,
    settings: FleetSettings,
    counting: Option<Counting>,
    rate: Option<Rate>,
    runtime: Arc<dyn Runtime>,
    /// The ceiling without a bound. It is kept, because receivers without a sender never wait.
    unbounded: watch::Sender<u64>,
}

enum Counting {
    /// The ledger, and the leases that reservoirs use.
    Ledger(Arc<LedgerLeases>, Arc<dyn Leases>),
    Counter(Arc<CounterLeases>),
}

/// The fleet as one process knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetStatus {
    /// The name of this process in the fleet. It changes if another instance has the same name before this one has
    /// slots.
    pub instance: String,
    /// Connections it may open without a call: slots in mode ledger, leases in mode counter.
    pub slots: u64,
    /// Connections with a lease.
    pub leases: u64,
    /// Its node number, for ids. None also once its lease has ended.
    pub node: Option<u16>,
    /// Its [index](Fleet::instance_index).
    pub index: Option<u64>,
    /// Connections or slots in use in the fleet, as last seen.
    pub active: u64,
    /// The most connections of the fleet.
    pub limit: u64,
    /// How long the table of the leases has been unavailable.
    pub lease_outage: Option<Duration>,
    /// How long the table of the rate has been unavailable.
    pub rate_outage: Option<Duration>,
}

impl Fleet {
    /// Joins the fleet. Leases and permits are available at once, or as soon as the table answers.
    ///
    /// # Errors
    /// If the settings are invalid, other instances use another mode, or a table needs an operator's help. A table that
    /// does not answer is not an error: the outage policy applies until it does.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing starts before this returns.
    pub async fn start(
        settings: FleetSettings,
        tables: Tables,
        runtime: impl Runtime,
        seed: Seed,
    ) -> Result<Self, StartError> {
        settings.validate()?;
        let runtime: Arc<dyn Runtime> = Arc::new(runtime);
        let telemetry = Arc::new(Telemetry::new(&settings.metrics_prefix, &settings.service));
        let rate_telemetry = Arc::new(telemetry.of_rate());
        let store = |table, telemetry| Store::new(table, Arc::clone(&runtime), telemetry);
        let (leases, rates) = (store(tables.leases, telemetry), store(tables.rate, rate_telemetry));
        let seed = seed.fork("fleet");
        let name = Name::new(&settings.service, runtime.entropy());
        let instance = name.as_str().to_owned();
        let mut answers = true;
        if let Some(lease) = &settings.leases {
            answers = mode_check::check_leases(&settings.endpoint, lease, &leases).await?;
        }
        if let Some(rate) = settings.rate.as_ref().filter(|_| answers) {
            mode_check::check_rate(&settings.endpoint, rate, &rates).await?;
        }
        let counting =
            settings.leases.as_ref().map(|lease| Counting::start(&settings, lease, name, leases, seed));
        let rate = settings.rate.as_ref().map(|rate| {
            let ledger = match (&counting, rate.mode) {
                (Some(Counting::Ledger(ledger, _)), RateMode::Bucket) => Some(Arc::clone(&ledger.0)),
                _ => None,
            };
            share_rate(&settings, rate, rates, ledger, seed)
        });
        let FleetSettings { endpoint, leases, rate: rates, outage_policy, .. } = &settings;
        info!(target: "forebay", instance, endpoint, lease_mode = ?leases.as_ref().map(|leases| leases.mode),
            rate_mode = ?rates.as_ref().map(|rate| rate.mode), ?outage_policy, "Distributed coordination enabled");
        let unbounded = watch::Sender::new(u64::MAX);
        Ok(Self { instance, settings, counting, rate, runtime, unbounded })
    }

    /// Gives a reservoir of this process its leases and its limit: see [`Wiring`]. Pass its configuration to
    /// [`FleetSettings::for_pools`] first.
    pub fn wire<C: Connect>(&self, reservoir: Builder<C>) -> Builder<C> {
        self.wiring().reservoir(reservoir)
    }

    /// The leases and the limit for every pool of this process to the endpoint.
    #[must_use]
    pub fn wiring(&self) -> Wiring {
        Wiring { leases: self.leases(), limit: self.limit() }
    }

    /// The index of this process in the fleet: 0, 1, 2 and so on, the same while it runs. Reservoirs use it to retire
    /// their connections at different times. None before the process has joined, if the answer to its join was lost,
    /// and without a ledger.
    #[must_use]
    pub fn instance_index(&self) -> Option<u64> {
        self.leases()?.instance_index()
    }

    /// Leases for every pool of this process to the endpoint; none if the fleet has no connection limit.
    #[must_use]
    pub fn leases(&self) -> Option<Arc<dyn Leases>> {
        match self.counting.as_ref()? {
            Counting::Ledger(_, leases) => Some(Arc::clone(leases)),
            Counting::Counter(leases) => Some(Arc::clone(leases) as _),
        }
    }

    /// The limit for every pool of this process to the endpoint; none if the fleet shares no rate.
    #[must_use]
    pub fn limit(&self) -> Option<Arc<dyn Limit>> {
        self.rate.clone().map(|rate| Arc::new(rate) as _)
    }

    /// Waits until this process has joined, and returns its node number, which is unique in the fleet. None without a
    /// ledger, if all 1,024 numbers are taken, and if this process has left. While the process is cut off from the table for
    /// longer than its lease, this waits.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future changes nothing.
    pub async fn node(&self) -> Option<NodeNumber> {
        match self.counting.as_ref()? {
            Counting::Ledger(ledger, _) => ledger.0.joined().await,
            Counting::Counter(_) => None,
        }
    }

    /// The node number of this process and its changes, such as its later end after each heartbeat. It is none before the
    /// process has joined, and while the ledger has no entry of it; it joins again with the same number if that is free.
    /// Returns none without a ledger.
    #[must_use]
    pub fn node_updates(&self) -> Option<watch::Receiver<Option<NodeNumber>>> {
        match self.counting.as_ref()? {
            Counting::Ledger(ledger, _) => Some(ledger.0.node()),
            Counting::Counter(_) => None,
        }
    }

    /// The most connections of this process, and its changes. With the policy `strict` it falls before slots can be
    /// taken away, and the [leases](Self::leases) recall the connections above it. Otherwise it is `u64::MAX`.
    #[must_use]
    pub fn ceiling(&self) -> watch::Receiver<u64> {
        match &self.counting {
            Some(Counting::Ledger(ledger, _)) => ledger.0.ceiling(),
            _ => self.unbounded.subscribe(),
        }
    }

    /// What this process knows of its fleet.
    #[must_use]
    pub fn status(&self) -> FleetStatus {
        let instance = self.instance.clone();
        let mut status = match &self.counting {
            Some(Counting::Ledger(ledger, _)) => ledger.0.status(),
            Some(Counting::Counter(leases)) => leases.0.status(instance),
            None => FleetStatus { instance, ..FleetStatus::default() },
        };
        let outage = self.rate.as_ref().and_then(Rate::outage_since);
        status.rate_outage = outage.map(|since| self.runtime.now().since(since));
        status
    }

    /// Leaves the fleet: grants no more leases, and gives the slots back after the last lease is returned. Drain the
    /// reservoirs first. Waits up to `timeout`, and returns whether everything is given back. The rest follows if the
    /// process lives on; otherwise the fleet gets it when the lease ends.
    ///
    /// # Cancel safety
    /// Cancel safe: leaving continues in the background.
    pub async fn leave(&self, timeout: Duration) -> bool {
        let left = match &self.counting {
            None => true,
            Some(Counting::Ledger(ledger, _)) => ledger.0.leave(timeout).await,
            Some(Counting::Counter(leases)) => leases.0.leave(timeout).await,
        };
        let status = self.status();
        if left {
            info!(target: "forebay", instance = status.instance, "Distributed connection lease: left the fleet");
        } else {
            warn!(target: "forebay", instance = status.instance, leases = status.leases, slots = status.slots,
                "Distributed connection lease: still leaving; not everything is given back");
        }
        left
    }
}

impl Counting {
    fn start(settings: &FleetSettings, lease: &LeaseSettings, name: Name, store: Store, seed: Seed) -> Self {
        let params = LeaseParams::new(settings, lease);
        if lease.mode == LeaseMode::Counter {
            let counter = Counter::start(params, store, seed.fork("counter").rng());
            return Self::Counter(Arc::new(CounterLeases(counter)));
        }
        let runtime = Arc::clone(&store.runtime);
        let ledger = Arc::new(LedgerLeases(Ledger::start(params, name, store, seed.fork("ledger").rng())));
        let mut leases: Arc<dyn Leases> = Arc::clone(&ledger) as _;
        if settings.outage_policy == StoreOutagePolicy::Strict {
            leases = RecalledLeases::start(leases, ledger.0.ceiling(), &*runtime);
        }
        Self::Ledger(ledger, leases)
    }
}

fn share_rate(
    settings: &FleetSettings,
    rate: &RateSettings,
    store: Store,
    ledger: Option<Arc<Ledger>>,
    seed: Seed,
) -> Rate {
    let RateSettings { per_second, burst, max_wait, .. } = *rate;
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    let total = |burst| Budget::new(per_second as f64, burst);
    let (source, total): (Box<dyn Source>, Budget) = match rate.mode {
        RateMode::Bucket => {
            let bucket = Bucket::new(&settings.endpoint, per_second, burst, ledger.is_some(), max_wait);
            (Box::new(bucket), total(burst))
        }
        // A second's permits may come at once.
        RateMode::Window => (Box::new(Window::new(&settings.endpoint, per_second)), total(per_second)),
    };
    let local = Budget::new(settings.local_rate, u64::from(settings.local_burst));
    let allowance = Allowance::new(total, Share::new(per_second, burst), local);
    let (policy, local_rate) = (settings.outage_policy, settings.local_rate);
    let params = rate::Params { burst, max_wait, policy, local_rate };
    let state = rate::State::new(source, allowance, ledger.is_some(), seed.fork("rate").rng());
    Rate::new(params, store, ledger, state)
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instance = self.status().instance;
        f.debug_struct("Fleet").field("instance", &instance).field("settings", &self.settings).finish()
    }
}
