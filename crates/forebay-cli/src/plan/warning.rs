//! What is wrong with a fleet, or will be.

use std::time::Duration;

use forebay_fleet::LeaseMode;
use forebay_sim::grouped;

use super::budget::Budget;
use super::fleet::{CLUSTER_BURST, CLUSTER_RATE, Fleet, LocalRate, SESSION_LENGTH};
use super::number::{about, exact, rate};
use super::prediction::{Fit, Prediction};

/// One thing that is wrong, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Warning {
    pub(super) kind: Kind,
    /// What is wrong, with its numbers.
    pub(super) what: String,
    pub(super) remedy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    // Of the specification.
    Headroom,
    LifetimeBelowFill,
    JitterBelowFill,
    // A service does not start with these.
    LifetimeAboveSession,
    GuardWindow,
    // Of the cluster.
    AboveLimit,
    NoOverlap,
    LimitAboveCluster,
    RateAboveCluster,
    BurstAboveCluster,
    Uncoordinated,
    TurnoverAboveRate,
    // Of the code.
    SplitSlots,
    FillTimeout,
    NodeNumbers,
    ShortLifetime,
    Counter,
}

/// The part of the limit that the specification recommends not to exceed, in hundredths.
pub(super) const FULL: u64 = 80;
/// The lifetime that the manual recommends.
pub(super) const LONG_LIFETIME: Duration = Duration::from_secs(55 * 60);
/// Numbers that the ledger gives to processes, for generated ids.
pub(super) const NODE_NUMBERS: u64 = 1024;

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Headroom => "headroom",
            Self::LifetimeBelowFill => "lifetime_below_fill",
            Self::JitterBelowFill => "jitter_below_fill",
            Self::LifetimeAboveSession => "lifetime_above_session",
            Self::GuardWindow => "guard_window",
            Self::AboveLimit => "above_limit",
            Self::NoOverlap => "no_overlap",
            Self::LimitAboveCluster => "limit_above_cluster",
            Self::RateAboveCluster => "rate_above_cluster",
            Self::BurstAboveCluster => "burst_above_cluster",
            Self::Uncoordinated => "uncoordinated",
            Self::TurnoverAboveRate => "turnover_above_rate",
            Self::SplitSlots => "split_slots",
            Self::FillTimeout => "fill_timeout",
            Self::NodeNumbers => "node_numbers",
            Self::ShortLifetime => "short_lifetime",
            Self::Counter => "counter",
        }
    }

    /// Whether it is only an advice.
    pub(super) fn is_advice(self) -> bool {
        matches!(self, Self::ShortLifetime | Self::Counter)
    }
}

/// Everything that is wrong with this fleet, the worst first.
pub(super) fn warnings(fleet: &Fleet, prediction: &Prediction) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |holds: bool, kind: Kind, what: &dyn Fn() -> String, remedy: &str| {
        if holds {
            warnings.push(Warning { kind, what: what(), remedy: remedy.to_owned() });
        }
    };
    let fill = prediction.fill.time;
    settings(fleet, &mut warn);
    limits(fleet, &mut warn);
    let steady = prediction.turnover.map_or(0.0, |turnover| turnover.steady);
    let sustained = Budget::of(fleet).sustained(fleet.processes());
    warn(
        steady > sustained,
        Kind::TurnoverAboveRate,
        &|| format!("replacements need {} opens/s, and the rate allows {}/s", rate(steady), rate(sustained)),
        "raise --lifetime, or use fewer connections",
    );
    warn(
        fleet.lifetime < fill,
        Kind::LifetimeBelowFill,
        &|| {
            let (lifetime, fill) = (exact(fleet.lifetime), about(fill));
            format!(
                "the lifetime of {lifetime} is shorter than the fill time of {fill}: connections end before the last are open"
            )
        },
        "raise --lifetime",
    );
    warn(
        fleet.jitter < fill,
        Kind::JitterBelowFill,
        &|| {
            let (jitter, fill) = (exact(fleet.jitter), about(fill));
            format!(
                "the jitter of {jitter} is narrower than the fill time of {fill}: alone, it would not spread a cold start"
            )
        },
        "raise --jitter to the fill time at least",
    );
    warn(
        prediction.fit == Fit::Split,
        Kind::SplitSlots,
        &|| {
            let (slots, shard) = (grouped(fleet.process_slots()), grouped(fleet.limit / 8));
            format!(
                "processes with {slots} slots do not fit into the ledger's shards of {shard}: some fill slowly"
            )
        },
        "use more and smaller processes",
    );
    warn(
        fill > fleet.fill_timeout,
        Kind::FillTimeout,
        &|| {
            let (wait, fill) = (exact(fleet.fill_timeout), about(fill));
            format!(
                "after a cold start of all, the last process is full after {fill}; a start waits only {wait}"
            )
        },
        "raise DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT",
    );
    warn(
        fleet.leases == Some(LeaseMode::Ledger) && fleet.processes() > NODE_NUMBERS,
        Kind::NodeNumbers,
        &|| {
            format!(
                "the ledger numbers 1,024 processes; {} have none",
                grouped(fleet.processes() - NODE_NUMBERS)
            )
        },
        "set DSQL_NODE_ID if they generate ids",
    );
    warn(
        fleet.lifetime < LONG_LIFETIME / 2,
        Kind::ShortLifetime,
        &|| {
            let times = LONG_LIFETIME.as_secs_f64() / fleet.lifetime.as_secs_f64().max(1.0);
            format!(
                "a lifetime of {} opens {times:.1} times as many connections as 55m",
                exact(fleet.lifetime)
            )
        },
        "raise --lifetime to 55m",
    );
    warn(
        fleet.leases == Some(LeaseMode::Counter),
        Kind::Counter,
        &|| "mode counter costs writes for each connection, and a crash leaves it too high".to_owned(),
        "use mode ledger",
    );
    warnings
}

