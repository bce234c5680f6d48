//! A random history of a fleet, as a scenario: joins, crashes, restarts, pauses, partitions, lost answers,
//! skewed clocks, resizes.

use std::fmt::Write;

use forebay::{Rng, Seed};

/// What an instance may do during an outage of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Open connections within the slots it holds.
    Local,
    /// Open nothing new.
    Closed,
    /// Open nothing new, and close connections whose slots could be taken away.
    Strict,
}

impl Policy {
    /// The policy of a seed: the three take turns.
    pub(crate) fn of(seed: u64) -> Self {
        [Self::Local, Self::Closed, Self::Strict][usize::try_from(seed % 3).unwrap_or(0)]
    }

    fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Closed => "closed",
            Self::Strict => "strict",
        }
    }
}

/// The scenario of the history with this seed. Its cluster counts connections and refuses none.
pub(crate) fn text(seed: u64, policy: Policy) -> String {
    let mut rng = Seed::new(seed).fork("history").rng();
    let rng = &mut rng;
    let replicas = between(rng, 3, 12);
    let target = between(rng, 4, 20);
    // Sometimes the limit is enough for all instances, sometimes it is not.
    let limit = replicas * (target + 1) * between(rng, 70, 140) / 100 + 8;
    let beat = between(rng, 5, 15);
    let length = beat * between(rng, 3, 5);
    let mut text = format!(
        "# A random history, number {seed}.\n\
         duration: 30m\nsampleEvery: 5s\nlimiterPerSec: 20\nlimiterBurst: 150\naway: {}\n\
         leases: {{limit: {limit}, beat: {beat}s, length: {length}s, block: {}}}\n\
         table: {{errorRate: 0.00{}, lostAnswers: 0.00{}}}\n\
         cluster: {{ratePerSec: 1000000, burst: 1000000, maxConnections: 0}}\n\
         clocks: {{skew: 500ms, driftPpm: {}}}\n\
         services:\n\
         \x20 - {{name: a, replicas: {replicas}, targetReady: {target}, startStep: {}ms, baseLifetime: 5m, jitter: 1m, \
         guardWindow: 20s, workload: {{enabled: true, perSecond: 2, holdTime: 20ms, maxWait: 0}}}}\n\
         faults:\n",
        policy.name(),
        between(rng, 1, 6),
        between(rng, 0, 9),
        between(rng, 0, 9),
        between(rng, 0, 100),
        between(rng, 0, 9000),
    );
    for _ in 0..between(rng, 6, 14) {
        let fault = fault(rng, policy, replicas, length);
        let _ = writeln!(text, "  - {{{fault}, at: {}s}}", between(rng, 60, 1500));
    }
    text
}

fn fault(rng: &mut Rng, policy: Policy, replicas: u64, lease: u64) -> String {
    let instances = between(rng, 1, (replicas - 1).min(3));
    let long = between(rng, 1, 3 * lease);
    match rng.below(7) {
        0 | 1 => {
            format!("kind: crash, instances: {instances}, restartAfter: {}s", between(rng, 1, 2 * lease))
        }
        2 => format!("kind: partition, instances: {instances}, from: table, lasting: {long}s"),
        // An instance that cannot reach the cluster does not close connections there, so the cluster counts
        // them.
        3 if policy != Policy::Strict => format!("kind: partition, instances: {instances}, lasting: {long}s"),
        3 | 4 => format!("kind: table_outage, lasting: {long}s"),
        // An instance that pauses for as long as its lease may have lost it.
        5 => format!("kind: pause, instances: {instances}, lasting: {}s", between(rng, 1, lease / 8)),
        _ => {
            format!("kind: resize, instances: {instances}, fraction: 0.{}, lasting: {long}s", rng.below(10))
        }
    }
}

fn between(rng: &mut Rng, least: u64, most: u64) -> u64 {
    least + rng.below(most - least + 1)
}
