//! What a process is told of its fleet.

use forebay::{AwayPolicy, Config, ConfigError, Environment, LeaseSettings, Problem, RateSettings, duration};

/// What a process is told of its fleet: one of these for each endpoint, shared by all its pools.
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
    /// What holds while the table is away. Default: local.
    pub away: AwayPolicy,
    /// Connections that all pools of this process to the endpoint may hold together, replacements included. It joins with so many slots, and may
    /// open so many on its own if the table is away before it has joined. [`for_pools`](Self::for_pools) reckons it. Default: 100.
    pub max_open: u64,
    /// Opens a second while the table is away, and as many at once as the next. Default: 10.
    pub local_rate: f64,
    /// Default: 100.
    pub local_burst: u32,
}

impl FleetSettings {
    /// Settings for an endpoint, with neither leases nor a shared rate yet.
    pub fn new(endpoint: impl Into<String>, service: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            service: service.into(),
            metrics_prefix: "dsql".to_owned(),
            leases: None,
            rate: None,
            away: AwayPolicy::default(),
            max_open: 100,
            local_rate: 10.0,
            local_burst: 100,
        }
    }

    /// What an environment says of the fleet; none if it asks for neither leases nor a shared rate, or names no endpoint.
    /// How much this process may open, and how fast on its own, is the caller's to add with [`for_pools`](Self::for_pools): only the caller
    /// knows all its pools.
    ///
    /// ```
    /// let environment = forebay::EnvReader::new("DSQL").read([
    ///     ("CLUSTER_ENDPOINT", "db.example"),
    ///     ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
    ///     ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "leases"),
    /// ]);
    /// let settings = forebay_fleet::FleetSettings::from_environment(&environment?);
    /// assert!(settings.is_some_and(|settings| settings.rate.is_none()));
    /// # Ok::<(), forebay::ConfigError>(())
    /// ```
    #[must_use]
    pub fn from_environment(environment: &Environment) -> Option<Self> {
        if environment.leases.is_none() && environment.rate.is_none() {
            return None;
        }
        Some(Self {
            leases: environment.leases.clone(),
            rate: environment.rate.clone(),
            away: environment.away,
            ..Self::new(environment.endpoint.clone()?, &environment.service)
        })
    }

    /// For a process with these pools to the endpoint: slots for all their connections, replacements included
    /// ([`Config::max_connections`]), and on its own the rate and the burst of the pool that has most of it, since all of them share it.
    #[must_use]
    pub fn for_pools<'a>(mut self, pools: impl IntoIterator<Item = &'a Config>) -> Self {
        (self.max_open, self.local_rate, self.local_burst) = (0, 0.0, 0);
        for pool in pools {
            let connections = u64::try_from(pool.max_connections()).unwrap_or(u64::MAX);
            let figures = pool.figures();
            self.max_open = self.max_open.saturating_add(connections);
            self.local_rate = self.local_rate.max(figures.rate);
            self.local_burst = self.local_burst.max(figures.burst);
        }
        self
    }

    /// Whether they make sense, also where they come from code.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let (shortest, largest) = (LeaseSettings::SHORTEST_BEAT, LeaseSettings::LARGEST_BLOCK);
        let mut problems = Vec::new();
        let mut problem = |setting: &'static str, value: String, allowed: String| {
            problems.push(Problem { setting: setting.into(), value, allowed });
        };
        if let Some(leases) = &self.leases {
            if leases.beat < shortest {
                let allowed = format!("at least {}: each is a write", duration::show(shortest));
                problem("leases.beat", duration::show(leases.beat), allowed);
            }
            if !(1..=largest).contains(&leases.block) {
                problem("leases.block", leases.block.to_string(), format!("from 1 to {largest}"));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_joins_with_room_for_every_pool_and_its_replacements() {
        let large = Config::default().max_open(50).rate(5.0, 200);
        let small = Config::default().max_open(10).overlap(0).rate(20.0, 20);
        let settings = FleetSettings::new("host", "history").for_pools([&large, &small]);
        assert_eq!(settings.max_open, 50 + 3 + 10);
        assert_eq!((settings.local_rate, settings.local_burst), (20.0, 200));
    }
}
