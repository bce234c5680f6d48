//! What stands beside deadpool's pool: opens under way, connections set aside, and callers who wait for one.
//!
//! deadpool drops an open with the caller who wanted it. Here each open is a task of the pool's own, which takes a place
//! before it begins: whoever waits longest gets what it opens, and if nobody does any more, it is set aside.
//!
//! An open that fails ends nobody's wait: after a pause another is begun, one at a time until one succeeds. Only if the server
//! denies access and no connection is left, all who wait are told at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay::rt::Runtime;
use forebay::{Connect, Failure, Instant, OpenError, Rng};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::{Opened, Pooled, Shared, unless};
use crate::warmup;

/// What a caller in line gets.
type Given<C> = Result<Pooled<C>, Arc<OpenError>>;
/// How whoever asked for an open hears of its end.
type Report = oneshot::Sender<Result<(), Arc<OpenError>>>;

pub(super) struct Stock<C: Connect> {
    state: Mutex<State<C>>,
    max_open: usize,
    /// How many callers are in line, to be read without the lock.
    in_line: AtomicUsize,
    /// Tells those who open that it is not worth while any more.
    shut: Notify,
}

struct State<C: Connect> {
    /// Connections that are open or on their way; never more than the pool may own.
    places: usize,
    /// Those on their way.
    opening: usize,
    /// Nobody's, and taken by the next caller for whom the pool would open one.
    spares: Vec<Pooled<C>>,
    /// The first has waited longest. Some may have gone away.
    line: VecDeque<Waiting<C>>,
    /// The number of the next open.
    next: u64,
    closed: bool,
    /// The warm-up is over. Until then, whoever an open was begun for hears that it failed: the warm-up has pauses of its own.
    warm: bool,
    /// Opens that failed in a row.
    failures: u32,
    /// Until then nothing is opened for those in line.
    resume_at: Instant,
    failed: Option<(Instant, Arc<OpenError>)>,
    succeeded_at: Option<Instant>,
    rng: Rng,
}

/// A caller in line.
struct Waiting<C: Connect> {
    /// The open under way for it.
    opening: Option<u64>,
    hand: oneshot::Sender<Given<C>>,
}

/// What a caller who asks for a connection gets.
pub(super) enum Ordered<C: Connect> {
    Spare(Pooled<C>),
    Later(Handed<C>),
    /// Waiting is of no use.
    Denied(Arc<OpenError>),
}

impl<C: Connect> Stock<C> {
    pub(super) fn new(max_open: usize, rng: Rng) -> Self {
        let state = State {
            places: 0,
            opening: 0,
            spares: Vec::new(),
            line: VecDeque::new(),
            next: 0,
            closed: false,
            warm: false,
            failures: 0,
            resume_at: Instant::ZERO,
            failed: None,
            succeeded_at: None,
            rng,
        };
        Self { state: Mutex::new(state), max_open, in_line: AtomicUsize::new(0), shut: Notify::new() }
    }

    /// How many connections there are, and how many are on their way.
    pub(super) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.places - state.opening, state.opening)
    }

    /// The warm-up is over.
    pub(super) fn warmed(&self) {
        self.state.lock().warm = true;
    }

    /// Why the pool is short, for a caller who has waited since then: the last open failed, or one did meanwhile.
    pub(super) fn last_failure(&self, since: Instant) -> Option<Arc<OpenError>> {
        let state = self.state.lock();
        let (at, error) = state.failed.as_ref()?;
        let is_last = state.succeeded_at.is_none_or(|succeeded_at| succeeded_at < *at);
        (is_last || *at >= since).then(|| Arc::clone(error))
    }

    pub(super) fn has_line(&self) -> bool {
        self.in_line.load(Ordering::Acquire) > 0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Takes out the spares that are not `fit`.
    pub(super) fn sweep(&self, fit: impl Fn(&Pooled<C>) -> bool) -> Vec<Pooled<C>> {
        let mut state = self.state.lock();
        let (fit, unfit) = state.spares.drain(..).partition(fit);
        state.spares = fit;
        unfit
    }

    /// From now on nothing is opened, set aside or handed out. What was set aside.
    pub(super) fn close(&self) -> Vec<Pooled<C>> {
        let (spares, line) = {
            let mut state = self.state.lock();
            state.closed = true;
            self.in_line.store(0, Ordering::Release);
            (std::mem::take(&mut state.spares), std::mem::take(&mut state.line))
        };
        self.shut.notify_waiters();
        drop(line);
        spares
    }

    /// Waits until it is closed. Cancel safe.
    pub(super) async fn closed(&self) {
        let mut shut = std::pin::pin!(self.shut.notified());
        // Before the look, so that no close falls between.
        shut.as_mut().enable();
        if !self.is_closed() {
            shut.await;
        }
    }
}

impl<C: Connect> State<C> {
    fn room(&self, max_open: usize) -> bool {
        !self.closed && self.places < max_open
    }

