//! The ledger as [`Leases`].

use std::pin::pin;
use std::sync::Arc;

use forebay::{BoxError, LeaseError, LeaseId, Leases, StoreFuture};

use super::Ledger;
use super::call::AcquireOutcome;

/// A caller that is counted as waiting. Dropping it ends the wait.
struct Waiting<'a> {
    ledger: &'a Ledger,
    round: u64,
    /// The caller has a lease and is no longer counted.
    served: bool,
}

impl<'a> Waiting<'a> {
    fn begin(ledger: &'a Ledger) -> Self {
        let round = ledger.state.lock().wait(true);
        ledger.wake.notify_one();
        Self { ledger, round, served: false }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.served {
            self.ledger.state.lock().wait(false);
        }
    }
}

/// The leases of a [`Ledger`]. The ledger leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct LedgerLeases(pub(crate) Arc<Ledger>);

impl Drop for LedgerLeases {
    fn drop(&mut self) {
        self.0.begin_to_leave();
    }
}

impl Leases for LedgerLeases {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        Box::pin(async {
            let ledger = &*self.0;
            let mut waiting: Option<Waiting<'_>> = None;
            loop {
                let mut changed = pin!(ledger.changed.notified());
                changed.as_mut().enable();
                let round = waiting.as_ref().map(|waiting| waiting.round);
                let outcome = ledger.state.lock().acquire(ledger.now(), round);
                match outcome {
                    AcquireOutcome::Lease(number) => {
                        if let Some(waiting) = &mut waiting {
                            waiting.served = true;
                        }
                        return Ok(LeaseId::new(format!("{}-{number}", ledger.name())));
                    }
                    AcquireOutcome::LimitReached => {
                        return Err(LeaseError::Limit { limit: ledger.status().limit });
                    }
                    AcquireOutcome::ShareReached(share) => {
                        // The task compares again before the next heartbeat.
                        ledger.wake.notify_one();
                        return Err(LeaseError::Share { share, limit: ledger.status().limit });
                    }
                    AcquireOutcome::Unavailable(why) => return Err(LeaseError::Unavailable(why.into())),
                    AcquireOutcome::Wait if waiting.is_none() => waiting = Some(Waiting::begin(ledger)),
                    AcquireOutcome::Wait => changed.await,
                }
            }
        })
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        Box::pin(async {
            let number = id.as_str().rsplit_once('-').and_then(|(_, number)| number.parse().ok());
            let number = number.ok_or_else(|| format!("{} is not a lease of the ledger", id.as_str()))?;
            let leaving = {
                let mut state = self.0.state.lock();
                state.usage.release(number);
                state.members.is_leaving()
            };
            self.0.changed.notify_waiters();
            if leaving {
                self.0.wake.notify_one();
            }
            Ok(())
        })
    }

    fn instance_index(&self) -> Option<u64> {
        self.0.state.lock().members.index()
    }
}
