//! Makes things go wrong when the scenario says so, and right again.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{ProcessClock, Runtime, VirtualProcess};
use forebay::{Instant, Rng};

use crate::fleet::Fleet;
use crate::judge::WindowId;
use crate::scenario::{Fault, RETRY, Refusal, Strike, Who};

/// Starts every instance at its time, and plays every fault, until the theatre it returns is closed.
pub(crate) fn direct(fleet: &Arc<Fleet>) -> VirtualProcess {
    let world = &fleet.world;
    let theatre = world.time.process(ProcessClock::default());
    for (place, service) in world.scenario.services.iter().enumerate() {
        let (fleet, delay) = (Arc::clone(fleet), service.start_delay);
        theatre.spawn(Box::pin(async move {
            fleet.world.pass(delay).await;
            fleet.start(place);
        }));
    }
    for (number, fault) in world.scenario.faults.iter().enumerate() {
        let rng = world.seed.fork("fault").fork(&number.to_string()).rng();
        let stage = Stage { fleet: Arc::clone(fleet), fault: fault.clone(), rng, theatre: theatre.clone() };
        theatre.spawn(Box::pin(stage.play()));
    }
    let cluster_fleet = Arc::clone(fleet);
    world.time.spawn(Box::pin(async move { end_sessions(&cluster_fleet).await }));
    theatre
}

/// Ends sessions that have reached their age, as the cluster does.
async fn end_sessions(fleet: &Arc<Fleet>) {
    let world = &fleet.world;
    loop {
        let now = world.now();
        let (dropped, next) = world.cluster.lock().end_the_old(now);
        for place in world.tell(dropped) {
            world.books.lock().session_aged(place, now);
        }
        world.time.sleep_until(next).await;
    }
}

struct Stage {
    fleet: Arc<Fleet>,
    fault: Fault,
    rng: Rng,
    theatre: VirtualProcess,
}

impl Stage {
    async fn play(mut self) {
        let fleet = Arc::clone(&self.fleet);
        let world = &fleet.world;
        for turn in 0..self.fault.times {
            let at = world.start + self.fault.at + self.fault.every.saturating_mul(turn);
            let at: Instant = at + self.rng.up_to(self.fault.spread);
            world.time.sleep_until(at).await;
            self.strike().await;
        }
    }

