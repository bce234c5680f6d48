//! How a fleet shares its connect rate.

use std::time::Duration;

use forebay::{ConfigError, Problem, duration::show};

/// A connect rate across the fleet: how fast all instances may open connections together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateSettings {
    /// The name of the table, for the code that opens it and for error messages.
    pub table: String,
    /// Opens a second. Default: 100, Aurora DSQL's quota.
    pub per_second: u64,
    /// Opens at once after a quiet time. Default: 1000, Aurora DSQL's quota.
    pub burst: u64,
    /// How long an open waits for a permit. Default: 30 s.
    pub max_wait: Duration,
    /// How the fleet shares the rate. Default: bucket.
    pub mode: RateMode,
}

/// How a fleet shares its connect rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateMode {
    /// One item, reserved ahead.
    #[default]
    Bucket,
    /// One item for each second.
    Window,
}

impl RateSettings {
    /// A rate in this table, with the defaults of everything else.
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            per_second: 100,
            burst: 1000,
            max_wait: Duration::from_secs(30),
            mode: RateMode::default(),
        }
    }

    /// Sets the opens a second, and the opens at once after a quiet time.
    #[must_use]
    pub fn rate(mut self, per_second: u64, burst: u64) -> Self {
        (self.per_second, self.burst) = (per_second, burst);
        self
    }

    /// Sets how long an open waits for a permit.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = wait;
        self
    }

    /// Sets how the fleet shares the rate.
    #[must_use]
    pub fn mode(mut self, mode: RateMode) -> Self {
        self.mode = mode;
        self
    }

    /// Checks the settings together.
    ///
    /// # Errors
    /// Every problem, each with what is allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let problems: Vec<Problem> = [
            ("rate.per_second", self.per_second.to_string(), self.per_second >= 1, "at least 1"),
            ("rate.burst", self.burst.to_string(), self.burst >= 1, "at least 1"),
            ("rate.max_wait", show(self.max_wait), !self.max_wait.is_zero(), "above zero"),
        ]
        .into_iter()
        .filter(|(_, _, holds, _)| !holds)
        .map(|(setting, value, _, allowed)| Problem {
            setting: setting.into(),
            value,
            allowed: allowed.to_owned(),
        })
        .collect();
        if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
    }
}
