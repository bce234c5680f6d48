//! The list of active faults. Delays add up; the first refusal in the list wins.

mod fault;
mod grammar;

pub use fault::Fault;
pub(crate) use fault::{CommitFaults, Delay, Failure, OnAccept};
pub use grammar::duration;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::bucket::Bucket;
use crate::clock::Moment;
use crate::error::SqlError;
use fault::{Kind, Refusal, Stage};

#[derive(Debug)]
pub(crate) struct Faults {
    seed: u64,
    list: Mutex<List>,
    /// The length of the list: without faults, nobody takes the lock.
    len: AtomicUsize,
    /// Wakes tasks that wait for the end of a fault.
    shorter: Notify,
}

#[derive(Debug, Default)]
struct List {
    next: u64,
    active: Vec<Active>,
}

#[derive(Debug)]
struct Active {
    id: u64,
    fault: Fault,
    hits: u64,
    chance: Xoshiro256PlusPlus,
    /// For `throttle`.
    bucket: Option<Bucket>,
    /// For `wake`: when the cluster is awake. Set by the first connection.
    awake_at: Option<Moment>,
}

impl Active {
    fn spent(&self) -> bool {
        // A `sever` strikes once.
        let times = self.fault.times.or(self.fault.sever().map(|_| 1));
        times.is_some_and(|times| self.hits >= times)
    }

    /// Draws whether it strikes.
    fn strikes(&mut self) -> bool {
        if self.spent() {
            return false;
        }
        let strikes = self.fault.probability >= 1.0 || unit(&mut self.chance) < self.fault.probability;
        self.hits += u64::from(strikes);
        strikes
    }
}

