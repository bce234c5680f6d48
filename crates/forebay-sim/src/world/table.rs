//! A store that the whole fleet shares: slow at times, failing at times, away at times.

use std::time::Duration;

use forebay::{BoxError, Draws, Seed};

use crate::latency::{Latency, fraction};
use crate::scenario::Scenario;

pub(crate) struct SharedTable {
    latency: Latency,
    error_rate: f64,
    /// How many outages there are at the moment.
    pub(crate) outages: u32,
    draws: Draws,
}

impl SharedTable {
    pub(crate) fn new(scenario: &Scenario, seed: Seed) -> Self {
        let (latency, error_rate) = match scenario.table {
            Some(table) => (table.latency, table.error_rate),
            None => (Latency::constant(Duration::ZERO), 0.0),
        };
        Self { latency, error_rate, outages: 0, draws: seed.draws() }
    }

    /// How long one call takes and what comes of it. A call that fails has changed nothing.
    pub(crate) fn call(&mut self) -> (Duration, Result<(), BoxError>) {
        let latency = self.latency.draw(&mut self.draws);
        let outcome = if self.outages > 0 {
            Err("the table does not answer".into())
        } else if self.error_rate > 0.0 && fraction(&mut self.draws) < self.error_rate {
            Err("the table failed the request".into())
        } else {
            Ok(())
        };
        (latency, outcome)
    }
}
