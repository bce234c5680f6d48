//! How many sessions a pool may have on the server, and the sessions that came back from quarantine.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay::{BoxError, LeaseError, LeaseId, Leases, StoreFuture};
use parking_lot::Mutex;

use crate::session::AsyncSession;

/// The sessions of one pool on its server. A connection counts from before it is opened until the server has
/// probably forgotten its session. A session that left the pool and answers again waits here for the pool's
/// next open, so a statement that cannot be stopped costs the server no additional session.
#[derive(Debug)]
pub(crate) struct SessionBudget {
    limit: usize,
    state: Mutex<State>,
    lingering: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    held: BTreeSet<u64>,
    recovered: VecDeque<(u64, AsyncSession)>,
    /// Recovered, and counted with a lease that was given out for it.
    promised: VecDeque<AsyncSession>,
}

impl State {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn hold(&mut self) -> u64 {
        let id = self.next_id();
        self.held.insert(id);
        id
    }

    fn used(&self) -> usize {
        self.held.len() + self.recovered.len()
    }
}

impl SessionBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default(), lingering: AtomicUsize::new(0) }
    }

    /// How many sessions the server may have.
    pub(crate) fn used(&self) -> usize {
        self.state.lock().used()
    }

    /// How many sessions were closed without the server's confirmation, beside those that still count.
    pub(crate) fn lingering(&self) -> usize {
        self.lingering.load(Ordering::Relaxed)
    }

    /// A session was closed, and the server may keep it for a while. It does not count towards the limit.
    pub(crate) fn begin_linger(&self) {
        self.lingering.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_linger(&self) {
        self.lingering.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a session that the server may have without a connection of the pool, whatever the limit.
    pub(crate) fn reserve(budget: &Arc<Self>) -> Reservation {
        Reservation { id: budget.state.lock().hold(), budget: Arc::clone(budget) }
    }

    /// Keeps a session that answers again, and returns its id.
    pub(crate) fn keep_recovered(&self, session: AsyncSession) -> u64 {
        let mut state = self.state.lock();
        let id = state.next_id();
        state.recovered.push_back((id, session));
        id
    }

    /// Takes a recovered session. The caller has a lease for it.
    pub(crate) fn take_recovered(&self) -> Option<AsyncSession> {
        let mut state = self.state.lock();
        let promised = state.promised.pop_front();
        promised.or_else(|| state.recovered.pop_front().map(|(_, session)| session))
    }

    /// Takes this recovered session, if it is still here.
    pub(crate) fn expire(&self, id: u64) -> Option<AsyncSession> {
        let mut state = self.state.lock();
        let place = state.recovered.iter().position(|(kept, _)| *kept == id)?;
        state.recovered.remove(place).map(|(_, session)| session)
    }

    /// Takes the sessions that were promised to opens, which will not happen any more.
    pub(crate) fn take_promised(&self) -> Vec<AsyncSession> {
        self.state.lock().promised.drain(..).collect()
    }

    fn take(&self) -> Result<LeaseId, LeaseError> {
        let mut state = self.state.lock();
        if state.used() >= self.limit {
            // The lease is for a recovered session, if there is one. Otherwise it is one too many.
            let Some((_, session)) = state.recovered.pop_front() else {
                return Err(LeaseError::Limit { limit: self.limit as u64 });
            };
            state.promised.push_back(session);
        }
        Ok(LeaseId::new(state.hold().to_string()))
    }
}

/// One session of a budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<SessionBudget>,
    id: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.state.lock().held.remove(&self.id);
    }
}

impl Leases for SessionBudget {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        // Taken in the first poll: a future that is dropped before has taken nothing.
        Box::pin(async { self.take() })
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        Box::pin(async {
            self.state.lock().held.remove(&id.as_str().parse()?);
            Ok(())
        })
    }
}
