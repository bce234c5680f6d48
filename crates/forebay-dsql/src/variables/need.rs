//! Variables that have an effect only together with others: one table for the manual and for the warnings.

use forebay_fleet::{LeaseMode, RateMode, StoreOutagePolicy};

use super::{self as var, Variable};
use crate::settings::Settings;

/// What some variables need to have an effect. In the texts, `{P}` is the prefix.
pub(crate) struct Need {
    pub(crate) variables: &'static [Variable],
    /// When they have an effect.
    pub(crate) when: &'static str,
    /// Why they have none.
    otherwise: &'static str,
    pub(crate) holds: fn(&Settings) -> bool,
    /// Who sets one of these has decided: what belongs to it is not warned about while it is off.
    pub(crate) switches: &'static [Variable],
    /// Whether settings that are read say that it holds. A program may use [`Settings::config`] for a reservoir of its own,
    /// whatever the mode is.
    pub(crate) warns: bool,
}

impl Need {
    /// The remark on a variable that has no effect.
    pub(crate) fn remark(&self, prefix: &str) -> String {
        format!("no effect: {}", self.otherwise.replace("{P}", prefix))
    }
}

/// Every need. A variable that is in none always has an effect; one that is in several needs all of them.
pub(crate) const NEEDS: &[Need] = &[
    Need {
        variables: &[
            var::RESERVOIR_TARGET_READY,
            var::RESERVOIR_LOW_WATERMARK,
            var::RESERVOIR_BASE_LIFETIME,
            var::RESERVOIR_LIFETIME_JITTER,
            var::RESERVOIR_GUARD_WINDOW,
            var::RESERVOIR_INITIAL_FILL_TIMEOUT,
            var::RESERVOIR_EMPTY_WAIT,
        ],
        when: "`{P}_RESERVOIR_ENABLED` is true",
        otherwise: "{P}_RESERVOIR_ENABLED is not true",
        holds: |settings| settings.reservoir_enabled,
        switches: &[var::RESERVOIR_ENABLED],
        warns: false,
    },
    Need {
        variables: &[var::WARMUP_STAGGER, var::KEEPER_TICK, var::KEEPER_MAX],
        when: "`{P}_RESERVOIR_ENABLED` is not true",
        otherwise: "{P}_RESERVOIR_ENABLED is true",
        holds: |settings| !settings.reservoir_enabled,
        switches: &[],
        warns: true,
    },
    Need {
        variables: &[
            var::LEASE_TABLE,
            var::LEASE_LIMIT,
            var::LEASE_MODE,
            var::LEASE_HEARTBEAT,
            var::LEASE_LENGTH,
            var::LEASE_BLOCK,
        ],
        when: "`{P}_DISTRIBUTED_CONN_LEASE_ENABLED` is true",
        otherwise: "{P}_DISTRIBUTED_CONN_LEASE_ENABLED is not true",
        holds: |settings| settings.leases.is_some(),
        switches: &[var::LEASE_ENABLED],
        warns: true,
    },
    Need {
        variables: &[var::LEASE_BLOCK],
        when: "`{P}_DISTRIBUTED_CONN_LEASE_MODE` is `ledger`",
        otherwise: "{P}_DISTRIBUTED_CONN_LEASE_MODE is counter",
        holds: |settings| settings.leases.as_ref().is_none_or(|leases| leases.mode == LeaseMode::Ledger),
        switches: &[],
        warns: true,
    },
    Need {
        variables: &[var::RATE_TABLE, var::RATE_LIMIT, var::RATE_MAX_WAIT, var::RATE_MODE, var::RATE_BURST],
        when: "`{P}_DISTRIBUTED_RATE_LIMITER_ENABLED` is true",
        otherwise: "{P}_DISTRIBUTED_RATE_LIMITER_ENABLED is not true",
        holds: |settings| settings.rate.is_some(),
        switches: &[var::RATE_ENABLED],
        warns: true,
    },
    Need {
        variables: &[var::RATE_BURST],
        when: "`{P}_DISTRIBUTED_RATE_LIMITER_MODE` is `bucket`",
        otherwise: "{P}_DISTRIBUTED_RATE_LIMITER_MODE is window",
        holds: |settings| settings.rate.as_ref().is_none_or(|rate| rate.mode == RateMode::Bucket),
        switches: &[],
        warns: true,
    },
    Need {
        variables: &[var::CONNECTION_RATE_LIMIT, var::CONNECTION_BURST_LIMIT],
        when: "`{P}_DISTRIBUTED_RATE_LIMITER_ENABLED` is not true, or `{P}_DISTRIBUTED_AWAY_POLICY` is `local`: then during outages",
        otherwise: "{P}_DISTRIBUTED_RATE_LIMITER_ENABLED is true, and {P}_DISTRIBUTED_AWAY_POLICY is not local",
        holds: |settings| settings.rate.is_none() || settings.outage_policy == StoreOutagePolicy::Local,
        switches: &[],
        warns: true,
    },
    Need {
        variables: &[var::OUTAGE_POLICY],
        when: "`{P}_DISTRIBUTED_CONN_LEASE_ENABLED` or `{P}_DISTRIBUTED_RATE_LIMITER_ENABLED` is true",
        otherwise: "neither {P}_DISTRIBUTED_CONN_LEASE_ENABLED nor {P}_DISTRIBUTED_RATE_LIMITER_ENABLED is true",
        holds: |settings| settings.leases.is_some() || settings.rate.is_some(),
        switches: &[var::LEASE_ENABLED, var::RATE_ENABLED],
        warns: true,
    },
    Need {
        variables: &[var::DESK_TOKEN],
        when: "`{P}_DESK_LISTEN` is set",
        otherwise: "{P}_DESK_LISTEN is not set",
        holds: |settings| settings.status_page.is_some(),
        switches: &[],
        warns: true,
    },
];

/// The manual's table of needs, in Markdown, for this prefix.
#[must_use]
pub fn manual_needs(prefix: &str) -> String {
    let rows = NEEDS.iter().map(|need| {
        let names = need.variables.iter().map(|variable| format!("`{}`", variable.full_name(prefix)));
        let names: Vec<_> = names.collect();
        format!("| {} | {} |\n", names.join(", "), need.when.replace("{P}", prefix))
    });
    format!("| variables | have an effect if |\n|---|---|\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variables in a text.
    fn named(text: &str) -> impl Iterator<Item = &str> {
        text.split("{P}_").skip(1).map(|rest| {
            let end = rest.find(|letter: char| letter != '_' && !letter.is_ascii_uppercase());
            &rest[..end.unwrap_or(rest.len())]
        })
    }

    #[test]
    fn texts_name_variables_that_exist() {
        for need in NEEDS {
            let names: Vec<_> = named(need.when).chain(named(need.otherwise)).collect();
            assert!(names.len() >= 2, "{}", need.when);
            for name in names {
                assert!(var::all().any(|variable| variable.prefixed && variable.name == name), "{name}");
            }
        }
    }
}
