//! A server in memory under virtual time, for what takes long.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::VirtualTime;
use forebay::{Config, Leases, LocalLeases, Seed};
use forebay_dsql::{Builder, DsqlPool, Options};

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) struct World {
    pub(crate) time: VirtualTime,
    pub(crate) server: Memory,
    pub(crate) leases: Arc<LocalLeases>,
}

impl World {
    pub(crate) fn new() -> Self {
        let time = VirtualTime::new();
        let server = Memory::new(time.clone());
        Self { time, server, leases: Arc::new(LocalLeases::new(1_000)) }
    }

    /// A pool in standard mode, or a reservoir, that has yet to connect.
    pub(crate) fn builder(&self, config: Config, reservoir: bool, stagger: Option<&str>) -> Builder<Memory> {
        let mut options = Options::builder("abc.dsql.us-east-1.on.aws").config(config).reservoir(reservoir);
        if let Some(stagger) = stagger {
            options = options.variable("DSQL_POOL_WARMUP_STAGGER_DURATION", stagger);
        }
        Builder::over(self.server.clone(), options.build().unwrap())
            .runtime(self.time.clone())
            .leases(Arc::clone(&self.leases) as Arc<dyn Leases>)
    }

    /// A warm pool in standard mode.
    pub(crate) fn standard(&self, config: Config) -> DsqlPool<Memory> {
        let pool = self.time.run(self.builder(config, false, None).connect()).unwrap();
        self.time.settle();
        pool
    }

    /// After the last handle and guard are gone: nothing is left anywhere.
    pub(crate) fn assert_nothing_left(&self) {
        self.time.advance(seconds(60));
        assert_eq!(self.server.live(), 0, "connections left open");
        assert_eq!(self.leases.held(), 0, "leases left held");
    }
}

/// No stagger, no limit worth the name, a fixed seed.
pub(crate) fn config(max_open: usize) -> Config {
    Config::default()
        .max_open(max_open)
        .startup_jitter(Duration::ZERO)
        .rate(1e6, 1_000_000)
        .seed(Seed::new(7))
}

pub(crate) fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
