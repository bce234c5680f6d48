//! Settings for the fleet, as an env file.

use std::fmt::Write;
use std::time::Duration;

use forebay_fleet::{LeaseMode, RateMode};

use super::fleet::{CLUSTER_BURST, CLUSTER_RATE, Fleet, LocalRate, Rate, SESSION_LENGTH};
use super::number::{about, exact, plural};
use super::prediction::Prediction;
use super::warning::{FULL, LONG_LIFETIME};

/// The settings that fit a fleet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Suggestion {
    /// The fleet with these settings.
    pub(super) fleet: Fleet,
    pub(super) settings: Vec<Setting>,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) variable: &'static str,
    pub(super) value: String,
    /// Why it has this value, if that is not obvious.
    pub(super) reason: Option<String>,
}

const MINUTE: Duration = Duration::from_secs(60);
/// Time between the longest life and the end of a session.
const MARGIN: Duration = Duration::from_secs(2 * 60);
/// A wider jitter would leave too little of a session.
const WIDEST_JITTER: Duration = Duration::from_secs(20 * 60);
const NARROWEST_JITTER: Duration = Duration::from_secs(2 * 60);
const GUARD_WINDOW: Duration = Duration::from_secs(45);
/// How long a start waits for its connections at least.
const FILL_TIMEOUT: Duration = Duration::from_secs(30);

impl Suggestion {
    /// Settings for this fleet. What was `lifetime_given` stays if it is sound. `table` is the DynamoDB table.
    pub(super) fn of(fleet: &Fleet, lifetime_given: bool, table: &str) -> Self {
        let mut suggested = fleet.clone();
        let pools = fleet.processes().saturating_mul(fleet.pools).max(1);
        let room = fleet.cluster_limit.saturating_mul(FULL) / 100 / pools;
        suggested.connections = fleet.connections.min(room.max(1));
        suggested.limit = fleet.limit.min(fleet.cluster_limit);
        coordinate(&mut suggested);
        let fill = Prediction::cold_start(&suggested).time;
        suggested.jitter = fleet.jitter.max(NARROWEST_JITTER).max(whole(fill, MINUTE)).min(WIDEST_JITTER);
        let longest = SESSION_LENGTH - MARGIN - suggested.jitter / 2;
        let is_sound = lifetime_given && fleet.lifetime > fill && fleet.lifetime > suggested.jitter;
        suggested.lifetime = if is_sound { fleet.lifetime.min(longest) } else { LONG_LIFETIME.min(longest) };
        if suggested.guard_window >= suggested.shortest_life() / 2 {
            suggested.guard_window = GUARD_WINDOW.min(suggested.shortest_life() / 4);
        }
        suggested.fill_timeout =
            fleet.fill_timeout.max(FILL_TIMEOUT).max(whole(fill * 3 / 2, Duration::from_secs(10)));
        let settings = settings(fleet, &suggested, fill, table);
        Self { fleet: suggested, settings }
    }

    /// The env file.
    pub(super) fn env_file(&self) -> String {
        let mut text = String::new();
        for Setting { variable, value, reason } in &self.settings {
            if let Some(reason) = reason {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "# {reason}");
            }
            let _ = writeln!(text, "{variable}={value}");
        }
        text
    }
}

/// Leases and a shared rate if there is anybody to share with, within the quotas of the cluster.
fn coordinate(fleet: &mut Fleet) {
    let (rate, burst) = (fleet.rate.per_second.min(CLUSTER_RATE), fleet.rate.burst.min(CLUSTER_BURST));
    fleet.rate = Rate { per_second: rate, burst };
    let processes = fleet.processes().max(1);
    if processes > 1 {
        (fleet.leases, fleet.sharing) = (Some(LeaseMode::Ledger), Some(RateMode::Bucket));
        // For the time without a table: all processes together stay within the rate.
        fleet.local_rate = LocalRate::part(rate, burst, processes);
    } else {
        (fleet.leases, fleet.sharing) = (None, None);
        let burst = burst.min(fleet.per_process()).max(1);
        fleet.local_rate = LocalRate { per_second: rate as f64, burst };
    }
}

/// Rounded up to whole units.
fn whole(time: Duration, unit: Duration) -> Duration {
    let units = time.as_nanos().div_ceil(unit.as_nanos().max(1));
    unit.saturating_mul(u32::try_from(units).unwrap_or(u32::MAX))
}

