//! An outage of the token service: for ten minutes, and then until no token is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use forebay::rt::{Runtime, Starved, Task, TokioRuntime};
use forebay::{Config, Instant, Lifetime};
use forebay_dsql::{Dsql, SignFuture, Signer, TokenError, TokenRequest};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::contestants::options;
use crate::clock;
use crate::cluster::Cluster;
use crate::report::Report;
use crate::section::progress;

const OUTAGE: Duration = Duration::from_secs(600);
const MINUTE: Duration = Duration::from_secs(60);
const CALLERS: usize = 4;
/// How much faster the clocks run.
const SPEED: u32 = 60;

/// A token service that can be switched off.
struct Service {
    cluster: Cluster,
    down: Arc<AtomicBool>,
}

impl Signer for Service {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        if self.down.load(Ordering::Acquire) {
            return Box::pin(async { Err(TokenError::unavailable("the token service is down")) });
        }
        self.cluster.sign(request)
    }
}

pub(super) async fn measure(cluster: &Cluster, report: &mut Report) -> anyhow::Result<()> {
    progress("an outage of the token service");
    cluster.control("POST", &format!("/clock?speed={SPEED}"), "").await?;
    let time = FastRuntime::new(TokioRuntime::current()?, SPEED);
    let down = Arc::new(AtomicBool::new(false));
    // A connection lives for a minute, so that new ones are needed all the time.
    let config = Config::default()
        .max_open(10)
        .low_watermark(10)
        .rate(10.0, 10)
        .lifetime(Lifetime::new(MINUTE).jitter(MINUTE / 2).guard_window(Duration::from_secs(2)));
    let service = Service { cluster: cluster.clone(), down: Arc::clone(&down) };
    let dsql = Dsql::builder(options(cluster, true, config)?, service).runtime(time.clone());
    let dsql = dsql.connect().await?;
    let (failed, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| Handle::current().spawn(call(dsql.clone(), Arc::clone(&failed), Arc::clone(&done))))
        .collect();
    let sleep = |time: Duration| clock::pause(time / SPEED);

    sleep(MINUTE).await;
    let opened = cluster.count("accepted").await?;
    down.store(true, Ordering::Release);
    sleep(OUTAGE).await;
    let opened = cluster.count("accepted").await? - opened;
    let failed_in_outage = failed.load(Ordering::Acquire);
    down.store(false, Ordering::Release);
    sleep(MINUTE).await;

    // Down until there is no token and no connection left.
    down.store(true, Ordering::Release);
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
    // From here on in real time, and not in step with the tasks that run each second.
    time.set_speed(1);
    cluster.control("POST", "/clock?speed=1", "").await?;
    clock::pause(Duration::from_millis(5_300)).await;
    down.store(false, Ordering::Release);
    let returned = time.now();
    let lent = dsql.acquire_within(MINUTE).await.context("no caller was served after the return")?;
    let back = time.now().since(returned);
    drop(lent);
    dsql.drain(Duration::from_secs(5)).await;

    report.at_most("token service down for 10 minutes: failed acquires", failed_in_outage, 0.0, "acquires");
    let goal = "token service down until no token was left: from its return until a caller is served";
    report.at_most(goal, back.as_secs_f64(), 1.0, "s");
    report.note(format!(
        "token service: the clocks of server and pool ran {SPEED} times faster, over real sockets, up to the \
         second return; tokens live for 15 min, connections for about one, so {opened} were opened during \
         the 10 minutes. In the second outage connections lasted for {:.1} min",
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

/// A runtime whose clocks run faster than the machine's. A clone has the same clocks.
#[derive(Clone, Debug)]
struct FastRuntime {
    inner: TokioRuntime,
    course: Arc<Mutex<Course>>,
    /// The time of day at `Instant::ZERO`.
    wall: Duration,
}

/// The speed, and the time of both clocks when it was set.
#[derive(Clone, Copy, Debug)]
struct Course {
    speed: u32,
    machine: Instant,
    ours: Instant,
}

impl Course {
    fn at(&self, machine: Instant) -> Instant {
        self.ours + machine.since(self.machine) * self.speed
    }
}

impl FastRuntime {
    fn new(inner: TokioRuntime, speed: u32) -> Self {
        let now = inner.now();
        let wall = inner.wall().saturating_sub(now.since(Instant::ZERO));
        Self { inner, course: Arc::new(Mutex::new(Course { speed, machine: now, ours: now })), wall }
    }

    fn set_speed(&self, speed: u32) {
        let machine = self.inner.now();
        let mut course = self.course.lock();
        *course = Course { speed, machine, ours: course.at(machine) };
    }

    fn course(&self) -> Course {
        *self.course.lock()
    }
}

impl Runtime for FastRuntime {
    fn now(&self) -> Instant {
        self.course().at(self.inner.now())
    }

    fn wall(&self) -> Duration {
        self.wall + self.now().since(Instant::ZERO)
    }

    fn sleep_until(&self, at: Instant) -> Task {
        let time = self.clone();
        Box::pin(async move {
            // Repeat: the speed may have changed meanwhile.
            while time.now() < at {
                let left = at.since(time.now()) / time.course().speed;
                time.inner.sleep_until(time.inner.now() + left).await;
            }
        })
    }

    fn spawn(&self, task: Task) {
        self.inner.spawn(task);
    }

    fn entropy(&self) -> u64 {
        self.inner.entropy()
    }

    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved> {
        self.inner.block(wait)
    }
}
