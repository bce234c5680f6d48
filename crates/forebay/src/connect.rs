//! The connector: how a reservoir opens, checks, resets and closes connections.

use std::fmt;
use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::{BoxError, OpenError};

/// Opens connections for a [`Reservoir`](crate::Reservoir), and reports their condition.
///
/// Only [`open`](Self::open) must be written. The defaults of the other methods suit a connection that is
/// always usable and clean, and that closes when it is dropped.
///
/// The reservoir may drop any of the futures before it completes, on a timeout or a drain. Dropping it must
/// close a connection that is half open.
pub trait Connect: Send + Sync + 'static {
    /// The connection that callers use.
    type Connection: Send + 'static;

    /// Gets what an open needs besides budget: a token, a certificate, a resolved name. Default: nothing.
    ///
    /// It runs before the reservoir takes a lease and a permit. So failing credentials use no connection
    /// budget.
    fn prepare(&self) -> impl Future<Output = Result<(), OpenError>> + Send {
        ready(Ok(()))
    }

    /// Opens one connection. `monitor` serves two purposes. A connector that notices the death of a
    /// connection calls [`mark_dead`](ConnectionMonitor::mark_dead), or keeps the
    /// [`guard`](ConnectionMonitor::guard) in its driver task. A connector that can close a connection while
    /// a caller uses it waits for [`recalled`](ConnectionMonitor::recalled). A connector that can do neither
    /// ignores it.
    fn open(
        &self,
        monitor: ConnectionMonitor,
    ) -> impl Future<Output = Result<Self::Connection, OpenError>> + Send;

    /// Whether a returned connection can be used again. It runs on the caller's thread at every return, so it
    /// should look at a flag and not ask the server. Default: yes.
    fn is_usable(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        true
    }

    /// Whether a returned connection can be lent again without a reset: no open transaction, no changed
    /// settings. It runs like [`is_usable`](Self::is_usable). Connections that are not clean are
    /// [`reset`](Self::reset) in the background. Default: yes.
    fn is_clean(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        true
    }

    /// Makes a connection clean again. If it fails, the connection is discarded. Default: it fails.
    fn reset(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = connection;
        ready(Err("the connector has no reset".into()))
    }

    /// How much longer than [`maintenance_timeout`](crate::Config::maintenance_timeout) a reset or a check may
    /// take because the server does not answer, such as to requests that the caller gave up. It keeps a slow
    /// server from emptying the reservoir: the connection is set aside, and lent again once it has answered.
    /// When the reservoir closes, it waits no longer. It is asked once, before the reset or the check. Default:
    /// no time.
    fn unanswered_timeout(&self, connection: &Self::Connection) -> Duration {
        let _ = connection;
        Duration::ZERO
    }

    /// Asks the server whether a connection is alive. It runs in the background, if
    /// [`check_after`](crate::Config::check_after) is set. Default: it succeeds.
    fn check(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = connection;
        ready(Ok(()))
    }

    /// Closes a connection. Its lease is released after this has completed or timed out, never before.
    /// Default: it drops the connection.
    fn close(&self, connection: Self::Connection) -> impl Future<Output = ()> + Send {
        drop(connection);
        ready(())
    }
}

/// Connects one connection and the reservoir that owns it, in both directions.
///
/// *To the reservoir: the connection is dead.* The driver task that reads the socket calls
/// [`mark_dead`](Self::mark_dead) when it ends, or holds a [`guard`](Self::guard), which does so even on a
/// panic. The reservoir then replaces a ready connection at once, before a caller fails on it. It discards a
/// lent connection when it is returned.
///
/// *To the connection: it must be closed.* A lease store can [`recall`](Self::recall) a lease. A lent
/// connection must then be closed while its caller uses it. A connector that can do so waits for
/// [`recalled`](Self::recalled) next to its driver.
#[derive(Clone)]
pub struct ConnectionMonitor(Arc<Shared<dyn Owner>>);

struct Shared<O: ?Sized> {
    recalled: AtomicBool,
    recall: Notify,
    owner: O,
}

/// The owner of a monitored connection.
pub(crate) trait Owner: Send + Sync + 'static {
    fn died(&self);

    fn retired(&self);

    /// The connection must be closed. Returns whether the owner closes it itself; otherwise somebody uses it.
    fn recalled(&self) -> bool;
}

/// No owner.
impl Owner for () {
    fn died(&self) {}