fn settings(before: &Fleet, fleet: &Fleet, fill: Duration, table: &str) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut set = |variable: &'static str, value: String, reason: Option<String>| {
        settings.push(Setting { variable, value, reason });
    };
    let pool = fleet.connections;
    set("DSQL_RESERVOIR_ENABLED", "true".to_owned(), None);
    let fewer = (pool < before.connections).then(|| {
        format!("{}, not {}: {FULL} % of the cluster's connections at most", pool, before.connections)
    });
    set(
        "DSQL_MAX_CONNS",
        pool.to_string(),
        fewer.or_else(|| Some("Of each pool; the target is the same.".to_owned())),
    );
    set("DSQL_RESERVOIR_TARGET_READY", pool.to_string(), None);
    set("DSQL_RESERVOIR_LOW_WATERMARK", fleet.watermark.of(pool).to_string(), None);
    let longer = (fleet.lifetime > before.lifetime).then(|| {
        let times = fleet.lifetime.as_secs_f64() / before.lifetime.as_secs_f64().max(1.0);
        format!("{times:.0} times fewer opens than with {}; sessions end after 60m.", exact(before.lifetime))
    });
    set("DSQL_RESERVOIR_BASE_LIFETIME", exact(fleet.lifetime), longer);
    let jitter = Some(format!("At least the fill time of {}.", about(fill)));
    set("DSQL_RESERVOIR_LIFETIME_JITTER", exact(fleet.jitter), jitter);
    set(
        "DSQL_RESERVOIR_GUARD_WINDOW",
        exact(fleet.guard_window),
        Some("Longer than your longest transaction.".to_owned()),
    );
    let patience = Some("Half as long again as a cold start of all processes, at least 30s.".to_owned());
    set("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", exact(fleet.fill_timeout), patience);
    let staggered = !fleet.startup_jitter.is_zero();
    set("DSQL_STAGGERED_STARTUP", staggered.to_string(), None);
    if staggered {
        set("DSQL_STAGGERED_STARTUP_MAX_DELAY", exact(fleet.startup_jitter), None);
    }
    if fleet.leases.is_some() {
        let shared = format!(
            "One budget for {}.",
            plural(fleet.processes(), "process").replace("processs", "processes")
        );
        set("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true".to_owned(), Some(shared));
        set("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", table.to_owned(), None);
        set("DSQL_DISTRIBUTED_CONN_LEASE_MODE", "ledger".to_owned(), None);
        set("DSQL_DISTRIBUTED_CONN_LIMIT", fleet.limit.to_string(), None);
        set("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true".to_owned(), None);
        set("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", table.to_owned(), None);
        set("DSQL_DISTRIBUTED_RATE_LIMITER_MODE", "bucket".to_owned(), None);
        set("DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT", fleet.rate.per_second.to_string(), None);
        set("DSQL_DISTRIBUTED_RATE_LIMITER_BURST", fleet.rate.burst.to_string(), None);
    }
    let local = match fleet.sharing {
        None => "One process needs no table: its own rate is the cluster's.",
        // Not even a burst of one each stays within the cluster's.
        Some(_) if fleet.processes() > fleet.rate.burst => {
            "Of each process, while the table is unavailable. All at once are then more\n\
             # than the cluster's burst; DSQL_DISTRIBUTED_AWAY_POLICY=closed opens nothing."
        }
        Some(_) => "Of each process, while the table is unavailable: an equal part of the rate.",
    };
    set("DSQL_CONNECTION_RATE_LIMIT", fleet.local_rate.per_second.to_string(), Some(local.to_owned()));
    set("DSQL_CONNECTION_BURST_LIMIT", fleet.local_rate.burst.to_string(), None);
    settings
}

#[cfg(test)]
mod tests {
    use forebay_dsql::EnvReader;
    use proptest::prelude::*;

    use super::super::warning::{Kind, warnings};
    use super::*;

    fn suggest(fleet: &Fleet) -> Suggestion {
        Suggestion::of(fleet, false, "forebay")
    }

