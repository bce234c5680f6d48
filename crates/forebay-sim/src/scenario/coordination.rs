//! What a fleet shares: a limit of connections, a connect rate, and the table both live in.

use std::time::Duration;

use forebay::duration;
use forebay_fleet::{FleetSettings, LeaseMode, LeaseSettings, RateMode, RateSettings, StoreOutagePolicy};

use super::reader::Section;
use super::{MINUTE, SECOND, Scenario, Service, bounded, latency};
use crate::latency::Latency;

/// How fast connections may be opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limiter {
    /// So many a second,
    pub per_second: f64,
    /// of which so many at once.
    pub burst: u32,
    /// For the whole fleet together, or for each instance.
    pub shared: bool,
    /// How the fleet shares it through the table. None: it does not, and a shared limiter costs nothing and never fails.
    pub mode: Option<RateMode>,
}

/// How many connections may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    /// How the fleet counts.
    pub mode: LeaseMode,
    /// By the whole fleet.
    pub limit: u64,
    /// How often an instance says that it lives.
    pub beat: Duration,
    /// How long it is believed.
    pub length: Duration,
    /// Slots taken and given back at a time.
    pub block: u64,
}

/// The modelled way to the store that a fleet shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Table {
    /// How long a call takes.
    pub latency: Latency,
    /// Which share of the calls fail, and change nothing.
    pub error_rate: f64,
    /// Which share of the calls are done, and their answer is lost.
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
                "with limiterScope: instance nothing is shared, and so mode can only be local".to_owned()
            });
            mode.filter(|_| shared)
        });
        let whole = per_second.fract() == 0.0;
        top.demand(mode.is_none() || whole, "limiterPerSec", || {
            format!("{per_second} is no whole number, as a rate that is shared through a table must be")
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
            format!("{} is below {}: each is a write", duration::show(beat), duration::show(shortest))
        });
        section.demand(length > beat, "length", || {
            format!("{} is not above beat, which is {}", duration::show(length), duration::show(beat))
        });
        section.demand(length.subsec_nanos() == 0, "length", || {
            format!("{} is no whole number of seconds, in which the table counts", duration::show(length))
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

/// What holds while the table is away.
pub(super) fn away(top: &mut Section<'_>) -> StoreOutagePolicy {
    let policies = [
        ("local", StoreOutagePolicy::Local),
        ("closed", StoreOutagePolicy::Closed),
        ("strict", StoreOutagePolicy::Strict),
    ];
    top.choice("away", StoreOutagePolicy::Local, &policies)
}

impl Scenario {
    /// Whether instances share anything through a table.
    #[must_use]
    pub fn is_coordinated(&self) -> bool {
        self.leases.is_some() || self.limiter.mode.is_some()
    }

    /// What the instance of `service` is told of its fleet.
    pub(crate) fn fleet_settings(&self, service: &Service) -> FleetSettings {
        let mut settings = FleetSettings::new(&self.endpoint, &service.name).for_pools([&service.config()]);
        settings.leases = self.leases.map(|leases| {
            let settings = LeaseSettings::new("modelled").mode(leases.mode).limit(leases.limit);
            settings.heartbeat(leases.beat).length(leases.length).block(leases.block)
        });
        settings.rate = self.limiter.mode.map(|mode| {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a whole number of at most a million"
            )]
            let per_second = self.limiter.per_second as u64;
            RateSettings::new("modelled").mode(mode).rate(per_second, u64::from(self.limiter.burst))
        });
        settings.outage_policy = self.away;
        settings
    }
}
