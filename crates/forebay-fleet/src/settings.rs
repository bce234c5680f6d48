//! The settings of a fleet.

use forebay::{Config, ConfigError};

mod lease;
mod rate;

pub use lease::{LeaseMode, LeaseSettings};
pub use rate::{RateMode, RateSettings};

/// The settings of a fleet, as one process has them: one of these for each endpoint, shared by all pools of the process.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FleetSettings {
    /// Host of the cluster, in lower case and without a port: the key of every shared item.
    pub endpoint: String,
    /// The name of this service: the label `service`, `service_name` of a lease, and the beginning of the instance's name.
    pub service: String,
    /// What metrics' names begin with. Default: `dsql`.
    pub metrics_prefix: String,
    /// How the fleet counts its connections, if it does.
    pub leases: Option<LeaseSettings>,
    /// How the fleet shares its connect rate, if it does.
    pub rate: Option<RateSettings>,
    /// What an instance may do while the table does not answer. Default: local.
    pub outage_policy: StoreOutagePolicy,
    /// Connections that all pools of this process to the endpoint may hold together, replacements included. The process
    /// joins with so many slots. It may open so many on its own if the table does not answer before it has joined.
    /// [`for_pools`](Self::for_pools) computes it. Default: 100.
    pub max_open: u64,
    /// Opens a second while the table does not answer. Default: 10.
    pub local_rate: f64,
    /// Opens at once after a quiet time while the table does not answer. Default: 100.
    pub local_burst: u32,
}

/// What an instance may do while the shared store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreOutagePolicy {
    /// It goes on opening connections within the slots it holds already, at the local rate.
    #[default]
    Local,
    /// It opens no connections, and goes on serving those it has.
    Closed,
    /// It also closes its connections before its lease could be taken away.
    Strict,
}

impl FleetSettings {
    /// Settings for an endpoint, with neither leases nor a shared rate yet. Of the endpoint, the [host](cluster_host) counts.
    pub fn new(endpoint: impl AsRef<str>, service: impl Into<String>) -> Self {
        Self {
            endpoint: cluster_host(endpoint.as_ref()),
            service: service.into(),
            metrics_prefix: "dsql".to_owned(),
            leases: None,
            rate: None,
            outage_policy: StoreOutagePolicy::default(),
            max_open: 100,
            local_rate: 10.0,
            local_burst: 100,
        }
    }

    /// Lets the fleet count its connections.
    #[must_use]
    pub fn leases(mut self, leases: LeaseSettings) -> Self {
        self.leases = Some(leases);
        self
    }

    /// Lets the fleet share a connect rate.
    #[must_use]
    pub fn rate(mut self, rate: RateSettings) -> Self {
        self.rate = Some(rate);
        self
    }

    /// For a process with these pools to the endpoint. It gets slots for all their connections, replacements included
    /// ([`Config::max_with_overlap`]). While the table does not answer, all of them share the highest rate and burst of any.
    #[must_use]
    pub fn for_pools<'a>(mut self, pools: impl IntoIterator<Item = &'a Config>) -> Self {
        (self.max_open, self.local_rate, self.local_burst) = (0, 0.0, 0);
        for pool in pools {
            let connections = u64::try_from(pool.max_with_overlap()).unwrap_or(u64::MAX);
            self.max_open = self.max_open.saturating_add(connections);
            self.local_rate = self.local_rate.max(pool.rate);
            self.local_burst = self.local_burst.max(pool.burst);
        }
        self
    }

    /// Checks the settings together.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let parts = [
            self.leases.as_ref().map(LeaseSettings::validate),
            self.rate.as_ref().map(RateSettings::validate),
        ];
        let problems: Vec<_> =
            parts.into_iter().flatten().filter_map(Result::err).flat_map(|error| error.problems).collect();
        if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
    }
}

/// The host of a cluster as it is part of every key: in lower case, and without a scheme, a port or a path.
///
/// ```
/// assert_eq!(forebay_fleet::cluster_host("https://Abc.dsql.us-east-1.on.aws:5432/"), "abc.dsql.us-east-1.on.aws");
/// ```
#[must_use]
pub fn cluster_host(endpoint: &str) -> String {
    let host = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or(host);
    // One colon is a port; several are an address that has no port, or has it behind a bracket.
    let host = match host.rsplit_once(':') {
        Some((name, _)) if !name.contains(':') || name.ends_with(']') => name,
        _ => host,
    };
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_defaults_are_the_documented_numbers() {
        let leases = LeaseSettings::new("leases");
        assert_eq!((leases.table.as_str(), leases.limit, leases.mode), ("leases", 10_000, LeaseMode::Ledger));
        let (heartbeat, length) = (Duration::from_secs(30), Duration::from_secs(120));
        assert_eq!((leases.heartbeat, leases.length, leases.block), (heartbeat, length, 10));
        let rate = RateSettings::new("rates");
        assert_eq!((rate.table.as_str(), rate.per_second, rate.burst), ("rates", 100, 1000));
        assert_eq!((rate.max_wait, rate.mode), (Duration::from_secs(30), RateMode::Bucket));
        let settings = FleetSettings::new("host", "history").leases(leases).rate(rate);
        assert_eq!((settings.max_open, settings.local_rate, settings.local_burst), (100, 10.0, 100));
        assert_eq!(settings.outage_policy, StoreOutagePolicy::Local);
        settings.validate().unwrap();
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let second = Duration::from_secs(1);
        let leases = LeaseSettings::new("leases").limit(0).heartbeat(second / 2).length(second / 4).block(0);
        let rate = RateSettings::new("rates").rate(0, 0).max_wait(Duration::ZERO);
        let error = FleetSettings::new("host", "history").leases(leases).rate(rate).validate().unwrap_err();
        let settings: Vec<_> = error.problems.iter().map(|problem| &*problem.setting).collect();
        assert_eq!(
            settings,
            [
                "leases.limit",
                "leases.heartbeat",
                "leases.length",
                "leases.length",
                "leases.block",
                "rate.per_second",
                "rate.burst",
                "rate.max_wait"
            ]
        );
    }

    #[test]
    fn of_a_heartbeat_and_a_length_that_do_not_fit_the_one_that_was_set_is_named() {
        let told = |settings: LeaseSettings| settings.validate().unwrap_err().problems.remove(0).to_string();
        let second = Duration::from_secs(1);
        assert_eq!(
            told(LeaseSettings::new("t").length(30 * second)),
            "leases.length is 30s, but must be above the heartbeat, which is 30s"
        );
        assert_eq!(
            told(LeaseSettings::new("t").heartbeat(300 * second)),
            "leases.heartbeat is 5m0s, but must be below the length of a lease, which is 2m0s"
        );
    }

    #[test]
    fn a_process_joins_with_room_for_every_pool_and_its_replacements() {
        let large = Config::default().max_open(50).rate(5.0, 200);
        let small = Config::default().max_open(10).overlap(0).rate(20.0, 20);
        let settings = FleetSettings::new("host", "history").for_pools([&large, &small]);
        assert_eq!(settings.max_open, 50 + 3 + 10);
        assert_eq!((settings.local_rate, settings.local_burst), (20.0, 200));
    }
}