    #[test]
    fn the_default_lifetime_becomes_55_minutes() {
        let suggestion = suggest(&Fleet::of(4, 10, 2, 50)).fleet;
        assert_eq!((suggestion.lifetime, suggestion.jitter), (55 * MINUTE, 2 * MINUTE));
        assert_eq!(suggestion.fill_timeout, Duration::from_secs(70), "a cold start takes 41 s");
        let given = Fleet { lifetime: 20 * MINUTE, ..Fleet::of(4, 10, 2, 50) };
        assert_eq!(Suggestion::of(&given, true, "t").fleet.lifetime, 20 * MINUTE);
        let long = Fleet { lifetime: 70 * MINUTE, ..Fleet::of(4, 10, 2, 50) };
        assert_eq!(Suggestion::of(&long, true, "t").fleet.lifetime, 57 * MINUTE);
    }

    #[test]
    fn a_fleet_that_is_too_large_gets_fewer_connections() {
        let suggestion = suggest(&Fleet::of(4, 20, 2, 100));
        assert_eq!(suggestion.fleet.connections, 50);
        assert!(suggestion.env_file().contains("# 50, not 100: 80 %"), "{}", suggestion.env_file());
    }

    /// The rates of all processes together are within the cluster's, also while there is no table.
    #[test]
    fn five_hundred_processes_get_a_part_of_one_open_per_second() {
        let suggestion = suggest(&Fleet::of(5, 100, 1, 10));
        let file = suggestion.env_file();
        assert!(file.contains("\nDSQL_CONNECTION_RATE_LIMIT=0.2\nDSQL_CONNECTION_BURST_LIMIT=2\n"), "{file}");
        assert!(!file.contains("AWAY_POLICY"), "{file}");
        let crowd = suggest(&Fleet::of(5, 300, 1, 4)).env_file();
        assert!(crowd.contains("AWAY_POLICY=closed opens nothing"), "{crowd}");
        assert!(crowd.lines().all(|line| line.chars().count() <= 80), "{crowd}");
    }

    #[test]
    fn one_process_needs_no_table() {
        let suggestion = suggest(&Fleet::of(1, 1, 2, 50));
        assert_eq!((suggestion.fleet.leases, suggestion.fleet.sharing), (None, None));
        assert_eq!(suggestion.fleet.local_rate, LocalRate { per_second: 100.0, burst: 100 });
        assert!(!suggestion.env_file().contains("DISTRIBUTED"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// A service starts with what is suggested for any fleet, and reads the same settings from it.
        #[test]
        fn a_service_starts_with_it(
            services in 1u64..6, instances in 1u64..60, pools in 1u64..4, connections in 1u64..500,
            lifetime in 1u64..7200, jitter in 0u64..3600, guard in 0u64..7200, given in any::<bool>(),
        ) {
            let fleet = Fleet {
                lifetime: Duration::from_secs(lifetime),
                jitter: Duration::from_secs(jitter),
                guard_window: Duration::from_secs(guard),
                ..Fleet::of(services, instances, pools, connections)
            };
            let suggestion = Suggestion::of(&fleet, given, "forebay");
            let file = suggestion.env_file();
            let lines = file.lines().filter(|line| !line.starts_with('#'));
            let variables = lines.filter_map(|line| line.split_once('='));
            let read = EnvReader::new("DSQL").server_limit(SESSION_LENGTH).read(variables);
            let settings = read.unwrap_or_else(|error| panic!("{error}:\n{file}"));
            prop_assert!(settings.notes.is_empty(), "{:?}", settings.notes);
            let life = settings.config.lifetime.unwrap_or_default();
            prop_assert_eq!((life.base, life.jitter, life.guard),
                (suggestion.fleet.lifetime, suggestion.fleet.jitter, suggestion.fleet.guard_window));
            prop_assert_eq!(settings.config.max_open as u64, suggestion.fleet.connections);
            prop_assert_eq!(settings.leases.is_some(), fleet.processes() > 1);
            prop_assert!(settings.config.rate * fleet.processes() as f64 <= 100.0, "{}", settings.config.rate);
            let left = warnings(&suggestion.fleet, &Prediction::of(&suggestion.fleet));
            // Small pools of many processes can exceed the limit whatever is set, and a process can be too large.
            let beyond = [Kind::Headroom, Kind::AboveLimit, Kind::NoOverlap, Kind::SplitSlots, Kind::ShortLifetime];
            prop_assert!(left.iter().all(|warning| beyond.contains(&warning.kind)), "{left:?}");
        }
    }
}
