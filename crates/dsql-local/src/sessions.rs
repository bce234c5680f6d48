//! Who may come in, who is in, and when each must go. One lock decides and counts, so the counts are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::bucket::Bucket;
use crate::clock::{Clock, Moment};
use crate::config::Limits;
use crate::counters::Counters;
use crate::error::SqlError;
use crate::race::{self, First};

/// Every session there is.
#[derive(Debug)]
pub(crate) struct Sessions {
    table: Mutex<Table>,
    /// Tells the expiry that an earlier end was booked.
    earlier: Notify,
}

#[derive(Debug)]
struct Table {
    limits: Limits,
    bucket: Bucket,
    /// Tokens given back by logins that failed, beside the bucket: they are taken first.
    returned: u32,
    next: u64,
    /// By number, which is the order of birth.
    live: BTreeMap<u64, Live>,
    ends: BTreeSet<(Moment, u64)>,
    high_water: u64,
    /// Of those that have ended.
    longest: Duration,
}

impl Table {
    /// Takes a token, if there is one.
    fn take(&mut self, now: Moment) -> bool {
        self.trim(now);
        match self.returned.checked_sub(1) {
            Some(left) => {
                self.returned = left;
                true
            }
            None => self.bucket.take(now),
        }
    }

    fn give_back(&mut self, now: Moment) {
        self.returned = self.returned.saturating_add(1);
        self.trim(now);
    }

    /// Drops what would not have fitted into the bucket: there are never more tokens than the burst.
    fn trim(&mut self, now: Moment) {
        let room = self.limits.burst.saturating_sub(self.bucket.level(now));
        self.returned = self.returned.min(room);
    }
}

#[derive(Debug)]
struct Live {
    began: Moment,
    ending: Arc<EndSignal>,
}

/// A place among the live, given back on drop.
#[derive(Debug)]
pub(crate) struct SessionGuard {
    sessions: Arc<Sessions>,
    clock: Arc<Clock>,
    id: u64,
    end: Moment,
    /// Whether its login is done. Until then it is an attempt, whose token comes back unless refusals cost one.
    confirmed: bool,
    pub(crate) ending: Arc<EndSignal>,
}

impl Sessions {
    pub(crate) fn new(limits: Limits, now: Moment) -> Self {
        let table = Table {
            limits,
            bucket: Bucket::new(limits.per_second, limits.burst, now),
            returned: 0,
            next: 0,
            live: BTreeMap::new(),
            ends: BTreeSet::new(),
            high_water: 0,
            longest: Duration::ZERO,
        };
        Self { table: Mutex::new(table), earlier: Notify::new() }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.table.lock().limits
    }

    pub(crate) fn set_limits(&self, limits: Limits, now: Moment) {
        let mut table = self.table.lock();
        table.bucket.reshape(limits.per_second, limits.burst, now);
        table.limits = limits;
        table.trim(now);
    }

    /// Whole tokens in the bucket.
    pub(crate) fn tokens(&self, now: Moment) -> u32 {
        let mut table = self.table.lock();
        table.trim(now);
        table.bucket.level(now) + table.returned
    }

    /// Fills the bucket.
    pub(crate) fn refill(&self, now: Moment) {
        let mut table = self.table.lock();
        table.bucket.fill(now);
        table.trim(now);
    }

    /// Lets one more in, or says why not.
    pub(crate) fn admit(self: &Arc<Self>, clock: &Arc<Clock>) -> Result<SessionGuard, SqlError> {
        let (id, end, ending, first) = {
            let mut table = self.table.lock();
            // Read under the lock, so that the bucket never sees an older time after a newer one.
            let now = clock.now();
            let limits = table.limits;
            if table.live.len() >= usize::try_from(limits.connections).unwrap_or(usize::MAX) {
                if limits.refusal_costs {
                    table.take(now);
                }
                return Err(SqlError::too_many_connections());
            }
            if !table.take(now) {
                // There is nothing left that a refusal could cost: a bucket has no debts.
                return Err(SqlError::rate_exceeded());
            }
            table.next += 1;
            let id = table.next;
            let end = now.saturating_add(limits.session_life);
            let ending = Arc::new(EndSignal { due: end, ..EndSignal::default() });
            table.live.insert(id, Live { began: now, ending: ending.clone() });
            table.ends.insert((end, id));
            table.high_water = table.high_water.max(u64::try_from(table.live.len()).unwrap_or(u64::MAX));
            (id, end, ending, table.ends.first() == Some(&(end, id)))
        };
        if first {
            self.earlier.notify_one();
        }
        Ok(SessionGuard { sessions: self.clone(), clock: clock.clone(), id, end, confirmed: false, ending })
    }

