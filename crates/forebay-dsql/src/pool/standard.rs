//! Standard mode: the reservoir as a plain pool.
//!
//! Connections are opened at the start, when a caller finds none, and by the keeper. Each lives for 55 minutes and is replaced
//! only when it is gone. Nothing is closed for being idle.

use std::sync::Arc;
use std::time::Duration;

use forebay::duration::show;
use forebay::rt::Runtime;
use forebay::{Config, Connect, Event, Lifetime, Reservoir, Seed};

use crate::pool::keeper::Keeper;
use crate::pool::metrics::PoolMetrics;
use crate::pool::registry::Registering;
use crate::pool::warmup::{self, WarmUp};
use crate::settings::StandardSettings;

/// Safely below Aurora DSQL's hour.
const LIFE: Duration = Duration::from_secs(55 * 60);

/// The settings of a reservoir in standard mode: size, rate and timeouts are those of `config`. The start-up delay is part of
/// [`warm_up`], which opens the first connections.
pub(crate) fn config(mut config: Config) -> Config {
    (config.idle_timeout, config.empty_wait) = (None, None);
    config
        .on_demand(0)
        .lifetime(Lifetime::new(LIFE))
        .replace_ahead(false)
        .overlap(0)
        .startup_jitter(Duration::ZERO)
}

/// Logs what neither a caller nor the keeper hears of.
pub(crate) fn log(event: &Event<'_>) {
    if let Event::LeaseReleaseFailed { error, attempt } = event {
        tracing::warn!(attempt, %error, "DSQL pool: failed to release a connection lease");
    }
}

/// Fills an empty reservoir before it is handed out: start-up delay, then warm-up. Returns its keeper, which runs once the reservoir
/// is handed out.
///
/// Cancel safe: open connections stay in the reservoir.
pub(crate) async fn warm_up<C: Connect>(
    reservoir: &Reservoir<Registering<C>>,
    connector: &Registering<C>,
    runtime: &Arc<dyn Runtime>,
    metrics: &PoolMetrics,
    config: &Config,
    settings: &StandardSettings,
) -> Keeper<C> {
    let max_open = config.max_open;
    tracing::info!(
        max_open_conns = max_open,
        current_open = 0,
        max_conn_lifetime = %show(LIFE),
        max_conn_idle_time = "0s",
        "DSQL connection pool configured"
    );
    let mut rng = config.seed.unwrap_or_else(|| Seed::new(runtime.entropy())).fork("standard").rng();
    let delay = rng.up_to(config.startup_jitter);
    if !delay.is_zero() {
        let delay = show(delay);
        tracing::info!(delay, "DSQL pool: start delayed, so that a fleet does not connect all at once");
    }
    runtime.sleep_until(runtime.now() + delay).await;
    let warm_up = WarmUp {
        reservoir,
        connector,
        runtime: &**runtime,
        ping_timeout: config.maintenance_timeout,
        stagger: settings.warmup_stagger.unwrap_or_else(|| warmup::default_stagger(max_open)),
        rng,
    };
    warm_up.run().await;
    Keeper {
        reservoir: reservoir.downgrade(),
        runtime: Arc::clone(runtime),
        metrics: metrics.clone(),
        tick: settings.keeper_tick,
        max_per_tick: settings.keeper_max,
    }
}
