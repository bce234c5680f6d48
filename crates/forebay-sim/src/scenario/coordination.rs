//! What the fleet shares: a connection limit, a connect rate, and the table for both.

use std::time::Duration;

use forebay::duration;
use forebay_fleet::{FleetSettings, LeaseMode, LeaseSettings, RateMode, RateSettings, StoreOutagePolicy};

use super::reader::Section;
use super::{MINUTE, SECOND, Scenario, Service, bounded, latency};
use crate::latency::{Latency, truncate};

/// The limiter of opens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limiter {
    /// Opens per second.
    pub per_second: f64,
    /// Opens at once.
    pub burst: u32,
    /// One limiter for the whole fleet, instead of one per instance.
    pub shared: bool,
    /// How the fleet shares it through the table. `None`: not through the table; it costs nothing and never
    /// fails.
    pub mode: Option<RateMode>,
}

/// The connection limit of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    /// How the fleet counts its connections.
    pub mode: LeaseMode,
    /// The most connections of the whole fleet.
    pub limit: u64,
    /// The time between two heartbeats.
    pub beat: Duration,
    /// How long a lease is valid after a heartbeat.
    pub length: Duration,
    /// Slots that are taken or released at a time.
    pub block: u64,
}

/// The modelled network to the shared table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Table {
    /// The duration of a call.
    pub latency: Latency,
    /// The share of calls that fail without effect.
    pub error_rate: f64,
    /// The share of calls that succeed and whose answer is lost.
    pub lost_answers: f64,
}

impl Limiter {
    pub(super) fn read(top: &mut Section<'_>) -> Self {
        let per_second = top.number("limiterPerSec", 100.0, 0.001, 1e6);
        let burst = bounded(top.whole("limiterBurst", 1, 1, u64::from(u32::MAX)));
        let shared = top.choice("limiterScope", true, &[("fleet", true), ("instance", false)]);
        let default = if shared && top.has("table") { Some(RateMode::Bucket) } else { None };
        let mode = top.section("limiter", |section| {
            let modes =
                [("bucket", Some(RateMode::Bucket)), ("window", Some(RateMode::Window)), ("local", None)];
            let mode = section.choice("mode", default, &modes);
            section.demand(mode.is_none() || shared, "mode", || {
                "must be local with limiterScope: instance, where nothing is shared".to_owned()
            });
            mode.filter(|_| shared)
        });
        let whole = per_second.fract() == 0.0;
        top.demand(mode.is_none() || whole, "limiterPerSec", || {
            format!("{per_second} is not a whole number; a rate that is shared through the table must be one")
        });
        Self { per_second, burst, shared, mode }
    }
}

impl Leases {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let modes = [("ledger", LeaseMode::Ledger), ("counter", LeaseMode::Counter)];
        let leases = Self {
            mode: section.choice("mode", LeaseMode::Ledger, &modes),
            limit: section.whole("limit", 10_000, 1, u64::MAX),
            beat: section.span("beat", 30 * SECOND),
            length: section.span("length", 2 * MINUTE),
            block: section.whole("block", 10, 1, LeaseSettings::MAX_BLOCK),
        };
        let (beat, length) = (leases.beat, leases.length);
        let shortest = LeaseSettings::MIN_HEARTBEAT;
        section.demand(beat >= shortest, "beat", || {
            format!(
                "{} is below {}; each heartbeat is a write",
                duration::show(beat),
                duration::show(shortest)
            )
        });
        section.demand(length > beat, "length", || {
            format!("{} is not above beat, which is {}", duration::show(length), duration::show(beat))
        });
        section.demand(length.subsec_nanos() == 0, "length", || {
            format!("{} is not a whole number of seconds; the table stores seconds", duration::show(length))
        });
        leases
    }
}

impl Table {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let usual = Latency { p50: Duration::from_millis(4), p99: Duration::from_millis(20) };
        Self {
            latency: latency(section, "latency", usual),
            error_rate: section.number("errorRate", 0.0, 0.0, 1.0),
            lost_answers: section.number("lostAnswers", 0.0, 0.0, 1.0),
        }
    }
}

/// The policy during an outage of the table.
pub(super) fn away(top: &mut Section<'_>) -> StoreOutagePolicy {
    let policies = [
        ("local", StoreOutagePolicy::Local),
        ("closed", StoreOutagePolicy::Closed),
        ("strict", StoreOutagePolicy::Strict),
    ];
    top.choice("away", StoreOutagePolicy::Local, &policies)
}

impl Scenario {
    /// Whether instances share anything through the table.
    #[must_use]
    pub fn is_coordinated(&self) -> bool {
        self.leases.is_some() || self.limiter.mode.is_some()
    }

    /// The fleet settings of an instance.
    pub(crate) fn fleet_settings(&self, service: &Service) -> FleetSettings {
        let mut settings = FleetSettings::new(&self.endpoint, &service.name).for_pools([&service.config()]);
        settings.leases = self.leases.map(|leases| {
            let settings = LeaseSettings::new("modelled").mode(leases.mode).limit(leases.limit);
            settings.heartbeat(leases.beat).length(leases.length).block(leases.block)
        });
        settings.rate = self.limiter.mode.map(|mode| {
            let (rate, burst) = (truncate(self.limiter.per_second), u64::from(self.limiter.burst));
            RateSettings::new("modelled").mode(mode).rate(rate, burst)
        });
        settings.outage_policy = self.away;
        settings
    }
}
