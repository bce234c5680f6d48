//! A cold start: how long it takes until every process has its connections, and the most opens of one second.
//!
//! The model follows the limiter that ships, in steps of virtual time. While the bucket has permits, a process reserves up
//! to 64 of them at a time, four times a second. Once the bucket is empty, the processes queue, and the rate of the bucket
//! and the shares of the slots are all they get.

use std::collections::VecDeque;
use std::time::Duration;

use super::budget::Budget;
use super::crowd::{self, Bucket};
use super::fleet::{CLUSTER_BURST, CLUSTER_RATE};
use super::number::{ceil, seconds};

/// Permits that a process reserves at a time, and the most opens it has in flight.
pub(super) const BATCH: f64 = 64.0;
/// From one reservation to the next.
const RESERVE_EVERY: f64 = 0.25;
/// From the start of a process to its first batch: it joins the ledger, reserves, and opens a few connections.
const JOIN: f64 = 0.05;
/// The step of the model.
const STEP: f64 = 0.01;
/// The steps of one second, both ends included.
const SECOND: usize = 101;
/// The steps of a second that just catches one more start at one of its ends: joins take some 50 ms more or less.
const LONG_SECOND: usize = 105;
/// The steps of a second that just misses a batch at one of its ends, where processes open several.
const SHORT_SECOND: usize = 95;
/// A range that is narrower than this part of its end is a number.
const NARROW: f64 = 0.03;
/// The median and the mean duration of an open inside a region, and the standard deviation of its logarithm. The 99th
/// percentile is 120 ms.
const OPEN_MEDIAN: f64 = 0.015;
pub(super) const OPEN_MEAN: f64 = 0.022;
const OPEN_SIGMA: f64 = 0.894;

/// A cold start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fill {
    /// From the first start until the last connection is open.
    pub(super) time: Duration,
    /// The most opens in any one second: from, and to. Some milliseconds decide whether one more start or batch falls into
    /// that second.
    pub(super) peak: (f64, f64),
    /// The bucket ran empty, and processes queued.
    pub(super) is_queued: bool,
    /// Opens that the cluster refuses because they come too fast.
    pub(super) refused: u64,
}

impl Fill {
    /// Fills `processes` with `connections` each. They start within `stagger`, evenly spaced.
    pub(super) fn of(budget: &Budget, processes: u64, connections: f64, stagger: Duration) -> Self {
        let stagger = stagger.as_secs_f64();
        let count = processes as f64;
        let is_crowd = count * budget.rate > CLUSTER_RATE as f64
            || count * budget.burst.min(connections) > CLUSTER_BURST as f64;
        if budget.is_shared {
            shared(budget, processes, connections, stagger)
        } else if is_crowd {
            crowd::fill(Bucket::full(budget.rate, budget.burst), processes, connections, stagger)
        } else {
            local(budget, processes, connections, stagger)
        }
    }
}

/// A process that has not met a queue.
struct Process {
    missing: f64,
    /// When it reserves next.
    due: f64,
}

