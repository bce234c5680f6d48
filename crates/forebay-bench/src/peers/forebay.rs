//! This project.

use std::time::Duration;

use forebay::{Checkout, CheckoutError, Config, Connect, Lifeline, OpenError, Reservoir};

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

    async fn open(&self, _lifeline: Lifeline) -> Result<Payload, OpenError> {
        if !self.open_time.is_zero() {
            clock::pause(self.open_time).await;
        }
        Ok(0)
    }
}

/// A reservoir. Lifetimes are its default ones, so deadlines are compared, and its counters are always on. Only the
/// fill is made quick: it is over before anything is measured.
#[derive(Clone, Debug)]
pub struct Forebay(Reservoir<Plain>);

impl Pool for Forebay {
    const NAME: &'static str = "forebay";
    type Refusal = CheckoutError;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        let config = Config::default().max_open(connections).stagger(Duration::ZERO).rate(100_000.0, 100_000);
        let reservoir = Reservoir::builder(Plain::default()).config(config).start().await?;
        anyhow::ensure!(reservoir.status().ready == connections, "forebay is not filled");
        Ok(Self(reservoir))
    }
}

impl TryLend for Forebay {
    type Lent<'a> = Checkout<'a, Plain>;

    #[inline]
    fn try_lend(&self) -> Result<Checkout<'_, Plain>, CheckoutError> {
        self.0.try_checkout()
    }
}

impl Lend for Forebay {
    type Lent<'a> = Checkout<'a, Plain>;

    #[inline]
    fn lend(&self) -> impl Future<Output = Result<Checkout<'_, Plain>, CheckoutError>> + Send {
        self.0.checkout()
    }
}
