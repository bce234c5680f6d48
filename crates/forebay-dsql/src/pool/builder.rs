//! Puts a pool together and starts it, in the mode that the options ask for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay::{
    CheckoutError, ConfigError, Connect, Event, Leases, Limit, Logs, Metrics, Observer, Reservoir, StartError,
};
use forebay_fleet::Wiring;

use crate::driver::{ConnectorParts, Driver};
use crate::error::Error;
use crate::member::{self, WeakMember};
use crate::options::Options;
use crate::pool::metrics::PoolMetrics;
use crate::pool::registry::{Registering, Registry};
use crate::pool::{DsqlPool, PoolHandles, PoolMode, PoolTokens, standard};
use crate::settings::Note;
use crate::status_page::ServedPage;
use crate::token::{Signer, TokenCache};
use crate::transaction::RetryPolicy;
use crate::transaction::Transactions;

/// Makes the connector once it is known where tasks run.
type Make<C> = Box<dyn FnOnce(&Options, Arc<dyn Runtime>) -> Result<Made<C>, ConfigError> + Send>;

/// A connector, and the tokens it uses, if it has any.
pub(crate) struct Made<C> {
    connector: C,
    tokens: Option<PoolTokens>,
}

impl<C: Driver> Made<C> {
    pub(crate) fn new(
        options: &Options,
        cache: TokenCache,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, ConfigError> {
        let tokens = PoolTokens { cache: cache.clone(), identity: options.token_request().identity };
        let connector = C::new(ConnectorParts::new(options.clone(), cache, runtime))?;
        Ok(Self { connector, tokens: Some(tokens) })
    }
}

/// Describes a pool. [`connect`](Self::connect) starts it.
#[must_use = "a builder does nothing until it connects"]
pub struct Builder<C> {
    options: Options,
    make: Make<C>,
    runtime: Option<Arc<dyn Runtime>>,
    wiring: Wiring,
    member: Option<WeakMember>,
    observers: Vec<Box<dyn Observer>>,
    policy: RetryPolicy,
    /// After how long an idle connection is checked, unless the settings say so.
    check_after: Option<Duration>,
}

impl<C: Driver> Builder<C> {
    pub(crate) fn new(options: Options, signer: impl Signer) -> Self {
        let made = Self::made(options, |options, runtime| {
            let tokens = TokenCache::new(signer, Arc::clone(&runtime), options.service());
            Made::new(options, tokens, runtime)
        });
        Self { check_after: C::CHECK_AFTER, ..made }
    }

    /// Takes tokens from a cache that other pools of the process use as well, instead of having its own.
    pub fn tokens(mut self, tokens: TokenCache) -> Self {
        self.make = Box::new(|options, runtime| Made::new(options, tokens, runtime));
        self
    }
}

impl<C: Connect> Builder<C> {
    /// A pool over a connector of your own. It uses only what `options` say about pools.
    pub fn over(connector: C, options: Options) -> Self {
        Self::made(options, |_, _| Ok(Made { connector, tokens: None }))
    }

    fn made(
        options: Options,
        make: impl FnOnce(&Options, Arc<dyn Runtime>) -> Result<Made<C>, ConfigError> + Send + 'static,
    ) -> Self {
        let make = Box::new(make);
        let policy = RetryPolicy::default();
        Self {
            options,
            make,
            runtime: None,
            wiring: Wiring::default(),
            member: None,
            observers: Vec::new(),
            policy,
            check_after: None,
        }
    }

    /// A pool of a [`Member`](crate::Member).
    pub(crate) fn of_member(
        options: Options,
        wiring: Wiring,
        member: WeakMember,
        make: impl FnOnce(&Options, Arc<dyn Runtime>) -> Result<Made<C>, ConfigError> + Send + 'static,
    ) -> Self
    where
        C: Driver,
    {
        Self { check_after: C::CHECK_AFTER, wiring, member: Some(member), ..Self::made(options, make) }
    }

    /// Where time and tasks come from. Default: the tokio runtime that [`connect`](Self::connect) is called in.
    pub fn runtime(mut self, runtime: impl Runtime) -> Self {
        self.runtime = Some(Arc::new(runtime));
        self
    }

    /// Rations opens, instead of the local limit of the options. Share one among the pools of a process.
    pub fn limit(mut self, limit: Arc<dyn Limit>) -> Self {
        self.wiring.limit = Some(limit);
        self
    }

