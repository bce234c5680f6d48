//! The fleet that is planned: how many connections, how long they live, and what limits them.

use std::time::Duration;

use forebay_fleet::{LeaseMode, RateMode};

/// Connections a cluster accepts, its connect rate and burst, and how long it keeps a session: the quotas of Aurora DSQL.
pub(super) const CLUSTER_CONNECTIONS: u64 = 10_000;
pub(super) const CLUSTER_RATE: u64 = 100;
pub(super) const CLUSTER_BURST: u64 = 1_000;
pub(super) const SESSION_LENGTH: Duration = Duration::from_secs(60 * 60);

/// A fleet and its settings. Every process has the same.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fleet {
    pub(super) services: u64,
    /// Processes of each service.
    pub(super) instances: u64,
    /// Pools of each process.
    pub(super) pools: u64,
    /// Connections of each pool.
    pub(super) connections: u64,
    pub(super) watermark: Watermark,
    pub(super) lifetime: Duration,
    pub(super) jitter: Duration,
    pub(super) guard_window: Duration,
    /// How long one open may take.
    pub(super) open_timeout: Duration,
    /// Each process waits a random time up to this before its first open.
    pub(super) startup_jitter: Duration,
    /// How long a start waits for the low watermark.
    pub(super) fill_timeout: Duration,
    /// The connections that the cluster accepts.
    pub(super) cluster_limit: u64,
    /// The connections that the fleet allows itself.
    pub(super) limit: u64,
    /// How the fleet counts connections; none: it does not.
    pub(super) leases: Option<LeaseMode>,
    pub(super) heartbeat: Duration,
    /// How the fleet shares the connect rate; none: each process has its own.
    pub(super) sharing: Option<RateMode>,
    /// The shared rate.
    pub(super) rate: Rate,
    /// The rate of each process that shares none.
    pub(super) local_rate: LocalRate,
    /// The pause after each instance in a rolling restart.
    pub(super) restart_pause: Duration,
}

/// The connect rate of one process. In a large fleet, it is a part of one open per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LocalRate {
    pub(super) per_second: f64,
    /// Opens at once after a quiet time.
    pub(super) burst: u64,
}

impl LocalRate {
    /// An equal part for each of so many processes: together they stay within the rate, and within the burst unless they are
    /// more than that.
    pub(super) fn part(rate: u64, burst: u64, processes: u64) -> Self {
        let processes = processes.max(1);
        // Below this, the limiter admits one open per hour.
        let per_second = two_digits(rate as f64 / processes as f64).max(0.001);
        Self { per_second, burst: (burst / processes).max(1) }
    }
}

/// Rounded down to two significant digits, and to thousandths.
fn two_digits(number: f64) -> f64 {
    let unit = match number {
        n if n >= 10.0 => 1.0,
        n if n >= 1.0 => 10.0,
        n if n >= 0.1 => 100.0,
        _ => 1000.0,
    };
    (number * unit).floor() / unit
}

/// A connect rate of the whole fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) per_second: u64,
    /// Opens at once after a quiet time.
    pub(super) burst: u64,
}

/// How many connections of a pool its start waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Watermark {
    /// All of a pool of up to 100 connections, half of a larger one
    #[default]
    Auto,
    /// All of them
    All,
    /// Half of them
    Half,
    /// So many, from the environment
    #[value(skip)]
    Exactly(u64),
}

impl Watermark {
    /// The largest pool whose whole size is the low watermark.
    const SMALL: u64 = 100;

    /// The low watermark of a pool.
    pub(super) fn of(self, connections: u64) -> u64 {
        match self {
            Self::Auto if connections <= Self::SMALL => connections,
            Self::All => connections,
            Self::Auto | Self::Half => connections.div_ceil(2),
            Self::Exactly(watermark) => watermark.min(connections),
        }
    }
}

/// The settings of the configuration's defaults, with leases and a shared rate.
impl Default for Fleet {
    fn default() -> Self {
        Self {
            services: 1,
            instances: 1,
            pools: 1,
            connections: 100,
            watermark: Watermark::default(),
            lifetime: Duration::from_secs(11 * 60),
            jitter: Duration::from_secs(2 * 60),
            guard_window: Duration::from_secs(45),
            open_timeout: Duration::from_secs(10),
            startup_jitter: Duration::from_secs(5),
            fill_timeout: Duration::from_secs(30),
            cluster_limit: CLUSTER_CONNECTIONS,
            limit: CLUSTER_CONNECTIONS,
            leases: Some(LeaseMode::Ledger),
            heartbeat: Duration::from_secs(30),
            sharing: Some(RateMode::Bucket),
            rate: Rate { per_second: CLUSTER_RATE, burst: CLUSTER_BURST },
            local_rate: LocalRate { per_second: 10.0, burst: 100 },
            restart_pause: Duration::from_secs(30),
        }
    }
}