/// Uniform in [0, 1).
fn unit(chance: &mut Xoshiro256PlusPlus) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    let draw = (chance.next_u64() >> 11) as f64;
    draw / (1_u64 << 53) as f64
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, list: Mutex::default(), len: AtomicUsize::new(0), shorter: Notify::new() }
    }

    /// Adds a fault at the end of the list and returns its id.
    pub(crate) fn add(&self, fault: Fault, now: Moment) -> u64 {
        let mut list = self.list.lock();
        list.next += 1;
        let id = list.next;
        // Each fault has its own stream of random numbers, so that another fault in the list changes nothing
        // for it.
        let chance = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bucket = match fault.kind {
            Kind::Throttle { per_second, burst } => Some(Bucket::new(per_second, burst, now)),
            _ => None,
        };
        list.active.push(Active { id, fault, hits: 0, chance, bucket, awake_at: None });
        self.len.store(list.active.len(), Ordering::Release);
        id
    }

    pub(crate) fn remove(&self, id: u64) -> bool {
        self.retain(|active| active.id != id)
    }

    pub(crate) fn clear(&self) {
        self.retain(|_| false);
    }

    fn retain(&self, keep: impl FnMut(&Active) -> bool) -> bool {
        let fewer = {
            let mut list = self.list.lock();
            let before = list.active.len();
            list.active.retain(keep);
            self.len.store(list.active.len(), Ordering::Release);
            list.active.len() < before
        };
        self.shorter.notify_waiters();
        fewer
    }

    /// Waits until a fault is removed after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.shorter.notified()
    }

    pub(crate) fn has(&self, id: u64) -> bool {
        self.list.lock().active.iter().any(|active| active.id == id)
    }

    /// Counts the strike of a delayed fault. Returns whether it is still in the list.
    pub(crate) fn strike_delayed(&self, id: u64) -> bool {
        let mut list = self.list.lock();
        let due = list.active.iter_mut().find(|active| active.id == id);
        due.map(|active| active.hits += 1).is_some()
    }

    pub(crate) fn json(&self) -> Value {
        let list = self.list.lock();
        let shown = list.active.iter().map(|active| {
            json!({ "id": active.id, "fault": active.fault.to_string(), "hits": active.hits, "spent": active.spent() })
        });
        shown.collect()
    }

    pub(crate) fn silent(&self) -> bool {
        !self.idle() && self.list.lock().active.iter().any(|active| active.fault.kind == Kind::Silent)
    }

    fn idle(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// For a new socket: the delay, and what to do then.
    pub(crate) fn on_accept(&self) -> (Delay, OnAccept) {
        let mut answer = (Delay::default(), OnAccept::Proceed);
        self.each(|kind, active| match kind {
            Kind::Delay { at: Stage::Connect, time } if active.strikes() => answer.0.add(time, active.id),
            Kind::Refuse(Refusal::Close) if answer.1 == OnAccept::Proceed && active.strikes() => {
                answer.1 = OnAccept::Close;
            }
            Kind::Silent if answer.1 == OnAccept::Proceed && active.strikes() => answer.1 = OnAccept::Silence,
            _ => {}
        });
        answer
    }

    /// For a client that is to be admitted.
    pub(crate) fn on_admission(&self, now: Moment) -> Result<(), SqlError> {
        let mut answer = Ok(());
        self.each(|kind, active| {
            if answer.is_err() {
                return;
            }
            match kind {
                Kind::Refuse(refusal) => {
                    let error = match refusal {
                        Refusal::Close => return,
                        Refusal::TooMany => SqlError::too_many_connections(),
                        Refusal::Rate => SqlError::rate_exceeded(),
                        Refusal::Denied => SqlError::access_denied(),
                        Refusal::Waking => SqlError::waking_up(),
                    };
                    if active.strikes() {
                        answer = Err(error);
                    }
                }
                Kind::Throttle { .. } => {
                    // The bucket counts every connection, also those that the fault lets pass by chance.
                    let empty = active.bucket.as_mut().is_some_and(|bucket| !bucket.take(now));
                    if empty && active.strikes() {
                        answer = Err(SqlError::rate_exceeded());
                    }
                }
                Kind::Wake { time } => {
                    let awake_at = *active.awake_at.get_or_insert(now.saturating_add(time));
                    if now < awake_at && active.strikes() {
                        answer = Err(SqlError::waking_up());
                    }
                }
                _ => {}
            }
        });
        answer
    }

    /// For a statement: the delay, and the failure. `stale` is whether another session has changed the schema.
    pub(crate) fn on_statement(&self, stale: bool) -> (Delay, Option<Failure>) {
        let mut answer = (Delay::default(), None);
        self.each(|kind, active| match kind {
            Kind::Delay { at: Stage::Statement, time } if active.strikes() => answer.0.add(time, active.id),
            Kind::Unavailable { at: Stage::Statement } if answer.1.is_none() && active.strikes() => {
                answer.1 = Some(Failure::Error(SqlError::unavailable()));
            }
            Kind::StaleSchema { after_ddl }
                if answer.1.is_none() && (stale || !after_ddl) && active.strikes() =>
            {
                answer.1 = Some(Failure::Error(SqlError::schema_conflict()));
            }
            _ => {}
        });
        answer
    }

    /// For a commit. Only a transaction that wrote can conflict. `stale` is as for a statement.
    pub(crate) fn on_commit(&self, wrote: bool, stale: bool) -> CommitFaults {
        let mut faults = CommitFaults::default();
        self.each(|kind, active| {
            let (before, failure) = match kind {
                Kind::Delay { at: Stage::Commit, time } => {
                    if active.strikes() {
                        faults.delay.add(time, active.id);
                    }
                    return;
                }
                Kind::Conflict if wrote => (true, Failure::Error(SqlError::change_conflict())),
                Kind::StaleSchema { after_ddl: true } if stale => {
                    (true, Failure::Error(SqlError::schema_conflict()))
                }
                Kind::Unavailable { at: Stage::Commit } => (true, Failure::Error(SqlError::unavailable())),
                Kind::Drop { at: Stage::BeforeCommit } => (true, Failure::Hangup),
                Kind::Unavailable { at: Stage::AfterCommit } => {
                    (false, Failure::Error(SqlError::unavailable()))
                }
                Kind::Drop { at: Stage::AfterCommit } => (false, Failure::Hangup),
                _ => return,
            };
            let other = faults.before.is_some() || (!before && faults.after.is_some());
            if !other && active.strikes() {
                *(if before { &mut faults.before } else { &mut faults.after }) = Some(failure);
            }
        });
        // A commit that fails has no effects after it.
        faults.after = faults.after.filter(|_| faults.before.is_none());
        faults
    }

    /// Chooses a fraction of `count` sockets; the same seed chooses the same ones.
    pub(crate) fn choose(&self, fraction: f64, count: usize) -> Vec<bool> {
        if fraction >= 1.0 {
            return vec![true; count];
        }
        let mut chance = {
            let mut list = self.list.lock();
            list.next += 1;
            Xoshiro256PlusPlus::seed_from_u64(self.seed ^ list.next.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        };
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let mut wanted = (fraction * count as f64).round() as usize;
        // Exactly this many: each is taken with the probability that is left for it.
        (0..count)
            .map(|index| {
                #[allow(clippy::cast_precision_loss, reason = "some thousands")]
                let taken = unit(&mut chance) * ((count - index) as f64) < wanted as f64;
                wanted -= usize::from(taken);
                taken
            })
            .collect()
    }

    fn each(&self, mut look: impl FnMut(Kind, &mut Active)) {
        if !self.idle() {
            self.list.lock().active.iter_mut().for_each(|active| look(active.fault.kind, active));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn faults(list: &[&str]) -> Faults {
        let faults = Faults::new(7);
        for fault in list {
            faults.add(fault.parse().unwrap(), Duration::ZERO);
        }
        faults
    }

    #[test]
    fn delays_add_up_and_the_first_refusal_wins() {
        let faults = faults(&[
            "delay:at=connect,for=100ms",
            "refuse:how=53300,n=1",
            "refuse:how=waking,n=1",
            "delay:for=50ms",
        ]);
        let delay = Delay { time: Duration::from_millis(150), by: vec![1, 4] };
        assert_eq!(faults.on_accept(), (delay, OnAccept::Proceed));
        assert_eq!(faults.on_admission(Duration::ZERO), Err(SqlError::too_many_connections()));
        assert_eq!(faults.on_admission(Duration::ZERO), Err(SqlError::waking_up()));
        assert_eq!(faults.on_admission(Duration::ZERO), Ok(()));
    }

    #[test]
    fn the_same_seed_gives_the_same_conflicts_whatever_else_is_listed() {
        let run = |list: &[&str]| {
            let faults = faults(list);
            (0..200).map(|_| faults.on_commit(true, false).before.is_some()).collect::<Vec<_>>()
        };
        let alone = run(&["conflict:p=0.25"]);
        assert_eq!(alone, run(&["conflict:p=0.25", "delay:at=commit,p=0.5,for=1ms"]));
        let struck = alone.iter().filter(|struck| **struck).count();
        assert!((30..70).contains(&struck), "{struck}");
        assert_eq!(faults(&["conflict"]).on_commit(false, false), CommitFaults::default());
    }

    #[test]
    fn a_cluster_wakes_after_the_first_connection() {
        let faults = faults(&["wake:for=30s"]);
        let at = Duration::from_secs;
        assert_eq!(faults.on_admission(at(100)), Err(SqlError::waking_up()));
        assert_eq!(faults.on_admission(at(129)), Err(SqlError::waking_up()));
        assert_eq!(faults.on_admission(at(130)), Ok(()));
    }

    #[test]
    fn a_throttle_is_a_bucket_of_its_own() {
        let faults = faults(&["throttle:rate=2,burst=1"]);
        let admitted = |ms| faults.on_admission(Duration::from_millis(ms)).is_ok();
        assert_eq!([admitted(0), admitted(499), admitted(500)], [true, false, true]);
    }

    #[test]
    fn throttles_and_wakes_honour_n_and_p() {
        let throttle = faults(&["throttle:rate=0,burst=0,n=2"]);
        let admitted = || throttle.on_admission(Duration::ZERO).is_ok();
        assert_eq!([admitted(), admitted(), admitted()], [false, false, true]);
        let never = faults(&["throttle:rate=0,burst=0,p=0", "wake:for=1h,p=0"]);
        assert_eq!(never.on_admission(Duration::ZERO), Ok(()));
        let wake = faults(&["wake:for=1h,n=1"]);
        assert!(wake.on_admission(Duration::ZERO).is_err());
        assert_eq!(wake.on_admission(Duration::ZERO), Ok(()));
    }

    #[test]
    fn a_fraction_is_exact_and_repeatable() {
        let chosen = faults(&[]).choose(0.3, 1_000);
        assert_eq!(chosen.iter().filter(|taken| **taken).count(), 300);
        assert_eq!(chosen, faults(&[]).choose(0.3, 1_000));
        assert_eq!(faults(&[]).choose(1.0, 3), [true; 3]);
        assert_eq!(faults(&[]).choose(0.0, 3), [false; 3]);
    }

    #[test]
    fn a_commit_is_dropped_before_or_after_but_not_both() {
        let both = faults(&["drop:at=after-commit,n=1", "drop:at=before-commit,n=1"]);
        let first = both.on_commit(true, false);
        assert_eq!((first.before.is_some(), first.after.is_some()), (true, false));
        assert_eq!(both.on_commit(true, false), CommitFaults::default());
        both.clear();
        assert_eq!(both.json(), json!([]));
    }
}
