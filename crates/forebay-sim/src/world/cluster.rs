//! The modelled database: a token bucket, a connection limit, and sessions that end. The judge uses its
//! counts.
//!
//! It has its own token bucket (GCRA) on purpose: a model that shared code with the limiter would share its
//! bugs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::{ConnectionMonitor, Instant, Rng, Seed};
use parking_lot::Mutex;

use crate::latency::{Latency, truncate};
use crate::scenario::{Refusal, Scenario};

pub(crate) struct Cluster {
    interval: Duration,
    /// How far a burst may run ahead of `due`.
    tolerance: Duration,
    /// When the next admission is due without a burst.
    due: Instant,
    max_connections: Option<usize>,
    session_length: Duration,
    open_time: Latency,
    /// Opens take longer by the product of these factors.
    pub(crate) slowness: Vec<f64>,
    /// The last one refuses all connects.
    pub(crate) refusing: Vec<Refusal>,
    /// By number: the lowest is the oldest.
    sessions: BTreeMap<u64, Session>,
    next: u64,
    /// Sessions by instance.
    held: Vec<usize>,
    /// Sessions by instance that are open, alive and not being closed.
    usable: Vec<usize>,
    /// Instances that do not reach the cluster.
    cut_off: BTreeSet<usize>,
    /// Ended sessions of those instances, which do not know it yet.
    unnotified: BTreeMap<usize, Vec<Arc<Socket>>>,
    peak: usize,
    rng: Rng,
}

struct Session {
    instance: usize,
    began: Instant,
    socket: Arc<Socket>,
    state: SessionState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    Opening,
    Open,
    Closing,
    /// The client closed it during a partition, and the cluster does not know.
    Abandoned,
}

/// The state that both ends of a session share.
#[derive(Default)]
pub(crate) struct Socket {
    ended: AtomicBool,
    monitor: Mutex<Option<ConnectionMonitor>>,
}

