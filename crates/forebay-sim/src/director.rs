//! Makes things go wrong when the scenario says so, and right again.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Draws, Instant};

use crate::fleet::Fleet;
use crate::judge::WindowId;
use crate::scenario::{Fault, Refusal, Strike, Who};

/// Starts every instance at its time, and plays every fault.
pub(crate) fn direct(fleet: &Arc<Fleet>) {
    let world = &fleet.world;
    for (place, service) in world.scenario.services.iter().enumerate() {
        let (fleet, delay) = (Arc::clone(fleet), service.start_delay);
        world.time.spawn(Box::pin(async move {
            fleet.world.pass(delay).await;
            fleet.start(place);
        }));
    }
    for (number, fault) in world.scenario.faults.iter().enumerate() {
        let draws = world.seed.fork("fault").fork(&number.to_string()).draws();
        let stage = Stage { fleet: Arc::clone(fleet), fault: fault.clone(), draws };
        world.time.spawn(Box::pin(stage.play()));
    }
    let cluster_fleet = Arc::clone(fleet);
    world.time.spawn(Box::pin(async move { end_sessions(&cluster_fleet).await }));
}

/// Ends sessions that have reached their age, as the cluster does.
async fn end_sessions(fleet: &Arc<Fleet>) {
    let world = &fleet.world;
    loop {
        let now = world.now();
        let (dropped, next) = world.cluster.lock().end_the_old(now);
        for place in dropped.tell() {
            world.books.lock().session_aged(place, now);
        }
        world.time.sleep_until(next).await;
    }
}

struct Stage {
    fleet: Arc<Fleet>,
    fault: Fault,
    draws: Draws,
}

impl Stage {
    async fn play(mut self) {
        let fleet = Arc::clone(&self.fleet);
        let world = &fleet.world;
        for turn in 0..self.fault.times {
            let at = world.start + self.fault.at + self.fault.every.saturating_mul(turn);
            let at: Instant = at + self.draws.up_to(self.fault.spread);
            world.time.sleep_until(at).await;
            self.strike().await;
        }
    }

    async fn strike(&mut self) {
        let fleet = Arc::clone(&self.fleet);
        let world = &fleet.world;
        match self.fault.strike.clone() {
            Strike::MassDrop { fraction } => {
                let window = self.begin("");
                let dropped = world.cluster.lock().drop_some(fraction);
                dropped.tell();
                self.over(window);
            }
            Strike::Refuse { with, lasting } => {
                let window = self.begin(with.name());
                self.refuse(with, lasting).await;
                self.over(window);
            }
            Strike::Failover { lasting } => {
                let window = self.begin("");
                let dropped = {
                    let mut cluster = world.cluster.lock();
                    cluster.refusing.push(Refusal::Unreachable);
                    cluster.drop_some(1.0)
                };
                dropped.tell();
                world.pass(lasting).await;
                self.accept(Refusal::Unreachable);
                self.over(window);
            }
            Strike::SlowOpens { times, lasting } => {
                let window = self.begin("");
                world.cluster.lock().slowness *= times;
                world.pass(lasting).await;
                world.cluster.lock().slowness /= times;
                self.over(window);
            }
            Strike::CredentialOutage { lasting } => {
                let window = self.begin("");
                world.credentials.lock().outages += 1;
                world.pass(lasting).await;
                world.credentials.lock().outages -= 1;
                self.over(window);
            }
            Strike::TableOutage { lasting } => {
                let window = self.begin("");
                world.table.lock().outages += 1;
                world.pass(lasting).await;
                world.table.lock().outages -= 1;
                self.over(window);
            }
            Strike::Crash { who, restart_after } => {
                let struck = self.choose(&who);
                let window = self.begin(&self.names(&struck));
                struck.iter().for_each(|place| fleet.crash(*place));
                world.pass(restart_after).await;
                struck.iter().for_each(|place| fleet.start(*place));
                self.over(window);
            }
            Strike::Partition { who, lasting } => {
                let struck = self.choose(&who);
                let window = self.begin(&self.names(&struck));
                struck.iter().for_each(|place| world.cluster.lock().cut_off(*place));
                world.pass(lasting).await;
                struck.iter().for_each(|place| world.cluster.lock().reconnect(*place));
                self.over(window);
            }
            Strike::RollingRestart { each } => self.roll(each).await,
        }
    }

    async fn refuse(&self, with: Refusal, lasting: Duration) {
        let world = &self.fleet.world;
        world.cluster.lock().refusing.push(with);
        world.pass(lasting).await;
        self.accept(with);
    }

    /// Takes back one refusal.
    fn accept(&self, with: Refusal) {
        let mut cluster = self.fleet.world.cluster.lock();
        if let Some(place) = cluster.refusing.iter().rposition(|refusal| *refusal == with) {
            cluster.refusing.remove(place);
        }
    }

    /// Restarts one instance after the other; a slow one does not hold up the next.
    async fn roll(&self, each: Duration) {
        for place in 0..self.fleet.len() {
            let fleet = Arc::clone(&self.fleet);
            let window = self.begin(&fleet.world.scenario.services[place].name);
            let over = self.over_later();
            self.fleet.world.time.spawn(Box::pin(async move {
                fleet.stop(place).await;
                fleet.start(place);
                over(&fleet, window);
            }));
            self.fleet.world.pass(each).await;
        }
    }

    fn choose(&mut self, who: &Who) -> Vec<usize> {
        let count = match who {
            Who::These(places) => return places.clone(),
            Who::Lot(count) => *count,
        };
        // Of those that run: who is down already cannot be struck again.
        let mut running: Vec<usize> =
            (0..self.fleet.len()).filter(|place| self.fleet.is_running(*place)).collect();
        let mut chosen = Vec::new();
        while chosen.len() < count && !running.is_empty() {
            let lot = self.draws.below(running.len() as u64);
            chosen.push(running.swap_remove(usize::try_from(lot).unwrap_or(0)));
        }
        chosen
    }

    fn names(&self, places: &[usize]) -> String {
        let services = &self.fleet.world.scenario.services;
        let names: Vec<&str> = places.iter().take(3).map(|place| services[*place].name.as_str()).collect();
        let more = if places.len() > 3 { format!(" and {} more", places.len() - 3) } else { String::new() };
        names.join(", ") + &more
    }

    fn begin(&self, whom: &str) -> WindowId {
        let world = &self.fleet.world;
        let name = self.fault.strike.name();
        let name = if whom.is_empty() { name.to_owned() } else { format!("{name} ({whom})") };
        world.books.lock().struck(name, world.now())
    }

    fn over(&self, window: WindowId) {
        self.over_later()(&self.fleet, window);
    }

    fn over_later(&self) -> impl Fn(&Arc<Fleet>, WindowId) + use<> {
        let strike = self.fault.strike.clone();
        move |fleet, window| {
            let world = &fleet.world;
            let leases = match (&strike, world.scenario.leases, &fleet.ledger) {
                // Leases of the dead are theirs until they run out. Is there enough without them?
                (Strike::Crash { .. }, Some(leases), Some(ledger)) if ledger.free() < fleet.missing() => {
                    leases.length
                }
                _ => Duration::ZERO,
            };
            world.books.lock().judge.over(window, world.now(), strike.patience() + leases);
        }
    }
}