    /// Takes a place for an open.
    fn begin(&mut self, shared: &Arc<Shared<C>>, report: Option<Report>) -> Opening<C> {
        self.places += 1;
        self.opening += 1;
        self.next += 1;
        Opening { id: self.next, place: Some(Place(Arc::clone(shared))), report }
    }

    /// To whoever waits longest and is still there, else aside. `opened` is the open that it comes from.
    fn hand_on(&mut self, mut pooled: Pooled<C>, opened: Option<u64>) {
        while let Some(Waiting { opening, hand }) = self.line.pop_front() {
            if let Err(Ok(back)) = hand.send(Ok(pooled)) {
                pooled = back;
                continue;
            }
            // Whoever it was begun for has in exchange what was begun for the one who got it.
            let mine = |waiting: &&mut Waiting<C>| opened.is_some() && waiting.opening == opened;
            if let Some(waiting) = self.line.iter_mut().find(mine) {
                waiting.opening = opening;
            }
            return;
        }
        self.spares.push(pooled);
    }

    /// An open has failed that was begun for somebody, or for nobody: whoever it was waits for another.
    fn fail(&mut self, opening: u64, error: &Arc<OpenError>, now: Instant) {
        self.failed = Some((now, Arc::clone(error)));
        let mine = |waiting: &Waiting<C>| waiting.opening == Some(opening);
        if let Some(at) = self.line.iter().position(mine) {
            self.line[at].opening = None;
            if !self.warm
                && let Some(waiting) = self.line.remove(at)
            {
                // If it has gone away meanwhile, nobody needs to hear of it.
                drop(waiting.hand.send(Err(Arc::clone(error))));
            }
        }
        // Of many that fail together, only the first begins a pause.
        if self.warm && now >= self.resume_at {
            self.resume_at = now + warmup::pause(self.failures, &mut self.rng);
            self.failures = self.failures.saturating_add(1);
        }
    }

    fn succeed(&mut self, now: Instant) {
        self.succeeded_at = Some(now);
        self.failures = 0;
        self.resume_at = now;
    }

    /// Why waiting is of no use, if so: no connection is left, and the server denies access.
    fn denial(&self) -> Option<Arc<OpenError>> {
        let (at, error) = self.failed.as_ref().filter(|_| self.warm && self.places == self.opening)?;
        let is_last = self.succeeded_at.is_none_or(|succeeded_at| succeeded_at < *at);
        (is_last && error.is_permanent()).then(|| Arc::clone(error))
    }

    /// Whether another open may begin for those in line.
    fn may_open(&self, shared: &Shared<C>) -> bool {
        let calm = self.failures == 0 || (self.opening == 0 && shared.runtime.now() >= self.resume_at);
        calm && self.room(shared.stock.max_open)
    }

    /// Opens for those in line for whom none is under way, as far as there is room.
    fn catch_up(&mut self, shared: &Arc<Shared<C>>) -> Vec<Opening<C>> {
        self.line.retain(|waiting| !waiting.hand.is_closed());
        let mut openings = Vec::new();
        for at in 0..self.line.len() {
            if self.line[at].opening.is_none() && self.may_open(shared) {
                let opening = self.begin(shared, None);
                self.line[at].opening = Some(opening.id);
                openings.push(opening);
            }
        }
        openings
    }
}

impl<C: Connect> Shared<C> {
    /// A connection that was set aside, or a place in line for the next, and an open under way for it.
    pub(super) fn order(self: &Arc<Self>) -> Ordered<C> {
        let (hand, given) = oneshot::channel();
        let handed = Handed { given, shared: Arc::clone(self) };
        self.change(|state| {
            if let Some(spare) = state.spares.pop() {
                return (Ordered::Spare(spare), Vec::new());
            }
            if let Some(error) = state.denial() {
                return (Ordered::Denied(error), Vec::new());
            }
            if !state.closed {
                state.line.push_back(Waiting { opening: None, hand });
            }
            (Ordered::Later(handed), state.catch_up(self))
        })
    }

    /// Begins to open one that nobody waits for, if there is room. What comes is told to the receiver.
    pub(super) fn open_spare(self: &Arc<Self>) -> Option<oneshot::Receiver<Result<(), Arc<OpenError>>>> {
        let (report, told) = oneshot::channel();
        self.change(|state| {
            if !state.room(self.stock.max_open) {
                return (None, Vec::new());
            }
            (Some(told), vec![state.begin(self, Some(report))])
        })
    }

    /// A connection of the pool that nobody has in hand: to the next in line, else aside. One that is of no use goes, and
    /// leaves its place to another.
    pub(super) fn land(self: &Arc<Self>, pooled: Pooled<C>) {
        if pooled.is_fit(self.runtime.now()) {
            self.arrive(pooled, None);
        }
    }

