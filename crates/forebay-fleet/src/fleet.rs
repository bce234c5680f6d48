//! One process's part in a fleet: the leases and the rate for all its pools to one endpoint.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Builder, ConfigError, Connect, Leases, Limit, LocalLimit, Seed};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::bucket::Bucket;
use crate::counter::{self, Counter, CounterLeases};
use crate::ledger::{self, Ledger, LedgerLeases};
use crate::metrics::Telemetry;
use crate::name::Name;
use crate::rate::{self, Rate, Source};
use crate::settings::FleetSettings;
use crate::settings::{LeaseMode, LeaseSettings, RateMode, RateSettings, StoreOutagePolicy};
use crate::store::Store;
use crate::table::{Table, TableError};
use crate::window::Window;
use crate::wiring::Wiring;

mod others;
mod recall;

use recall::RecalledLeases;

/// The tables a fleet shares. They may be one.
#[derive(Clone)]
pub struct Tables {
    /// Where leases are.
    pub leases: Arc<dyn Table>,
    /// Where the rate is.
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
    /// The settings make no sense.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// Others count in the other way: two schemes on one endpoint would be two budgets.
    #[error(
        "instances of this endpoint count connections in mode {theirs}, and this one is set to {ours}: two modes would be two \
         budgets; set DSQL_DISTRIBUTED_CONN_LEASE_MODE to {theirs} here, or stop the others and start again after {wait:?}"
    )]
    OtherMode {
        /// The mode of this instance.
        ours: &'static str,
        /// The mode of the others.
        theirs: &'static str,
        /// How long after their end they count as gone.
        wait: Duration,
    },
    /// The table cannot be used at all.
    #[error("{table}: {error}{}", .error.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default())]
    Table {
        /// Its name, as it was set.
        table: String,
        /// What is wrong with it.
        #[source]
        error: TableError,
    },
}

/// One process's part in a fleet. When it and all it has given out are dropped, the process leaves.
pub struct Fleet {
    /// What it was called when it started.
    instance: String,
    settings: FleetSettings,
    counting: Option<Counting>,
    rate: Option<Rate>,
    runtime: Arc<dyn Runtime>,
    /// The ceiling where there is none; kept, since a receiver without a sender is told of its end again and again.
    unbounded: watch::Sender<u64>,
}

enum Counting {
    /// The ledger, and what reservoirs see of it.
    Ledger(Arc<LedgerLeases>, Arc<dyn Leases>),
    Counter(Arc<CounterLeases>),
}

/// What a process knows of its fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetStatus {
    /// The name of this process in the fleet. It takes another if it finds, before it has slots, that someone else has it.
    pub instance: String,
    /// Connections it may open without asking: slots in mode ledger, leases in mode counter.
    pub slots: u64,
    /// Connections it has leases for.
    pub leases: u64,
    /// Its number in the fleet, for ids.
    pub node: Option<u16>,
    /// Its [index](Fleet::instance_index) in the fleet, for turns.
    pub index: Option<u64>,
    /// Connections the fleet holds or has slots for, as last seen.
    pub active: u64,
    /// Connections the fleet may hold.
    pub limit: u64,
    /// For how long the lease table has been away.
    pub leases_away: Option<Duration>,
    /// For how long the rate's table has been away.
    pub rate_away: Option<Duration>,
}

