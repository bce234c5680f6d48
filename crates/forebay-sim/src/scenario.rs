//! What is to be simulated: a file of keys, each with its default.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_fleet::StoreOutagePolicy;

use crate::latency::Latency;

mod coordination;
mod fault;
mod notes;
mod problem;
mod reader;
mod service;
mod shipped;
mod tree;

pub use coordination::{Leases, Limiter, Table};
pub(crate) use fault::RETRY;
pub use fault::{Fault, Refusal, Strike, Who};
pub use problem::{Origin, Problem, ScenarioError};
use reader::Section;
pub use service::{Arrivals, Service, Workload};
pub use shipped::{Shipped, nearest, shipped};
use tree::Node;

/// A whole scenario, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The file it came from.
    pub name: String,
    /// The keys that were overridden, as `path=value`.
    pub settings: Vec<String>,
    /// What makes one wonder, but is no mistake for sure.
    pub notes: Vec<String>,
    /// What all chance is drawn from.
    pub seed: u64,
    /// The cluster's name. Only shown.
    pub endpoint: String,
    /// How long the fleet runs, before it is shut down.
    pub duration: Duration,
    /// How often its state is written down.
    pub sample_every: Duration,
    /// How fast the fleet lets itself open connections.
    pub limiter: Limiter,
    /// How many connections the fleet lets itself hold, if that is limited.
    pub leases: Option<Leases>,
    /// What must hold.
    pub asserts: Asserts,
    /// The database.
    pub cluster: Cluster,
    /// The way to the store that leases and a shared rate live in. None: it takes no time and never fails.
    pub table: Option<Table>,
    /// What holds while that store is away.
    pub away: StoreOutagePolicy,
    /// Where tokens come from.
    pub credentials: Credentials,
    /// How wrong the instances' clocks are.
    pub clocks: Clocks,
    /// What goes wrong, in the order of the file.
    pub faults: Vec<Fault>,
    /// Who uses the database, one for each instance.
    pub services: Vec<Service>,
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asserts {
    /// The cluster never sees more connects than this in one second.
    pub max_connects_per_sec: u64,
    /// Every instance owns what it should by then.
    pub converge_within: Duration,
    /// And goes on owning it for so long.
    pub stable_for: Duration,
    /// Reservoirs never close more than this in one second by their own decision.
    pub max_closures_per_sec: u64,
    /// No caller ever finds nothing ready in an instance that lacks connections, whether it is served later or not.
    pub zero_empty_events: bool,
    /// Once converged, and outside disturbances, never more opens than this in one second.
    pub max_renewals_per_sec: Option<u64>,
    /// After a disturbance the fleet is whole again within this many times what the limiter allows.
    pub recover_within: f64,
}

/// The modelled database cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// It admits so many connections a second,
    pub rate_per_sec: f64,
    /// so many at once after a quiet time,
    pub burst: u32,
    /// and so many in all, if that is limited.
    pub max_connections: Option<usize>,
    /// It ends a session this long after its start.
    pub session_length: Duration,
    /// How long an open takes.
    pub open_time: Latency,
    /// How long a close takes.
    pub close_time: Duration,
}

/// The modelled source of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Credentials {
    /// How long a token takes.
    pub latency: Latency,
}

/// How wrong clocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The time of day is off by up to this, either way.
    pub skew: Duration,
    /// Clocks run too fast or too slowly by up to so many millionths.
    pub drift_ppm: i32,
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// More connections than this are a typing error.
const MOST: usize = 1_000_000;
/// More instances than this would not be simulated in a day.
const MOST_INSTANCES: u64 = 20_000;

impl Scenario {
    /// Reads a scenario. `name` is what errors call the file; each of `settings`, as `path=value`, overrides a key.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place and key.
    pub fn parse(name: &str, text: &str, settings: &[String]) -> Result<Self, ScenarioError> {
        let alone = |problem| ScenarioError { problems: vec![problem] };
        let mut tree = Node::parse(&Arc::from(name), text).map_err(alone)?;
        for setting in settings {
            tree.set(setting).map_err(alone)?;
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
            format!("that makes {samples} samples; more than {MOST} are a mistake")
        });
        let cluster = top.section("cluster", Cluster::read);
        let replicas = top.list("services", |section| Service::read(section, &cluster));
        if !top.has("services") || replicas.is_empty() {
            top.complain("services", "at least one service is needed");
        }
        let services: Vec<Service> = replicas.into_iter().flatten().collect();
        top.demand(services.len() as u64 <= MOST_INSTANCES, "services", || {
            format!("{} instances; more than {MOST_INSTANCES} are a mistake", services.len())
        });
        let mut names = BTreeSet::new();
        if let Some(twice) = services.iter().find(|service| !names.insert(&service.name)) {
            let name = &twice.name;
            top.complain("services", format!("two instances are called '{name}'; names tell them apart"));
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and at most a million"
        )]
        let per_second = limiter.per_second.ceil() as u64 + u64::from(limiter.burst) - 1;
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

    /// The command that runs it with this seed.
    #[must_use]
    pub fn replay(&self, seed: u64) -> String {
        crate::replay::command(&self.name, seed, &self.settings)
    }

    /// How many connections the fleet lets itself open in a second.
    #[must_use]
    pub fn fleet_rate(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a count below a million")]
        let limiters = if self.limiter.shared { 1.0 } else { self.services.len() as f64 };
        self.limiter.per_second * limiters
    }

    /// How many connections the fleet is to own.
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
            // What is seen inside a region.
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
        section.demand(latency.p99 >= latency.p50, "p99", || "below p50".to_owned());
        latency
    })
}

fn bounded(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
