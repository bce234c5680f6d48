//! Faults that can be injected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::runtime;

/// The faults of a server. Clones are handles to the same server.
///
/// A statement takes the first pending fault when it is about to run: for a query, when its ticket is
/// redeemed.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    plan: Arc<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    slow_nanos: AtomicU64,
    hang: AtomicU32,
    reset_before: AtomicU32,
    reset_after: AtomicU32,
    internal: AtomicU32,
    refusal: Mutex<Refusal>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Refusal {
    #[default]
    Never,
    Until(Instant),
    Always,
}

impl Refusal {
    /// A time that the clock cannot represent means forever.
    fn lasting(time: Duration, now: Instant) -> Self {
        now.checked_add(time).map_or(Self::Always, Self::Until)
    }

    fn holds(self, now: Instant) -> bool {
        match self {
            Self::Never => false,
            Self::Until(end) => now < end,
            Self::Always => true,
        }
    }
}

/// The fault of one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It hangs until it is cancelled.
    Hang,
    /// The connection is reset, and the statement does not run.
    ResetBefore,
    /// The statement runs, and the connection is reset before the answer.
    ResetAfter,
    /// It fails without running.
    Internal,
}

impl Faults {
    /// Delays each statement. Zero removes the delay.
    pub fn slow(&self, time: Duration) {
        self.plan.slow_nanos.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// The next `n` statements hang until they are cancelled, and keep their session's lock.
    pub fn hang_next(&self, n: u32) {
        self.plan.hang.store(n, Ordering::SeqCst);
    }

    /// The connections of the next `n` statements are reset; the statements do not run.
    pub fn reset_next(&self, n: u32) {
        self.plan.reset_before.store(n, Ordering::SeqCst);
    }

    /// The next `n` statements run, and their connections are reset before the answer.
    pub fn reset_after_next(&self, n: u32) {
        self.plan.reset_after.store(n, Ordering::SeqCst);
    }

    /// The next `n` statements fail with INTERNAL and do not run; their connections stay open.
    pub fn internal_next(&self, n: u32) {
        self.plan.internal.store(n, Ordering::SeqCst);
    }

    /// Resets new connections, or stops doing so.
    pub fn refuse_connections(&self, refuse: bool) {
        *self.plan.refusal.lock() = if refuse { Refusal::Always } else { Refusal::Never };
    }

    /// Resets new connections for this long. Zero stops that.
    pub fn refuse_connections_for(&self, time: Duration) {
        *self.plan.refusal.lock() = Refusal::lasting(time, runtime::now());
    }

    pub(crate) fn refuses_connections(&self) -> bool {
        self.plan.refusal.lock().holds(runtime::now())
    }

    pub(crate) fn delay(&self) -> Duration {
        Duration::from_nanos(self.plan.slow_nanos.load(Ordering::SeqCst))
    }

    pub(crate) fn next(&self) -> Fault {
        let plan = &*self.plan;
        [
            (&plan.hang, Fault::Hang),
            (&plan.reset_before, Fault::ResetBefore),
            (&plan.reset_after, Fault::ResetAfter),
            (&plan.internal, Fault::Internal),
        ]
        .into_iter()
        .find_map(|(left, fault)| take(left).then_some(fault))
        .unwrap_or(Fault::None)
    }
}

/// Decrements the counter, unless it is zero.
fn take(left: &AtomicU32) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_takes_one() {
        let faults = Faults::default();
        let handle = faults.clone();
        handle.internal_next(1);
        handle.hang_next(2);
        let taken: Vec<Fault> = (0..4).map(|_| faults.next()).collect();
        assert_eq!(taken, [Fault::Hang, Fault::Hang, Fault::Internal, Fault::None]);
    }

    #[test]
    fn a_refusal_ends_by_itself() {
        let now = runtime::now();
        let refusal = Refusal::lasting(Duration::from_secs(2), now);
        assert!(refusal.holds(now) && refusal.holds(now + Duration::from_secs(1)));
        assert!(!refusal.holds(now + Duration::from_secs(2)));
        assert!(!Refusal::lasting(Duration::ZERO, now).holds(now));
        assert!(Refusal::lasting(Duration::MAX, now).holds(now + Duration::from_secs(1 << 30)));
    }
}
