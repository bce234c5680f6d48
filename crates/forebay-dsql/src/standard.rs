//! Standard mode: the reservoir as a plain pool.
//!
//! Connections are opened at the start, when a caller finds none, and by the keeper. Each lives for 55 minutes and is replaced
//! only when it is gone. Nothing is closed for being idle.

use std::time::Duration;

use forebay::{Config, Event, Lifetime};

/// Safely below Aurora DSQL's hour.
pub(crate) const LIFE: Duration = Duration::from_secs(55 * 60);

/// The settings of a reservoir in standard mode: size, rate and timeouts are those of `config`. The start-up delay is the
/// builder's to wait for, since it opens the first connections itself.
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
