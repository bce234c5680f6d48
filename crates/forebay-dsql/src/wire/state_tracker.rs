//! The state of a connection, for any thread to read.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::ConnectionState;
use super::deadline::Limits;
use super::failure::Failure;
use super::protocol_state::ProtocolState;
use crate::error::ErrorKind;

/// The state of one connection. The task that moves its bytes keeps it up to date, and any thread can read it.
#[derive(Default)]
pub struct StateTracker {
    /// Bits such as [`UNANSWERED`]. Only the driver's task writes them.
    flags: AtomicU8,
    altered: AtomicBool,
    /// The settings are those that [`settle`](Self::settle) has accepted: they were not reset since.
    settled: AtomicBool,
    broken: AtomicBool,
    /// Nobody holds the connection any more: the driver must end.
    pub(super) released: AtomicBool,
    /// The driver is gone, and the socket with it.
    ended: AtomicBool,
    /// Requests sent so far that may commit.
    commits: AtomicU64,
    /// COMMITs carried out so far, and statements outside of a transaction.
    committed: AtomicU64,
    /// How many of them when the transaction began.
    committed_before: AtomicU64,
    /// Transactions begun so far.
    begun: AtomicU64,
    /// How many of them before the one that counts.
    begun_before: AtomicU64,
    /// What failed the transaction, as [`Failure`] writes it; zero for nothing.
    failure: AtomicU64,
    /// SQLSTATE of the error that ended the session, as bytes; zero for none.
    fatal: AtomicU64,
    pub(super) activity: AtomicU8,
    /// Whether a request was given up, and the connection has not been reset since.
    given_up: AtomicU8,
    /// How long callers wait for answers.
    pub(crate) limits: Limits,
    /// How many wait for a change.
    pub(super) awaited: AtomicUsize,
    changed: Notify,
}

const UNANSWERED: u8 = 1;
const COMMITTED_NOTHING: u8 = 32;
const COMMITTING: u8 = 2;
const IN_TRANSACTION: u8 = 4;
const ROLLED_BACK: u8 = 8;
/// Some request is unanswered, if only one that cannot change anything.
const UNSETTLED: u8 = 64;
/// The driver has read more than it could pass on: someone does not read the rows of a stream.
const UNDELIVERED: u8 = 16;

/// The driver's task is idle, and has handled all requests.
const AT_REST: u8 = 0;
pub(super) const AT_WORK: u8 = 1;
/// The task was woken and has not been polled yet.
pub(super) const CALLED: u8 = 2;

/// No request was given up.
const NONE: u8 = 0;
/// One was. The stream answers whatever the driver sends, and sends nothing.
const GIVEN_UP: u8 = 1;
/// The connection is being reset: the next request is sent.
const RESUMED: u8 = 2;

impl StateTracker {
    /// The state of the connection. It costs two loads.
    #[must_use]
    pub fn state(&self) -> ConnectionState {
        if self.is_broken() {
            return ConnectionState::Broken;
        }
        // The order matters: the flags of a driver at rest cover all requests it was given.
        let at_rest = self.activity.load(Ordering::SeqCst) == AT_REST;
        let flags = self.flags.load(Ordering::Acquire);
        // After a request was given up, the stream lets nothing pass before all is answered.
        let is_held_back = flags & UNSETTLED != 0 && self.given_up.load(Ordering::Acquire) != NONE;
        if !at_rest || flags & (UNANSWERED | UNDELIVERED) != 0 || is_held_back {
            ConnectionState::Unanswered
        } else if flags & IN_TRANSACTION != 0 {
            ConnectionState::InTransaction
        } else if self.altered.load(Ordering::Acquire) || self.is_given_up() {
            ConnectionState::Altered
        } else {
            ConnectionState::Clean
        }
    }

