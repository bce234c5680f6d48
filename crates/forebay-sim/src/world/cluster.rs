//! The modelled database: a token bucket, a cap, sessions that end. It counts for itself; the judge goes by its counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::{ConnectionMonitor, Instant, Rng, Seed};
use parking_lot::Mutex;

use crate::latency::Latency;
use crate::scenario::{Refusal, Scenario};

/// The cluster.
pub(crate) struct Cluster {
    /// Time between two admissions.
    interval: Duration,
    /// How far ahead of its schedule a burst may run.
    tolerance: Duration,
    /// When the next admission would be due if there were no burst.
    due: Instant,
    max_connections: Option<usize>,
    session_length: Duration,
    open_time: Latency,
    /// Opens take so many times as long at the moment, all factors together.
    pub(crate) slowness: Vec<f64>,
    /// How it refuses everybody at the moment, the latest reason last.
    pub(crate) refusing: Vec<Refusal>,
    /// Sessions by number; the lowest is the oldest.
    sessions: BTreeMap<u64, Session>,
    next: u64,
    /// How many sessions each instance has,
    held: Vec<usize>,
    /// and how many of those it can use: opened, alive, and not being closed.
    usable: Vec<usize>,
    /// Instances that do not reach the cluster,
    cut_off: BTreeSet<usize>,
    /// and sessions of theirs that ended, of which they have not heard.
    untold: BTreeMap<usize, Vec<Arc<Line>>>,
    peak: usize,
    rng: Rng,
}

struct Session {
    place: usize,
    began: Instant,
    line: Arc<Line>,
    stage: Stage,
}

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    /// Its client has it.
    Open,
    /// Its client closes it.
    Closing,
    /// Its client is gone, and could not say so.
    Abandoned,
}

/// What both ends of a session know.
#[derive(Default)]
pub(crate) struct Line {
    ended: AtomicBool,
    monitor: Mutex<Option<ConnectionMonitor>>,
}

impl Line {
    pub(crate) fn is_alive(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    /// From now on its death is reported to the client.
    pub(crate) fn attach(&self, monitor: ConnectionMonitor) {
        *self.monitor.lock() = Some(monitor);
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Sessions that the cluster has ended, of which their clients are yet to be told.
#[must_use = "clients are to be told"]
pub(crate) struct Dropped(Vec<(usize, Arc<Line>)>);

impl Dropped {
    /// Tells the clients, with no lock held, and returns whose they were.
    pub(crate) fn tell(self) -> Vec<usize> {
        let tell = |(place, line): (usize, Arc<Line>)| {
            let monitor = line.monitor.lock().take();
            if let Some(monitor) = monitor {
                monitor.mark_dead();
            }
            place
        };
        self.0.into_iter().map(tell).collect()
    }
}

/// A connect that the cluster has let in.
pub(crate) struct Admitted {
    pub(crate) session: u64,
    pub(crate) line: Arc<Line>,
    /// How long it takes until the client has a session.
    pub(crate) takes: Duration,
}

/// A connect that the cluster has turned away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) with: Refusal,
    /// Not because it was told to, but because its limits say so.
    pub(crate) by_limits: bool,
    /// How long it takes until the client knows.
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
            untold: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            peak: 0,
            rng: seed.rng(),
        }
    }

    /// Somebody connects, with a good token or without one.
    pub(crate) fn connect(
        &mut self,
        place: usize,
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
        let (session, line) = (self.next, Arc::new(Line::default()));
        self.next += 1;
        let began = now;
        let stage = Stage::Opening;
        self.sessions.insert(session, Session { place, began, line: Arc::clone(&line), stage });
        self.held[place] += 1;
        self.peak = self.peak.max(self.sessions.len());
        Ok(Admitted { session, line, takes })
    }

    /// A client has its session.
    pub(crate) fn deliver(&mut self, session: u64) {
        self.advance(session, Stage::Open);
    }

    /// A client begins to close its session.
    pub(crate) fn begin_close(&mut self, session: u64) {
        self.advance(session, Stage::Closing);
    }

