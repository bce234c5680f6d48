//! The connections of one role: who gets one, and who gives way.
//!
//! In elastic mode a session keeps its backend while it is idle, and so most statements find one in place. A client that waits takes the
//! backend of the session that has been idle for longest. If none is idle, the next one that becomes idle gives way at once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use forebay::CheckoutError;
use forebay_dsql::{DsqlPool, PooledConnection, RawPostgres};
use parking_lot::Mutex;

use crate::seat::Seat;
use crate::session::{Memory, Reported};
use crate::{metrics, refusal};

/// A connection to the cluster, lent to a session.
pub(crate) type Backend = PooledConnection<'static, RawPostgres<Memory>>;

/// How many backends are looked at for one that needs not move.
const LOOKS: usize = 4;

/// The backends of one role and database.
pub struct Backends {
    pool: DsqlPool<RawPostgres<Memory>>,
    /// How long a client waits for a backend, in nanoseconds.
    wait: AtomicU64,
    /// Whoever takes one may run on another runtime than the pool.
    moves: bool,
    /// What the server reports to a new session. Known once a backend was open.
    reported: Mutex<Option<Reported>>,
    /// Elastic sessions with a backend.
    holders: Mutex<Vec<Arc<Seat>>>,
    /// Clients that wait for a backend.
    waiting: AtomicUsize,
    /// Counts the moments at which a session became idle.
    idle: AtomicU64,
}

impl Backends {
    /// Those of `pool`. A client waits for one for at most `wait`.
    pub(crate) fn new(pool: DsqlPool<RawPostgres<Memory>>, wait: Duration, moves: bool) -> Self {
        Self {
            pool,
            wait: AtomicU64::new(nanoseconds(wait)),
            moves,
            reported: Mutex::default(),
            holders: Mutex::default(),
            waiting: AtomicUsize::new(0),
            idle: AtomicU64::new(0),
        }
    }

    /// The pool that they come from.
    #[must_use]
    pub fn pool(&self) -> &DsqlPool<RawPostgres<Memory>> {
        &self.pool
    }

    /// From now on, a client waits for a backend for at most `wait`. Those that wait already do so as before.
    pub(crate) fn set_wait(&self, wait: Duration) {
        self.wait.store(nanoseconds(wait), Ordering::Relaxed);
    }

    fn wait(&self) -> Duration {
        Duration::from_nanos(self.wait.load(Ordering::Relaxed))
    }

    /// What the server reports to a new session, such as its version. The first call may have to wait for a backend.
    ///
    /// # Errors
    /// If no backend becomes ready in time.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn reported(self: &Arc<Self>) -> Result<Reported, CheckoutError> {
        if let Some(reported) = &*self.reported.lock() {
            return Ok(reported.clone());
        }
        let backend = self.acquire().await?;
        Ok(self.learn(&backend))
    }

    /// A backend that is ready now, preferably one that this thread used last: moving one to another thread costs more than a look at some.
    pub(crate) fn try_acquire(&self, context: &mut Context<'_>) -> Option<Backend> {
        let mut strange = [const { None }; LOOKS];
        for other in &mut strange {
            let Some(backend) = self.ready(context) else { break };
            if !self.moves || backend.is_here() {
                return Some(backend.into_owned());
            }
            *other = Some(backend);
        }
        // The first is the one that was used last. The others go back.
        strange
            .into_iter()
            .flatten()
            .find_map(|mut backend| self.is_here(&mut backend).then(|| backend.into_owned()))
    }

    /// A backend that is ready now, on any thread.
    fn ready(&self, context: &mut Context<'_>) -> Option<PooledConnection<'_, RawPostgres<Memory>>> {
        loop {
            let acquired = std::pin::pin!(self.pool.acquire_within(self.wait())).poll(context);
            let Poll::Ready(Ok(mut backend)) = acquired else { return None };
            if backend.is_alive() {
                return Some(backend);
            }
            backend.mark_bad();
        }
    }

    /// A backend, as soon as it is this caller's turn. Cancel safe: what it was about to get goes to the next.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Result<Backend, CheckoutError> {
        let _waiting = Waiting::new(self);
        loop {
            self.ask_one();
            let mut backend = self.pool.acquire_within(self.wait()).await?;
            if backend.is_alive() && self.is_here(&mut backend) {
                return Ok(backend.into_owned());
            }
            backend.mark_bad();
        }
    }

    /// Makes sure that the thread that uses a backend is the one that hears of it.
    fn is_here(&self, backend: &mut PooledConnection<'_, RawPostgres<Memory>>) -> bool {
        !self.moves || backend.move_here().is_ok()
    }

    /// What this backend reported. All of a pool report the same, so sessions share what the first one said.
    pub(crate) fn learn(&self, backend: &Backend) -> Reported {
        let mut known = self.reported.lock();
        let same = known.as_ref().filter(|known| {
            let pairs = backend.reported().iter().map(|(name, value)| (&**name, &**value));
            known.iter().eq(pairs)
        });
        if let Some(same) = same {
            return same.clone();
        }
        let reported = Reported::new(backend.reported().iter().map(|(name, value)| (&**name, &**value)));
        known.insert(reported).clone()
    }

    /// Why a client waits.
    pub(crate) fn why_waiting(&self, context: &mut Context<'_>) -> String {
        let asked = std::pin::pin!(self.pool.acquire_within(Duration::ZERO)).poll(context);
        match asked {
            Poll::Ready(Err(error)) => {
                format!("waiting for a connection to the cluster: {}", refusal::cause(&error))
            }
            _ => "waiting for a connection to the cluster".to_owned(),
        }
    }

    /// Whether a client waits for a backend.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// An elastic session has a backend.
    pub(crate) fn hold(&self, seat: &Arc<Seat>) {
        self.holders.lock().push(Arc::clone(seat));
    }

    /// It has none any more.
    pub(crate) fn release(&self, seat: &Arc<Seat>) {
        seat.set_busy();
        let mut holders = self.holders.lock();
        if let Some(found) = holders.iter().position(|holder| Arc::ptr_eq(holder, seat)) {
            holders.swap_remove(found);
        }
    }

    /// The backend of this session is idle. Returns whether it should be given back at once.
    pub(crate) fn is_idle(&self, seat: &Seat) -> bool {
        seat.set_idle(self.idle.fetch_add(1, Ordering::Relaxed) + 1);
        // In this order, as `acquire` counts its caller before it looks: one of the two sees the other.
        self.is_wanted()
    }

    /// Asks the session that has been idle for longest to give way.
    pub(crate) fn ask_one(&self) {
        let holders = self.holders.lock();
        loop {
            let idle = holders.iter().filter_map(|seat| Some((seat.idle_since()?, seat)));
            let Some((since, seat)) = idle.min_by_key(|(since, _)| *since) else { return };
            if seat.ask_to_give_way(since) {
                return;
            }
        }
    }
}

fn nanoseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Backends").field(&self.pool).finish()
    }
}

#[cfg(test)]
mod tests;

/// A client that waits for a backend, counted until it is dropped.
struct Waiting<'a>(&'a Backends);

impl<'a> Waiting<'a> {
    fn new(backends: &'a Backends) -> Self {
        backends.waiting.fetch_add(1, Ordering::SeqCst);
        metrics::begins_to_wait();
        Self(backends)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        metrics::waits_no_more();
    }
}
