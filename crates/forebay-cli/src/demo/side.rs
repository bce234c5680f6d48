//! One side of the contest: a lender of connections, its server, and what its callers went through.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use forebay::Instant;
use forebay::rt::Runtime;
use parking_lot::Mutex;

use super::backend::{Backend, Traffic};
use super::caller::Caller;
use super::tally::{Counts, Tally, Waits};

/// Whatever lends connections to callers.
pub(super) trait Lender: Send + Sync + 'static {
    /// Opens the connections it starts with.
    fn fill(&self) -> impl Future<Output = ()> + Send;

    /// Gets the caller a connection, or tells it that there is none.
    fn serve(&self, caller: Caller) -> impl Future<Output = ()> + Send;

    /// How many connections it holds, those with callers included.
    fn held(&self) -> usize;
}

/// A lender with its own server.
#[derive(Debug)]
pub(super) struct Side<L> {
    lender: L,
    backend: Backend,
    tally: Arc<Mutex<Tally>>,
}

/// What a side looks like at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// Connections that no caller has.
    pub(super) ready: usize,
    pub(super) callers: Counts,
    pub(super) waits: Waits,
    pub(super) traffic: Traffic,
}

impl<L: Lender> Side<L> {
    /// A side that no caller has come to. Whoever waits longer than `slow` is served slowly.
    pub(super) fn new(lender: L, backend: Backend, slow: Duration) -> Arc<Self> {
        Arc::new(Self { lender, backend, tally: Arc::new(Mutex::new(Tally::new(slow))) })
    }

    /// Opens the connections it starts with.
    pub(super) async fn fill(&self) {
        self.lender.fill().await;
    }

    /// Forgets what filling took.
    pub(super) fn start_counting(&self) {
        self.backend.start_counting();
    }

    /// Lets a caller in, who goes about its business in the background.
    pub(super) fn admit(
        self: &Arc<Self>,
        due_at: Instant,
        query_time: Duration,
        patience: Duration,
        runtime: &Arc<dyn Runtime>,
    ) {
        let caller = Caller::new(due_at, query_time, patience, Arc::clone(&self.tally), Arc::clone(runtime));
        let this = Arc::clone(self);
        runtime.spawn(Box::pin(async move {
            caller.asks();
            this.lender.serve(caller).await;
        }));
    }

    /// Whether every caller has left.
    pub(super) fn is_quiet(&self) -> bool {
        let Counts { waiting, served, .. } = self.tally.lock().counts();
        waiting + served == 0
    }

    pub(super) fn figures(&self) -> Figures {
        let held = self.lender.held();
        let (callers, waits) = {
            let tally = self.tally.lock();
            (tally.counts(), tally.waits())
        };
        // The two were not counted at one moment: a caller may have come in between.
        let ready = held.saturating_sub(callers.served);
        Figures { ready, callers, waits, traffic: self.backend.traffic() }
    }
}
