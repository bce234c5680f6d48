//! The settings of a service, from its environment.

use forebay::{Fill, Lifetime};
use forebay_dsql::Settings;
use forebay_fleet::{LeaseSettings, RateSettings};

use super::fleet::{Fleet, LocalRate, Rate, Watermark};

/// The variable of the lifetime.
pub(super) const LIFETIME: &str = "DSQL_RESERVOIR_BASE_LIFETIME";

/// The limiter admits one open per hour at least. What is faster than this is not limited at all.
const SLOWEST: f64 = 1.0 / 3600.0;
const FASTEST: f64 = 1e6;

/// A fleet whose processes all have these settings. Their number is not in the environment.
pub(super) fn fleet(settings: &Settings) -> Fleet {
    let defaults = Fleet::default();
    let config = &settings.config;
    let Lifetime { base, jitter, guard } = config.lifetime.unwrap_or_default();
    let watermark = match config.fill {
        Fill::ToTarget { low_watermark: Some(watermark), .. } => Watermark::Exactly(watermark as u64),
        _ => Watermark::default(),
    };
    let leases = settings.leases.as_ref();
    let rate = settings.rate.as_ref();
    Fleet {
        connections: config.max_open as u64,
        watermark,
        lifetime: base,
        jitter,
        guard_window: guard,
        open_timeout: config.open_timeout,
        startup_jitter: config.startup_jitter,
        fill_timeout: config.fill_timeout,
        limit: leases.map_or(defaults.limit, |leases: &LeaseSettings| leases.limit),
        leases: leases.map(|leases| leases.mode),
        heartbeat: leases.map_or(defaults.heartbeat, |leases| leases.heartbeat),
        sharing: rate.map(|rate| rate.mode),
        rate: rate.map_or(defaults.rate, |rate: &RateSettings| Rate {
            per_second: rate.per_second,
            burst: rate.burst,
        }),
        local_rate: LocalRate {
            per_second: config.rate.clamp(SLOWEST, FASTEST),
            burst: u64::from(config.burst),
        },
        ..defaults
    }
}

/// The table in the environment.
pub(super) fn table(settings: &Settings) -> Option<&str> {
    let leases = settings.leases.as_ref().map(|leases| leases.table.as_str());
    leases.or_else(|| settings.rate.as_ref().map(|rate| rate.table.as_str()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_dsql::EnvReader;
    use forebay_fleet::{LeaseMode, RateMode};

    use super::*;

    #[test]
    fn an_empty_environment_is_a_fleet_without_coordination() {
        let settings = EnvReader::new("DSQL").read::<&str, &str>([]).unwrap();
        let expected = Fleet { leases: None, sharing: None, ..Fleet::default() };
        assert_eq!((fleet(&settings), table(&settings)), (expected, None));
    }

    #[test]
    fn every_setting_is_taken_over() {
        let settings = EnvReader::new("DSQL").read([
            ("DSQL_MAX_CONNS", "50"),
            ("DSQL_RESERVOIR_LOW_WATERMARK", "25"),
            ("DSQL_RESERVOIR_BASE_LIFETIME", "40m"),
            ("DSQL_RESERVOIR_LIFETIME_JITTER", "3m"),
            ("DSQL_RESERVOIR_GUARD_WINDOW", "1m"),
            ("DSQL_CONNECT_TIMEOUT", "4s"),
            ("DSQL_STAGGERED_STARTUP", "false"),
            ("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "50s"),
            ("DSQL_CONNECTION_RATE_LIMIT", "0.7"),
            ("DSQL_CONNECTION_BURST_LIMIT", "70"),
            ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
            ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "leases"),
            ("DSQL_DISTRIBUTED_CONN_LEASE_MODE", "counter"),
            ("DSQL_DISTRIBUTED_CONN_LEASE_BEAT", "20s"),
            ("DSQL_DISTRIBUTED_CONN_LIMIT", "9000"),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true"),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "rates"),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_MODE", "window"),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT", "80"),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_BURST", "800"),
        ]);
        let settings = settings.unwrap();
        let seconds = Duration::from_secs;
        let expected = Fleet {
            connections: 50,
            watermark: Watermark::Exactly(25),
            lifetime: seconds(2400),
            jitter: seconds(180),
            guard_window: seconds(60),
            open_timeout: seconds(4),
            startup_jitter: Duration::ZERO,
            fill_timeout: seconds(50),
            limit: 9000,
            leases: Some(LeaseMode::Counter),
            heartbeat: seconds(20),
            sharing: Some(RateMode::Window),
            rate: Rate { per_second: 80, burst: 800 },
            local_rate: LocalRate { per_second: 0.7, burst: 70 },
            ..Fleet::default()
        };
        assert_eq!((fleet(&settings), table(&settings)), (expected, Some("leases")));
    }
}
