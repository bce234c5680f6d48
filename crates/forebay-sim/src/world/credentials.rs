//! The modelled credential service.

use std::time::Duration;

use forebay::{Failure, OpenError, Rng, Seed};

use crate::latency::Latency;
use crate::scenario::Scenario;

pub(crate) struct CredentialService {
    latency: Latency,
    /// How many outages overlap at present.
    pub(crate) outages: u32,
    rng: Rng,
}

impl CredentialService {
    pub(crate) fn new(scenario: &Scenario, seed: Seed) -> Self {
        Self { latency: scenario.credentials.latency, outages: 0, rng: seed.rng() }
    }

    /// Requests a token. Returns how long that takes, and its result.
    pub(crate) fn token(&mut self) -> (Duration, Result<(), OpenError>) {
        let latency = self.latency.draw(&mut self.rng);
        let outcome = if self.outages > 0 {
            Err(OpenError::new(Failure::Token, "the credential service does not answer"))
        } else {
            Ok(())
        };
        (latency, outcome)
    }
}