type Warn<'a> = &'a mut dyn FnMut(bool, Kind, &dyn Fn() -> String, &str);

/// Settings with which a service does not start, or which the cluster refuses.
fn settings(fleet: &Fleet, warn: Warn<'_>) {
    let longest = fleet.longest_life();
    warn(
        longest >= SESSION_LENGTH,
        Kind::LifetimeAboveSession,
        &|| {
            format!(
                "lifetime + jitter/2 is {}, and the server ends sessions after 60m: a service does not start",
                exact(longest)
            )
        },
        "lower --lifetime",
    );
    let shortest = fleet.shortest_life();
    warn(
        !fleet.can_lend(),
        Kind::GuardWindow,
        &|| {
            let (guard, shortest) = (exact(fleet.guard_window), exact(shortest));
            format!(
                "the guard window of {guard} is not below lifetime - jitter/2, which is {shortest}: a service does not start"
            )
        },
        "lower --guard-window, or raise --lifetime",
    );
    let rate = fleet.rate;
    warn(
        fleet.sharing.is_some() && rate.per_second > CLUSTER_RATE,
        Kind::RateAboveCluster,
        &|| {
            format!(
                "the rate of {}/s is above the cluster's {CLUSTER_RATE}/s: it refuses connects with 53400",
                rate.per_second
            )
        },
        "lower --rate to 100",
    );
    warn(
        fleet.sharing.is_some() && rate.burst > CLUSTER_BURST,
        Kind::BurstAboveCluster,
        &|| {
            let (burst, most) = (grouped(rate.burst), grouped(CLUSTER_BURST));
            format!("the burst of {burst} is above the cluster's {most}: it refuses connects with 53400")
        },
        "lower --burst to 1000",
    );
    let local = fleet.local_rate;
    let processes = fleet.processes();
    let (rates, bursts) = (local.per_second * processes as f64, local.burst.saturating_mul(processes));
    let remedy = if processes > CLUSTER_BURST {
        "share the rate: --rate-mode bucket; so many processes cannot stay within it on their own".to_owned()
    } else {
        let LocalRate { per_second, burst } = LocalRate::part(CLUSTER_RATE, CLUSTER_BURST, processes);
        format!("share the rate: --rate-mode bucket; or --local-rate {per_second} --local-burst {burst}")
    };
    warn(
        fleet.sharing.is_none() && (rates > CLUSTER_RATE as f64 || bursts.min(fleet.total()) > CLUSTER_BURST),
        Kind::Uncoordinated,
        &|| {
            format!(
                "{} processes with {}/s and bursts of {} each exceed the cluster's {CLUSTER_RATE}/s and {}",
                grouped(processes),
                local.per_second,
                grouped(local.burst),
                grouped(CLUSTER_BURST)
            )
        },
        &remedy,
    );
}

