//! How a reservoir makes, mends and unmakes connections.

use std::fmt;
use std::future::{Future, ready};
use std::sync::Arc;

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

    /// Opens one connection. `lifeline` is for a connector that learns of a connection's death as it happens:
    /// cut it then. One that does not may ignore it.
    fn open(&self, lifeline: Lifeline) -> impl Future<Output = Result<Self::Connection, OpenError>> + Send;

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

/// Brings word of one connection's death to the reservoir that owns it.
///
/// A driver task that reads the connection's socket should [`cut`](Self::cut) its lifeline when it ends, or hold
/// the [`guard`](Self::guard) that does so even on a panic. A ready connection is then replaced at once instead of
/// failing the next caller; a lent one is discarded when it comes back.
#[derive(Clone)]
pub struct Lifeline(Arc<dyn Fn() + Send + Sync>);

impl Lifeline {
    pub(crate) fn new(on_death: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(on_death))
    }

    /// A lifeline that leads nowhere, for opening a connection outside a reservoir.
    #[must_use]
    pub fn unattached() -> Self {
        Self::new(|| ())
    }

    /// Reports the death. Cheap, callable from any thread, and harmless if repeated or late.
    pub fn cut(&self) {
        (self.0)();
    }

    /// Cuts the line when it goes out of scope.
    #[must_use = "dropping the guard reports the connection's death"]
    pub fn guard(self) -> LifelineGuard {
        LifelineGuard(self)
    }
}

impl fmt::Debug for Lifeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lifeline")
    }
}

/// A [`Lifeline`] that is cut on drop.
#[derive(Debug)]
pub struct LifelineGuard(Lifeline);

impl Drop for LifelineGuard {
    fn drop(&mut self) {
        self.0.cut();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_guard_cuts_the_line_even_on_a_panic() {
        let cuts = Arc::new(AtomicUsize::new(0));
        let line = Lifeline::new({
            let cuts = Arc::clone(&cuts);
            move || {
                cuts.fetch_add(1, Ordering::Relaxed);
            }
        });
        let guard = line.clone().guard();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _guard = guard;
            panic!("the driver fell over");
        }));
        assert!(panicked.is_err());
        assert_eq!(cuts.load(Ordering::Relaxed), 1);
        line.cut();
        assert_eq!(cuts.load(Ordering::Relaxed), 2);
        Lifeline::unattached().cut();
    }
}
