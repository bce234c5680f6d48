//! Scenario files. Every key has a default.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_fleet::StoreOutagePolicy;

use crate::latency::{Latency, truncate};

mod coordination;
mod error;
mod fault;
mod notes;
mod reader;
mod service;
mod shipped;
mod tree;

pub use coordination::{Leases, Limiter, Table};
pub use error::{Origin, Problem, ScenarioError};
pub(crate) use fault::RETRY;
pub use fault::{Fault, FaultKind, Refusal, Targets};
use reader::Section;
pub use service::{Arrivals, Service, Workload};
pub use shipped::{Shipped, nearest, shipped};
use tree::Node;

/// A validated scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The name of its file.
    pub name: String,
    /// The keys that were overridden, as `path=value`.
    pub settings: Vec<String>,
    /// Remarks about settings that may be mistakes.
    pub notes: Vec<String>,
    /// The seed of all randomness.
    pub seed: u64,
    /// The cluster's name, for output and item keys.
    pub endpoint: String,
    /// The duration of the run, without the shutdown.
    pub duration: Duration,
    /// The time between two samples.
    pub sample_every: Duration,
    /// The limiter of the fleet's opens.
    pub limiter: Limiter,
    /// The fleet's connection limit, if it has one.
    pub leases: Option<Leases>,
    /// The assertions.
    pub asserts: Asserts,
    /// The modelled cluster.
    pub cluster: Cluster,
    /// The network to the shared table. `None`: calls take no time and never fail.
    pub table: Option<Table>,
    /// The policy during an outage of the table.
    pub away: StoreOutagePolicy,
    /// The modelled credential service.
    pub credentials: Credentials,
    /// The errors of the instances' clocks.
    pub clocks: Clocks,
    /// The faults, in the order of the file.
    pub faults: Vec<Fault>,
    /// The instances.
    pub services: Vec<Service>,
}

/// The limits of the assertions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asserts {
    /// The most connects in one second, by the cluster's count.
    pub max_connects_per_sec: u64,
    /// The time until the fleet must be at target.
    pub converge_within: Duration,
    /// How long it must stay there.
    pub stable_for: Duration,
    /// The most connections that reservoirs close in one second by their own decision.
    pub max_closures_per_sec: u64,
    /// No caller may find nothing ready in an instance that lacks connections, served later or not.
    pub zero_empty_events: bool,
    /// The most connects in one second without a disturbance.
    pub max_renewals_per_sec: Option<u64>,
    /// The time for a recovery, as a multiple of the time that the limiter needs.
    pub recover_within: f64,
}

/// The modelled database cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// Admitted connections per second.
    pub rate_per_sec: f64,
    /// Connections admitted at once after a quiet time.
    pub burst: u32,
    /// The most open connections, if limited.
    pub max_connections: Option<usize>,
    /// The maximum age of a session.
    pub session_length: Duration,
    /// The duration of an open.
    pub open_time: Latency,
    /// The duration of a close.
    pub close_time: Duration,
}

/// The modelled credential service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Credentials {
    /// The duration of a token request.
    pub latency: Latency,
}

/// The errors of the machines' clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The largest error of the time of day, either way.
    pub skew: Duration,
    /// The largest drift in parts per million, either way.
    pub drift_ppm: i32,
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// More connections than this are a typo.
const MOST: usize = 1_000_000;
/// More instances would not be simulated in a day.
const MOST_INSTANCES: u64 = 20_000;

impl Scenario {
    /// Parses a scenario. Errors use `name` for the file. Each of `settings`, as `path=value`, overrides a
    /// key.
    ///
    /// # Errors
    /// All problems of the file, each with its line and key.
    pub fn parse(name: &str, text: &str, settings: &[String]) -> Result<Self, ScenarioError> {
        let single = |problem| ScenarioError { problems: vec![problem] };
        let mut tree = Node::parse(&Arc::from(name), text).map_err(single)?;
        for setting in settings {
            tree.set(setting).map_err(single)?;
        }
        let mut top = Section::top(&tree);
        let mut scenario = Self { settings: settings.to_vec(), ..Self::read(name, &mut top) };
        scenario.notes = notes::notes(&scenario);
        top.finish(scenario)
    }

