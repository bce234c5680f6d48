//! How a reservoir makes, mends and unmakes connections.

use std::fmt;
use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::error::{BoxError, OpenError};

/// Makes connections for a [`Reservoir`](crate::Reservoir), and knows what shape each is in.
///
/// Only [`open`](Self::open) must be written. The other methods have defaults that suit a connection which never
/// needs care: it is always usable, always clean, and closed by dropping it.
///
/// Any of the futures may be dropped before it is done (a timeout, a drain); dropping must close what was half made.
pub trait Connect: Send + Sync + 'static {
    /// What callers get to use.
    type Connection: Send + 'static;

    /// Makes ready whatever an open needs besides budget: a token, a certificate, a resolved name.
    ///
    /// It runs before a lease or a permit is taken, so that failing credentials burn no connection budget.
    fn prepare(&self) -> impl Future<Output = Result<(), OpenError>> + Send {
        ready(Ok(()))
    }

    /// Opens one connection. `monitor` is for a connector that learns of a connection's death as it happens:
    /// cut it then; and for one that can close a connection under its caller when it is
    /// [recalled](ConnectionMonitor::recalled). One that does neither may ignore it.
    fn open(
        &self,
        monitor: ConnectionMonitor,
    ) -> impl Future<Output = Result<Self::Connection, OpenError>> + Send;

    /// Whether a returned connection can be used again at all. Called on the caller's thread at each return:
    /// look at a flag, do not ask the server.
    fn is_usable(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        true
    }

    /// Whether a returned connection can go to the next caller as it is: no open transaction, no changed settings.
    /// Called like [`is_usable`](Self::is_usable). One that is not clean is [`reset`](Self::reset) in the background.
    fn is_clean(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        true
    }

    /// Makes a connection clean again. One that cannot be is discarded; so, by default, is every one that is not clean.
    fn reset(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = connection;
        ready(Err("the connector knows no reset".into()))
    }

    /// Asks the server whether a connection still lives. Called in the background for connections idle for longer
    /// than [`check_after`](crate::Config::check_after), if that is set.
    fn check(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = connection;
        ready(Ok(()))
    }

    /// Closes a connection. Its lease is released once this is done or has timed out, never before.
    fn close(&self, connection: Self::Connection) -> impl Future<Output = ()> + Send {
        drop(connection);
        ready(())
    }
}

/// The line between one connection and the reservoir that owns it.
///
/// Word of the connection's death goes one way: a driver task that reads its socket should [mark it dead](Self::mark_dead)
/// when it ends, or hold the [`guard`](Self::guard) that does so even on a panic. A ready connection is then replaced at once
/// instead of failing the next caller; a lent one is discarded when it comes back.
///
/// Word that the connection must go comes the other way: its lease can be [recalled](Self::recall), and then a lent one has
/// to be closed under its caller. A connector that can do so waits for [`recalled`](Self::recalled) beside its driver.
#[derive(Clone)]
pub struct ConnectionMonitor(Arc<Shared<dyn Owner>>);

struct Shared<O: ?Sized> {
    recalled: AtomicBool,
    recall: Notify,
    owner: O,
}

/// Whoever owns the connection at the end of a monitor.
pub(crate) trait Owner: Send + Sync + 'static {
    /// The connection has died.
    fn died(&self);

    /// The connection must go. Whether it is on its way: nobody has it in hand.
    fn recalled(&self) -> bool;
}

/// Nobody.
impl Owner for () {
    fn died(&self) {}

    fn recalled(&self) -> bool {
        false
    }
}

impl ConnectionMonitor {
    pub(crate) fn new(owner: impl Owner) -> Self {
        Self(Arc::new(Shared { recalled: AtomicBool::new(false), recall: Notify::new(), owner }))
    }

    /// A monitor that leads nowhere, for opening a connection outside a reservoir.
    #[must_use]
    pub fn unattached() -> Self {
        Self::new(())
    }

    /// Reports the death. Cheap, callable from any thread, and harmless if repeated or late.
    pub fn mark_dead(&self) {
        self.0.owner.died();
    }

    /// Marks the connection dead when it goes out of scope, even on a panic.
    #[must_use = "dropping the guard reports the connection's death"]
    pub fn guard(self) -> MonitorGuard {
        MonitorGuard(self)
    }

    /// The connection must be closed soon: its lease is about to end. A ready one is discarded, and closed in good order; one
    /// in somebody's hands is [closed under them](Self::recalled), if its connector can do that, and not lent again. Cheap,
    /// callable from any thread, and harmless if repeated or late.
    pub fn recall(&self) {
        if !self.0.owner.recalled() {
            self.0.recalled.store(true, Ordering::Release);
            self.0.recall.notify_waiters();
        }
    }

    /// Whether the connection was recalled while somebody had it.
    #[must_use]
    pub fn is_recalled(&self) -> bool {
        self.0.recalled.load(Ordering::Acquire)
    }

    /// Done once the connection was recalled while somebody had it: close its socket then, whatever it is doing.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn recalled(&self) {
        // Asked to be told before looking, so that no recall falls in between.
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

/// A [`ConnectionMonitor`] that marks its connection dead on drop.
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
    fn a_recall_reaches_whoever_waits_for_it_before_or_after() {
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
