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
use crate::pool::hooks::{HookFuture, Hooks};
use crate::pool::metrics::PoolMetrics;
use crate::pool::registry::{ConnectionInfo, Registering, Registry};
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
pub struct Builder<C: Connect> {
    options: Options,
    make: Make<C>,
    runtime: Option<Arc<dyn Runtime>>,
    wiring: Wiring,
    member: Option<WeakMember>,
    observers: Vec<Box<dyn Observer>>,
    policy: RetryPolicy,
    /// After how long an idle connection is checked, unless the settings say so.
    check_after: Option<Duration>,
    hooks: Hooks<C>,
}

impl<C: Driver> Builder<C> {
    pub(crate) fn new(options: Options, signer: impl Signer) -> Self {
        let made = Self::made(options, |options, runtime| {
            let tokens = TokenCache::new(signer, Arc::clone(&runtime), options.service());
            Made::new(options, tokens, runtime)
        });
        Self { check_after: C::CHECK_AFTER, hooks: Hooks::of_driver(), ..made }
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
            hooks: Hooks::default(),
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
        let (check_after, hooks) = (C::CHECK_AFTER, Hooks::of_driver());
        Self { check_after, hooks, wiring, member: Some(member), ..Self::made(options, make) }
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

    /// Runs `hook` on each connection after it is opened, before anybody uses it, such as to set its `search_path` or
    /// `application_name`. What the hook sets is what a clean connection has.
    ///
    /// The hook runs again after each reset of the connection, because a reset sets every setting back to its start. A connection is
    /// reset in the background if a caller returns it with changed settings, or in a transaction. A connection of sqlx is reset
    /// after each use.
    ///
    /// If the hook fails, the connection is closed, and the open or the reset counts as failed: the pool opens another one, after a
    /// pause if opens fail again and again. So does a hook that panics, that leaves a transaction open, or that takes
    /// too long: the connect timeout limits it after an open, and the maintenance timeout after a reset. A conflict
    /// ([`ErrorKind::Conflict`](crate::ErrorKind::Conflict)) is no failure: the hook is called once more, as a plain statement may meet
    /// a change of the schema.
    ///
    /// ```no_run
    /// # async fn example(options: forebay_dsql::Options, signer: impl forebay_dsql::Signer) -> Result<(), forebay_dsql::Error> {
    /// use forebay_dsql::Dsql;
    ///
    /// let dsql = Dsql::builder(options, signer)
    ///     .after_connect(|connection, _| {
    ///         Box::pin(async move {
    ///             connection.batch_execute("SET search_path TO shop; SET application_name TO 'reports'").await?;
    ///             Ok(())
    ///         })
    ///     })
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// The pool drops the future of the hook when its time is up, and then closes the connection. No caller can drop it.
    pub fn after_connect<H>(mut self, hook: H) -> Self
    where
        H: for<'a> Fn(&'a mut C::Connection, ConnectionInfo) -> HookFuture<'a, ()> + Send + Sync + 'static,
    {
        self.hooks.after_connect = Some(Box::new(hook));
        self
    }

    /// Runs `hook` on each connection before a caller gets it. `Ok(true)` lends it. After `Ok(false)` or an error the connection is
    /// closed, and the caller gets another one: each such connection costs an open. If the hook rejects even one that was opened while
    /// the caller waited, the caller fails, with the error of the hook.
    ///
    /// The wait of the caller includes the hook. A hook that takes longer than the maintenance timeout counts as failed. A
    /// conflict is no failure: the hook is called once more. If the hook panics, so does the caller, and the connection is closed.
    /// What the hook sets counts as set by the caller, and so it is reset after the loan.
    ///
    /// Connections need no check here: the pool notices those that have died, or checks them.
    ///
    /// ```no_run
    /// # async fn example(options: forebay_dsql::Options, signer: impl forebay_dsql::Signer) -> Result<(), forebay_dsql::Error> {
    /// use forebay_dsql::SqlxDsql;
    /// use sqlx::Row;
    ///
    /// let dsql = SqlxDsql::builder(options, signer)
    ///     .before_acquire(|connection, info| {
    ///         Box::pin(async move {
    ///             let row = sqlx::raw_sql("SHOW search_path").fetch_one(connection.pg()).await?;
    ///             tracing::debug!(age = ?info.age, "a connection is about to be lent");
    ///             Ok(row.try_get::<String, _>(0)? == "shop")
    ///         })
    ///     })
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// The future of the hook is dropped with that of the caller, or when the time of the caller is up. The connection then goes back
    /// to the pool. It is reset first if the hook has left something behind.
    pub fn before_acquire<H>(mut self, hook: H) -> Self
    where
        H: for<'a> Fn(&'a mut C::Connection, ConnectionInfo) -> HookFuture<'a, bool> + Send + Sync + 'static,
    {
        self.hooks.before_acquire = Some(Box::new(hook));
        self
    }

    /// Runs `hook` on each connection that a caller has returned, in the background. `Ok(true)` keeps it. After `Ok(false)` or an
    /// error it is closed, and the pool opens another one.
    ///
    /// The hook finds the connection without a transaction, and with the settings of its start if the caller has changed any. What
    /// the hook changes is reset, too. A connection counts as in use until then. One that is dead, expired or marked bad is
    /// closed without the hook. A hook that takes longer than the maintenance timeout, or that panics, counts as failed. A conflict is
    /// no failure: the hook is called once more.
    ///
    /// ```no_run
    /// # async fn example(options: forebay_dsql::Options, signer: impl forebay_dsql::Signer) -> Result<(), forebay_dsql::Error> {
    /// use std::time::Duration;
    /// use forebay_dsql::Dsql;
    ///
    /// // Prepared statements of callers are forgotten with their connection, after half an hour.
    /// let dsql = Dsql::builder(options, signer)
    ///     .after_release(|_, info| Box::pin(async move { Ok(info.age < Duration::from_secs(1800)) }))
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// The pool drops the future of the hook when its time is up, and then closes the connection. No caller can drop it.
    pub fn after_release<H>(mut self, hook: H) -> Self
    where
        H: for<'a> Fn(&'a mut C::Connection, ConnectionInfo) -> HookFuture<'a, bool> + Send + Sync + 'static,
    {
        self.hooks.after_release = Some(Box::new(hook));
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
        let Self { options, make, runtime, wiring, member, observers, policy, check_after, hooks } = self;
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
        let connector = Registering::new(connector, registry.clone(), hooks);
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
            connector,
            runtime,
            metrics,
            registry,
            acquire_timeout: config.acquire_timeout,
            deadline: options.deadline(),
            maintenance_timeout: config.maintenance_timeout,
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

impl<C: Connect> fmt::Debug for Builder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("options", &self.options).finish_non_exhaustive()
    }
}