    /// One that can be lent, and the open that it comes from.
    fn arrive(self: &Arc<Self>, pooled: Pooled<C>, opened: Option<u64>) {
        let now = self.runtime.now();
        let surplus = self.change(|state| {
            if opened.is_some() {
                state.opening -= 1;
                state.succeed(now);
            }
            if state.closed {
                return (Some(pooled), Vec::new());
            }
            state.hand_on(pooled, opened);
            (None, state.catch_up(self))
        });
        drop(surplus);
    }

    /// An open has failed. Its place is still taken.
    fn failed(self: &Arc<Self>, opening: u64, error: OpenError) -> Arc<OpenError> {
        let (error, now) = (Arc::new(error), self.runtime.now());
        let resume_at = self.change(|state| {
            state.opening -= 1;
            let before = state.resume_at;
            state.fail(opening, &error, now);
            let begun = state.resume_at != before && !state.closed;
            (begun.then_some(state.resume_at), state.catch_up(self))
        });
        if let Some(resume_at) = resume_at {
            let shared = Arc::clone(self);
            self.runtime.spawn(Box::pin(async move {
                let pause = shared.runtime.sleep_until(resume_at);
                if unless(shared.stock.closed(), pause).await.is_some() {
                    shared.change(|state| ((), state.catch_up(&shared)));
                }
            }));
        }
        error
    }

    /// Changes the stock and begins what the change asks for. Nothing that has a place may be dropped in `change`.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut State<C>) -> (T, Vec<Opening<C>>)) -> T {
        let (out, openings) = {
            let mut state = self.stock.state.lock();
            let changed = change(&mut state);
            if let Some(error) = state.denial() {
                for waiting in std::mem::take(&mut state.line) {
                    drop(waiting.hand.send(Err(Arc::clone(&error))));
                }
            }
            self.stock.in_line.store(state.line.len(), Ordering::Release);
            changed
        };
        for opening in openings {
            self.runtime.spawn(Box::pin(opening.run()));
        }
        out
    }
}

/// The place of a connection that is open, given up when it is dropped.
pub(super) struct Place<C: Connect>(Arc<Shared<C>>);

impl<C: Connect> Place<C> {
    pub(super) fn shared(&self) -> &Arc<Shared<C>> {
        &self.0
    }
}

impl<C: Connect> Drop for Place<C> {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.places -= 1;
            ((), state.catch_up(&self.0))
        });
        self.0.gone.notify_waiters();
    }
}

/// An open under way.
struct Opening<C: Connect> {
    id: u64,
    /// Passed on to what it opens; there until it has ended.
    place: Option<Place<C>>,
    report: Option<Report>,
}

impl<C: Connect> Opening<C> {
    async fn run(mut self) {
        let Some(shared) = self.place.as_ref().map(|place| Arc::clone(place.shared())) else { return };
        let opened = unless(shared.stock.closed(), shared.open()).await;
        self.settle(opened.unwrap_or_else(|| Err(OpenError::new(Failure::Open, "the pool is closed"))));
    }

    fn settle(&mut self, opened: Result<Opened<C>, OpenError>) {
        let Some(place) = self.place.take() else { return };
        let shared = Arc::clone(place.shared());
        // What has failed leaves its place only when the failure is told: then there is room for another.
        let told = match opened.map(|opened| (opened.is_fit(&shared), opened)) {
            Ok((true, opened)) => {
                shared.arrive(Pooled::new(opened, place), Some(self.id));
                Ok(())
            }
            Ok((false, opened)) => {
                let lost = "it was lost, or its lease taken back, as soon as it was open";
                let error = shared.failed(self.id, OpenError::new(Failure::Open, lost));
                drop(Pooled::new(opened, place));
                Err(error)
            }
            Err(error) => {
                let error = shared.failed(self.id, error);
                drop(place);
                Err(error)
            }
        };
        shared.gone.notify_waiters();
        if let Some(report) = self.report.take() {
            drop(report.send(told));
        }
    }
}

/// An open whose task ended otherwise than by its end: it panicked, or its runtime went.
impl<C: Connect> Drop for Opening<C> {
    fn drop(&mut self) {
        self.settle(Err(OpenError::new(Failure::Open, "the task that opened it fell over")));
    }
}

/// What a caller is waiting for. Dropping it hands on what has just come.
pub(super) struct Handed<C: Connect> {
    given: oneshot::Receiver<Given<C>>,
    shared: Arc<Shared<C>>,
}

impl<C: Connect> Handed<C> {
    /// Of what `shared` will send to the other end.
    pub(super) fn new(shared: Arc<Shared<C>>) -> (oneshot::Sender<Given<C>>, Self) {
        let (hand, given) = oneshot::channel();
        (hand, Self { given, shared })
    }

    /// What comes; none if nobody is there to send it. Cancel safe: what comes later is handed on.
    pub(super) async fn given(mut self) -> Option<Given<C>> {
        (&mut self.given).await.ok()
    }
}

impl<C: Connect> Drop for Handed<C> {
    fn drop(&mut self) {
        self.given.close();
        if let Ok(Ok(pooled)) = self.given.try_recv() {
            self.shared.land(pooled);
        }
    }
}