    fn advance(&mut self, session: u64, stage: Stage) {
        if let Some(found) = self.sessions.get_mut(&session) {
            self.usable[found.place] -= usize::from(found.stage == Stage::Open);
            found.stage = stage;
            self.usable[found.place] += usize::from(stage == Stage::Open);
        }
    }

    /// A client has closed its session, or is gone.
    pub(crate) fn close(&mut self, session: u64) {
        let Some(found) = self.sessions.get(&session) else { return };
        if self.cut_off.contains(&found.place) {
            self.advance(session, Stage::Abandoned);
        } else {
            self.remove(session);
        }
    }

    fn remove(&mut self, session: u64) -> Option<Session> {
        let removed = self.sessions.remove(&session)?;
        removed.line.end();
        self.held[removed.place] -= 1;
        self.usable[removed.place] -= usize::from(removed.stage == Stage::Open);
        Some(removed)
    }

    /// The client's machine is gone, and its sockets with it. Nobody is to be told.
    pub(crate) fn hang_up(&mut self, place: usize) {
        let theirs: Vec<u64> =
            self.sessions.iter().filter(|(_, session)| session.place == place).map(|(id, _)| *id).collect();
        theirs.into_iter().for_each(|session| self.close(session));
    }

    /// Ends this share of all sessions.
    pub(crate) fn drop_some(&mut self, share: f64) -> Dropped {
        let mut left = self.sessions.len() as u64;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a small count"
        )]
        let mut to_drop = (left as f64 * share).round() as u64;
        let mut doomed = Vec::new();
        for session in self.sessions.keys() {
            // Each with the chance that leaves exactly as many as asked for.
            if self.rng.below(left) < to_drop {
                doomed.push(*session);
                to_drop -= 1;
            }
            left -= 1;
        }
        self.end(doomed)
    }

    /// Ends the sessions that are as old as they may get, and tells when to look again.
    pub(crate) fn end_the_old(&mut self, now: Instant) -> (Dropped, Instant) {
        let old = self.sessions.iter().take_while(|(_, session)| session.began + self.session_length <= now);
        let old = old.map(|(id, _)| *id).collect();
        let dropped = self.end(old);
        let next = self.sessions.values().next().map_or(now, |session| session.began) + self.session_length;
        (dropped, next)
    }

    fn end(&mut self, doomed: Vec<u64>) -> Dropped {
        let mut dropped = Vec::new();
        for session in doomed {
            let Some(Session { place, line, stage, .. }) = self.remove(session) else { continue };
            if stage == Stage::Abandoned {
                continue;
            }
            if self.cut_off.contains(&place) {
                // Word of it gets no further than any other packet.
                self.untold.entry(place).or_default().push(line);
            } else {
                dropped.push((place, line));
            }
        }
        Dropped(dropped)
    }

    /// An instance can no longer reach the cluster, nor the store.
    pub(crate) fn cut_off(&mut self, place: usize) {
        self.cut_off.insert(place);
    }

    /// It can again; what either side could not say is now known.
    pub(crate) fn reconnect(&mut self, place: usize) -> Dropped {
        self.cut_off.remove(&place);
        let of_the_gone = |session: &Session| session.place == place && session.stage == Stage::Abandoned;
        let gone: Vec<u64> =
            self.sessions.iter().filter(|(_, session)| of_the_gone(session)).map(|(id, _)| *id).collect();
        for session in gone {
            self.remove(session);
        }
        let untold = self.untold.remove(&place).unwrap_or_default();
        Dropped(untold.into_iter().map(|line| (place, line)).collect())
    }

    pub(crate) fn is_cut_off(&self, place: usize) -> bool {
        self.cut_off.contains(&place)
    }

    /// How many sessions an instance can use.
    pub(crate) fn usable(&self, place: usize) -> usize {
        self.usable[place]
    }

    /// How many sessions of an instance are counted here, also those it gave up while it was cut off.
    pub(crate) fn counted(&self, place: usize) -> usize {
        self.held[place]
    }

    /// How many sessions an instance has that it knows of.
    pub(crate) fn known(&self, place: usize) -> usize {
        let abandoned = |session: &&Session| session.place == place && session.stage == Stage::Abandoned;
        // Few have any, and then only for a while.
        let abandoned =
            if self.cut_off.is_empty() { 0 } else { self.sessions.values().filter(abandoned).count() };
        self.held[place] - abandoned
    }

    /// The instances of sessions that are older than `longest` says for theirs.
    pub(crate) fn older_than(
        &self,
        now: Instant,
        longest: impl Fn(usize) -> Duration,
    ) -> Vec<(usize, Duration)> {
        let sessions = self.sessions.values().filter(|session| session.stage != Stage::Abandoned);
        let aged = sessions.map(|session| (session.place, now.since(session.began)));
        aged.filter(|(place, age)| *age > longest(*place)).collect()
    }

    /// How many sessions there are.
    pub(crate) fn live(&self) -> usize {
        self.sessions.len()
    }

    /// Takes back every failure it was told to show.
    pub(crate) fn behave(&mut self) {
        self.refusing.clear();
        self.slowness.clear();
    }

    /// How many sessions there were at most.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }
}