impl Socket {
    pub(crate) fn is_alive(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    /// From now on the client is told when the session ends.
    pub(crate) fn attach(&self, monitor: ConnectionMonitor) {
        *self.monitor.lock() = Some(monitor);
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Sessions that the cluster ended. The clients do not know it yet.
#[must_use = "clients must be notified"]
pub(crate) struct Dropped(Vec<(usize, Arc<Socket>)>);

impl Dropped {
    /// Tells the clients, with no lock held. Returns the instance of each session.
    pub(crate) fn notify(self) -> Vec<usize> {
        let notify = |(instance, socket): (usize, Arc<Socket>)| {
            let monitor = socket.monitor.lock().take();
            if let Some(monitor) = monitor {
                monitor.mark_dead();
            }
            instance
        };
        self.0.into_iter().map(notify).collect()
    }
}

/// An admitted connect.
pub(crate) struct Admitted {
    pub(crate) session: u64,
    pub(crate) socket: Arc<Socket>,
    /// The time until the client has its session.
    pub(crate) takes: Duration,
}

/// A refused connect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) with: Refusal,
    /// Refused by the limits, not by an injected fault.
    pub(crate) by_limits: bool,
    /// The time until the client gets the answer.
    pub(crate) takes: Duration,
}

impl Cluster {
    pub(crate) fn new(scenario: &Scenario, seed: Seed, start: Instant) -> Self {
        let rules = &scenario.cluster;
        let interval = Duration::from_secs_f64(1.0 / rules.rate_per_sec);
        Self {
            interval,
            tolerance: interval.saturating_mul(rules.burst - 1),
            due: start,
            max_connections: rules.max_connections,
            session_length: rules.session_length,
            open_time: rules.open_time,
            slowness: Vec::new(),
            refusing: Vec::new(),
            sessions: BTreeMap::new(),
            next: 0,
            held: vec![0; scenario.services.len()],
            usable: vec![0; scenario.services.len()],
            unnotified: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            peak: 0,
            rng: seed.rng(),
        }
    }

    pub(crate) fn connect(
        &mut self,
        instance: usize,
        has_token: bool,
        now: Instant,
    ) -> Result<Admitted, Refused> {
        let takes = scaled(self.open_time.draw(&mut self.rng), self.slowness.iter().product());
        let refused = |with, by_limits| Err(Refused { with, by_limits, takes });
        if let Some(with) = self.refusing.last() {
            return refused(*with, false);
        }
        if !has_token {
            return refused(Refusal::AccessDenied, true);
        }
        if self.max_connections.is_some_and(|most| self.sessions.len() >= most) {
            return refused(Refusal::TooManyConnections, true);
        }
        if self.due > now + self.tolerance {
            return refused(Refusal::RateExceeded, true);
        }
        self.due = self.due.max(now) + self.interval;
        let (session, socket) = (self.next, Arc::new(Socket::default()));
        self.next += 1;
        let began = now;
        let state = SessionState::Opening;
        self.sessions.insert(session, Session { instance, began, socket: Arc::clone(&socket), state });
        self.held[instance] += 1;
        self.peak = self.peak.max(self.sessions.len());
        Ok(Admitted { session, socket, takes })
    }

    /// The client has its session.
    pub(crate) fn deliver(&mut self, session: u64) {
        self.advance(session, SessionState::Open);
    }

    /// The client begins to close its session.
    pub(crate) fn begin_close(&mut self, session: u64) {
        self.advance(session, SessionState::Closing);
    }

    fn advance(&mut self, session: u64, state: SessionState) {
        if let Some(found) = self.sessions.get_mut(&session) {
            self.usable[found.instance] -= usize::from(found.state == SessionState::Open);
            found.state = state;
            self.usable[found.instance] += usize::from(state == SessionState::Open);
        }
    }

    /// The client has closed its session, or is gone.
    pub(crate) fn close(&mut self, session: u64) {
        let Some(found) = self.sessions.get(&session) else { return };
        if self.cut_off.contains(&found.instance) {
            self.advance(session, SessionState::Abandoned);
        } else {
            self.remove(session);
        }
    }

    fn remove(&mut self, session: u64) -> Option<Session> {
        let removed = self.sessions.remove(&session)?;
        removed.socket.end();
        self.held[removed.instance] -= 1;
        self.usable[removed.instance] -= usize::from(removed.state == SessionState::Open);
        Some(removed)
    }

    /// The client's process is gone, and its sockets with it.
    pub(crate) fn hang_up(&mut self, instance: usize) {
        let sessions: Vec<u64> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.instance == instance)
            .map(|(id, _)| *id)
            .collect();
        sessions.into_iter().for_each(|session| self.close(session));
    }

    /// Ends this share of all sessions.
    pub(crate) fn drop_share(&mut self, share: f64) -> Dropped {
        let mut left = self.sessions.len() as u64;
        let mut to_drop = truncate((left as f64 * share).round());
        let mut chosen = Vec::new();
        for session in self.sessions.keys() {
            // Selection sampling: every session has the same chance, and the count is exact.
            if self.rng.below(left) < to_drop {
                chosen.push(*session);
                to_drop -= 1;
            }
            left -= 1;
        }
        self.end(chosen)
    }

    /// Ends the sessions that reached their maximum age. Returns when the next one will.
    pub(crate) fn end_expired(&mut self, now: Instant) -> (Dropped, Instant) {
        let expired =
            self.sessions.iter().take_while(|(_, session)| session.began + self.session_length <= now);
        let expired = expired.map(|(id, _)| *id).collect();
        let dropped = self.end(expired);
        let next = self.sessions.values().next().map_or(now, |session| session.began) + self.session_length;
        (dropped, next)
    }

    fn end(&mut self, sessions: Vec<u64>) -> Dropped {
        let mut dropped = Vec::new();
        for session in sessions {
            let Some(Session { instance, socket, state, .. }) = self.remove(session) else { continue };
            if state == SessionState::Abandoned {
                continue;
            }
            if self.cut_off.contains(&instance) {
                // The message is lost like any other packet.
                self.unnotified.entry(instance).or_default().push(socket);
            } else {
                dropped.push((instance, socket));
            }
        }
        Dropped(dropped)
    }

    /// The instance reaches neither the cluster nor the table.
    pub(crate) fn cut_off(&mut self, instance: usize) {
        self.cut_off.insert(instance);
    }

    /// The instance reaches them again. Both sides learn which sessions ended meanwhile.
    pub(crate) fn reconnect(&mut self, instance: usize) -> Dropped {
        self.cut_off.remove(&instance);
        let is_abandoned =
            |session: &Session| session.instance == instance && session.state == SessionState::Abandoned;
        let abandoned: Vec<u64> =
            self.sessions.iter().filter(|(_, session)| is_abandoned(session)).map(|(id, _)| *id).collect();
        for session in abandoned {
            self.remove(session);
        }
        let unnotified = self.unnotified.remove(&instance).unwrap_or_default();
        Dropped(unnotified.into_iter().map(|socket| (instance, socket)).collect())
    }

    pub(crate) fn is_cut_off(&self, instance: usize) -> bool {
        self.cut_off.contains(&instance)
    }

    pub(crate) fn usable(&self, instance: usize) -> usize {
        self.usable[instance]
    }

    /// The sessions of an instance, abandoned ones included.
    pub(crate) fn counted(&self, instance: usize) -> usize {
        self.held[instance]
    }

    /// The sessions of an instance without abandoned ones.
    pub(crate) fn known(&self, instance: usize) -> usize {
        let abandoned =
            |session: &&Session| session.instance == instance && session.state == SessionState::Abandoned;
        // Only partitions leave abandoned sessions: most calls can skip the scan.
        let abandoned =
            if self.cut_off.is_empty() { 0 } else { self.sessions.values().filter(abandoned).count() };
        self.held[instance] - abandoned
    }

    /// The instance and age of each session older than `longest` allows for its instance.
    pub(crate) fn older_than(
        &self,
        now: Instant,
        longest: impl Fn(usize) -> Duration,
    ) -> Vec<(usize, Duration)> {
        let sessions = self.sessions.values().filter(|session| session.state != SessionState::Abandoned);
        let aged = sessions.map(|session| (session.instance, now.since(session.began)));
        aged.filter(|(instance, age)| *age > longest(*instance)).collect()
    }

    pub(crate) fn live(&self) -> usize {
        self.sessions.len()
    }

    /// Ends all faults.
    pub(crate) fn clear_faults(&mut self) {
        self.refusing.clear();
        self.slowness.clear();
    }

    /// Ends one fault that refuses connects.
    pub(crate) fn stop_refusing(&mut self, with: Refusal) {
        if let Some(found) = self.refusing.iter().rposition(|refusal| *refusal == with) {
            self.refusing.remove(found);
        }
    }

    /// The most sessions at a time.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }
}

fn scaled(time: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).map_or(AGES, |time| time.min(AGES))
}

