//! Keeps a pool in standard mode full: it counts connections, not how often one could be borrowed.

use std::sync::Arc;

use forebay::{Connect, OpenError};

use crate::dsql::PoolStatus;
use crate::standard::Standard;

/// Over so many ticks a pool's connections come to their end at the earliest, if they were opened at the usual pace.
const SPREAD: usize = 120;
const MOST: usize = 10;

/// How many connections to open at a look: one for every 120 that the pool may own, at most 10.
pub(crate) fn per_tick(max_open: usize) -> usize {
    max_open.div_ceil(SPREAD).clamp(1, MOST)
}

/// Looks at the pool at each tick until it is closed: lets go of what is too old or dead, and opens what is missing.
pub(crate) async fn run<C: Connect>(standard: Standard<C>) {
    let _alive = Alive(standard.clone());
    let shared = standard.shared();
    let (runtime, settings) = (&*shared.runtime, &shared.settings);
    let (tick, target) = (settings.keeper_tick, shared.figures.max_open);
    let most = settings.keeper_max.unwrap_or_else(|| per_tick(target));
    tracing::info!(
        target_pool_size = target,
        tick_interval = %forebay::duration::show(tick),
        max_conns_per_tick = most,
        "DSQL pool keeper started"
    );
    let mut next = runtime.now();
    let mut in_vain = 0_u32;
    loop {
        // After a look that took longer than a tick, the next is a tick away from now.
        next = (next + tick).max(runtime.now() + tick / 2);
        runtime.sleep_until(next).await;
        if standard.is_closed() {
            shared.metrics.stands(&PoolStatus::of_standard(&standard));
            return;
        }
        match look(&standard, most).await {
            Ok(()) => in_vain = 0,
            Err(error) => {
                in_vain = in_vain.saturating_add(1);
                // The first, the second, the fourth and so on: a long outage is not worth a line each second.
                if in_vain.is_power_of_two() {
                    tracing::warn!(attempt = in_vain, %error, "DSQL pool keeper: failed to create connection");
                }
            }
        }
        shared.metrics.stands(&PoolStatus::of_standard(&standard));
    }
}

/// The keeper's task is there. If it goes while the pool is open, its runtime does: then nobody can be served any more.
struct Alive<C: Connect>(Standard<C>);

impl<C: Connect> Drop for Alive<C> {
    fn drop(&mut self) {
        if !self.0.is_closed() && !std::thread::panicking() {
            self.0.orphan();
        }
    }
}

/// One look. After a failure the next is at the next tick, rather than into the same wall.
async fn look<C: Connect>(standard: &Standard<C>, most: usize) -> Result<(), Arc<OpenError>> {
    let shared = standard.shared();
    standard.sweep();
    let size = standard.open();
    shared.metrics.kept(size);
    for _ in 0..most {
        let Some(opening) = standard.open_spare() else { break };
        // An open tells how it ended, also if it fell over.
        let Ok(opened) = opening.await else { break };
        shared.metrics.topped_up(opened.is_ok());
        opened?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_part_of_the_pool_at_a_time() {
        for (size, expected) in
            [(0, 1), (1, 1), (50, 1), (120, 1), (121, 2), (500, 5), (1_200, 10), (9_999, 10)]
        {
            assert_eq!(per_tick(size), expected, "of {size}");
        }
    }
}
