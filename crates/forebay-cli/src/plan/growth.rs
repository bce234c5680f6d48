//! What fails first as the fleet grows, and at what size.

use std::time::Duration;

use forebay_fleet::LeaseMode;

use super::fleet::Fleet;
use super::prediction::Prediction;
use super::warning::{FULL, NODE_NUMBERS};

/// A limit that more instances of each service would reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    /// Instances of each service from which on it is exceeded.
    pub(super) instances: u64,
    /// Connections of the fleet then.
    pub(super) connections: u64,
    pub(super) what: &'static str,
}

/// More instances than anybody runs: what lies beyond is not mentioned.
const MOST: u64 = 20_000;

/// The limits in the order in which a growing fleet meets them.
pub(super) fn growth(fleet: &Fleet) -> Vec<Growth> {
    let limit =
        if fleet.leases.is_some() { fleet.limit.min(fleet.cluster_limit) } else { fleet.cluster_limit };
    let per_instance = fleet.services.saturating_mul(fleet.per_process()).max(1);
    let slots = fleet.services.saturating_mul(fleet.process_slots()).max(1);
    let above = |limit: u64, each: u64| limit / each.max(1) + 1;
    let mut found = vec![
        (
            above(fleet.cluster_limit.saturating_mul(FULL) / 100, per_instance),
            "more than 80 % of the cluster's limit",
        ),
        (above(limit, per_instance), full(fleet)),
    ];
    if fleet.leases.is_some() {
        found.push((above(limit, slots), "no room to replace ahead of time"));
    }
    if fleet.leases == Some(LeaseMode::Ledger) {
        found.push((above(NODE_NUMBERS, fleet.services), "no more numbers for generated ids"));
    }
    let exceeds = |time: Duration| {
        first(|instances| Prediction::cold_start(&Fleet { instances, ..fleet.clone() }).time > time)
    };
    // Beyond the limit a fleet does not grow any more.
    let most = above(limit, per_instance);
    let fills = [
        (exceeds(fleet.jitter), "a cold start outlasts the jitter"),
        (exceeds(fleet.lifetime), "a cold start outlasts a lifetime"),
    ];
    found.extend(fills.into_iter().filter_map(|(at, what)| Some((at?, what))));
    found.sort_by_key(|(instances, _)| *instances);
    found
        .into_iter()
        .filter(|(instances, _)| *instances <= most.min(MOST))
        .map(|(instances, what)| Growth {
            instances,
            connections: instances.saturating_mul(per_instance),
            what,
        })
        .collect()
}

fn full(fleet: &Fleet) -> &'static str {
    match fleet.leases {
        Some(LeaseMode::Ledger) => "the limit: only a fair share for each process",
        Some(LeaseMode::Counter) => "the limit: no more leases",
        None => "the cluster's limit: it refuses with 53300",
    }
}

/// The smallest number of instances for which `test` holds; it holds for all larger ones.
fn first(test: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (0, 1);
    while !test(high) {
        (low, high) = (high, high * 2);
        if high > MOST {
            return None;
        }
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if test(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_come_in_the_order_of_their_size() {
        let found = growth(&Fleet::of(4, 10, 2, 50));
        let sizes: Vec<(u64, u64)> =
            found.iter().map(|growth| (growth.instances, growth.connections)).collect();
        assert_eq!(sizes, [(21, 8_400), (24, 9_600), (26, 10_400)], "{found:?}");
        assert_eq!(found[1].what, "no room to replace ahead of time");
    }

    #[test]
    fn a_narrow_jitter_is_the_first_limit() {
        let fleet = Fleet { jitter: std::time::Duration::from_secs(30), ..Fleet::of(4, 10, 2, 50) };
        let found = growth(&fleet);
        assert_eq!(found[0].what, "a cold start outlasts the jitter");
        assert!((5..=9).contains(&found[0].instances), "{found:?}");
    }

    #[test]
    fn tiny_processes_run_out_of_numbers() {
        let found = growth(&Fleet::of(1, 10, 1, 5));
        assert_eq!(found[0].instances, 1025, "{found:?}");
    }

    #[test]
    fn the_smallest_is_found() {
        assert_eq!(first(|n| n >= 1), Some(1));
        assert_eq!(first(|n| n >= 1000), Some(1000));
        assert_eq!(first(|_| false), None);
    }
}
