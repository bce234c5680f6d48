//! Admission, live sessions and their expiry. One lock decides and counts, so the counts are exact.

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

#[derive(Debug)]
pub(crate) struct Sessions {
    table: Mutex<Table>,
    /// Wakes the expiry task when an earlier end was added.
    earlier: Notify,
}

#[derive(Debug)]
struct Table {
    limits: Limits,
    bucket: Bucket,
    /// Tokens of failed logins. They are used before those of the bucket.
    returned: u32,
    next: u64,
    /// By id, which is also the order of admission.
    live: BTreeMap<u64, Live>,
    ends: BTreeSet<(Moment, u64)>,
    high_water: u64,
    /// The longest lifetime of the ended sessions.
    longest: Duration,
}

impl Table {
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

    /// Drops tokens that exceed the burst.
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

/// The slot of a session; dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct SessionGuard {
    sessions: Arc<Sessions>,
    clock: Arc<Clock>,
    pub(crate) id: u64,
    end: Moment,
    /// Whether the login is complete. Until then, dropping it returns the token, unless refusals cost one.
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
        table.bucket.set_limits(limits.per_second, limits.burst, now);
        table.limits = limits;
        table.trim(now);
    }

    pub(crate) fn tokens(&self, now: Moment) -> u32 {
        let mut table = self.table.lock();
        table.trim(now);
        table.bucket.level(now) + table.returned
    }

    pub(crate) fn refill(&self, now: Moment) {
        let mut table = self.table.lock();
        table.bucket.fill(now);
        table.trim(now);
    }

    /// Admits a connection.
    pub(crate) fn admit(self: &Arc<Self>, clock: &Arc<Clock>) -> Result<SessionGuard, SqlError> {
        let (id, end, ending, first) = {
            let mut table = self.table.lock();
            // Read under the lock, so that the bucket never sees time run backwards.
            let now = clock.now();
            let limits = table.limits;
            if table.live.len() >= usize::try_from(limits.connections).unwrap_or(usize::MAX) {
                if limits.refusal_costs {
                    table.take(now);
                }
                return Err(SqlError::too_many_connections());
            }
            if !table.take(now) {
                // The bucket is empty, so a refusal costs nothing.
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

    /// Takes a token for a connection that was refused elsewhere, if refusals cost one.
    pub(crate) fn charge_refusal(&self, now: Moment) {
        let mut table = self.table.lock();
        if table.limits.refusal_costs {
            table.take(now);
        }
    }

    /// Ends sessions whose lifetime is over: one timer for all.
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

    /// Closes some of the live sessions; `choose` selects them. Returns how many.
    pub(crate) fn sever(&self, choose: impl FnOnce(usize) -> Vec<bool>) -> u64 {
        let live: Vec<_> = self.table.lock().live.values().map(|live| live.ending.clone()).collect();
        let chosen = choose(live.len());
        let severed = live.iter().zip(chosen).filter(|(_, chosen)| *chosen);
        severed.map(|(ending, _)| ending.reach(EndPhase::Severed)).fold(0, |count, ()| count + 1)
    }

    /// Adds the counters of this struct.
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
    /// Completes the login: the token is spent.
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

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EndPhase {
    /// Its lifetime is over: it ends as soon as no transaction is open.
    Expired = 1,
    /// It ends at once.
    Severed,
}

/// Signals the end of a session.
#[derive(Debug, Default)]
pub(crate) struct EndSignal {
    /// When its lifetime is over, even if that is not signalled yet.
    due: Moment,
    phase: AtomicU8,
    changed: Notify,
}

impl EndSignal {
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

    /// Waits for a phase.
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
    fn the_cap_counts_live_sessions_and_frees_their_slots() {
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
    fn a_refusal_costs_a_token_only_if_configured() {
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
        // A token that comes back to a full bucket is dropped.
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
    async fn a_shorter_session_life_wakes_the_expiry() {
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
