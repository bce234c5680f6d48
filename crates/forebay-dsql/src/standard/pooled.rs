//! A connection of a pool in standard mode, and one that is lent.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool::managed::Object;
use forebay::rt::{self, Runtime};
use forebay::{Connect, Instant};

use super::stock::Place;
use super::{LIFE, Opened, Opener, Shared};
use crate::registry::Tracked;

/// A connection of the pool. Dropping it closes it in the background and then releases its lease.
pub(crate) struct Pooled<C: Connect>(
    /// There until it is dropped, or taken out to be looked after.
    Option<Held<C>>,
);

struct Held<C: Connect> {
    opened: Opened<C>,
    expires_at: Instant,
    /// When the server was last known to answer.
    heard_at: Instant,
    /// Given up once the closing of the connection is counted.
    place: Place<C>,
}

const HELD: &str = "a pooled connection is there until it is dropped or taken out";

impl<C: Connect> Pooled<C> {
    pub(super) fn new(opened: Opened<C>, place: Place<C>) -> Self {
        let now = place.shared().runtime.now();
        Self(Some(Held { opened, expires_at: now + LIFE, heard_at: now, place }))
    }

    /// The connection, and an empty shell in its stead.
    pub(super) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    fn held(&self) -> &Held<C> {
        self.0.as_ref().expect(HELD)
    }

    fn held_mut(&mut self) -> &mut Held<C> {
        self.0.as_mut().expect(HELD)
    }

    fn shared(&self) -> &Arc<Shared<C>> {
        self.held().place.shared()
    }

    pub(crate) fn tracked(&self) -> &Tracked<C::Connection> {
        &self.held().opened.connection
    }

    pub(crate) fn tracked_mut(&mut self) -> &mut Tracked<C::Connection> {
        &mut self.held_mut().opened.connection
    }

    pub(super) fn is_fit(&self, now: Instant) -> bool {
        now < self.held().expires_at && self.held().opened.is_fit(self.shared())
    }

    fn is_clean(&self) -> bool {
        self.shared().connector.is_clean(self.tracked())
    }

    /// Whether it is to be asked before it is lent: it was idle for longer than the settings allow, or another was found
    /// dead since it was last heard of.
    fn is_in_doubt(&self, now: Instant) -> bool {
        let heard_at = self.held().heard_at;
        self.shared().figures.check_after.is_some_and(|longest| {
            now.since(heard_at) >= longest || self.shared().doubted_at.lock().is_some_and(|at| heard_at < at)
        })
    }

    /// Whether it cannot be lent as it is.
    pub(super) fn wants_tending(&self, now: Instant) -> bool {
        !self.is_clean() || self.is_in_doubt(now)
    }

    /// Asks it if it is in doubt, and makes it clean. Whether it can be lent now.
    pub(super) async fn tend(&mut self) -> bool {
        if self.is_in_doubt(self.shared().runtime.now()) && !self.ping().await {
            self.shared().doubt();
            return false;
        }
        self.cleaned().await
    }

    /// Makes it clean, if it is not. Whether it is now.
    pub(crate) async fn cleaned(&mut self) -> bool {
        if self.is_clean() {
            return true;
        }
        let shared = Arc::clone(self.shared());
        let reset = shared.connector.reset(self.tracked_mut());
        let clean = matches!(
            rt::within(&*shared.runtime, shared.figures.maintenance_timeout, reset).await,
            Some(Ok(()))
        );
        if clean {
            self.held_mut().heard_at = shared.runtime.now();
        } else {
            shared.doubt();
        }
        clean
    }

    /// Asks the server whether it lives. Cancel safe as the connector's check.
    pub(crate) async fn ping(&mut self) -> bool {
        let shared = Arc::clone(self.shared());
        let check = shared.connector.check(self.tracked_mut());
        let lives = matches!(
            rt::within(&*shared.runtime, shared.figures.maintenance_timeout, check).await,
            Some(Ok(()))
        );
        if lives {
            self.held_mut().heard_at = shared.runtime.now();
        }
        lives
    }
}

impl<C: Connect> Drop for Pooled<C> {
    fn drop(&mut self) {
        let Some(Held { opened: Opened { connection, lease, .. }, expires_at, place, .. }) = self.0.take()
        else {
            return;
        };
        let shared = Arc::clone(place.shared());
        if shared.runtime.now() >= expires_at {
            shared.metrics.closed_for_age();
        }
        let closing = Closing::new(Arc::clone(&shared));
        let task = Arc::clone(&shared);
        shared.runtime.spawn(Box::pin(async move {
            let close = task.connector.close(connection);
            // A close that takes too long is given up: the connection is dropped, which closes it as well.
            rt::within(&*task.runtime, task.figures.close_timeout, close).await;
            if let Some(lease) = lease {
                lease.release().await;
            }
            drop(closing);
        }));
        drop(place);
    }
}

/// A connection lent by a pool in standard mode.
pub(crate) struct Borrowed<C: Connect> {
    /// There until it is dropped.
    object: Option<Object<Opener<C>>>,
    bad: bool,
    /// Somebody has had a look at it: whoever uses it hears whether it lives.
    touched: AtomicBool,
}

const LENT: &str = "a guard holds its connection until it is dropped";

impl<C: Connect> Borrowed<C> {
    pub(super) fn new(object: Object<Opener<C>>) -> Self {
        Self { object: Some(object), bad: false, touched: AtomicBool::new(false) }
    }

    /// It failed: it will be closed, and not lent again.
    pub(crate) fn mark_bad(&mut self) {
        self.bad = true;
    }
}

impl<C: Connect> Deref for Borrowed<C> {
    type Target = Pooled<C>;

    fn deref(&self) -> &Pooled<C> {
        self.touched.store(true, Ordering::Relaxed);
        self.object.as_ref().expect(LENT)
    }
}

impl<C: Connect> DerefMut for Borrowed<C> {
    fn deref_mut(&mut self) -> &mut Pooled<C> {
        *self.touched.get_mut() = true;
        self.object.as_mut().expect(LENT)
    }
}

/// Gives back what is clean, cleans the rest in the background and gives it back then.
impl<C: Connect> Drop for Borrowed<C> {
    fn drop(&mut self) {
        let Some(mut object) = self.object.take() else { return };
        let shared = Arc::clone(object.shared());
        let now = shared.runtime.now();
        if *self.touched.get_mut() {
            object.held_mut().heard_at = now;
        }
        if self.bad || !object.is_fit(now) {
            if self.bad {
                shared.doubt();
            }
            drop(Object::take(object));
        } else if object.is_clean() {
            give_back(object, &shared);
        } else {
            // Until it is given back it counts as in use, also if this task is dropped.
            shared.runtime.clone().spawn(Box::pin(async move {
                if object.cleaned().await {
                    give_back(object, &shared);
                } else {
                    drop(Object::take(object));
                }
            }));
        }
    }
}

/// To the next in line for one that is being opened, if there is any, since he came before those who wait for this; else
/// to the pool.
fn give_back<C: Connect>(object: Object<Opener<C>>, shared: &Arc<Shared<C>>) {
    if shared.stock.has_line() {
        shared.land(Object::take(object));
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
        self.0.gone.notify_waiters();
    }
}
