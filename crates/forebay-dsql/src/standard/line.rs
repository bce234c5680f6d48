//! Callers who wait for a connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Connect, Instant};

use super::Shared;
use crate::pool_metrics::PoolMetrics;

/// A caller in line, counted among those who wait. Its wait is counted when it ends, also if he gives up.
pub(super) struct InLine<'a> {
    waiting: &'a AtomicUsize,
    runtime: &'a dyn Runtime,
    metrics: &'a PoolMetrics,
    since: Instant,
}

impl<'a> InLine<'a> {
    pub(super) fn join<C: Connect>(shared: &'a Shared<C>) -> Self {
        shared.waiting.fetch_add(1, Ordering::AcqRel);
        let since = shared.runtime.now();
        Self { waiting: &shared.waiting, runtime: &*shared.runtime, metrics: &shared.metrics, since }
    }

    pub(super) fn waited(&self) -> Duration {
        self.runtime.now().since(self.since)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.metrics.waited(self.waited());
    }
}
