//! How a fleet counts its connections.

use std::time::Duration;

use forebay::{Config, ConfigError, Problem, duration::show};

/// Leases across the fleet: how many connections all instances may hold together, and who still counts as alive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseSettings {
    /// The name of the table, for the code that opens it and for error messages.
    pub table: String,
    /// Connections the fleet may hold. Default: 10 000, Aurora DSQL's quota.
    pub limit: u64,
    /// How the fleet counts. Default: ledger.
    pub mode: LeaseMode,
    /// How often an instance says that it lives. Default: 30 s; at least [`MIN_HEARTBEAT`](Self::MIN_HEARTBEAT).
    pub heartbeat: Duration,
    /// How long it is believed. Default: 120 s; at least 5 s, and longer than the heartbeat. A table counts
    /// whole seconds: a fraction is rounded up.
    pub length: Duration,
    /// Slots taken and given back at a time. Default: 10; at most [`MAX_BLOCK`](Self::MAX_BLOCK).
    pub block: u64,
}

/// How a fleet counts its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseMode {
    /// A few items that hold each instance's share.
    #[default]
    Ledger,
    /// One counter and an item for each connection.
    Counter,
}

impl LeaseSettings {
    /// Each heartbeat of each instance is a write and some reads: a shorter one is a typo.
    pub const MIN_HEARTBEAT: Duration = Duration::from_secs(1);
    /// As many as the largest reservoir can use.
    pub const MAX_BLOCK: u64 = Config::MAX_OPEN_LIMIT as u64;

    const DEFAULT_LENGTH: Duration = Duration::from_secs(120);

    /// Leases in this table, with the defaults of everything else.
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            limit: 10_000,
            mode: LeaseMode::default(),
            heartbeat: Duration::from_secs(30),
            length: Self::DEFAULT_LENGTH,
            block: 10,
        }
    }

    /// Sets how many connections the fleet may hold.
    #[must_use]
    pub fn limit(mut self, connections: u64) -> Self {
        self.limit = connections;
        self
    }

    /// Sets how the fleet counts.
    #[must_use]
    pub fn mode(mut self, mode: LeaseMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets how often an instance says that it lives.
    #[must_use]
    pub fn heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = every;
        self
    }

    /// Sets how long an instance is believed to live after a heartbeat.
    #[must_use]
    pub fn length(mut self, length: Duration) -> Self {
        self.length = length;
        self
    }

    /// Sets how many slots are taken and given back at a time.
    #[must_use]
    pub fn block(mut self, slots: u64) -> Self {
        self.block = slots;
        self
    }

    /// Checks the settings together.
    ///
    /// # Errors
    /// Every problem, each with what is allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (heartbeat, length) = (show(self.heartbeat), show(self.length));
        let mut problems = Vec::new();
        let mut problem = |setting: &'static str, value: &str, allowed: String| {
            problems.push(Problem { setting: setting.into(), value: value.to_owned(), allowed });
        };
        if self.limit == 0 {
            problem("leases.limit", "0", "at least 1".to_owned());
        }
        if self.heartbeat < Self::MIN_HEARTBEAT {
            let allowed = format!("at least {}: each is a write", show(Self::MIN_HEARTBEAT));
            problem("leases.heartbeat", &heartbeat, allowed);
        }
        // One call to a table may take as long.
        if self.length < Duration::from_secs(5) {
            problem("leases.length", &length, "at least 5s".to_owned());
        }
        // The one that is at its default was not the mistake.
        if self.length <= self.heartbeat && self.length == Self::DEFAULT_LENGTH {
            problem(
                "leases.heartbeat",
                &heartbeat,
                format!("below the length of a lease, which is {length}"),
            );
        } else if self.length <= self.heartbeat {
            problem("leases.length", &length, format!("above the heartbeat, which is {heartbeat}"));
        }
        if !(1..=Self::MAX_BLOCK).contains(&self.block) {
            problem("leases.block", &self.block.to_string(), format!("from 1 to {}", Self::MAX_BLOCK));
        }
        if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
    }
}
