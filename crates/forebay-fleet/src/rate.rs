//! The fleet's connect rate, as one process draws on it.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt;
use forebay::{AwayPolicy, Draws, Instant, Limit, LimitError, LocalLimit, Pace, Permit, StoreFuture};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::away::Away;
use crate::bucket::PERMIT_LIFE;
use crate::ledger::Ledger;
use crate::share::Share;
use crate::store::Store;
use crate::table::TableError;

mod guards;
mod source;

use guards::{Asking, Turn, Waiting};
pub(crate) use source::{Source, Verdict};

/// What an instance was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) per_second: u64,
    pub(crate) burst: u64,
    pub(crate) max_wait: Duration,
    pub(crate) policy: AwayPolicy,
}

/// Permits asked for at a time, at most.
const BATCH: u32 = 64;
/// A line longer than this is a line: then one asks once for each time it has moved on.
const LINE: Duration = Duration::from_millis(250);
/// A fleet of many asks about 17 times a second, all together: each leaves so much time between two asks for each of them.
const SPACING: Duration = Duration::from_millis(60);
/// How long the line should be at most: longer, and less opens stand in it.
const LINE_WANTED: f64 = 5.0;

/// The fleet's rate. Clones share one budget.
#[derive(Clone, Debug)]
pub(crate) struct Rate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rules: Rules,
    store: Store,
    /// Slots bring a share of the rate.
    ledger: Option<Arc<Ledger>>,
    /// Governs while the table is away.
    local: LocalLimit,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    source: Source,
    share: Share,
    /// Turns that are had and not taken, with a number to tell two of one time apart.
    turns: BTreeSet<(Instant, u64)>,
    numbers: u64,
    /// Callers who have neither permit nor turn.
    waiting: u32,
    asking: bool,
    ask_at: Instant,
    /// How long it was until the last of those permits that came last.
    last_wait: Duration,
    /// When we last asked, and for how many.
    last_batch: (Instant, u32),
    away: Away,
    draws: Draws,
}

/// What a caller is told.
enum Told {
    /// A permit of the share.
    Share,
    /// A permit from then on.
    Turn(Instant),
    /// The local limiter decides.
    Local,
    Refused,
    /// Nothing before then, unless something changes.
    Wait(Instant),
}

impl Rate {
    pub(crate) fn new(
        rules: Rules,
        source: Source,
        store: Store,
        ledger: Option<Arc<Ledger>>,
        local: LocalLimit,
        draws: Draws,
    ) -> Self {
        let state = State {
            source,
            share: Share::new(rules.per_second, rules.burst),
            turns: BTreeSet::new(),
            numbers: 0,
            waiting: 0,
            asking: false,
            ask_at: Instant::ZERO,
            last_wait: Duration::ZERO,
            last_batch: (Instant::ZERO, 0),
            away: Away::default(),
            draws,
        };
        let state = Mutex::new(state);
        Self(Arc::new(Inner { rules, store, ledger, local, state, changed: Notify::new() }))
    }

    pub(crate) fn away_since(&self) -> Option<Instant> {
        self.0.state.lock().away.since()
    }

