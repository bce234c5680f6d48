//! How close the refill comes to the limit, when opens are slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::{Config, Connect, ConnectionMonitor, Reservoir};
use tokio::runtime::{Handle, Runtime};

use super::Effort;
use crate::clock::{self, Stopwatch};
use crate::peers::{Connector, Forebay, Pool};
use crate::race::Figures;
use crate::report::Report;
use crate::section::progress;

/// The limit, in opens a second.
const RATE: f64 = 100.0;
const OPEN_TIMES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(330)];

/// Measures opens a second, and the same of a loop that opens one connection at a time.
pub(super) fn measure(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress("refill at a limit of 100 opens a second");
    // All runs sleep nearly all the time, so they can be measured at the same time.
    let runs = OPEN_TIMES.map(|open_time| {
        (open_time, runtime.spawn(ours(open_time, effort)), runtime.spawn(serial(open_time, effort)))
    });
    for (open_time, ours, serial) in runs {
        let (ours, serial) = (runtime.block_on(ours)??, runtime.block_on(serial)?);
        let what = format!("refill at a limit of 100/s, opens that take {open_time:?}");
        let rows = vec![Figures::of(Forebay::NAME, vec![ours])?, Figures::of("one at a time", vec![serial])?];
        report.at_least(what.clone(), ours, 95.0, "opens/s");
        report.table(what, "opens/s", rows);
    }
    Ok(())
}

async fn ours(open_time: Duration, effort: Effort) -> anyhow::Result<f64> {
    // More connections than can be opened in the time, and no burst: only the limiter bounds the rate.
    let config = Config::default().max_open(5_000).startup_jitter(Duration::ZERO).rate(RATE, 1);
    let reservoir = Reservoir::builder(Connector { open_time }).config(config).start_empty()?;
    Ok(rate_of(effort, || reservoir.status().counts.refills).await)
}

async fn serial(open_time: Duration, effort: Effort) -> f64 {
    let opened = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&opened);
    let task = Handle::current().spawn(async move {
        let connector = Connector { open_time };
        while connector.open(ConnectionMonitor::unattached()).await.is_ok() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let rate = rate_of(effort, || opened.load(Ordering::Relaxed)).await;
    task.abort();
    rate
}

/// How fast a count grows, after a warm-up.
async fn rate_of(effort: Effort, count: impl Fn() -> u64) -> f64 {
    clock::pause(effort.refill_warm_up).await;
    let (watch, before) = (Stopwatch::start(), count());
    clock::pause(effort.refill_window).await;
    let opened = (count() - before) as f64;
    opened / watch.elapsed().as_secs_f64()
}
