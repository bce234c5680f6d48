//! A lease on its way: had, refused, or in doubt.

use forebay::LeaseId;

use super::{Count, Counter, Held, LATE, RENEW, State};
use crate::table::{Cancelled, TableError};

/// What a cancelled acquire means.
pub(super) enum Refusal {
    /// It was made before: its item is there.
    Made,
    /// There is no room.
    Limit,
}

pub(super) fn refusal(error: &TableError) -> Option<Refusal> {
    let TableError::Cancelled(reasons) = error else { return None };
    match reasons.as_slice() {
        [_, Cancelled::ConditionFailed(_)] => Some(Refusal::Made),
        [Cancelled::ConditionFailed(_), _] => Some(Refusal::Limit),
        _ => None,
    }
}

/// A lease that is being taken. Dropped, it is given back, in case it was.
pub(super) struct Claim<'a> {
    pub(super) counter: &'a Counter,
    pub(super) id: Option<String>,
}

impl Claim<'_> {
    pub(super) fn keep(&mut self) -> LeaseId {
        let id = self.id.take().unwrap_or_default();
        let renew_at = self.counter.now() + RENEW;
        let held = Held { count: Count::Surely, renew_at, release: None };
        self.counter.state.lock().held.insert(id.clone(), held);
        self.counter.nudged.notify_one();
        LeaseId::new(id)
    }

    /// It was not taken, as far as we know.
    pub(super) fn doubt(&mut self, state: &mut State, unknown: bool) {
        if let Some(id) = self.id.take().filter(|_| unknown) {
            state.doubtful.insert(id, self.counter.now() + LATE);
            self.counter.nudged.notify_one();
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
