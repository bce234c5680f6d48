//! The two modes of a pool.

use std::time::Duration;

use forebay::duration::show;

use crate::options::Options;

/// How connections are opened and replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// Ahead of need.
    Reservoir,
    /// When one is missing.
    Standard,
}

/// The life that we recommend. A shorter one needs more opens, which the cluster limits.
const RECOMMENDED_LIFE: Duration = Duration::from_secs(55 * 60);

impl PoolMode {
    pub(crate) fn of(options: &Options) -> Self {
        if options.reservoir_enabled() { Self::Reservoir } else { Self::Standard }
    }

    /// Logs which mode runs, and what to set for another one or for longer lives.
    pub(crate) fn log(self, options: &Options) {
        let (pool, max_conns) = (options.pool(), options.config().max_open);
        match (self, options.config().lifetime) {
            (Self::Standard, _) => tracing::info!(
                pool,
                max_conns,
                "DSQL pool in standard mode: a plain pool, which replaces connections after they have ended. \
                 DSQL_RESERVOIR_ENABLED=true, or reservoir(true) in code, replaces them before"
            ),
            (Self::Reservoir, Some(life)) if life.base < RECOMMENDED_LIFE => tracing::info!(
                pool,
                max_conns,
                lifetime = %show(life.base),
                "DSQL pool in reservoir mode: connections are replaced before they expire. \
                 DSQL_RESERVOIR_BASE_LIFETIME=55m gives them longer lives, and needs fewer opens; \
                 DSQL_RESERVOIR_ENABLED=false, or reservoir(false) in code, gives a plain pool"
            ),
            (Self::Reservoir, _) => tracing::info!(
                pool,
                max_conns,
                "DSQL pool in reservoir mode: connections are replaced before they expire. \
                 DSQL_RESERVOIR_ENABLED=false, or reservoir(false) in code, gives a plain pool"
            ),
        }
    }
}
