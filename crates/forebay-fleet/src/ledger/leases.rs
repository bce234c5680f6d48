//! The face of a ledger that callers see.

use std::pin::pin;
use std::sync::Arc;

use forebay::{BoxError, LeaseError, LeaseId, Leases, StoreFuture};

use super::Ledger;
use super::call::Taken;

/// One caller who waits for a lease; dropped, it waits no longer.
struct Waiting<'a> {
    ledger: &'a Ledger,
    round: u64,
    /// It got one, and is not counted any more.
    served: bool,
}

impl<'a> Waiting<'a> {
    fn begin(ledger: &'a Ledger) -> Self {
        let round = ledger.book.lock().wait(true);
        ledger.nudged.notify_one();
        Self { ledger, round, served: false }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.served {
            self.ledger.book.lock().wait(false);
        }
    }
}

/// The face of a [`Ledger`] for reservoirs. When the last is dropped, the ledger leaves.
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
                let taken = ledger.book.lock().take(ledger.now(), round);
                match taken {
                    Taken::Lease(number) => {
                        if let Some(waiting) = &mut waiting {
                            waiting.served = true;
                        }
                        return Ok(LeaseId::new(format!("{}-{number}", ledger.name())));
                    }
                    Taken::Full => return Err(LeaseError::Limit { limit: ledger.holding().limit }),
                    Taken::Fair(share) => {
                        // Whether it still would not be is looked into ahead of the next beat.
                        ledger.nudged.notify_one();
                        return Err(LeaseError::Share { share, limit: ledger.holding().limit });
                    }
                    Taken::Away(why) => return Err(LeaseError::Unavailable(why.into())),
                    Taken::Wait if waiting.is_none() => waiting = Some(Waiting::begin(ledger)),
                    Taken::Wait => changed.await,
                }
            }
        })
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        Box::pin(async {
            let number = id.as_str().rsplit_once('-').and_then(|(_, number)| number.parse().ok());
            let number = number.ok_or_else(|| format!("{} is no lease of the ledger", id.as_str()))?;
            let leaving = {
                let mut book = self.0.book.lock();
                book.give(number);
                book.leaving()
            };
            self.0.changed.notify_waiters();
            if leaving {
                self.0.nudged.notify_one();
            }
            Ok(())
        })
    }

    fn instance_index(&self) -> Option<u64> {
        self.0.book.lock().index()
    }
}