    async fn strike(&mut self) {
        let fleet = Arc::clone(&self.fleet);
        let world = &fleet.world;
        match self.fault.strike.clone() {
            Strike::MassDrop { fraction } => {
                let window = self.begin("", None);
                let dropped = world.cluster.lock().drop_some(fraction);
                world.tell(dropped);
                self.over(window);
            }
            Strike::Refuse { with, lasting } => {
                let window = self.begin(with.name(), None);
                self.refuse(with, lasting).await;
                self.over(window);
            }
            Strike::Failover { lasting } => {
                let window = self.begin("", None);
                let dropped = {
                    let mut cluster = world.cluster.lock();
                    cluster.refusing.push(Refusal::Unreachable);
                    cluster.drop_some(1.0)
                };
                world.tell(dropped);
                world.pass(lasting).await;
                self.accept(Refusal::Unreachable);
                self.over(window);
            }
            Strike::SlowOpens { times, lasting } => {
                let window = self.begin("", None);
                world.cluster.lock().slowness.push(times);
                world.pass(lasting).await;
                let mut cluster = world.cluster.lock();
                let place = cluster.slowness.iter().position(|slowness| slowness.total_cmp(&times).is_eq());
                place.map(|place| cluster.slowness.remove(place));
                drop(cluster);
                self.over(window);
            }
            Strike::CredentialOutage { lasting } => {
                let window = self.begin("", None);
                world.credentials.lock().outages += 1;
                world.pass(lasting).await;
                world.credentials.lock().outages -= 1;
                self.over(window);
            }
            Strike::TableOutage { lasting } => {
                let window = self.begin("", None);
                world.table.go_away();
                world.books.lock().judge.cut();
                world.pass(lasting).await;
                world.table.come_back();
                world.books.lock().judge.mended(world.now());
                self.over(window);
            }
            Strike::Crash { who, restart_after } => {
                let struck = self.choose(&who);
                // Leases of the dead may be what others lack.
                let whom = world.scenario.leases.is_none().then(|| struck.clone());
                let window = self.begin(&self.names(&struck), whom);
                struck.iter().for_each(|place| fleet.crash(*place));
                world.pass(restart_after).await;
                struck.iter().for_each(|place| fleet.start(*place));
                self.over(window);
            }
            Strike::Partition { who, lasting, only_table } => {
                let struck = self.choose(&who);
                let window = self.begin(&self.names(&struck), Some(struck.clone()));
                self.cut_off(&struck, only_table, lasting).await;
                self.over(window);
            }
            Strike::Pause { who, lasting } => {
                let struck = self.choose(&who);
                let window = self.begin(&self.names(&struck), Some(struck.clone()));
                struck.iter().for_each(|place| fleet.pause(*place));
                world.pass(lasting).await;
                struck.iter().for_each(|place| fleet.resume(*place));
                self.over(window);
            }
            Strike::Resize { who, fraction, lasting } => {
                let struck = self.choose(&who);
                let window = self.begin(&self.names(&struck), Some(struck.clone()));
                struck.iter().for_each(|place| fleet.resize(*place, fraction));
                world.pass(lasting).await;
                struck.iter().for_each(|place| fleet.resize(*place, 1.0));
                self.over(window);
            }
            Strike::RollingRestart { each } => self.roll(each).await,
        }
    }

    async fn cut_off(&self, struck: &[usize], only_table: bool, lasting: Duration) {
        let world = &self.fleet.world;
        if only_table {
            struck.iter().for_each(|place| world.table.cut_off(*place));
        } else {
            struck.iter().for_each(|place| world.cluster.lock().cut_off(*place));
        }
        world.books.lock().judge.cut();
        world.pass(lasting).await;
        world.books.lock().judge.mended(world.now());
        for place in struck {
            if only_table {
                world.table.reconnect(*place);
            } else {
                let dropped = world.cluster.lock().reconnect(*place);
                world.tell(dropped);
            }
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
            let window = self.begin(&fleet.world.scenario.services[place].name, Some(vec![place]));
            let over = self.over_later();
            self.theatre.spawn(Box::pin(async move {
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
            let lot = self.rng.below(running.len() as u64);
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

    /// Something goes wrong: for these instances, or for all. `details` are for the reader.
    fn begin(&self, details: &str, whom: Option<Vec<usize>>) -> WindowId {
        let world = &self.fleet.world;
        let name = self.fault.strike.name();
        let name = if details.is_empty() { name.to_owned() } else { format!("{name} ({details})") };
        world.books.lock().struck(name, whom, world.now())
    }

    fn over(&self, window: WindowId) {
        self.over_later()(&self.fleet, window);
    }

    fn over_later(&self) -> impl Fn(&Arc<Fleet>, WindowId) + use<> {
        let notice = self.fault.strike.patience();
        move |fleet, window| {
            let world = &fleet.world;
            let services = &world.scenario.services;
            // What died in a caller's hands is replaced when it comes back.
            let hold =
                services.iter().map(|service| service.workload.longest_hold()).max().unwrap_or_default();
            let wanted: usize = services.iter().map(|service| service.target_ready + service.overlap).sum();
            let leases = match world.scenario.leases {
                // Leases of the dead are theirs until they run out, and somebody has noticed.
                Some(leases)
                    if leases.limit.saturating_sub(world.roll.lock().of_the_dead()) < wanted as u64 =>
                {
                    leases.length + 2 * leases.beat + RETRY
                }
                _ => Duration::ZERO,
            };
            world.books.lock().judge.over(window, world.now(), notice + hold + leases);
        }
    }
}
