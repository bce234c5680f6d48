//! One process of the fleet: a reservoir and some callers, until its input ends.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use forebay_dsql::{Dsql, Options};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Handle};

use crate::clock;

/// The number of callers, how long each pauses, and how long the first holds its connection.
const CALLERS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(50);
const HOLD: Duration = Duration::from_millis(700);
/// For the drain at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves its callers until its input ends, and reports its progress line by line. Its environment configures
/// it.
pub(crate) fn work() -> anyhow::Result<()> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(serve(runtime.handle()))
}

async fn serve(tokio: &Handle) -> anyhow::Result<()> {
    let options = Options::from_env()?;
    let member = forebay_aws::join(&options).await?;
    let status = member.fleet_status().context("the environment configures no fleet")?;
    report(&json!({ "instance": status.instance }))?;
    let dsql: Dsql = member.pool(options).connect().await?;

    let served = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| {
            let (dsql, served) = (dsql.clone(), Arc::clone(&served));
            let hold = if number == 0 { HOLD } else { Duration::ZERO };
            tokio.spawn(async move {
                loop {
                    if let Ok(connection) = dsql.acquire().await {
                        let answer = connection.simple_query("SELECT 1").await;
                        served.fetch_add(u64::from(answer.is_ok()), Ordering::Relaxed);
                        clock::pause(hold).await;
                    }
                    clock::pause(PAUSE).await;
                }
            })
        })
        .collect();
    let reporter = tokio.spawn(async move {
        while report(&json!({ "served": served.load(Ordering::Relaxed) })).is_ok() {
            clock::pause(PAUSE * 4).await;
        }
    });
    tokio.spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;

    callers.iter().for_each(tokio::task::JoinHandle::abort);
    reporter.abort();
    let drained = dsql.drain(DRAIN_TIMEOUT).await;
    ensure!(drained.is_complete(), "not drained: {drained:?}");
    ensure!(member.leave(DRAIN_TIMEOUT).await, "could not leave the fleet: {:?}", member.fleet_status());
    Ok(())
}

fn report(what: &Value) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{what}")?;
    output.flush()
}
