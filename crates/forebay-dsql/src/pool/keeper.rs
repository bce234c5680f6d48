//! Keeps a pool in standard mode full.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Connect, OpenError, WeakReservoir};

use crate::pool::metrics::PoolMetrics;
use crate::pool::registry::Registering;

/// In how many ticks a whole pool is replaced, if it is not larger than 1,200.
const SPREAD: usize = 120;
const MOST: usize = 10;

/// Opens missing connections at a steady pace. It counts connections, not how often one could be borrowed.
pub(crate) struct Keeper<C: Connect> {
    pub(crate) reservoir: WeakReservoir<Registering<C>>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) metrics: PoolMetrics,
    pub(crate) tick: Duration,
    /// How many connections it opens in one tick at most. None: it depends on the size of the pool, which can change.
    pub(crate) max_per_tick: Option<usize>,
}

/// How many connections to open in a tick, unless a variable says so: one for every 120 that the pool may own, at most 10.
fn default_max_per_tick(max_open: usize) -> usize {
    max_open.div_ceil(SPREAD).clamp(1, MOST)
}

impl<C: Connect> Keeper<C> {
    /// Runs until the pool is closed.
    pub(crate) async fn run(self) {
        let Some(target) = self.reservoir.upgrade().map(|reservoir| reservoir.status().max_open) else {
            return;
        };
        tracing::info!(
            target_pool_size = target,
            tick_interval = %forebay::duration::show(self.tick),
            max_conns_per_tick = self.max_per_tick.unwrap_or_else(|| default_max_per_tick(target)),
            "DSQL pool keeper started"
        );
        let mut next = self.runtime.now();
        let mut failures = 0_u32;
        loop {
            // After a tick that took longer than the interval, the next is half an interval away at least.
            next = (next + self.tick).max(self.runtime.now() + self.tick / 2);
            self.runtime.sleep_until(next).await;
            match self.top_up().await {
                None => return,
                Some(Ok(())) => failures = 0,
                Some(Err(error)) => {
                    failures = failures.saturating_add(1);
                    // The first, the second, the fourth and so on: a long outage is not worth a line each second.
                    if failures.is_power_of_two() {
                        tracing::warn!(attempt = failures, %error, "DSQL pool keeper: failed to create connection");
                    }
                }
            }
        }
    }

    /// One tick: opens one connection after the other. After a failure the next is tried in the next tick. None if the pool is
    /// closed.
    async fn top_up(&self) -> Option<Result<(), Arc<OpenError>>> {
        for opened in 0.. {
            // Held for a moment only: an open under way must not keep the pool open.
            let opening = {
                let reservoir = self.reservoir.upgrade()?;
                let status = reservoir.status();
                if status.closed {
                    return None;
                }
                if opened == 0 {
                    self.metrics.kept(status.size());
                }
                if opened == self.max_per_tick.unwrap_or_else(|| default_max_per_tick(status.max_open)) {
                    break;
                }
                reservoir.open_one()
            };
            let Some(opening) = opening else { break };
            let outcome = opening.await;
            // An open that ends because the pool closes is no failure.
            if outcome.is_err() && self.reservoir.upgrade().is_none_or(|reservoir| reservoir.status().closed)
            {
                return None;
            }
            self.metrics.topped_up(outcome.is_ok());
            if outcome.is_err() {
                return Some(outcome);
            }
        }
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_part_of_the_pool_at_a_time() {
        for (size, expected) in
            [(0, 1), (1, 1), (50, 1), (120, 1), (121, 2), (500, 5), (1_200, 10), (9_999, 10)]
        {
            assert_eq!(default_max_per_tick(size), expected, "of {size}");
        }
    }
}
