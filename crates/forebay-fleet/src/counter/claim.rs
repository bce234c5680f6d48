//! A lease that is being acquired.

use forebay::LeaseId;

use super::{Counted, Counter, LATE, LeaseRecord, RENEW, State};
use crate::table::{Cancelled, TableError};

/// Why an acquire was cancelled.
pub(super) enum Refusal {
    /// The item exists: an earlier attempt was made.
    AlreadyMade,
    Limit,
}

pub(super) fn refusal(error: &TableError) -> Option<Refusal> {
    let TableError::Cancelled(reasons) = error else { return None };
    match reasons.as_slice() {
        [_, Cancelled::ConditionFailed(_)] => Some(Refusal::AlreadyMade),
        [Cancelled::ConditionFailed(_), _] => Some(Refusal::Limit),
        _ => None,
    }
}

/// A lease that is being acquired. If this is dropped, the lease is released, because it may have been granted.
pub(super) struct Claim<'a> {
    pub(super) counter: &'a Counter,
    pub(super) id: Option<String>,
}

impl Claim<'_> {
    pub(super) fn keep(&mut self) -> LeaseId {
        let id = self.id.take().unwrap_or_default();
        let lease = LeaseRecord::new(Counted::Yes, self.counter.now() + RENEW);
        self.counter.state.lock().leases.insert(id.clone(), lease);
        self.counter.wake.notify_one();
        LeaseId::new(id)
    }

    /// The acquire failed. If its outcome is `unknown`, the lease is released later.
    pub(super) fn doubt(&mut self, state: &mut State, unknown: bool) {
        if let Some(id) = self.id.take().filter(|_| unknown) {
            state.doubtful.insert(id, self.counter.now() + LATE);
            self.counter.wake.notify_one();
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let counter = self.counter;
        if self.id.is_some() {
            self.doubt(&mut counter.state.lock(), true);
        }
    }
}
