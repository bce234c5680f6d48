//! Starts the instances and injects the faults at the times that the scenario gives.

use std::sync::Arc;
use std::time::Duration;

use forebay::Rng;
use forebay::rt::{ProcessClock, Runtime, VirtualProcess};

use crate::fleet::Fleet;
use crate::judge::DisturbanceId;
use crate::scenario::{Fault, FaultKind, RETRY, Refusal, Targets};

/// Starts every instance at its time and injects every fault, until the returned process is killed.
pub(crate) fn start(fleet: &Arc<Fleet>) -> VirtualProcess {
    let world = &fleet.world;
    let director = world.time.process(ProcessClock::default());
    for (instance, service) in world.scenario.services.iter().enumerate() {
        let (fleet, delay) = (Arc::clone(fleet), service.start_delay);
        director.spawn(Box::pin(async move {
            fleet.world.pass(delay).await;
            fleet.start(instance);
        }));
    }
    for (number, fault) in world.scenario.faults.iter().enumerate() {
        let rng = world.seed.fork("fault").fork(&number.to_string()).rng();
        let (fleet, fault) = (Arc::clone(fleet), fault.clone());
        let injector = FaultInjector { fleet, fault, rng, director: director.clone() };
        director.spawn(Box::pin(injector.run()));
    }
    let cluster_fleet = Arc::clone(fleet);
    world.time.spawn(Box::pin(async move { end_sessions(&cluster_fleet).await }));
    director
}

/// Ends the sessions that reach the cluster's maximum age.
async fn end_sessions(fleet: &Arc<Fleet>) {
    let world = &fleet.world;
    loop {
        let now = world.now();
        let (dropped, next) = world.cluster.lock().end_expired(now);
        for instance in world.notify_clients(dropped) {
            world.events.lock().session_aged(instance, now);
        }
        world.time.sleep_until(next).await;
    }
}

/// Injects one fault of the scenario, as often as it repeats.
struct FaultInjector {
    fleet: Arc<Fleet>,
    fault: Fault,
    rng: Rng,
    director: VirtualProcess,
}

impl FaultInjector {
    async fn run(mut self) {
        let world = Arc::clone(&self.fleet.world);
        for repetition in 0..self.fault.times {
            let at = world.start + self.fault.at + self.fault.every.saturating_mul(repetition);
            let at = at + self.rng.up_to(self.fault.spread);
            world.time.sleep_until(at).await;
            if self.fault.kind == FaultKind::RollingRestart {
                self.rolling_restart().await;
            } else {
                self.inject().await;
            }
        }
    }

    async fn inject(&mut self) {
        let targets = self.fault.kind.targets().cloned();
        let targets = targets.map(|targets| self.choose(&targets));
        let details = match (&self.fault.kind, &targets) {
            (FaultKind::Refuse { with }, _) => with.name().to_owned(),
            (_, Some(targets)) => self.names(targets),
            (_, None) => String::new(),
        };
        // A crash can disturb everybody: others may lack the leases of the dead.
        let leases = self.fleet.world.scenario.leases.is_some();
        let is_global = matches!(self.fault.kind, FaultKind::Crash { .. }) && leases;
        let disturbance = self.begin(&details, targets.clone().filter(|_| !is_global));
        let targets = targets.unwrap_or_default();
        self.apply(&targets);
        self.fleet.world.pass(self.fault.lasting).await;
        self.revert(&targets);
        end_disturbance(&self.fleet, disturbance, self.fault.kind.patience());
    }

    fn apply(&self, targets: &[usize]) {
        let (fleet, world) = (&self.fleet, &self.fleet.world);
        match &self.fault.kind {
            FaultKind::MassDrop { fraction } => {
                let dropped = world.cluster.lock().drop_share(*fraction);
                world.notify_clients(dropped);
            }
            FaultKind::Refuse { with } => world.cluster.lock().refusing.push(*with),
            FaultKind::Failover => {
                let dropped = {
                    let mut cluster = world.cluster.lock();
                    cluster.refusing.push(Refusal::Unreachable);
                    cluster.drop_share(1.0)
                };
                world.notify_clients(dropped);
            }
            FaultKind::SlowOpens { factor } => world.cluster.lock().slowness.push(*factor),
            FaultKind::CredentialOutage => world.credentials.lock().outages += 1,
            FaultKind::TableOutage => {
                world.table.begin_outage();
                world.events.lock().judge.table_cut_off();
            }
            FaultKind::Crash { .. } => targets.iter().for_each(|target| fleet.crash(*target)),
            FaultKind::Partition { only_table, .. } => {
                for target in targets {
                    if *only_table {
                        world.table.cut_off(*target);
                    } else {
                        world.cluster.lock().cut_off(*target);
                    }
                }
                world.events.lock().judge.table_cut_off();
            }
            FaultKind::Pause { .. } => targets.iter().for_each(|target| fleet.pause(*target)),
            FaultKind::Resize { fraction, .. } => {
                targets.iter().for_each(|target| fleet.resize(*target, *fraction));
            }
            FaultKind::RollingRestart => {}
        }
    }

