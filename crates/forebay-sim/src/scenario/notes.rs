//! Remarks about settings that may be mistakes.

use forebay::duration::show;

use super::{Arrivals, FaultKind, Scenario, Service, Workload};

pub(super) fn notes(scenario: &Scenario) -> Vec<String> {
    let mut notes = Vec::new();
    let idle =
        scenario.services.iter().find(|service| !service.workload.enabled && is_set(&service.workload));
    if let Some(Service { name, .. }) = idle {
        notes.push(format!("the workload of {name} is not enabled; add enabled: true"));
    }
    if let Some(leases) = scenario.leases {
        let (limit, target) = (leases.limit, scenario.target() as u64);
        let overlap: usize = scenario.services.iter().map(|service| service.overlap).sum();
        if limit < target {
            notes.push(format!("leases.limit, {limit}, is below the sum of all targets, {target}"));
        } else if limit < target + overlap as u64 {
            notes.push(format!(
                "leases.limit, {limit}, leaves no room to replace connections before they close; that takes {}",
                target + overlap as u64
            ));
        }
        if scenario.cluster.max_connections.is_some_and(|most| limit > most as u64) {
            notes.push(format!("leases.limit, {limit}, is above cluster.maxConnections"));
        }
    }
    for fault in &scenario.faults {
        let name = fault.kind.name();
        if fault.at >= scenario.duration {
            notes.push(format!("{name} at {} is after the end of the run", show(fault.at)));
        } else if fault.kind == FaultKind::RollingRestart {
            let instances = u32::try_from(scenario.services.len()).unwrap_or(u32::MAX);
            if fault.at + fault.lasting.saturating_mul(instances.saturating_sub(1)) >= scenario.duration {
                notes.push(format!(
                    "{name} at {} does not reach all instances before the end of the run",
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

/// Whether any key differs from its default.
fn is_set(workload: &Workload) -> bool {
    matches!(workload.arrivals, Arrivals::Poisson { .. }) || *workload != Workload::default()
}