    /// Whether a request of this connection was given up at its deadline: no other request is sent before the connection has been
    /// given back.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire) == GIVEN_UP
    }

    pub(super) fn give_up(&self) {
        self.given_up.store(GIVEN_UP, Ordering::Release);
    }

    /// The caller that gave up has returned the connection, and all is answered: requests are sent again. Returns whether one had been
    /// given up.
    pub(crate) fn resume(&self) -> bool {
        self.given_up.compare_exchange(GIVEN_UP, RESUMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// For the stream: whether requests are sent again.
    pub(super) fn is_resumed(&self) -> bool {
        self.given_up.compare_exchange(RESUMED, NONE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the connection is useless.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Whether the driver is at rest and has delivered all that it has read. Until then it can do nothing else; if nobody reads
    /// the rows of a stream, that lasts for ever. A broken connection has nothing to deliver.
    pub(crate) fn is_delivered(&self) -> bool {
        let at_rest = self.activity.load(Ordering::SeqCst) == AT_REST;
        self.is_broken() || (at_rest && self.flags.load(Ordering::Acquire) & UNDELIVERED == 0)
    }

    /// Whether the driver holds answers that somebody has not read.
    pub(crate) fn is_undelivered(&self) -> bool {
        self.flags.load(Ordering::Acquire) & UNDELIVERED != 0
    }

    /// Waits until it is so. Cancel safe.
    pub(crate) async fn delivered(&self) {
        self.until(|| self.is_delivered().then_some(())).await;
    }

    /// Whether a request that commits is unanswered: a COMMIT, alone, prepared or among other statements, or a statement
    /// outside of a transaction. If the connection is broken as well, its outcome is unknown.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        self.flags.load(Ordering::Acquire) & COMMITTING != 0
    }

    /// How many requests that may commit were sent completely. A driver that has ended sends no more.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// Whether the server answered the last COMMIT by rolling back: a statement of the transaction had failed.
    #[must_use]
    pub fn is_rolled_back(&self) -> bool {
        self.flags.load(Ordering::Acquire) & ROLLED_BACK != 0
    }

    /// A transaction is about to begin. Later questions about commits refer to this moment.
    pub(crate) fn begins(&self) {
        self.committed_before.store(self.committed.load(Ordering::Acquire), Ordering::Release);
        self.begun_before.store(self.begun.load(Ordering::Acquire), Ordering::Release);
    }

    /// Whether anything was committed since then, by a COMMIT or outside of a transaction.
    pub(crate) fn has_committed(&self) -> bool {
        self.committed.load(Ordering::Acquire) != self.committed_before.load(Ordering::Acquire)
    }

    /// Whether a second transaction was begun since then.
    pub(crate) fn has_begun_another(&self) -> bool {
        self.begun.load(Ordering::Acquire) > self.begun_before.load(Ordering::Acquire) + 1
    }

    /// Whether no transaction was open when the last COMMIT was carried out.
    pub(crate) fn committed_nothing(&self) -> bool {
        self.flags.load(Ordering::Acquire) & COMMITTED_NOTHING != 0
    }

    /// The conflict that failed the last transaction, if it was one. A caller that ignores the first error hears only that
    /// the transaction is aborted.
    pub(crate) fn conflict(&self) -> Option<ErrorKind> {
        let kind = Failure::from_bits(self.failure.load(Ordering::Acquire))?.kind();
        matches!(kind, ErrorKind::Conflict(_)).then_some(kind)
    }

    /// The SQLSTATE with which the server ended the session, if it gave one.
    #[must_use]
    pub fn fatal_code(&self) -> Option<String> {
        let bytes = self.fatal.load(Ordering::Acquire).to_be_bytes();
        let code = bytes.strip_prefix(&[0; 3])?;
        (code != [0; 5]).then(|| String::from_utf8_lossy(code).into_owned())
    }

    /// Waits until every request is answered, or the connection is broken.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn answered(&self) -> ConnectionState {
        self.until(|| Some(self.state()).filter(|state| *state != ConnectionState::Unanswered)).await
    }

    /// Waits until the socket is closed. Cancel safe.
    pub(crate) async fn ended(&self) {
        self.until(|| self.ended.load(Ordering::Acquire).then_some(())).await;
    }

    /// The start-up message is about to be sent.
    pub(super) fn start(&self) {
        self.flags.store(UNANSWERED, Ordering::Release);
    }

    /// Waits until `look` finds something. Cancel safe.
    async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        let _awaited = Awaited::new(&self.awaited);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before the look, so that no change falls between.
            changed.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            changed.await;
        }
    }

    /// The driver has handled all requests, unless it was woken again meanwhile: then it is at rest after its next poll.
    pub(super) fn come_to_rest(&self) {
        let rest = self.activity.compare_exchange(AT_WORK, AT_REST, Ordering::SeqCst, Ordering::Relaxed);
        // This happens at each step of a statement, and hardly ever is there a waiter. Sequential consistency of both writes and
        // both reads guarantees that either this sees the waiter or the waiter sees the driver at rest.
        if rest.is_ok() && self.awaited.load(Ordering::SeqCst) > 0 {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
        self.set_broken();
    }

    /// Settings are not known any more.
    #[cfg(feature = "raw")]
    pub(crate) fn settings_changed(&self) {
        self.altered.store(true, Ordering::Release);
    }

    /// RESET ALL was answered: the settings are those of the start again.
    pub(crate) fn settings_restored(&self) {
        self.settled.store(false, Ordering::Release);
        self.altered.store(false, Ordering::Release);
    }

    /// The settings are accepted as they are.
    pub(crate) fn settings_accepted(&self) {
        self.altered.store(false, Ordering::Release);
    }

    /// The same, for the hook of a pool: it does not have to set them again before they are reset.
    pub(crate) fn settle(&self) {
        self.settings_accepted();
        self.settled.store(true, Ordering::Release);
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    pub(crate) fn set_broken(&self) {
        self.broken.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(super) fn publish(&self, protocol: &mut ProtocolState) {
        let bit = |holds: bool, bit: u8| if holds { bit } else { 0 };
        let flags = bit(protocol.is_unanswered(), UNANSWERED)
            | bit(protocol.committed_nothing, COMMITTED_NOTHING)
            | bit(protocol.is_committing(), COMMITTING)
            | bit(protocol.is_rolled_back(), ROLLED_BACK)
            | bit(protocol.is_in_transaction(), IN_TRANSACTION)
            | bit(!protocol.is_settled(), UNSETTLED)
            | bit(protocol.undelivered, UNDELIVERED);
        if std::mem::take(&mut protocol.altered) {
            self.altered.store(true, Ordering::Release);
        }
        if let Some([a, b, c, d, e]) = protocol.fatal {
            self.fatal.store(u64::from_be_bytes([0, 0, 0, a, b, c, d, e]), Ordering::Release);
        }
        self.commits.store(protocol.commits, Ordering::Release);
        self.committed.store(protocol.committed, Ordering::Release);
        self.begun.store(protocol.begun, Ordering::Release);
        self.failure.store(protocol.failure.map_or(0, Failure::bits), Ordering::Release);
        self.flags.store(flags, Ordering::Release);
        if protocol.over || protocol.fatal.is_some() {
            self.set_broken();
        }
    }
}

impl fmt::Debug for StateTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StateTracker").field(&self.state()).finish()
    }
}

/// A task that waits for a change of the tracker, counted until it is dropped: a change without waiters costs nothing.
struct Awaited<'a>(&'a AtomicUsize);

impl<'a> Awaited<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
