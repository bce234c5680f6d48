//! Whether a connection is still open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay::ConnectionMonitor;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Whether a connection is still open.
#[derive(Debug)]
pub(crate) struct Liveness {
    is_closed: AtomicBool,
    closed: Notify,
    /// Notified when the connection ends.
    monitor: Mutex<ConnectionMonitor>,
}

impl Liveness {
    pub(super) fn new(monitor: ConnectionMonitor) -> Arc<Self> {
        Arc::new(Self {
            is_closed: AtomicBool::new(false),
            closed: Notify::new(),
            monitor: Mutex::new(monitor),
        })
    }

    /// Replaces the monitor. Notifies the new one at once if the connection has ended already.
    pub(crate) fn attach(&self, monitor: ConnectionMonitor) {
        *self.monitor.lock() = monitor.clone();
        if self.is_closed() {
            monitor.mark_dead();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns once the socket is closed. Cancel safe.
    pub(crate) async fn closed(&self) {
        let mut closed = std::pin::pin!(self.closed.notified());
        // Registered before the look, so that the end is not missed.
        closed.as_mut().enable();
        if !self.is_closed() {
            closed.await;
        }
    }
}

/// Reports the end of a connection when it is dropped.
pub(super) struct CloseGuard(pub(super) Arc<Liveness>);

impl Drop for CloseGuard {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
        self.0.closed.notify_waiters();
        let monitor = self.0.monitor.lock().clone();
        monitor.mark_dead();
    }
}
