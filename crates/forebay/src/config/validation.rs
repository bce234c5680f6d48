//! Validation of the settings.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::{Config, Fill};
use crate::duration::show;

impl Config {
    /// Checks each setting, and how the settings fit together.
    ///
    /// # Errors
    /// Returns all problems, not just the first one.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut problems = Vec::new();
        let mut demand = |holds: bool, setting: &'static str, value: &dyn fmt::Display, allowed: String| {
            if !holds {
                problems.push(Problem { setting: setting.into(), value: value.to_string(), allowed });
            }
        };
        let max_open = self.max_open;
        demand(max_open >= 1, "max_open", &max_open, "at least 1".into());
        let most = Self::MAX_OPEN_LIMIT;
        demand(max_open <= most, "max_open", &max_open, format!("at most {most}"));
        let at_most_open = || format!("at most max_open, which is {max_open}");
        let overlap = self.overlap_or_default();
        demand(overlap <= max_open.max(1), "overlap", &overlap, at_most_open());
        match self.fill {
            Fill::ToTarget { low_watermark: Some(mark), .. } => {
                demand(mark <= max_open, "low_watermark", &mark, at_most_open());
            }
            Fill::OnDemand { min_idle } => {
                demand(min_idle <= max_open, "min_idle", &min_idle, at_most_open())
            }
            Fill::ToTarget { .. } => {}
        }
        if let Some(life) = &self.lifetime {
            let shortest = life.shortest();
            demand(!life.base.is_zero(), "base_lifetime", &show(life.base), "above zero".into());
            demand(
                life.guard < shortest,
                "guard_window",
                &show(life.guard),
                format!("below the shortest life (base - jitter/2), which is {}", show(shortest)),
            );
            if let Some(limit) = self.server_limit {
                demand(
                    life.longest() < limit,
                    "base_lifetime",
                    &show(life.base),
                    format!(
                        "so short that base + jitter/2, now {}, is below the server's limit of {}",
                        show(life.longest()),
                        show(limit)
                    ),
                );
            }
        }
        demand(self.rate.is_finite() && self.rate > 0.0, "rate", &self.rate, "a number above zero".into());
        demand(self.burst >= 1, "burst", &self.burst, "at least 1".into());
        demand(self.inflight_limit >= 1, "inflight_limit", &self.inflight_limit, "at least 1".into());
        for (name, timeout) in [
            ("open_timeout", self.open_timeout),
            ("maintenance_timeout", self.maintenance_timeout),
            ("close_timeout", self.close_timeout),
            ("max_backoff", self.max_backoff.unwrap_or(Duration::MAX)),
        ] {
            demand(!timeout.is_zero(), name, &show(timeout), "above zero".into());
        }
        for (name, idle) in [("idle_timeout", self.idle_timeout), ("check_after", self.check_after)] {
            demand(
                idle.is_none_or(|idle| idle >= Duration::from_millis(1)),
                name,
                &show(idle.unwrap_or_default()),
                "at least 1ms, or not set".into(),
            );
        }
        if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
    }
}

/// A setting with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The name of the setting; the name of the variable, if it came from the environment.
    pub setting: Cow<'static, str>,
    /// The invalid value.
    pub value: String,
    /// What is allowed: the end of a sentence that begins with "must be".
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, but must be {}", self.setting, self.value, self.allowed)
    }
}

/// All settings with invalid values.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} in the configuration:{}", count(.problems.len()), list(.problems))]
pub struct ConfigError {
    /// The problems, in the order of the settings.
    pub problems: Vec<Problem>,
}

/// The text, as a `main` that returns the error prints it. `{:#?}` shows the fields.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        f.debug_struct("ConfigError").field("problems", &self.problems).finish()
    }
}

fn count(problems: usize) -> String {
    if problems == 1 { "1 problem".into() } else { format!("{problems} problems") }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  - {problem}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lifetime;

    #[test]
    fn all_problems_are_reported_at_once() {
        let minute = Duration::from_secs(60);
        let error = Config::default()
            .max_open(0)
            .low_watermark(1)
            .lifetime(Lifetime::new(60 * minute).jitter(2 * minute).guard_window(60 * minute))
            .server_limit(60 * minute)
            .rate(f64::NAN, 0)
            .inflight_limit(0)
            .open_timeout(Duration::ZERO)
            .idle_timeout(Duration::ZERO)
            .validate()
            .unwrap_err();
        let settings: Vec<_> = error.problems.iter().map(|problem| &*problem.setting).collect();
        assert_eq!(
            settings,
            [
                "max_open",
                "low_watermark",
                "guard_window",
                "base_lifetime",
                "rate",
                "burst",
                "inflight_limit",
                "open_timeout",
                "idle_timeout"
            ]
        );
        let text = error.to_string();
        assert!(
            text.starts_with("9 problems in the configuration:\n  - max_open is 0, but must be at least 1")
        );
        assert!(text.contains("guard_window is 1h0m0s, but must be below the shortest life"));
    }

    #[test]
    fn limits_are_exclusive_where_they_say_so() {
        let config = |life: Lifetime| Config::default().lifetime(life).server_limit(Duration::from_secs(61));
        let life = Lifetime::new(Duration::from_secs(60));
        assert!(config(life).validate().is_ok());
        assert!(config(life.jitter(Duration::from_secs(2))).validate().is_err());
        assert!(config(life.guard_window(Duration::from_secs(60))).validate().is_err());
        assert!(Config::default().max_open(Config::MAX_OPEN_LIMIT).validate().is_ok());
        assert!(Config::default().max_open(Config::MAX_OPEN_LIMIT + 1).validate().is_err());
        assert!(Config::default().max_open(5).on_demand(5).validate().is_ok());
        assert!(Config::default().max_open(5).on_demand(6).validate().is_err());
    }
}
