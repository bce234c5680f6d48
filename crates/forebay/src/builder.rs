//! Builds a reservoir and starts it.

use std::fmt;
use std::sync::Arc;

use crate::config::{Config, ConfigError};
use crate::connect::Connect;
use crate::core::Core;
use crate::event::{Observer, Observers};
use crate::lease::{LeaseClient, Leases};
use crate::limit::{Limit, LocalLimit};
use crate::reservoir::Reservoir;
use crate::rt::{self, NoRuntime, Runtime};
use crate::seed::Seed;
use crate::tasks;

/// Builds a [`Reservoir`]. [`start`](Self::start) starts it.
#[must_use = "a builder does nothing until it is started"]
pub struct Builder<C> {
    connector: C,
    config: Config,
    runtime: Option<Arc<dyn Runtime>>,
    limit: Option<Arc<dyn Limit>>,
    leases: Option<Arc<dyn Leases>>,
    observers: Observers,
}

impl<C: Connect> Builder<C> {
    pub(crate) fn new(connector: C) -> Self {
        Self {
            connector,
            config: Config::default(),
            runtime: None,
            limit: None,
            leases: None,
            observers: Observers::default(),
        }
    }

    /// The settings. Default: [`Config::default`].
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Provides time and tasks. Default: the tokio runtime that [`start`](Self::start) is called in. If
    /// tokio's clock is paused there, the reservoir follows that clock; see [`rt::current`].
    pub fn runtime(mut self, runtime: impl Runtime) -> Self {
        self.runtime = Some(Arc::new(runtime));
        self
    }

    /// Limits the rate of opens, in place of the local limit of the configuration. Share one limiter among
    /// all pools of a process that connect to the same server. Default: a [`LocalLimit`] with the configured
    /// [`rate`](Config::rate).
    pub fn limit(mut self, limit: Arc<dyn Limit>) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Counts connections across processes. Default: none, so only this process's `max_open` applies.
    pub fn leases(mut self, leases: Arc<dyn Leases>) -> Self {
        self.leases = Some(leases);
        self
    }

    /// Adds an observer, which receives every event. There can be several: [`Metrics`](crate::Metrics),
    /// [`Logs`](crate::Logs) and your own. Default: none.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.0.push(Box::new(observer));
        self
    }

    /// Starts the reservoir and waits until [`low_watermark`](Config::low_watermark) connections are usable.
    /// If that takes longer than [`fill_timeout`](Config::fill_timeout), it returns all the same: the
    /// reservoir serves with the connections it has, and reports [`Event::FillTimedOut`](crate::Event::FillTimedOut).
    /// It stops waiting once the server [denies](Reservoir::denial) access.
    ///
    /// # Cancel safety
    /// Dropping the future closes the reservoir.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid, or if there is no runtime.
    pub async fn start(self) -> Result<Reservoir<C>, StartError> {
        let reservoir = self.start_empty()?;
        reservoir.first_fill().await;
        Ok(reservoir)
    }

    /// Starts the reservoir and returns at once. The reservoir fills in the background.
    /// [`first_fill`](Reservoir::first_fill) waits for that.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid, or if there is no runtime.
    pub fn start_empty(self) -> Result<Reservoir<C>, StartError> {
        let Self { connector, config, runtime, limit, leases, observers } = self;
        config.validate()?;
        let runtime = match runtime {
            Some(runtime) => runtime,
            None => rt::current()?,
        };
        let seed = config.seed.unwrap_or_else(|| Seed::new(runtime.entropy()));
        let limit = limit
            .unwrap_or_else(|| Arc::new(LocalLimit::new(config.rate, config.burst, Arc::clone(&runtime))));
        let observer = Arc::new(observers);
        let leases = leases.map(|leases| {
            Arc::new(LeaseClient::new(leases, Arc::clone(&runtime), Arc::clone(&observer) as _, seed))
        });
        let core = Arc::new(Core::new(connector, config, seed, runtime, limit, leases, observer));
        core.runtime.spawn(Box::pin(tasks::refill::run(Arc::clone(&core))));
        core.runtime.spawn(Box::pin(tasks::expiry::run(Arc::clone(&core))));
        core.runtime.spawn(Box::pin(tasks::wait_timeouts::run(Arc::clone(&core))));
        if core.observer.wants_reports() {
            core.runtime.spawn(Box::pin(tasks::report::run(Arc::clone(&core))));
        }
        Ok(Reservoir::new(core))
    }
}

impl<C> fmt::Debug for Builder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Why a reservoir did not start. No connection was opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is invalid. Fix the settings that it lists.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no runtime. Start inside a tokio runtime, or pass one with [`Builder::runtime`].
    #[error(transparent)]
    NoRuntime(#[from] NoRuntime),
}