    async fn acquire(&self) -> Result<Permit, LimitError> {
        let (inner, began) = (&*self.0, self.0.store.runtime.now());
        let deadline = began + inner.rules.max_wait;
        let waiting = Waiting::begin(inner);
        let mut denied = false;
        loop {
            let mut changed = pin!(inner.changed.notified());
            changed.as_mut().enable();
            let now = inner.store.runtime.now();
            let until = match self.look(now) {
                Told::Share => {
                    inner.store.telemetry.waited(now.since(began));
                    return Ok(self.share_permit());
                }
                Told::Turn(at) => {
                    let turn = Turn { rate: self.clone(), at: Some(at) };
                    waiting.has_turn(true);
                    if self.share_comes_before(at).await {
                        // Dropped, the turn goes to whoever is next.
                        inner.store.telemetry.waited(inner.store.runtime.now().since(began));
                        return Ok(self.share_permit());
                    }
                    let now = inner.store.runtime.now();
                    // A turn that we slept through is lost.
                    if now <= at + PERMIT_LIFE {
                        inner.store.telemetry.waited(now.since(began));
                        return Ok(turn.permit());
                    }
                    waiting.has_turn(false);
                    now
                }
                Told::Local => {
                    drop(waiting);
                    return inner.local.acquire().await;
                }
                Told::Refused => {
                    let policy = format!("the table is away, and the policy is {:?}", inner.rules.policy);
                    return Err(LimitError::Unavailable(policy.to_lowercase().into()));
                }
                Told::Wait(until) => until,
            };
            if !std::mem::replace(&mut denied, true) {
                inner.store.telemetry.rate_denied.increment(1);
            }
            let now = inner.store.runtime.now();
            if now >= deadline {
                return Err(LimitError::Timeout { waited: now.since(began) });
            }
            rt::within(&*inner.store.runtime, until.min(deadline).since(now), changed).await;
        }
    }

    fn share_permit(&self) -> Permit {
        let this = self.clone();
        Permit::new(move || this.0.state.lock().share.give_back())
    }

    /// Waits for a turn, or for the share to have a permit if that is sooner. Whether it was.
    ///
    /// Cancel safe.
    async fn share_comes_before(&self, at: Instant) -> bool {
        let inner = &*self.0;
        loop {
            let now = inner.store.runtime.now();
            if now >= at {
                return false;
            }
            let (slots, limit) = inner.slots();
            let next = {
                let mut state = inner.state.lock();
                if !state.away.is_away() && state.share.take(now, slots, limit) {
                    return true;
                }
                state.share.next(now, slots, limit)
            };
            inner.store.runtime.sleep_until(at.min(next)).await;
        }
    }

    fn look(&self, now: Instant) -> Told {
        let (slots, limit) = self.0.slots();
        let mut state = self.0.state.lock();
        let away = state.away.is_away();
        if !away && state.share.take(now, slots, limit) {
            return Told::Share;
        }
        if let Some(at) = state.next_turn(now) {
            return Told::Turn(at);
        }
        let ask = !state.asking && now >= state.ask_at;
        if ask {
            state.asking = true;
            self.0.store.runtime.spawn(Box::pin(Arc::clone(&self.0).reserve()));
        }
        match (away, self.0.rules.policy) {
            (true, AwayPolicy::Local) => Told::Local,
            (true, _) => Told::Refused,
            (false, _) => {
                let ask_at = if state.asking { Instant::NEVER } else { state.ask_at };
                Told::Wait(ask_at.min(state.share.next(now, slots, limit)))
            }
        }
    }

    fn give_back(&self, at: Instant) {
        let mut state = self.0.state.lock();
        let number = state.number();
        state.turns.insert((at, number));
        drop(state);
        self.0.changed.notify_waiters();
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The first turn that has not lapsed.
    fn next_turn(&mut self, now: Instant) -> Option<Instant> {
        while let Some((at, _)) = self.turns.pop_first() {
            if now <= at + PERMIT_LIFE {
                return Some(at);
            }
        }
        None
    }
}

impl Inner {
    /// Slots that a share goes by, and all there are.
    fn slots(&self) -> (u64, u64) {
        self.ledger.as_ref().map_or((0, 1), |ledger| ledger.safe_slots())
    }