/// Longer than any run.
const AGES: Duration = Duration::from_secs(1 << 32);

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(settings: &[&str]) -> (Cluster, Instant) {
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let scenario = Scenario::parse("test", "services: [{name: a}, {name: b}]", &settings).unwrap();
        let start = Instant::from_nanos(1_000_000_000);
        (Cluster::new(&scenario, Seed::new(1), start), start)
    }

    #[test]
    fn a_burst_then_the_rate() {
        let (mut cluster, start) = cluster(&["cluster.burst=3", "cluster.ratePerSec=10"]);
        let admitted = (0..5).filter(|_| cluster.connect(0, true, start).is_ok()).count();
        assert_eq!(admitted, 3);
        let later = start + Duration::from_millis(250);
        let outcomes: Vec<bool> = (0..3).map(|_| cluster.connect(0, true, later).is_ok()).collect();
        assert_eq!(outcomes, [true, true, false]);
        let Err(refused) = cluster.connect(0, true, later) else { panic!("admitted") };
        assert_eq!((refused.with, refused.by_limits), (Refusal::RateExceeded, true));
    }

    #[test]
    fn the_limit_counts_open_sessions() {
        let (mut cluster, start) = cluster(&["cluster.maxConnections=2"]);
        let first = cluster.connect(0, true, start).map_err(|_| "refused").unwrap();
        cluster.connect(1, true, start).map_err(|_| "refused").unwrap();
        let Err(refused) = cluster.connect(0, true, start) else { panic!("admitted") };
        assert_eq!((refused.with, refused.by_limits), (Refusal::TooManyConnections, true));
        cluster.close(first.session);
        assert!(!first.socket.is_alive() && cluster.connect(0, true, start).is_ok());
    }

    #[test]
    fn a_connect_without_a_token_is_refused() {
        let (mut cluster, start) = cluster(&[]);
        let Err(refused) = cluster.connect(0, false, start) else { panic!("admitted") };
        assert_eq!((refused.with, refused.by_limits), (Refusal::AccessDenied, true));
    }

    #[test]
    fn exactly_the_share_is_dropped() {
        let (mut cluster, start) = cluster(&[]);
        let sockets: Vec<_> = (0..100)
            .map(|_| cluster.connect(0, true, start).map_err(|_| "refused").unwrap().socket)
            .collect();
        assert_eq!(cluster.drop_share(0.3).notify().len(), 30);
        assert_eq!(sockets.iter().filter(|socket| socket.is_alive()).count(), 70);
        assert_eq!((cluster.held[0], cluster.peak()), (70, 100));
    }

    #[test]
    fn sessions_end_at_their_age() {
        let (mut cluster, start) = cluster(&[]);
        let later = start + Duration::from_secs(60);
        let young = cluster.connect(0, true, start).map_err(|_| "refused").unwrap();
        let old = cluster.connect(1, true, later).map_err(|_| "refused").unwrap();
        let hour = Duration::from_secs(3600);
        let (dropped, next) = cluster.end_expired(start + hour);
        assert_eq!((dropped.notify(), next), (vec![0], later + hour));
        assert!(!young.socket.is_alive() && old.socket.is_alive());
    }

    #[test]
    fn a_partition_keeps_sessions_until_it_ends() {
        let (mut cluster, start) = cluster(&[]);
        let session = cluster.connect(0, true, start).map_err(|_| "refused").unwrap().session;
        cluster.cut_off(0);
        let other = cluster.connect(0, true, start).map_err(|_| "refused").unwrap();
        cluster.deliver(other.session);
        cluster.close(session);
        assert_eq!((cluster.counted(0), cluster.known(0), cluster.usable(0)), (2, 1, 1));
        assert!(cluster.drop_share(1.0).notify().is_empty(), "it cannot be notified");
        assert_eq!((cluster.live(), cluster.usable(0), other.socket.is_alive()), (0, 0, false));
        assert_eq!(cluster.reconnect(0).notify(), [0], "it is notified when it is back");
    }
}
