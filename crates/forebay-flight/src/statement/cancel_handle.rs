//! Cancels a statement from another task or thread.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// Cancels statements. Clones cancel the same ones, from any task or thread.
///
/// ```no_run
/// # async fn f(pool: forebay_flight::AsyncFlightSQLPool) -> forebay_flight::Result<()> {
/// use forebay_flight::{CancelHandle, QueryOptions};
///
/// let cancel = CancelHandle::new();
/// let options = QueryOptions::new().with_cancel(cancel.clone());
/// std::thread::spawn(move || cancel.cancel()); // for instance at Ctrl-C
/// let outcome = pool.query_with_options("SELECT * FROM enormous", options).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CancelHandle(Arc<watch::Sender<bool>>);

impl CancelHandle {
    /// A new handle.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Cancels every statement that runs with this handle, and every one that is started with it later.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once [`cancel`](Self::cancel) was called. Cancel safe.
    pub(crate) async fn cancelled(self) {
        let mut watch = self.0.subscribe();
        // Cannot fail: `self` is the sender.
        let _ = watch.wait_for(|cancelled| *cancelled).await;
    }
}

impl Default for CancelHandle {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelHandle").field(&self.is_cancelled()).finish()
    }
}