    /// Asks the table for permits for everyone who waits. It belongs to the limiter, not to a caller: what a caller who
    /// gave up was waiting for is there for the next.
    async fn reserve(self: Arc<Self>) {
        let _done = Asking(&self);
        // Callers who come together ask together.
        yield_now().await;
        let mut count = self.batch();
        loop {
            let (now, wall) = (self.store.runtime.now(), self.store.runtime.wall());
            let update = self.state.lock().source.ask(count, wall);
            let outcome = self.store.update("reserve", &update).await;
            let answered = self.store.runtime.now();
            let mut state = self.state.lock();
            let verdict = match outcome {
                Ok(item) => state.source.granted(count, wall, item.as_ref()),
                Err(TableError::ConditionFailed(item)) => state.source.refused(count, wall, item.as_deref()),
                Err(error) => return self.failed(&mut state, &error),
            };
            if let Some(away_for) = state.away.answered(answered) {
                info!(target: "forebay", ?away_for, "Distributed rate limiter: the table is back");
                self.store.telemetry.degraded.set(0.0);
            }
            match verdict {
                Verdict::Turns(turns) => {
                    // What lies in the past was saved up, and is good from now on.
                    let instant = |turn: Duration| answered.max(now + turn.saturating_sub(wall));
                    let last = turns.iter().map(|turn| instant(*turn)).max().unwrap_or(answered);
                    let wait = last.since(now);
                    state.last_wait = wait;
                    if wait > LINE {
                        // Whoever comes until then asks together with the others, when these have had their turns.
                        state.ask_at = state.ask_at.max(last - wait / 8);
                    }
                    for turn in turns {
                        let number = state.number();
                        state.turns.insert((instant(turn), number));
                    }
                    return;
                }
                Verdict::Again(fewer) => count = fewer.clamp(1, BATCH),
                Verdict::Later(pause) => {
                    state.last_wait = pause;
                    state.ask_at = answered + pause / 2 + state.draws.up_to(pause / 2);
                    return;
                }
            }
        }
    }

    /// For all who wait; and if we have just asked and there was no line, for those who will come, as far as there are slots for
    /// them: a burst is taken in few bites. What is not used lapses.
    fn batch(&self) -> u32 {
        let now = self.store.runtime.now();
        let outlook = self.ledger.as_ref().map(|ledger| ledger.outlook());
        let mut state = self.state.lock();
        let (at, last) = state.last_batch;
        let again = state.last_wait < LINE && now.since(at) < PERMIT_LIFE;
        let coming = outlook.map_or(last, |(_, spare)| state.waiting.saturating_add(spare));
        let count = if again { state.waiting.max(coming) } else { state.waiting }.clamp(1, BATCH);
        state.last_batch = (now, count);
        let spacing = SPACING * outlook.map_or(0, |(others, _)| others.saturating_sub(1));
        state.ask_at = now + spacing / 2 + state.draws.up_to(spacing);
        count
    }

    fn failed(&self, state: &mut State, error: &TableError) {
        let now = self.store.runtime.now();
        let was_away = state.away.is_away();
        if !error.is_an_answer() {
            state.away.failed(now);
        }
        let State { away, draws, .. } = state;
        state.ask_at = now + away.pause(draws);
        let remedy = error.remedy();
        warn!(target: "forebay", %error, remedy, "Distributed rate limiter: table call failed");
        if state.away.is_away() && !was_away {
            let policy = self.rules.policy;
            warn!(target: "forebay", ?policy, "Distributed rate limiter: the table is away");
            self.store.telemetry.degraded.set(1.0);
        }
    }
}

/// Lets everyone else run first.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

impl Limit for Rate {
    fn acquire(&self) -> StoreFuture<'_, Result<Permit, LimitError>> {
        Box::pin(self.acquire())
    }

    fn pace(&self) -> Pace {
        let (now, (slots, limit)) = (self.0.store.runtime.now(), self.0.slots());
        let mut state = self.0.state.lock();
        if state.away.is_away() {
            return match self.0.rules.policy {
                AwayPolicy::Local => self.0.local.pace(),
                _ => Pace { per_second: 1.0, at_once: 0 },
            };
        }
        let full = state.source.per_second();
        // A long line comes from too many who stand in it.
        let line = state.last_wait.as_secs_f64();
        let per_second = if line > LINE_WANTED { full * LINE_WANTED / line } else { full };
        let free = state.turns.iter().take_while(|(at, _)| *at <= now).count() as u64;
        let ready = state.share.ready(now, slots, limit) + free;
        Pace { per_second, at_once: u32::try_from(ready).unwrap_or(u32::MAX) }
    }
}
