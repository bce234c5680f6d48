//! A cold start in which each process has a rate of its own, and all together ask for more than the cluster admits.
//!
//! The cluster refuses what exceeds its bucket. A process that was refused pauses, then tries one open at a time, at half of
//! its rate; a twentieth of the rate comes back with each second. The model follows the processes from attempt to attempt.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use forebay::{Rng, Seed};

use super::fill::{BATCH, Fill, OPEN_MEAN, slowest_open};
use super::fleet::{CLUSTER_BURST, CLUSTER_RATE};
use super::number::{ceil, round, seconds};

/// The first pause after a refusal, and the longest. Each further one is twice as long; half of it is random.
const FIRST_PAUSE: f64 = 0.25;
const LONGEST_PAUSE: f64 = 10.0;
/// The least part of its rate that a process uses, and the part that comes back per second.
const LEAST_SHARE: f64 = 1.0 / 64.0;
const RECOVERY: f64 = 0.05;
/// Opens that are followed one by one. From there on, the fleet goes on at the same pace.
const FOLLOWED: u64 = 20_000;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: f64,
}

impl Bucket {
    pub(super) fn full(rate: f64, burst: f64) -> Self {
        Self { rate, burst, tokens: burst, at: 0.0 }
    }

    /// Takes up to `wanted` tokens, whole ones.
    fn take(&mut self, now: f64, wanted: u64) -> u64 {
        self.tokens = (self.tokens + (now - self.at).max(0.0) * self.rate).min(self.burst);
        self.at = self.at.max(now);
        // A token that was waited for may be short of one by a rounding error.
        let taken = wanted.min(round((self.tokens + 1e-6).floor()));
        self.tokens -= taken as f64;
        taken
    }

    /// When the next token is there.
    fn next(&self) -> f64 {
        self.at + (1.0 - self.tokens).max(0.0) / self.rate
    }
}

/// One process.
struct Process {
    missing: u64,
    own: Bucket,
    refusals_in_a_row: i32,
    is_proving: bool,
    share: f64,
    share_changed: f64,
}

impl Process {
    /// Opens what it may at this time. Returns the attempts, those that were admitted, and when it goes on.
    fn attempt(&mut self, now: f64, cluster: &mut Bucket, rng: &mut Rng) -> (u64, u64, f64) {
        let most = if self.is_proving || self.share < 1.0 { 1 } else { round(BATCH) };
        let tried = self.own.take(now, self.missing.min(most));
        if tried == 0 {
            return (0, 0, self.own.next());
        }
        let admitted = cluster.take(now, tried);
        self.missing -= admitted;
        if admitted > 0 {
            (self.refusals_in_a_row, self.is_proving) = (0, false);
            let calm = (now - self.share_changed).min(1.0);
            self.share = (self.share + RECOVERY * calm).min(1.0);
            self.share_changed = now;
        }
        if admitted < tried {
            self.refusals_in_a_row += 1;
            self.is_proving = true;
            (self.share, self.share_changed) = ((self.share / 2.0).max(LEAST_SHARE), now);
            let pause = (FIRST_PAUSE * 2f64.powi(self.refusals_in_a_row.min(17) - 1)).min(LONGEST_PAUSE);
            let random = rng.below(1 << 20) as f64 / f64::from(1 << 20);
            return (tried, admitted, now + OPEN_MEAN + pause * (0.5 + 0.5 * random));
        }
        let distance = if self.share < 1.0 { 1.0 / (self.own.rate * self.share) } else { OPEN_MEAN };
        (tried, admitted, (now + distance).max(if self.own.tokens < 1.0 { self.own.next() } else { 0.0 }))
    }
}