fn shared(budget: &Budget, processes: u64, connections: f64, stagger: f64) -> Fill {
    let start = |process: u64| stagger * (process as f64 + 0.5) / processes as f64 + JOIN;
    let mut tokens = budget.burst;
    let (mut started, mut free): (u64, Vec<Process>) = (0, Vec::new());
    // What queued processes miss, how many they are, and the most that was ever missing.
    let (mut queued, mut queuing, mut longest) = (0.0, 0.0, 0.0f64);
    let (mut is_queued, mut now, mut step) = (false, 0.0, 0u32);
    let shortest = if connections > BATCH { SHORT_SECOND } else { SECOND };
    let (mut second, mut short_second) = (SlidingSecond::new(LONG_SECOND), SlidingSecond::new(shortest));
    let end = loop {
        tokens = (tokens + budget.rate * STEP).min(budget.burst);
        let mut opened = 0.0;
        while started < processes && start(started) <= now {
            free.push(Process { missing: connections, due: now });
            started += 1;
        }
        for process in free.iter_mut().filter(|process| process.due <= now) {
            let batch = process.missing.min(BATCH);
            if queued <= 0.0 && batch <= tokens {
                tokens -= batch;
                opened += batch;
                process.missing -= batch;
                process.due = now + RESERVE_EVERY;
            } else {
                queued += process.missing;
                queuing += 1.0;
                process.missing = 0.0;
            }
        }
        free.retain(|process| process.missing > 0.0);
        if queued > 0.0 {
            is_queued = true;
            longest = longest.max(queued / budget.rate);
            let shares = (budget.share * queuing * STEP).min(queued);
            let permits = tokens.min(queued - shares);
            tokens -= permits;
            queued -= shares + permits;
            opened += shares + permits;
            if started == processes && free.is_empty() && tokens <= 0.0 {
                // From here on the rate decides.
                second.add(opened);
                short_second.add(opened);
                break now + queued / (budget.rate + budget.share * queuing);
            }
            if queued <= 0.0 {
                queuing = 0.0;
            }
        }
        second.add(opened);
        short_second.add(opened);
        if started == processes && free.is_empty() && queued <= 0.0 {
            break now;
        }
        step += 1;
        if free.is_empty() && queued <= 0.0 && started < processes {
            // Nothing happens before the next start. The bucket fills meanwhile.
            let next = u32::try_from(ceil(start(started) / STEP)).unwrap_or(u32::MAX);
            if next > step {
                tokens = (tokens + budget.rate * STEP * f64::from(next - step)).min(budget.burst);
                let idle = usize::try_from(next - step).unwrap_or(usize::MAX);
                second.rest(idle);
                short_second.rest(idle);
                step = next;
            }
        }
        now = f64::from(step) * STEP;
    };
    // The queue settles at this many seconds. In its last seconds, permits are still reserved for callers that the shares
    // serve sooner, and the last callers wait for their shares: up to a quarter of the queue.
    let queue = (0.857 * queuing).sqrt().min(longest);
    let shares = budget.share * queuing;
    let tail = if is_queued { queue * shares / (budget.rate + shares) + queue / 8.0 } else { 0.0 };
    let last = if is_queued { connections.min(BATCH) } else { connections };
    // Permits are used up to a second late. Without a burst to speak of, that is what the worst second consists of.
    let late = if budget.burst < budget.rate { 2.0 * second.most.sqrt() } else { 0.0 };
    let high = second.most.max(1.0) + late;
    let low = short_second.most.max(1.0);
    let peak = if high - low < NARROW * high { (high, high) } else { (low, high) };
    Fill { time: seconds(end + tail + slowest_open(last)), peak, is_queued, refused: 0 }
}

/// Each process has its own bucket, and as many opens in flight as the reservoir allows. All together stay within the
/// cluster's bucket.
fn local(budget: &Budget, processes: u64, connections: f64, stagger: f64) -> Fill {
    let processes = processes as f64;
    let last_start = stagger * (processes - 0.5) / processes;
    let at_once = connections.min(budget.burst);
    let burst = (at_once - BATCH).max(0.0) / BATCH * OPEN_MEAN;
    let later = (connections - at_once) / budget.rate;
    let is_queued = later > 0.0;
    let last = if is_queued { 1.0 } else { connections.min(BATCH) };
    // Those that start within one second open their bursts; earlier ones, and the rest of that second, the rate.
    let together = if stagger > 1.0 { (processes / stagger).ceil().min(processes) } else { processes };
    let peak = together * connections.min(budget.burst + budget.rate)
        + (processes - together) * (connections - budget.burst).clamp(0.0, budget.rate);
    Fill {
        time: seconds(last_start + burst.max(later) + slowest_open(last)),
        peak: (peak, peak),
        is_queued,
        refused: 0,
    }
}