    fn revert(&self, targets: &[usize]) {
        let (fleet, world) = (&self.fleet, &self.fleet.world);
        match &self.fault.kind {
            FaultKind::MassDrop { .. } | FaultKind::RollingRestart => {}
            FaultKind::Refuse { with } => world.cluster.lock().stop_refusing(*with),
            FaultKind::Failover => world.cluster.lock().stop_refusing(Refusal::Unreachable),
            FaultKind::SlowOpens { factor } => {
                let slowness = &mut world.cluster.lock().slowness;
                let found = slowness.iter().position(|other| other.total_cmp(factor).is_eq());
                found.map(|found| slowness.remove(found));
            }
            FaultKind::CredentialOutage => world.credentials.lock().outages -= 1,
            FaultKind::TableOutage => {
                world.table.end_outage();
                world.events.lock().judge.table_reconnected(world.now());
            }
            FaultKind::Crash { .. } => targets.iter().for_each(|target| fleet.start(*target)),
            FaultKind::Partition { only_table, .. } => {
                world.events.lock().judge.table_reconnected(world.now());
                for target in targets {
                    if *only_table {
                        world.table.reconnect(*target);
                    } else {
                        let dropped = world.cluster.lock().reconnect(*target);
                        world.notify_clients(dropped);
                    }
                }
            }
            FaultKind::Pause { .. } => targets.iter().for_each(|target| fleet.resume(*target)),
            FaultKind::Resize { .. } => targets.iter().for_each(|target| fleet.resize(*target, 1.0)),
        }
    }

    /// Restarts one instance after the other; a slow one does not delay the next.
    async fn rolling_restart(&self) {
        for instance in 0..self.fleet.len() {
            let (fleet, patience) = (Arc::clone(&self.fleet), self.fault.kind.patience());
            let disturbance = self.begin(&fleet.world.scenario.services[instance].name, Some(vec![instance]));
            self.director.spawn(Box::pin(async move {
                fleet.stop(instance).await;
                fleet.start(instance);
                end_disturbance(&fleet, disturbance, patience);
            }));
            self.fleet.world.pass(self.fault.lasting).await;
        }
    }

    fn choose(&mut self, targets: &Targets) -> Vec<usize> {
        let count = match targets {
            Targets::These(instances) => return instances.clone(),
            Targets::Random(count) => *count,
        };
        let is_running = |instance: &usize| self.fleet.is_running(*instance);
        let mut running: Vec<usize> = (0..self.fleet.len()).filter(is_running).collect();
        let mut chosen = Vec::new();
        while chosen.len() < count && !running.is_empty() {
            let drawn = self.rng.below(running.len() as u64);
            chosen.push(running.swap_remove(usize::try_from(drawn).unwrap_or(0)));
        }
        chosen
    }

    fn names(&self, instances: &[usize]) -> String {
        let services = &self.fleet.world.scenario.services;
        let names: Vec<&str> = instances.iter().take(3).map(|one| services[*one].name.as_str()).collect();
        let more =
            if instances.len() > 3 { format!(" and {} more", instances.len() - 3) } else { String::new() };
        names.join(", ") + &more
    }

    /// Begins a disturbance of these instances, or of all.
    fn begin(&self, details: &str, instances: Option<Vec<usize>>) -> DisturbanceId {
        let world = &self.fleet.world;
        let name = self.fault.kind.name();
        let name = if details.is_empty() { name.to_owned() } else { format!("{name} ({details})") };
        world.events.lock().fault_began(name, instances, world.now())
    }
}

/// The fault is over: the judge gives the fleet `patience`, and time for what may delay its recovery.
fn end_disturbance(fleet: &Arc<Fleet>, disturbance: DisturbanceId, patience: Duration) {
    let world = &fleet.world;
    let services = &world.scenario.services;
    // A connection that died in use is replaced when its caller returns it.
    let hold = services.iter().map(|service| service.workload.longest_hold()).max().unwrap_or_default();
    let wanted: usize = services.iter().map(|service| service.target_ready + service.overlap).sum();
    let leases = match world.scenario.leases {
        // Leases of the dead are taken until they expire and a neighbour notices.
        Some(leases)
            if leases.limit.saturating_sub(world.lease_audit.lock().held_by_dead()) < wanted as u64 =>
        {
            leases.length + 2 * leases.beat + RETRY
        }
        _ => Duration::ZERO,
    };
    world.events.lock().judge.over(disturbance, world.now(), patience + hold + leases);
}