/// Fills `processes` with `connections` each, from buckets like `own`. They start within `stagger` seconds, evenly spaced.
pub(super) fn fill(own: Bucket, processes: u64, connections: f64, stagger: f64) -> Fill {
    let total = round(connections * processes as f64).max(1);
    let (each, more) = (total / processes, total % processes);
    let mut rng = Seed::new(0).fork("crowd").rng();
    let mut cluster = Bucket::full(CLUSTER_RATE as f64, CLUSTER_BURST as f64);
    let mut crowd: Vec<Process> = (0..processes)
        .map(|number| Process {
            missing: each + u64::from(number < more),
            own,
            refusals_in_a_row: 0,
            is_proving: false,
            share: 1.0,
            share_changed: 0.0,
        })
        .collect();
    // Times in microseconds: they are ordered.
    let micros = |time: f64| ceil(time * 1e6);
    let mut events: BinaryHeap<Reverse<(u64, u64)>> = (0..processes)
        .map(|number| Reverse((micros(stagger * (number as f64 + 0.5) / processes as f64), number)))
        .collect();
    let (mut opened, mut refused, mut last) = (0, 0, 0.0);
    // When the second half of what is followed began.
    let mut halfway = None;
    let mut second = LastSecond::default();
    while let Some(Reverse((at, number))) = events.pop() {
        let Some(process) = usize::try_from(number).ok().and_then(|number| crowd.get_mut(number)) else {
            continue;
        };
        if process.missing == 0 {
            continue;
        }
        let now = at as f64 / 1e6;
        // A process of the crowd starts with a full bucket of its own.
        let (tried, admitted, next) = process.attempt(now, &mut cluster, &mut rng);
        (opened, refused) = (opened + admitted, refused + (tried - admitted));
        second.add(at, tried);
        last = now;
        if process.missing > 0 {
            events.push(Reverse((micros(next).max(at.saturating_add(1)), number)));
        }
        if opened >= FOLLOWED / 2 && halfway.is_none() {
            halfway = Some((now, opened, refused));
        }
        if opened >= FOLLOWED && opened < total {
            let (since, before, refused_before) = halfway.unwrap_or((0.0, 0, 0));
            let times = (total - opened) as f64 / (opened - before).max(1) as f64;
            last += times * (now - since);
            refused += round(times * (refused - refused_before) as f64);
            break;
        }
    }
    let peak = second.most as f64;
    Fill { time: seconds(last + slowest_open(1.0)), peak: (peak, peak), is_queued: true, refused }
}

/// Attempts of the last second.
#[derive(Default)]
struct LastSecond {
    attempts: VecDeque<(u64, u64)>,
    sum: u64,
    most: u64,
}

impl LastSecond {
    fn add(&mut self, at: u64, attempts: u64) {
        self.attempts.push_back((at, attempts));
        self.sum += attempts;
        while let Some((first, old)) =
            self.attempts.front().copied().filter(|(first, _)| first.saturating_add(1_000_000) <= at)
        {
            debug_assert!(first < at);
            self.attempts.pop_front();
            self.sum -= old;
        }
        self.most = self.most.max(self.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the simulator takes, with the same rates for each instance.
    #[test]
    fn a_crowd_takes_what_the_simulator_takes() {
        for (processes, connections, rate, burst, time, peak, refused) in [
            (20, 200.0, 10.0, 100.0, 34.2, 494.0, 715.0),
            (50, 50.0, 10.0, 100.0, 18.8, 577.0, 1156.0),
            (100, 50.0, 10.0, 100.0, 46.4, 1156.0, 4534.0),
            (100, 20.0, 10.0, 100.0, 13.3, 491.0, 623.0),
            (200, 40.0, 10.0, 100.0, 82.2, 1847.0, 9801.0),
            (500, 10.0, 10.0, 100.0, 49.4, 1446.0, 6664.0),
            (40, 100.0, 10.0, 100.0, 33.9, 809.0, 1780.0),
            (4, 1000.0, 100.0, 1000.0, 31.1, 1000.0, 97.0),
            (200, 20.0, 1.0, 5.0, 65.3, 360.0, 565.0),
            (8, 400.0, 50.0, 200.0, 25.5, 567.0, 217.0),
        ] {
            let fill = fill(Bucket::full(rate, burst), processes, connections, 5.0);
            let shape = format!("{processes} x {connections} at {rate}/s and {burst}");
            let took = fill.time.as_secs_f64();
            assert!((took / time - 1.0).abs() < 0.1, "{shape}: {took} s, simulated {time}");
            assert!((fill.peak.1 / peak - 1.0).abs() < 0.08, "{shape}: {:?}/s, simulated {peak}", fill.peak);
            let refusals = fill.refused as f64;
            assert!(
                (refusals - refused).abs() < 0.25 * refused + 60.0,
                "{shape}: {refusals}, simulated {refused}"
            );
        }
    }

    #[test]
    fn a_cluster_with_a_quota_above_a_hundred_thousand_is_not_followed_to_the_end() {
        let fill = fill(Bucket::full(10.0, 100.0), 1_000, 500.0, 5.0);
        // 500,000 connections at 100 a second, after a burst of 1,000.
        let took = fill.time.as_secs_f64();
        assert!((4_990.0..6_000.0).contains(&took) && fill.refused > 100_000, "{fill:?}");
    }

    #[test]
    fn what_the_cluster_admits_is_not_refused() {
        let fill = fill(Bucket::full(10.0, 100.0), 10, 100.0, 5.0);
        assert_eq!(fill.refused, 0);
        assert!(fill.time.as_secs_f64() < 6.0, "{fill:?}");
    }
}