impl Fleet {
    /// Joins the fleet: leases and permits are to be had at once, or as soon as the table answers.
    ///
    /// # Errors
    /// If the settings make no sense, others count in another mode, or a table cannot be used without an operator's help. A table that does not
    /// answer is no error: the away policy holds until it does.
    ///
    /// # Cancel safety
    /// Nothing is started before this returns.
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
            answers = others::of_leases(&settings.endpoint, lease, &leases).await?;
        }
        if let Some(rate) = settings.rate.as_ref().filter(|_| answers) {
            others::of_rate(&settings.endpoint, rate, &rates).await?;
        }
        let counting = settings.leases.as_ref().map(|lease| match lease.mode {
            LeaseMode::Ledger => Counting::ledger(&settings, lease, name, leases, seed),
            LeaseMode::Counter => Counting::counter(&settings, lease, leases, seed),
        });
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

    /// Makes a reservoir that is being built one of this process to the endpoint: see [`Wiring`]. The settings of this fleet must have been told
    /// of it, with [`FleetSettings::for_pools`].
    pub fn wire<C: Connect>(&self, reservoir: Builder<C>) -> Builder<C> {
        self.wiring().reservoir(reservoir)
    }

    /// What every pool of this process to the endpoint is built with.
    #[must_use]
    pub fn wiring(&self) -> Wiring {
        Wiring { leases: self.leases(), limit: self.limit() }
    }

    /// The index of this process among those of the fleet: 0, 1, 2 and so on, and for as long as it runs. Reservoirs retire their connections in
    /// turns by it. None before it has joined; if the answer to its join was lost; and if the fleet does not keep a ledger.
    #[must_use]
    pub fn instance_index(&self) -> Option<u64> {
        self.leases()?.instance_index()
    }

    /// Leases for every pool of this process to the endpoint; none if the fleet does not count.
    #[must_use]
    pub fn leases(&self) -> Option<Arc<dyn Leases>> {
        match self.counting.as_ref()? {
            Counting::Ledger(_, leases) => Some(Arc::clone(leases)),
            Counting::Counter(leases) => Some(Arc::clone(leases) as _),
        }
    }

    /// The limit for every pool of this process to the endpoint; none if the fleet shares no rate, and each process has its
    /// own.
    #[must_use]
    pub fn limit(&self) -> Option<Arc<dyn Limit>> {
        self.rate.clone().map(|rate| Arc::new(rate) as _)
    }

    /// The number of this process, unique in the fleet while it is in it; waits until it has joined. None if the fleet
    /// does not keep a ledger, all 1,024 numbers are taken, or this process has left.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn node(&self) -> Option<u16> {
        match self.counting.as_ref()? {
            Counting::Ledger(ledger, _) => ledger.0.joined().await,
            Counting::Counter(_) => None,
        }
    }

    /// The number of this process, now and as it changes: none before it has joined, nor from when it hears that it was taken out
    /// of the ledger, until it has joined anew, with the same number if nobody else has it by then. None if the fleet does not
    /// keep a ledger.
    #[must_use]
    pub fn numbers(&self) -> Option<watch::Receiver<Option<u16>>> {
        match self.counting.as_ref()? {
            Counting::Ledger(ledger, _) => Some(ledger.0.number()),
            Counting::Counter(_) => None,
        }
    }

    /// How many connections this process may hold, now and as it changes. Under the policy `strict` it falls before the
    /// slots can be taken away, and the [leases](Self::leases) recall what is held above it: reservoirs close it then.
    /// Otherwise it says that there is no bound.
    #[must_use]
    pub fn ceiling(&self) -> watch::Receiver<u64> {
        match &self.counting {
            Some(Counting::Ledger(ledger, _)) => ledger.0.ceiling(),
            _ => self.unbounded.subscribe(),
        }
    }

    /// What is known at present.
    #[must_use]
    pub fn status(&self) -> FleetStatus {
        let now = self.runtime.now();
        let limit = self.settings.leases.as_ref().map_or(0, |leases| leases.limit);
        let mut status = FleetStatus {
            instance: self.instance.clone(),
            slots: 0,
            leases: 0,
            node: None,
            index: None,
            active: 0,
            limit,
            leases_away: None,
            rate_away: self.rate.as_ref().and_then(Rate::away_since).map(|since| now.since(since)),
        };
        match &self.counting {
            Some(Counting::Ledger(ledger, _)) => {
                let holding = ledger.0.holding();
                status.instance = ledger.0.name();
                status.slots = holding.slots;
                status.leases = holding.leases;
                status.node = holding.node;
                status.index = holding.index;
                status.active = holding.active;
                status.limit = holding.limit;
                status.leases_away = holding.away_since.map(|since| now.since(since));
            }
            Some(Counting::Counter(leases)) => {
                let (held, active, away) = leases.0.holding();
                status.slots = held;
                status.leases = held;
                status.active = active;
                status.leases_away = away.map(|since| now.since(since));
            }
            None => {}
        }
        status
    }

    /// Leaves the fleet: no more leases, and every slot back once all leases are. Drain the reservoirs first. Waits for it
    /// as long as `patience`; whether it is done. What is not given back then is, if the process lives on, or falls back to the fleet
    /// when its lease has run out.
    ///
    /// # Cancel safety
    /// If the future is dropped, it goes on in the background.
    pub async fn leave(&self, patience: Duration) -> bool {
        let left = match &self.counting {
            None => true,
            Some(Counting::Ledger(ledger, _)) => ledger.0.leave(patience).await,
            Some(Counting::Counter(leases)) => leases.0.leave(patience).await,
        };
        let status = self.status();
        if left {
            info!(target: "forebay", instance = status.instance, "Distributed connection lease: left the fleet");
        } else {
            warn!(target: "forebay", instance = status.instance, leases = status.leases, slots = status.slots,
                "Distributed connection lease: not everything is given back yet");
        }
        left
    }
}

impl Counting {
    fn ledger(settings: &FleetSettings, lease: &LeaseSettings, name: Name, store: Store, seed: Seed) -> Self {
        let rules = ledger::Rules {
            endpoint: settings.endpoint.clone(),
            limit: lease.limit,
            block: lease.block,
            beat: lease.heartbeat,
            lease: lease.length,
            max_open: settings.max_open,
            policy: settings.outage_policy,
        };
        let runtime = Arc::clone(&store.runtime);
        let ledger = Arc::new(LedgerLeases(Ledger::start(rules, name, store, seed.fork("ledger").rng())));
        let mut leases: Arc<dyn Leases> = Arc::clone(&ledger) as _;
        if settings.outage_policy == StoreOutagePolicy::Strict {
            leases = RecalledLeases::start(leases, ledger.0.ceiling(), &*runtime);
        }
        Self::Ledger(ledger, leases)
    }

    fn counter(settings: &FleetSettings, lease: &LeaseSettings, store: Store, seed: Seed) -> Self {
        let rules = counter::Rules {
            endpoint: settings.endpoint.clone(),
            service: settings.service.clone(),
            limit: lease.limit,
            beat: lease.heartbeat,
            lease: lease.length,
            max_open: settings.max_open,
            policy: settings.outage_policy,
        };
        Self::Counter(Arc::new(CounterLeases(Counter::start(rules, store, seed.fork("counter").rng()))))
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
    let source = match rate.mode {
        RateMode::Bucket => {
            Source::Bucket(Bucket::new(&settings.endpoint, per_second, burst, ledger.is_some(), max_wait))
        }
        RateMode::Window => Source::Window(Window::new(&settings.endpoint, per_second)),
    };
    let local = LocalLimit::new(settings.local_rate, settings.local_burst, Arc::clone(&store.runtime));
    let rules = rate::Rules { per_second, burst, max_wait, policy: settings.outage_policy };
    Rate::new(rules, source, store, ledger, local, seed.fork("rate").rng())
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instance = self.status().instance;
        f.debug_struct("Fleet").field("instance", &instance).field("settings", &self.settings).finish()
    }
}