    /// Counts connections across processes. Default: none.
    pub fn leases(mut self, leases: Arc<dyn Leases>) -> Self {
        self.wiring.leases = Some(leases);
        self
    }

    /// When transactions are run again. Default: [`RetryPolicy::default`].
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Receives every event of the pool, in addition to the metrics and logs that it always has.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// Starts it; see [`DsqlPool::connect`].
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    ///
    /// # Errors
    /// As [`DsqlPool::connect`]. Options that ask for leases or a shared rate make sense only for a pool that has them: one of a
    /// [`Member`](crate::Member).
    pub async fn connect(self) -> Result<DsqlPool<C>, Error> {
        let Self { options, make, runtime, wiring, member, observers, policy, check_after } = self;
        options.settings().notes.iter().for_each(Note::log);
        if let Some(problem) =
            member::shares_nothing(&options, wiring.leases.is_some(), wiring.limit.is_some())
        {
            return Err(problem.into());
        }
        let runtime = match runtime {
            Some(runtime) => runtime,
            None => rt::current().map_err(StartError::from)?,
        };
        let mode = PoolMode::of(&options);
        mode.log(&options);
        // Before anything registers metrics.
        let page = ServedPage::open(&options, &runtime).await;
        let began = runtime.now();
        let mut config = options.config().clone();
        if let (Some(idle), None) = (check_after, config.check_after) {
            config = config.check_after(idle);
        }
        let registry = Registry::new(Arc::clone(&runtime));
        let Made { connector, tokens } = make(&options, Arc::clone(&runtime))?;
        let connector = Registering::new(connector, registry.clone());
        let metrics = PoolMetrics::new(options.service(), options.pool());
        let mut reservoir = Reservoir::builder(connector.clone()).runtime(Arc::clone(&runtime));
        reservoir = wiring.reservoir(reservoir).observer(metrics.clone());
        for observer in observers {
            reservoir = reservoir.observer(Boxed(observer));
        }
        // Before the first fill, so that the page shows it.
        let show = |reservoir: &Reservoir<Registering<C>>| {
            if let Some(page) = &page {
                let (member, tokens) = (member.as_ref(), tokens.as_ref());
                page.show(&options, PoolHandles { reservoir, mode, member, tokens });
            }
        };
        let (reservoir, keeper) = if mode == PoolMode::Reservoir {
            tracing::info!("Reservoir mode enabled, registering reservoir driver");
            let reservoir = reservoir
                .config(config.clone())
                .observer(Metrics::new("dsql").service(options.service()).pool(options.pool()))
                .observer(Logs::new().pool(options.pool()))
                .start_empty()?;
            show(&reservoir);
            Box::pin(reservoir.first_fill()).await;
            (reservoir, None)
        } else {
            // As a whole, although not all of it matters in this mode.
            config.validate()?;
            let reservoir =
                reservoir.config(standard::config(config.clone())).observer(standard::log).start_empty()?;
            show(&reservoir);
            let settings = &options.settings().standard;
            let warm_up = standard::warm_up(&reservoir, &connector, &runtime, &metrics, &config, settings);
            let keeper = Box::pin(warm_up).await;
            (reservoir, Some(keeper))
        };
        // The specification asks for a best effort. But waiting does not help if the server denies access to the role.
        if let Some(last_open_error) = reservoir.denial() {
            let waited = runtime.now().since(began);
            return Err(CheckoutError::Denied { waited, last_open_error }.into());
        }
        if let Some(keeper) = keeper {
            runtime.spawn(Box::pin(keeper.run()));
        }
        let transactions = Transactions::new(policy, Arc::clone(&runtime), options.service(), options.pool());
        Ok(DsqlPool {
            mode,
            reservoir,
            runtime,
            metrics,
            registry,
            acquire_timeout: config.acquire_timeout,
            transactions,
            tokens,
            member,
            page,
        })
    }
}

/// An observer that is boxed already.
struct Boxed(Box<dyn Observer>);

impl Observer for Boxed {
    fn on(&self, event: &Event<'_>) {
        self.0.on(event);
    }

    fn wants_reports(&self) -> bool {
        self.0.wants_reports()
    }
}

impl<C> fmt::Debug for Builder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("options", &self.options).finish_non_exhaustive()
    }
}