impl Fleet {
    /// A fleet of this shape, with the defaults of everything else.
    #[cfg(test)]
    pub(super) fn of(services: u64, instances: u64, pools: u64, connections: u64) -> Self {
        Self { services, instances, pools, connections, ..Self::default() }
    }

    /// Processes in all.
    pub(super) fn processes(&self) -> u64 {
        self.services.saturating_mul(self.instances)
    }

    /// Connections of one process.
    pub(super) fn per_process(&self) -> u64 {
        self.pools.saturating_mul(self.connections)
    }

    /// Connections that the whole fleet wants.
    pub(super) fn total(&self) -> u64 {
        self.processes().saturating_mul(self.per_process())
    }

    /// Connections that one pool has for a moment, while some are replaced: 5 % more.
    pub(super) fn pool_slots(&self) -> u64 {
        self.connections.saturating_add(self.connections.div_ceil(20))
    }

    /// Slots that one process joins with.
    pub(super) fn process_slots(&self) -> u64 {
        self.pools.saturating_mul(self.pool_slots())
    }

    /// Connections and their replacements, of the whole fleet.
    pub(super) fn slots(&self) -> u64 {
        self.processes().saturating_mul(self.process_slots())
    }

    /// Connections that the fleet can hold: what it wants, within the limits.
    pub(super) fn held(&self) -> u64 {
        let limit =
            if self.leases.is_some() { self.limit.min(self.cluster_limit) } else { self.cluster_limit };
        self.total().min(limit)
    }

    /// The part of the cluster's limit that is in use, in hundredths, rounded up.
    pub(super) fn used_percent(&self) -> u64 {
        self.total().saturating_mul(100).div_ceil(self.cluster_limit.max(1))
    }

    /// The part of the cluster's limit that is left, in hundredths, rounded down.
    pub(super) fn headroom_percent(&self) -> u64 {
        100u64.saturating_sub(self.used_percent())
    }

    pub(super) fn shortest_life(&self) -> Duration {
        self.lifetime.saturating_sub(self.jitter / 2)
    }

    pub(super) fn longest_life(&self) -> Duration {
        self.lifetime.saturating_add(self.jitter / 2)
    }

    /// Whether connections can be lent at all.
    pub(super) fn can_lend(&self) -> bool {
        self.guard_window < self.shortest_life()
    }

    /// The fleet with all pools of a process as one: what the simulator can run.
    pub(super) fn with_one_pool(&self) -> Self {
        Self { pools: 1, connections: self.per_process(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification's table of deployments.
    #[test]
    fn totals_and_headroom_are_those_of_the_specification() {
        for (instances, connections, total, headroom) in
            [(2, 25, 400, 96), (5, 50, 2_000, 80), (10, 50, 4_000, 60), (20, 50, 8_000, 20)]
        {
            let fleet = Fleet::of(4, instances, 2, connections);
            assert_eq!((fleet.total(), fleet.headroom_percent()), (total, headroom));
        }
    }

    /// The specification's sizing guidelines: pool, target and low watermark. The target is the pool.
    #[test]
    fn watermarks_are_those_of_the_specification() {
        let watermarks = [
            (Watermark::Auto, 10, 10),
            (Watermark::Auto, 50, 50),
            (Watermark::Half, 50, 25),
            (Watermark::Auto, 100, 100),
            (Watermark::Auto, 500, 250),
        ];
        for (watermark, pool, expected) in watermarks {
            assert_eq!(watermark.of(pool), expected, "{pool}");
        }
        assert_eq!([Watermark::All.of(500), Watermark::Half.of(1)], [500, 1]);
        assert_eq!([10, 50].map(|pool| Watermark::Exactly(30).of(pool)), [10, 30]);
    }

    #[test]
    fn absurd_sizes_saturate() {
        let fleet = Fleet::of(u64::MAX, 2, 2, u64::MAX);
        assert_eq!((fleet.total(), fleet.slots(), fleet.headroom_percent()), (u64::MAX, u64::MAX, 0));
    }
    #[test]
    fn equal_parts_stay_within_the_cluster_s_rate() {
        for (processes, per_second, burst) in [
            (1, 100.0, 1_000),
            (3, 33.0, 333),
            (40, 2.5, 25),
            (500, 0.2, 2),
            (1_024, 0.097, 1),
            (20_000, 0.005, 1),
        ] {
            let part = LocalRate::part(CLUSTER_RATE, CLUSTER_BURST, processes);
            assert_eq!(part, LocalRate { per_second, burst }, "{processes}");
            assert!(part.per_second * processes as f64 <= CLUSTER_RATE as f64, "{processes}");
        }
    }
}