    /// Spends a token for a connection that was refused elsewhere, if that is how it shall be.
    pub(crate) fn charge_refusal(&self, now: Moment) {
        let mut table = self.table.lock();
        if table.limits.refusal_costs {
            table.take(now);
        }
    }

    /// Ends sessions when their time is up: one timer for all of them.
    pub(crate) async fn expire(&self, clock: &Clock) {
        loop {
            let earlier = self.earlier.notified();
            let (due, next) = self.due(clock.now());
            due.iter().for_each(|ending| ending.reach(EndPhase::Expired));
            match next {
                Some(next) => {
                    let (First::Left(()) | First::Right(())) =
                        race::first(clock.sleep_until(next), earlier).await;
                }
                None => earlier.await,
            }
        }
    }

    fn due(&self, now: Moment) -> (Vec<Arc<EndSignal>>, Option<Moment>) {
        let mut table = self.table.lock();
        let mut due = Vec::new();
        while let Some(&(end, id)) = table.ends.first() {
            if end > now {
                return (due, Some(end));
            }
            table.ends.pop_first();
            due.extend(table.live.get(&id).map(|live| live.ending.clone()));
        }
        (due, None)
    }

    /// Severs some of the live sessions; `choose` says which of so many. Returns how many there were.
    pub(crate) fn sever(&self, choose: impl FnOnce(usize) -> Vec<bool>) -> u64 {
        let live: Vec<_> = self.table.lock().live.values().map(|live| live.ending.clone()).collect();
        let chosen = choose(live.len());
        let severed = live.iter().zip(chosen).filter(|(_, chosen)| *chosen);
        severed.map(|(ending, _)| ending.reach(EndPhase::Severed)).fold(0, |count, ()| count + 1)
    }

    /// Fills in what is known here.
    pub(crate) fn read(&self, now: Moment, counters: Counters) -> Counters {
        let table = self.table.lock();
        let oldest = table.live.first_key_value().map(|(_, live)| now.saturating_sub(live.began));
        Counters {
            live: u64::try_from(table.live.len()).unwrap_or(u64::MAX),
            live_high_water: table.high_water,
            longest_live: table.longest.max(oldest.unwrap_or_default()),
            ..counters
        }
    }
}

impl SessionGuard {
    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The login is done: its token is spent, whatever comes.
    pub(crate) fn confirm(&mut self) {
        self.confirmed = true;
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let mut table = self.sessions.table.lock();
        let now = self.clock.now();
        if let Some(live) = table.live.remove(&self.id) {
            table.longest = table.longest.max(now.saturating_sub(live.began));
        }
        table.ends.remove(&(self.end, self.id));
        if !self.confirmed && !table.limits.refusal_costs {
            table.give_back(now);
        }
    }
}

/// How far a session is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EndPhase {
    /// Its time is up: it goes as soon as no transaction is open.
    Expired = 1,
    /// It goes at once.
    Severed,
}

/// Word of a session's end.
#[derive(Debug, Default)]
pub(crate) struct EndSignal {
    /// When it is due, whether or not word of it has come.
    due: Moment,
    phase: AtomicU8,
    changed: Notify,
}

impl EndSignal {
    /// Whether it is due.
    pub(crate) fn is_due(&self, now: Moment) -> bool {
        now >= self.due
    }

    pub(crate) fn has_reached(&self, phase: EndPhase) -> bool {
        self.phase.load(Ordering::Acquire) >= phase as u8
    }