/// The numbers of connections.
fn limits(fleet: &Fleet, warn: Warn<'_>) {
    let (total, cluster) = (fleet.total(), fleet.cluster_limit);
    let limit = if fleet.leases.is_some() { fleet.limit.min(cluster) } else { cluster };
    warn(
        fleet.leases.is_some() && fleet.limit > cluster,
        Kind::LimitAboveCluster,
        &|| {
            format!(
                "the fleet allows itself {} connections, and the cluster {}",
                grouped(fleet.limit),
                grouped(cluster)
            )
        },
        "lower --limit",
    );
    let share = limit / fleet.processes().max(1);
    warn(
        total > limit,
        Kind::AboveLimit,
        &|| {
            let wants = format!("the fleet wants {} connections of {}", grouped(total), grouped(limit));
            match fleet.leases {
                Some(LeaseMode::Ledger) => {
                    format!("{wants}: each process gets a fair share of {}", grouped(share))
                }
                Some(LeaseMode::Counter) => format!("{wants}: the others get no lease"),
                None => format!("{wants}: the cluster refuses the others with 53300"),
            }
        },
        "use fewer connections, or ask AWS for a higher quota",
    );
    warn(
        total <= limit && fleet.slots() > limit && fleet.leases.is_some(),
        Kind::NoOverlap,
        &|| {
            let slots = grouped(fleet.slots());
            format!(
                "with replacements the fleet needs {slots} of {}: some connections close before their replacement opens",
                grouped(limit)
            )
        },
        "use 5 % fewer connections",
    );
    warn(
        total.saturating_mul(100) > cluster.saturating_mul(FULL),
        Kind::Headroom,
        &|| {
            let percent = fleet.used_percent();
            format!(
                "{percent} % of the cluster's connections are in use: above {FULL} % there is no room for bursts and deployments"
            )
        },
        "use fewer connections",
    );
}

#[cfg(test)]
mod tests {
    use super::super::fleet::Rate;
    use super::*;

    fn kinds(fleet: &Fleet) -> Vec<Kind> {
        warnings(fleet, &Prediction::of(fleet)).into_iter().map(|warning| warning.kind).collect()
    }

    /// A fleet with nothing to complain about.
    fn sound() -> Fleet {
        Fleet { lifetime: LONG_LIFETIME, fill_timeout: Duration::from_secs(120), ..Fleet::of(4, 10, 2, 50) }
    }

    fn minutes(n: u64) -> Duration {
        Duration::from_secs(60 * n)
    }

    #[test]
    fn a_sound_fleet_has_no_warnings() {
        assert_eq!(kinds(&sound()), []);
        assert_eq!(kinds(&Fleet { instances: 20, ..sound() }), [], "8,000 is 80 %, not above");
    }

    #[test]
    fn the_specification_s_warnings() {
        assert!(kinds(&Fleet { connections: 101, ..sound() }).contains(&Kind::Headroom));
        let hasty = Fleet {
            lifetime: Duration::from_secs(40),
            jitter: Duration::ZERO,
            guard_window: Duration::from_secs(1),
            ..sound()
        };
        let found = kinds(&hasty);
        assert!(
            found.contains(&Kind::LifetimeBelowFill) && found.contains(&Kind::JitterBelowFill),
            "{found:?}"
        );
        assert!(found.contains(&Kind::TurnoverAboveRate), "{found:?}");
    }

    #[test]
    fn the_limits_of_physics() {
        for (fleet, kind) in [
            (Fleet { lifetime: minutes(60), ..sound() }, Kind::LifetimeAboveSession),
            (Fleet { lifetime: minutes(59), ..sound() }, Kind::LifetimeAboveSession),
            (Fleet { guard_window: minutes(54), ..sound() }, Kind::GuardWindow),
            (Fleet { rate: Rate { per_second: 101, burst: 1000 }, ..sound() }, Kind::RateAboveCluster),
            (Fleet { rate: Rate { per_second: 100, burst: 1001 }, ..sound() }, Kind::BurstAboveCluster),
            (Fleet { sharing: None, ..sound() }, Kind::Uncoordinated),
            (Fleet { limit: 10_001, ..sound() }, Kind::LimitAboveCluster),
            (Fleet { connections: 126, ..sound() }, Kind::AboveLimit),
            (Fleet { connections: 122, ..sound() }, Kind::NoOverlap),
            (Fleet { services: 1, instances: 2, connections: 1000, ..sound() }, Kind::SplitSlots),
            (Fleet { fill_timeout: Duration::from_secs(30), ..sound() }, Kind::FillTimeout),
            (Fleet { instances: 300, pools: 1, connections: 1, ..sound() }, Kind::NodeNumbers),
            (Fleet { lifetime: minutes(11), ..sound() }, Kind::ShortLifetime),
            (Fleet { leases: Some(LeaseMode::Counter), ..sound() }, Kind::Counter),
        ] {
            assert!(kinds(&fleet).contains(&kind), "{kind:?} is missing: {:?}", kinds(&fleet));
            assert!(!kinds(&sound()).contains(&kind));
        }
        assert!(Kind::Counter.is_advice() && !Kind::Headroom.is_advice());
    }
}
