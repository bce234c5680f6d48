//! This project.

use std::time::Duration;

use forebay::{Checkout, CheckoutError, Config, Connect, ConnectionMonitor, Metrics, OpenError, Reservoir};

use crate::clock;
use crate::pool::{Lend, Payload, Pool, TryLend};

/// Opens connections that do nothing, after a while.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain {
    /// How long an open takes.
    pub open_time: Duration,
}

impl Connect for Plain {
    type Connection = Payload;

    async fn open(&self, _monitor: ConnectionMonitor) -> Result<Payload, OpenError> {
        if !self.open_time.is_zero() {
            clock::pause(self.open_time).await;
        }
        Ok(0)
    }
}

/// A reservoir. Lifetimes are its default ones, so deadlines are compared, and its counters are always on. Only the
/// fill is made quick: it is over before anything is measured.
///
/// With `METRICS`, an observer also keeps them for an exporter.
#[derive(Clone, Debug)]
pub struct Observed<const METRICS: bool>(Reservoir<Plain>);

/// A reservoir that nobody observes.
pub type Forebay = Observed<false>;

/// A reservoir with metrics.
pub type ForebayWithMetrics = Observed<true>;

impl<const METRICS: bool> Pool for Observed<METRICS> {
    const NAME: &'static str = if METRICS { "forebay, with metrics" } else { "forebay" };
    type Refusal = CheckoutError;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        let config =
            Config::default().max_open(connections).startup_jitter(Duration::ZERO).rate(100_000.0, 100_000);
        let mut builder = Reservoir::builder(Plain::default()).config(config);
        if METRICS {
            builder = builder.observer(Metrics::new("bench"));
        }
        let reservoir = builder.start().await?;
        anyhow::ensure!(reservoir.status().ready == connections, "forebay is not filled");
        Ok(Self(reservoir))
    }
}

impl<const METRICS: bool> TryLend for Observed<METRICS> {
    type Lent<'a> = Checkout<'a, Plain>;

    #[inline]
    fn try_lend(&self) -> Result<Checkout<'_, Plain>, CheckoutError> {
        self.0.try_checkout()
    }
}

impl<const METRICS: bool> Lend for Observed<METRICS> {
    type Lent<'a> = Checkout<'a, Plain>;

    #[inline]
    fn lend(&self) -> impl Future<Output = Result<Checkout<'_, Plain>, CheckoutError>> + Send {
        self.0.checkout()
    }
}
