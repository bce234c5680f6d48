//! A connection of a pool in standard mode, and one that is lent.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use deadpool::managed::Object;
use forebay::rt;
use forebay::{Connect, Instant, Lifeline};

use super::lease::StandardLease;
use super::{Opener, Shared};
use crate::registry::Tracked;

/// A connection of the pool. Dropping it closes it in the background and then releases its lease.
pub(crate) struct Pooled<C: Connect> {
    /// There until it is dropped.
    held: Option<(Tracked<C::Connection>, Option<StandardLease>)>,
    /// Tells whether its lease was taken back.
    lifeline: Lifeline,
    expires_at: Instant,
    /// When the server was last known to answer.
    heard_at: Instant,
    shared: Arc<Shared<C>>,
}

const HELD: &str = "a pooled connection is there until it is dropped";

impl<C: Connect> Pooled<C> {
    pub(super) fn new(
        connection: Tracked<C::Connection>,
        lease: Option<StandardLease>,
        lifeline: Lifeline,
        expires_at: Instant,
        shared: Arc<Shared<C>>,
    ) -> Self {
        let heard_at = shared.runtime.now();
        Self { held: Some((connection, lease)), lifeline, expires_at, heard_at, shared }
    }

    pub(crate) fn tracked(&self) -> &Tracked<C::Connection> {
        &self.held.as_ref().expect(HELD).0
    }

    pub(crate) fn tracked_mut(&mut self) -> &mut Tracked<C::Connection> {
        &mut self.held.as_mut().expect(HELD).0
    }

    pub(super) fn is_fit(&self, now: Instant) -> bool {
        if now >= self.expires_at || self.lifeline.is_recalled() {
            return false;
        }
        self.shared.connector.is_usable(self.tracked())
    }

    fn is_clean(&self) -> bool {
        self.shared.connector.is_clean(self.tracked())
    }

    /// Makes it clean, if it is not. Whether it is now.
    pub(crate) async fn cleaned(&mut self) -> bool {
        if self.is_clean() {
            return true;
        }
        let shared = Arc::clone(&self.shared);
        let reset = shared.connector.reset(self.tracked_mut());
        matches!(rt::within(&*shared.runtime, shared.figures.care_timeout, reset).await, Some(Ok(())))
    }

    /// Whether it is in order, or answers if it has been idle for longer than the settings allow without asking.
    pub(super) async fn is_heard_of(&mut self) -> bool {
        let idle = self.shared.runtime.now().since(self.heard_at);
        match self.shared.figures.check_after {
            Some(longest) if idle >= longest => self.ping().await,
            _ => true,
        }
    }

    /// Asks the server whether it lives. Cancel safe as the connector's check.
    pub(crate) async fn ping(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let check = shared.connector.check(self.tracked_mut());
        matches!(rt::within(&*shared.runtime, shared.figures.care_timeout, check).await, Some(Ok(())))
    }
}

impl<C: Connect> Drop for Pooled<C> {
    fn drop(&mut self) {
        let Some((connection, lease)) = self.held.take() else { return };
        let shared = Arc::clone(&self.shared);
        if shared.runtime.now() >= self.expires_at {
            shared.metrics.closed_for_age();
        }
        let closing = Closing::new(Arc::clone(&shared));
        self.shared.runtime.spawn(Box::pin(async move {
            let close = shared.connector.close(connection);
            // A close that takes too long is given up: the connection is dropped, which closes it as well.
            rt::within(&*shared.runtime, shared.figures.close_timeout, close).await;
            if let Some(lease) = lease {
                lease.release().await;
            }
            drop(closing);
        }));
    }
}

/// A connection lent by a pool in standard mode.
pub(crate) struct Borrowed<C: Connect> {
    /// There until it is dropped.
    object: Option<Object<Opener<C>>>,
    bad: bool,
}

const LENT: &str = "a guard holds its connection until it is dropped";

impl<C: Connect> Borrowed<C> {
    pub(super) fn new(object: Object<Opener<C>>) -> Self {
        Self { object: Some(object), bad: false }
    }

    /// It failed: it will be closed, and not lent again.
    pub(crate) fn mark_bad(&mut self) {
        self.bad = true;
    }
}

impl<C: Connect> Deref for Borrowed<C> {
    type Target = Pooled<C>;

    fn deref(&self) -> &Pooled<C> {
        self.object.as_ref().expect(LENT)
    }
}

impl<C: Connect> DerefMut for Borrowed<C> {
    fn deref_mut(&mut self) -> &mut Pooled<C> {
        self.object.as_mut().expect(LENT)
    }
}

/// Gives back what is clean, cleans the rest in the background and gives it back then.
impl<C: Connect> Drop for Borrowed<C> {
    fn drop(&mut self) {
        let Some(mut object) = self.object.take() else { return };
        let shared = Arc::clone(&object.shared);
        let now = shared.runtime.now();
        object.heard_at = now;
        if self.bad || !object.is_fit(now) {
            drop(Object::take(object));
        } else if !object.is_clean() {
            // Until it is given back it counts as in use, also if this task is dropped.
            shared.runtime.spawn(Box::pin(async move {
                if !object.cleaned().await {
                    drop(Object::take(object));
                }
            }));
        }
    }
}

/// A connection on its way out.
struct Closing<C: Connect>(Arc<Shared<C>>);

impl<C: Connect> Closing<C> {
    fn new(shared: Arc<Shared<C>>) -> Self {
        shared.closing.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl<C: Connect> Drop for Closing<C> {
    fn drop(&mut self) {
        self.0.closing.fetch_sub(1, Ordering::AcqRel);
        self.0.closed_one.notify_waiters();
    }
}
