//! The cluster of one side: a local Aurora DSQL in this process.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context;
use dsql_local::{Cluster, Config, Counters, Credentials, Limits};
use forebay::{Instant, Seed};
use forebay_dsql::{Options, OptionsBuilder, RootCertificates, Signer};
use parking_lot::Mutex;

use crate::key_signer::KeySigner;

use super::scenario::{BURST, CAP, OPEN_DELAY, OPENS_PER_SECOND, SESSION_LIFE};

/// The rate is that of the last second.
const SECOND: Duration = Duration::from_secs(1);

/// A cluster, until it is stopped.
#[derive(Debug)]
pub(super) struct Database {
    cluster: Mutex<Option<Cluster>>,
    credentials: Credentials,
    /// Where it is.
    endpoint: String,
    port: u16,
    region: String,
    authority: String,
    meter: Mutex<Meter>,
}

/// What clients have asked the cluster for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Attempts to open a connection within the last second.
    pub(super) attempts: u64,
    /// The most of them.
    pub(super) peak_attempts: u64,
    pub(super) opened: u64,
    pub(super) refused: u64,
}

impl Database {
    pub(super) fn start(seed: Seed) -> anyhow::Result<Self> {
        // The key never leaves this process, and the cluster ends with it.
        let credentials =
            Credentials::new("AKIDEXAMPLE", format!("demo-{:016x}", seed.fork("key").rng().bits()));
        let delay = format!("delay:at=connect,for={}ms", OPEN_DELAY.as_millis());
        let cluster = Cluster::start(Config {
            credentials: vec![credentials.clone()],
            limits: Limits {
                connections: CAP,
                per_second: OPENS_PER_SECOND,
                burst: BURST,
                session_life: SESSION_LIFE,
                ..Limits::default()
            },
            seed: seed.number(),
            faults: vec![delay.parse().map_err(anyhow::Error::msg)?],
            ..Config::default()
        })
        .context("cannot start a local Aurora DSQL")?;
        Ok(Self {
            credentials,
            endpoint: cluster.endpoint().to_owned(),
            port: cluster.address().port(),
            region: cluster.region().to_owned(),
            authority: cluster.ca_pem().to_owned(),
            cluster: Mutex::new(Some(cluster)),
            meter: Mutex::default(),
        })
    }

    /// How to reach it, as an environment would say for a real one.
    pub(super) fn options(&self) -> OptionsBuilder {
        Options::builder(&*self.endpoint)
            .port(self.port)
            .region(&*self.region)
            .roots(RootCertificates::Pem(self.authority.as_bytes().into()))
    }

    /// Signs tokens as the SDK would.
    pub(super) fn signer(&self) -> impl Signer + use<> {
        KeySigner(self.credentials.clone())
    }

    fn with<T>(&self, act: impl FnOnce(&Cluster) -> T) -> Option<T> {
        self.cluster.lock().as_ref().map(act)
    }

    /// Moves its clock forward by the life of a session: all of them end.
    pub(super) fn expire_sessions(&self) {
        self.with(|cluster| cluster.clock().advance(SESSION_LIFE));
    }

    /// Closes this fraction of the sockets without a message.
    pub(super) fn cut(&self, fraction: f64) {
        self.with(|cluster| cluster.sever(fraction));
    }

    /// Counts from now on.
    pub(super) fn start_counting(&self, now: Instant) {
        let Some(counters) = self.with(Cluster::counters) else { return };
        *self.meter.lock() = Meter::from(&counters, now);
    }

    /// Looks at the counters: the rate is as exact as this is often called.
    pub(super) fn sample(&self, now: Instant) {
        let Some(counters) = self.with(Cluster::counters) else { return };
        self.meter.lock().sample(Reading::of(&counters), now);
    }

    /// How many sessions it has.
    pub(super) fn live(&self) -> u64 {
        self.with(Cluster::counters).map_or(0, |counters| counters.live)
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.meter.lock().traffic
    }

    /// Ends it, and removes its files.
    pub(super) fn stop(&self) {
        let cluster = self.cluster.lock().take();
        if let Some(cluster) = cluster {
            cluster.stop();
        }
    }
}

/// Totals since the start of the cluster.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    attempts: u64,
    opened: u64,
    refused: u64,
}

impl Reading {
    fn of(counters: &Counters) -> Self {
        // Other refusals are clients that have gone, such as those of a killed instance.
        let refused = ["53300", "53400"].iter().filter_map(|code| counters.refused.get(code)).sum();
        Self { attempts: counters.sockets, opened: counters.accepted, refused }
    }
}

/// Turns totals into rates.
#[derive(Debug, Default)]
struct Meter {
    base: Reading,
    /// The attempts at the samples of the last second, the oldest first.
    recent: VecDeque<(Instant, u64)>,
    traffic: Traffic,
}

impl Meter {
    fn from(counters: &Counters, now: Instant) -> Self {
        let base = Reading::of(counters);
        Self { base, recent: VecDeque::from([(now, base.attempts)]), traffic: Traffic::default() }
    }

    fn sample(&mut self, reading: Reading, now: Instant) {
        self.recent.push_back((now, reading.attempts));
        while self.recent.len() > 1 && self.recent.get(1).is_some_and(|(at, _)| now.since(*at) >= SECOND) {
            self.recent.pop_front();
        }
        let before = self.recent.front().map_or(self.base.attempts, |(_, attempts)| *attempts);
        let attempts = reading.attempts - before;
        self.traffic = Traffic {
            attempts,
            peak_attempts: self.traffic.peak_attempts.max(attempts),
            opened: reading.opened - self.base.opened,
            refused: reading.refused - self.base.refused,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_those_of_the_last_second() {
        let start = Instant::ZERO + Duration::from_secs(7);
        let at = |millis| start + Duration::from_millis(millis);
        let counters = Counters { sockets: 100, accepted: 60, ..Counters::default() };
        let mut meter = Meter::from(&counters, start);
        let mut attempts = |millis, attempts| {
            meter.sample(Reading { attempts, opened: 62, refused: 3 }, at(millis));
            meter.traffic.attempts
        };
        assert_eq!([attempts(100, 110), attempts(500, 140), attempts(1_050, 141)], [10, 40, 41]);
        assert_eq!([attempts(1_499, 142), attempts(1_600, 143), attempts(3_000, 143)], [32, 3, 0]);
        let Traffic { peak_attempts, opened, refused, .. } = meter.traffic;
        assert_eq!((peak_attempts, opened, refused), (41, 2, 3));
    }

    #[test]
    fn counting_begins_when_it_is_told_to() {
        let counters =
            Counters { sockets: 9, refused: [("53400", 4), ("gone", 2)].into(), ..Counters::default() };
        let mut meter = Meter::from(&counters, Instant::ZERO);
        meter.sample(Reading::of(&counters), Instant::ZERO);
        assert_eq!(meter.traffic, Traffic::default());
    }
}