    fn retired(&self) {}

    fn recalled(&self) -> bool {
        false
    }
}

impl ConnectionMonitor {
    pub(crate) fn new(owner: impl Owner) -> Self {
        Self(Arc::new(Shared { recalled: AtomicBool::new(false), recall: Notify::new(), owner }))
    }

    /// A monitor without a reservoir, to open a connection outside of one.
    #[must_use]
    pub fn unattached() -> Self {
        Self::new(())
    }

    /// Reports that the connection is dead. It is cheap, can be called from any thread, and has no effect if
    /// it is repeated or late.
    pub fn mark_dead(&self) {
        self.0.owner.died();
    }

    /// Returns a guard that marks the connection dead when it is dropped, even on a panic. Keep it in the
    /// driver task.
    #[must_use = "dropping the guard reports the connection's death"]
    pub fn guard(self) -> MonitorGuard {
        MonitorGuard(self)
    }

    /// Retires the connection: a ready one is discarded at once, and a lent one when it is returned. The
    /// reservoir opens another one in its place. Use it after a change of credentials, for example. It is
    /// cheap, can be called from any thread, and has no effect if it is repeated or late.
    pub fn retire(&self) {
        self.0.owner.retired();
    }

    /// Asks for the connection to be closed soon, because its lease is about to end. A ready connection is
    /// discarded and closed normally. A connection that somebody uses is [closed at once](Self::recalled), if
    /// its connector can do that, and is not lent again. The call is cheap, can be made from any thread, and
    /// has no effect if it is repeated or late.
    pub fn recall(&self) {
        if !self.0.owner.recalled() {
            self.0.recalled.store(true, Ordering::Release);
            self.0.recall.notify_waiters();
        }
    }

    /// Whether the connection was recalled while somebody used it.
    #[must_use]
    pub fn is_recalled(&self) -> bool {
        self.0.recalled.load(Ordering::Acquire)
    }

    /// Completes once the connection is recalled while somebody uses it. Close its socket then, whatever it
    /// is doing.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn recalled(&self) {
        // Registered before the check, so that a recall in between is not missed.
        let mut recall = pin!(self.0.recall.notified());
        recall.as_mut().enable();
        if !self.is_recalled() {
            recall.await;
        }
    }
}

impl fmt::Debug for ConnectionMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionMonitor")
    }
}

/// Marks its connection dead when it is dropped. See [`ConnectionMonitor::guard`].
#[derive(Debug)]
pub struct MonitorGuard(ConnectionMonitor);

impl Drop for MonitorGuard {
    fn drop(&mut self) {
        self.0.mark_dead();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[derive(Clone, Default)]
    struct Counting {
        deaths: Arc<AtomicUsize>,
        idle: bool,
    }

    impl Owner for Counting {
        fn died(&self) {
            self.deaths.fetch_add(1, Ordering::Relaxed);
        }

        fn retired(&self) {}

        fn recalled(&self) -> bool {
            self.idle
        }
    }

    #[test]
    fn a_guard_marks_the_connection_dead_even_on_a_panic() {
        let owner = Counting::default();
        let monitor = ConnectionMonitor::new(owner.clone());
        let guard = monitor.clone().guard();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _guard = guard;
            panic!("the driver fell over");
        }));
        assert!(panicked.is_err());
        assert_eq!(owner.deaths.load(Ordering::Relaxed), 1);
        monitor.mark_dead();
        assert_eq!(owner.deaths.load(Ordering::Relaxed), 2);
        ConnectionMonitor::unattached().mark_dead();
    }

    #[test]
    fn a_recall_is_seen_by_waits_that_began_before_and_after() {
        let monitor = ConnectionMonitor::new(Counting::default());
        let mut context = Context::from_waker(Waker::noop());
        let (mut waiting, mut dropped) = (Box::pin(monitor.recalled()), Box::pin(monitor.recalled()));
        assert_eq!(dropped.as_mut().poll(&mut context), Poll::Pending);
        drop(dropped);
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Pending);
        monitor.recall();
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Ready(()));
        assert_eq!(Box::pin(monitor.recalled()).as_mut().poll(&mut context), Poll::Ready(()));
        assert!(monitor.is_recalled());
        let idle = ConnectionMonitor::new(Counting { idle: true, ..Counting::default() });
        idle.recall();
        assert!(!idle.is_recalled(), "its owner closes it in good order");
    }
}