/// So many times as long, and never longer than anybody waits.
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
    fn the_cap_counts_what_is_open() {
        let (mut cluster, start) = cluster(&["cluster.maxConnections=2"]);
        let first = cluster.connect(0, true, start).map_err(|_| "refused").unwrap();
        cluster.connect(1, true, start).map_err(|_| "refused").unwrap();
        let Err(refused) = cluster.connect(0, true, start) else { panic!("admitted") };
        assert_eq!((refused.with, refused.by_limits), (Refusal::TooManyConnections, true));
        cluster.close(first.session);
        assert!(!first.line.is_alive() && cluster.connect(0, true, start).is_ok());
    }

    #[test]
    fn nobody_comes_in_without_a_token() {
        let (mut cluster, start) = cluster(&[]);
        let Err(refused) = cluster.connect(0, false, start) else { panic!("admitted") };
        assert_eq!((refused.with, refused.by_limits), (Refusal::AccessDenied, true));
    }

    #[test]
    fn exactly_the_share_is_dropped() {
        let (mut cluster, start) = cluster(&[]);
        let lines: Vec<_> =
            (0..100).map(|_| cluster.connect(0, true, start).map_err(|_| "refused").unwrap().line).collect();
        assert_eq!(cluster.drop_some(0.3).tell().len(), 30);
        assert_eq!(lines.iter().filter(|line| line.is_alive()).count(), 70);
        assert_eq!((cluster.held[0], cluster.peak()), (70, 100));
    }

    #[test]
    fn sessions_end_at_their_age() {
        let (mut cluster, start) = cluster(&[]);
        let later = start + Duration::from_secs(60);
        let young = cluster.connect(0, true, start).map_err(|_| "refused").unwrap();
        let old = cluster.connect(1, true, later).map_err(|_| "refused").unwrap();
        let hour = Duration::from_secs(3600);
        let (dropped, next) = cluster.end_the_old(start + hour);
        assert_eq!((dropped.tell(), next), (vec![0], later + hour));
        assert!(!young.line.is_alive() && old.line.is_alive());
    }

    #[test]
    fn who_is_cut_off_keeps_its_sessions_until_it_is_back() {
        let (mut cluster, start) = cluster(&[]);
        let session = cluster.connect(0, true, start).map_err(|_| "refused").unwrap().session;
        cluster.cut_off(0);
        let other = cluster.connect(0, true, start).map_err(|_| "refused").unwrap();
        cluster.deliver(other.session);
        cluster.close(session);
        assert_eq!((cluster.counted(0), cluster.known(0), cluster.usable(0)), (2, 1, 1));
        assert!(cluster.drop_some(1.0).tell().is_empty(), "it cannot be told");
        assert_eq!((cluster.live(), cluster.usable(0), other.line.is_alive()), (0, 0, false));
        assert_eq!(cluster.reconnect(0).tell(), [0], "it is told when it is back");
    }
}
