//! How many sessions a pool may have on the server, and those that came out of quarantine.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay::{BoxError, LeaseError, LeaseId, Leases, StoreFuture};
use parking_lot::Mutex;

use crate::session::AsyncSession;

/// The sessions of one pool on its server. A connection holds its place from before it is opened until the server is believed
/// to have forgotten it. One that was cut loose, and answers again, waits here for the pool's next open: so a statement that
/// cannot be stopped costs the server no session more than it takes.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    held: std::collections::BTreeSet<u64>,
    recovered: VecDeque<(u64, AsyncSession)>,
    /// Recovered, and counted with a place that was given out for it.
    promised: VecDeque<AsyncSession>,
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Sessions that the server may have.
    pub(crate) fn used(&self) -> usize {
        let state = self.state.lock();
        state.held.len() + state.recovered.len()
    }

    /// Counts a session that the server may have and that no connection of the pool stands for, whatever the limit.
    pub(crate) fn occupy(budget: &Arc<Self>) -> Occupied {
        let mut state = budget.state.lock();
        let id = state.number();
        state.held.insert(id);
        Occupied { budget: Arc::clone(budget), id }
    }

    /// Keeps a session that answers again. Returns what it is called here.
    pub(crate) fn shelve(&self, session: AsyncSession) -> u64 {
        let mut state = self.state.lock();
        let id = state.number();
        state.recovered.push_back((id, session));
        id
    }

    /// Takes one, for whoever has a place for it.
    pub(crate) fn unshelve(&self) -> Option<AsyncSession> {
        let mut state = self.state.lock();
        let promised = state.promised.pop_front();
        promised.or_else(|| state.recovered.pop_front().map(|(_, session)| session))
    }

    /// Takes this one, if nobody has wanted it.
    pub(crate) fn give_up(&self, id: u64) -> Option<AsyncSession> {
        let mut state = self.state.lock();
        let place = state.recovered.iter().position(|(kept, _)| *kept == id)?;
        state.recovered.remove(place).map(|(_, session)| session)
    }

    /// Takes what was promised to an open that will not come.
    pub(crate) fn unpromise(&self) -> Vec<AsyncSession> {
        self.state.lock().promised.drain(..).collect()
    }

    fn take(&self) -> Result<LeaseId, LeaseError> {
        let mut state = self.state.lock();
        if state.held.len() + state.recovered.len() >= self.limit {
            // One that waits here changes hands; otherwise it is too many.
            let Some((_, session)) = state.recovered.pop_front() else {
                return Err(LeaseError::Limit { limit: self.limit as u64 });
            };
            state.promised.push_back(session);
        }
        let id = state.number();
        state.held.insert(id);
        Ok(LeaseId::new(id.to_string()))
    }
}

/// A place in a budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct Occupied {
    budget: Arc<Budget>,
    id: u64,
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.budget.state.lock().held.remove(&self.id);
    }
}

impl Leases for Budget {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        // Done in its first poll: a future that is dropped unpolled has taken nothing.
        Box::pin(async { self.take() })
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        Box::pin(async {
            self.state.lock().held.remove(&id.as_str().parse()?);
            Ok(())
        })
    }
}