    fn read(name: &str, top: &mut Section<'_>) -> Self {
        let limiter = Limiter::read(top);
        let duration = top.span("duration", 20 * MINUTE);
        let sample_every = top.span("sampleEvery", SECOND);
        let samples = duration.as_nanos() / sample_every.as_nanos().max(1);
        top.demand(samples <= MOST as u128, "sampleEvery", || {
            format!("this makes {samples} samples; the maximum is {MOST}")
        });
        let cluster = top.section("cluster", Cluster::read);
        let replicas = top.list("services", |section| Service::read(section, &cluster));
        if !top.has("services") || replicas.is_empty() {
            top.complain("services", "at least one service is required");
        }
        let services: Vec<Service> = replicas.into_iter().flatten().collect();
        top.demand(services.len() as u64 <= MOST_INSTANCES, "services", || {
            format!("{} instances; the maximum is {MOST_INSTANCES}", services.len())
        });
        let mut names = BTreeSet::new();
        if let Some(twice) = services.iter().find(|service| !names.insert(&service.name)) {
            let name = &twice.name;
            top.complain("services", format!("two instances have the name '{name}'; names must be unique"));
        }
        let per_second = truncate(limiter.per_second.ceil()) + u64::from(limiter.burst) - 1;
        let per_second = if limiter.shared { per_second } else { per_second * services.len() as u64 };
        Self {
            name: name.to_owned(),
            settings: Vec::new(),
            notes: Vec::new(),
            seed: top.whole("seed", 42, 0, u64::MAX),
            endpoint: top.text("endpoint", "modelled"),
            duration,
            sample_every,
            limiter,
            leases: top.has("leases").then(|| top.section("leases", Leases::read)),
            asserts: Asserts {
                max_connects_per_sec: top.whole("assertMaxConnectsPerSec", per_second, 0, u64::MAX),
                converge_within: top.duration("assertConvergeWithin", MINUTE),
                stable_for: top.duration("assertStableFor", 5 * SECOND),
                max_closures_per_sec: top.whole("assertMaxClosurePerSec", 200, 0, u64::MAX),
                zero_empty_events: top.flag("assertZeroEmptyEvents", false),
                max_renewals_per_sec: top
                    .has("assertMaxRenewalsPerSec")
                    .then(|| top.whole("assertMaxRenewalsPerSec", 0, 0, u64::MAX)),
                recover_within: top.number("assertRecoverWithin", 1.2, 1.0, 1000.0),
            },
            cluster,
            table: top.has("table").then(|| top.section("table", Table::read)),
            away: coordination::away(top),
            credentials: top.section("credentials", |section| Credentials {
                latency: latency(section, "latency", Latency::constant(Duration::ZERO)),
            }),
            clocks: top.section("clocks", |section| Clocks {
                skew: section.duration("skew", Duration::ZERO),
                drift_ppm: i32::try_from(section.whole("driftPpm", 0, 0, 100_000)).unwrap_or(0),
            }),
            faults: Fault::read_all(top, duration, &services),
            services,
        }
    }

    /// The command that runs the scenario with this seed.
    #[must_use]
    pub fn replay(&self, seed: u64) -> String {
        crate::replay::command(&self.name, seed, &self.settings)
    }

    /// How many connections the limiter lets the fleet open per second.
    #[must_use]
    pub fn fleet_rate(&self) -> f64 {
        let limiters = if self.limiter.shared { 1.0 } else { self.services.len() as f64 };
        self.limiter.per_second * limiters
    }

    /// The sum of all targets.
    #[must_use]
    pub fn target(&self) -> usize {
        self.services.iter().map(|service| service.target_ready).sum()
    }
}

impl Cluster {
    fn read(section: &mut Section<'_>) -> Self {
        Self {
            rate_per_sec: section.number("ratePerSec", 100.0, 0.001, 1e6),
            burst: bounded(section.whole("burst", 1000, 1, u64::from(u32::MAX))),
            max_connections: Some(section.count("maxConnections", 10_000, 0, MOST)).filter(|most| *most > 0),
            session_length: section.span("sessionLength", 60 * MINUTE),
            // Typical inside a region.
            open_time: latency(
                section,
                "openTime",
                Latency { p50: Duration::from_millis(15), p99: Duration::from_millis(120) },
            ),
            close_time: section.duration("closeTime", Duration::from_millis(1)),
        }
    }
}

/// One duration, or `{p50, p99}`.
fn latency(section: &mut Section<'_>, key: &'static str, default: Latency) -> Latency {
    if section.is_scalar(key) {
        return Latency::constant(section.duration(key, default.p50));
    }
    section.section(key, |section| {
        let latency =
            Latency { p50: section.duration("p50", default.p50), p99: section.duration("p99", default.p99) };
        section.demand(latency.p99 >= latency.p50, "p99", || "must not be below p50".to_owned());
        latency
    })
}

fn bounded(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