/// The slowest of so many opens, on average: by the expected maximum of normal numbers.
pub(super) fn slowest_open(opens: f64) -> f64 {
    if opens < 2.0 {
        return OPEN_MEAN;
    }
    let root = (2.0 * opens.ln()).sqrt();
    let deviations =
        root - (opens.ln().ln() + (4.0 * std::f64::consts::PI).ln()) / (2.0 * root) + 0.577 / root;
    OPEN_MEDIAN * (OPEN_SIGMA * deviations.max(0.0)).exp()
}

/// Opens of the last second.
struct SlidingSecond {
    length: usize,
    steps: VecDeque<f64>,
    sum: f64,
    most: f64,
}

impl SlidingSecond {
    fn new(length: usize) -> Self {
        Self { length, steps: VecDeque::new(), sum: 0.0, most: 0.0 }
    }

    /// So many steps without an open.
    fn rest(&mut self, steps: usize) {
        (0..steps.min(self.length)).for_each(|_| self.add(0.0));
    }

    fn add(&mut self, opened: f64) {
        self.steps.push_back(opened);
        self.sum += opened;
        if self.steps.len() > self.length {
            self.sum -= self.steps.pop_front().unwrap_or_default();
        }
        self.most = self.most.max(self.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fleet::Fleet;
    use super::*;

    const STAGGER: Duration = Duration::from_secs(5);

    fn fill(services: u64, instances: u64, connections: u64) -> Fill {
        let fleet = Fleet::of(services, instances, 1, connections);
        Fill::of(&Budget::of(&fleet), fleet.processes(), connections as f64, STAGGER)
    }

    /// What the simulator takes; `plan --check` compares again.
    #[test]
    fn cold_starts_take_what_the_simulator_takes() {
        for (instances, connections, time, peak) in [
            (4, 50, 4.5, 50.0),
            (8, 50, 4.85, 100.0),
            (16, 50, 5.04, 200.0),
            (10, 100, 5.95, 264.0),
            (20, 50, 5.83, 250.0),
            (40, 100, 41.2, 630.0),
            (80, 100, 81.1, 630.0),
            (20, 200, 40.5, 630.0),
            (200, 40, 81.6, 629.0),
            (5, 400, 18.2, 464.0),
            (8, 1000, 79.1, 550.0),
            (100, 10, 5.7, 212.0),
        ] {
            let fill = fill(1, instances, connections);
            let (took, (low, high)) = (fill.time.as_secs_f64(), fill.peak);
            assert!(
                (took / time - 1.0).abs() < 0.04,
                "{instances} x {connections}: {took} s, simulated {time}"
            );
            let within = low * 0.97 <= peak && peak <= high * 1.03;
            assert!(within, "{instances} x {connections}: {low} to {high}/s, simulated {peak}");
        }
    }

    /// "With 100/sec limit and 50 target, expect about a second", says the specification.
    #[test]
    fn fifty_connections_fill_in_about_a_second() {
        let plain = Budget { is_shared: true, rate: 100.0, burst: 1.0, share: 0.0, saved: 0.0 };
        let fill = Fill::of(&plain, 1, 50.0, Duration::ZERO);
        assert!((0.5..1.5).contains(&fill.time.as_secs_f64()), "{fill:?}");
        let local = Budget { is_shared: false, rate: 100.0, burst: 1.0, share: 0.0, saved: 0.0 };
        let fill = Fill::of(&local, 1, 50.0, Duration::ZERO);
        assert!((0.5..1.5).contains(&fill.time.as_secs_f64()), "{fill:?}");
    }

    #[test]
    fn a_local_rate_is_each_process_own() {
        let budget = Budget { is_shared: false, rate: 10.0, burst: 100.0, share: 0.0, saved: 0.0 };
        let fill = Fill::of(&budget, 10, 150.0, STAGGER);
        assert_eq!(fill.time.as_secs(), 9, "the last starts after 4.75 s and takes 5 s");
        assert_eq!((fill.peak.1, fill.refused), (2.0 * 110.0 + 8.0 * 10.0, 0));
    }
}
