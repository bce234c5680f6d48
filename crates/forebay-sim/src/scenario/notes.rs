//! What makes one wonder about a scenario, but is no mistake for sure.

use forebay::duration::show;

use super::{Arrivals, Scenario, Service, Strike, Workload};

/// Everything worth a remark before the figures.
pub(super) fn notes(scenario: &Scenario) -> Vec<String> {
    let mut notes = Vec::new();
    let idle =
        scenario.services.iter().find(|service| !service.workload.enabled && is_set(&service.workload));
    if let Some(Service { name, .. }) = idle {
        notes.push(format!("the workload of {name} is not enabled, and so nobody uses it: enabled: true"));
    }
    if let Some(leases) = scenario.leases {
        let (limit, target) = (leases.limit, scenario.target() as u64);
        let overlap: usize = scenario.services.iter().map(|service| service.overlap).sum();
        if limit < target {
            notes.push(format!(
                "leases.limit, {limit}, leaves less than the {target} connections that are wanted"
            ));
        } else if limit < target + overlap as u64 {
            notes.push(format!(
                "leases.limit, {limit}, leaves no room to replace each connection before it goes: that takes {}",
                target + overlap as u64
            ));
        }
        if scenario.cluster.max_connections.is_some_and(|most| limit > most as u64) {
            notes.push(format!("leases.limit, {limit}, is more than the cluster holds"));
        }
    }
    for fault in &scenario.faults {
        let name = fault.strike.name();
        if fault.at >= scenario.duration {
            notes.push(format!("{name} at {} comes after the end", show(fault.at)));
        } else if let Strike::RollingRestart { each } = fault.strike {
            let instances = u32::try_from(scenario.services.len()).unwrap_or(u32::MAX);
            if fault.at + each.saturating_mul(instances.saturating_sub(1)) >= scenario.duration {
                notes.push(format!(
                    "{name} at {} does not come to all instances before the end",
                    show(fault.at)
                ));
            }
        }
    }
    if let Some(late) = scenario.services.iter().find(|service| service.start_delay >= scenario.duration) {
        notes.push(format!("{} never starts: its startDelay is {}", late.name, show(late.start_delay)));
    }
    notes
}

/// Whether any key of a workload was set to something else than its default.
fn is_set(workload: &Workload) -> bool {
    matches!(workload.arrivals, Arrivals::Poisson { .. }) || *workload != Workload::default()
}