    fn reach(&self, phase: EndPhase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// Waits until that phase is reached.
    ///
    /// # Cancel safety
    /// Can be dropped at any time.
    pub(crate) async fn reached(&self, phase: EndPhase) {
        loop {
            let changed = self.changed.notified();
            if self.has_reached(phase) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Speed;

    fn sessions(limits: Limits) -> (Arc<Sessions>, Arc<Clock>) {
        (Arc::new(Sessions::new(limits, Duration::ZERO)), Arc::new(Clock::new(Speed::STOPPED)))
    }

    #[test]
    fn the_cap_counts_who_is_there_and_a_place_comes_back() {
        let (sessions, clock) = sessions(Limits { connections: 2, ..Limits::default() });
        let first = sessions.admit(&clock).unwrap();
        let _second = sessions.admit(&clock).unwrap();
        assert_eq!(sessions.admit(&clock).unwrap_err(), SqlError::too_many_connections());
        clock.advance(Duration::from_secs(5));
        drop(first);
        let _third = sessions.admit(&clock).unwrap();
        clock.advance(Duration::from_secs(1));
        let counters = sessions.read(clock.now(), Counters::default());
        assert_eq!((counters.live, counters.live_high_water), (2, 2));
        assert_eq!(counters.longest_live, Duration::from_secs(6));
    }

    #[test]
    fn a_refusal_costs_a_token_only_if_it_shall() {
        for (refusal_costs, left) in [(false, 999), (true, 998)] {
            let (sessions, clock) = sessions(Limits { connections: 1, refusal_costs, ..Limits::default() });
            let _only = sessions.admit(&clock).unwrap();
            assert!(sessions.admit(&clock).is_err());
            assert_eq!(sessions.tokens(clock.now()), left);
        }
    }

    #[test]
    fn an_attempt_gives_its_token_back_unless_refusals_cost_one() {
        for (refusal_costs, left) in [(false, 1_000), (true, 999)] {
            let (sessions, clock) = sessions(Limits { refusal_costs, ..Limits::default() });
            drop(sessions.admit(&clock).unwrap());
            assert_eq!(sessions.tokens(clock.now()), left);
            let mut admitted = sessions.admit(&clock).unwrap();
            admitted.confirm();
            drop(admitted);
            assert_eq!(sessions.tokens(clock.now()), left - 1);
        }
        // What comes back after the bucket has filled up again is too much.
        let (sessions, clock) = sessions(Limits { burst: 2, ..Limits::default() });
        let attempt = sessions.admit(&clock).unwrap();
        clock.advance(Duration::from_secs(1));
        drop(attempt);
        assert_eq!(sessions.tokens(clock.now()), 2);
    }

    #[tokio::test]
    async fn sessions_end_when_their_time_is_up_and_not_before() {
        let (sessions, clock) = sessions(Limits::default());
        let early = sessions.admit(&clock).unwrap();
        clock.advance(Duration::from_secs(60));
        let late = sessions.admit(&clock).unwrap();
        let watch = async {
            clock.advance(Duration::from_secs(3_540));
            early.ending.reached(EndPhase::Expired).await;
            assert!(!late.ending.has_reached(EndPhase::Expired));
            assert!(!early.ending.has_reached(EndPhase::Severed));
            clock.advance(Duration::from_secs(60));
            late.ending.reached(EndPhase::Expired).await;
        };
        assert!(matches!(race::first(watch, sessions.expire(&clock)).await, First::Left(())));
    }

    #[tokio::test]
    async fn a_shorter_life_for_newcomers_wakes_the_expiry() {
        let (sessions, clock) = sessions(Limits::default());
        let _long = sessions.admit(&clock).unwrap();
        let watch = async {
            tokio::task::yield_now().await;
            sessions.set_limits(
                Limits { session_life: Duration::from_secs(1), ..Limits::default() },
                clock.now(),
            );
            let short = sessions.admit(&clock).unwrap();
            tokio::task::yield_now().await;
            clock.advance(Duration::from_secs(1));
            short.ending.reached(EndPhase::Expired).await;
        };
        assert!(matches!(race::first(watch, sessions.expire(&clock)).await, First::Left(())));
    }
}
