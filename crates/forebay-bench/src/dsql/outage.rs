//! A token service that is away: for ten minutes, and then until no token is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use forebay::rt::{Runtime, TokioRuntime};
use forebay::{Config, Lifetime};
use forebay_dsql::{Dsql, SignFuture, Signer, TokenError, TokenRequest};
use tokio::runtime::Handle;

use super::cluster::Cluster;
use super::contestants::options;
use super::hurry::Hurried;
use crate::checkout::progress;
use crate::clock;
use crate::report::{Bound, Report};

const OUTAGE: Duration = Duration::from_secs(600);
const MINUTE: Duration = Duration::from_secs(60);
const CALLERS: usize = 4;
/// How much faster time passes.
const SPEED: u32 = 60;

/// Signs while the service is there.
struct Service {
    cluster: Cluster,
    away: Arc<AtomicBool>,
}

impl Signer for Service {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        if self.away.load(Ordering::Acquire) {
            return Box::pin(async { Err(TokenError::unavailable("the token service is away")) });
        }
        self.cluster.sign(request)
    }
}

pub(super) async fn measure(cluster: &Cluster, report: &mut Report) -> anyhow::Result<()> {
    progress("a token service that is away");
    cluster.ask("POST", &format!("/clock?speed={SPEED}"), "").await?;
    let time = Hurried::new(TokioRuntime::current()?, SPEED);
    let away = Arc::new(AtomicBool::new(false));
    // A connection lives for a minute, so that new ones are needed all the time.
    let config = Config::default()
        .max_open(10)
        .low_watermark(10)
        .rate(10.0, 10)
        .lifetime(Lifetime::new(MINUTE).jitter(MINUTE / 2).guard_window(Duration::from_secs(2)));
    let service = Service { cluster: cluster.clone(), away: Arc::clone(&away) };
    let dsql = Dsql::builder(options(cluster, true, config)?, service).runtime(time.clone());
    let dsql = dsql.connect().await?;
    let (failed, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| Handle::current().spawn(call(dsql.clone(), Arc::clone(&failed), Arc::clone(&done))))
        .collect();
    let sleep = |time: Duration| clock::pause(time / SPEED);

    sleep(MINUTE).await;
    let opened = cluster.count("accepted").await?;
    away.store(true, Ordering::Release);
    sleep(OUTAGE).await;
    let opened = cluster.count("accepted").await? - opened;
    let failed_in_outage = failed.load(Ordering::Acquire);
    away.store(false, Ordering::Release);
    sleep(MINUTE).await;

    // Away until there is no token and no connection left.
    away.store(true, Ordering::Release);
    let began = time.now();
    while dsql.status().open > 0 {
        anyhow::ensure!(time.now().since(began) < 4 * OUTAGE, "connections are opened without a token");
        sleep(Duration::from_secs(1)).await;
    }
    done.store(true, Ordering::Release);
    for caller in callers {
        caller.await?;
    }
    let lasted = time.now().since(began);
    // From here on in real time, and not in step with whatever happens each second.
    time.set_speed(1);
    cluster.ask("POST", "/clock?speed=1", "").await?;
    clock::pause(Duration::from_millis(5_300)).await;
    away.store(false, Ordering::Release);
    let returned = time.now();
    let lent = dsql.acquire_within(MINUTE).await.context("nobody was served after the return")?;
    let back = time.now().since(returned);
    drop(lent);
    dsql.drain(Duration::from_secs(5)).await;

    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let failures = failed_in_outage as f64;
    report.goal(
        "a token service away for 10 minutes: failed acquires",
        failures,
        Bound::AtMost(0.0),
        "acquires",
    );
    report.goal(
        "away until no token was left: from its return until a caller is served",
        back.as_secs_f64(),
        Bound::AtMost(1.0),
        "s",
    );
    report.note(format!(
        "token service: the clocks of server and pool ran {SPEED} times faster, over real sockets, up to the second return; tokens live for 15 min, \
         connections for about one, so {opened} were opened during the 10 minutes. The second outage was bridged for \
         {:.1} min",
        lasted.as_secs_f64() / 60.0
    ));
    Ok(())
}

async fn call(dsql: Dsql, failed: Arc<AtomicU64>, done: Arc<AtomicBool>) {
    while !done.load(Ordering::Acquire) {
        let served = match dsql.acquire().await {
            Ok(lent) => lent.query_typed("SELECT 1", &[]).await.is_ok(),
            Err(_) => false,
        };
        if !served {
            failed.fetch_add(1, Ordering::AcqRel);
        }
        clock::pause(Duration::from_millis(5)).await;
    }
}
