//! What others may ask of a client's session, and whether it could do without its backend.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Waker;

use futures_util::task::AtomicWaker;

/// What is asked of a session, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ask {
    /// To give its backend back, if it is idle: somebody waits.
    GiveWay = 1,
    /// To cancel its statement.
    Cancel = 2,
    /// To end as soon as it is idle, because the gateway ends.
    End = 4,
    /// To end now.
    EndNow = 8,
}

/// A session as others see it. It is shared with them.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    asked: AtomicU8,
    waker: AtomicWaker,
    /// Since when it has an idle backend, as a number that grows; zero if it has none.
    idle_since: AtomicU64,
}

impl Seat {
    /// Asks something of the session. It is taken up when its task runs next.
    pub(crate) fn ask(&self, ask: Ask) {
        self.asked.fetch_or(ask as u8, Ordering::AcqRel);
        self.waker.wake();
    }

    /// The task of the session, which is woken by a question.
    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Takes up a question.
    pub(crate) fn take(&self, ask: Ask) -> bool {
        // Nearly always nothing is asked, and a load is cheaper.
        self.asked.load(Ordering::Acquire) & ask as u8 != 0
            && self.asked.fetch_and(!(ask as u8), Ordering::AcqRel) & ask as u8 != 0
    }

    /// Its backend is idle, and could go to somebody else.
    pub(crate) fn set_idle(&self, since: u64) {
        self.idle_since.store(since, Ordering::SeqCst);
    }

    /// Its backend is in use, or it has none.
    pub(crate) fn set_busy(&self) {
        self.idle_since.store(0, Ordering::SeqCst);
    }

    /// See [`set_idle`](Self::set_idle).
    pub(crate) fn idle_since(&self) -> Option<u64> {
        Some(self.idle_since.load(Ordering::SeqCst)).filter(|since| *since != 0)
    }

    /// Asks it to give way, if it is still idle since then.
    pub(crate) fn ask_to_give_way(&self, since: u64) -> bool {
        let idle = self.idle_since.compare_exchange(since, 0, Ordering::SeqCst, Ordering::Relaxed);
        if idle.is_ok() {
            self.ask(Ask::GiveWay);
        }
        idle.is_ok()
    }
}
