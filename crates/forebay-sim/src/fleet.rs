//! The instances: each a process with clocks of its own, one reservoir, and callers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay::rt::{ProcessClock, Runtime, VirtualProcess};
use forebay::{Counts, Discard, Event, Instant, Limit, LocalLimit, Reservoir, Seed, Status};
use forebay_fleet::{Fleet as Part, LeaseMode, Tables};
use parking_lot::Mutex;

use crate::load::{self, Shift};
use crate::record::Gauges;
use crate::world::{Link, WatchedLimit, Way, World};

pub(crate) struct Fleet {
    pub(crate) world: Arc<World>,
    members: Vec<Mutex<Member>>,
    limit: LocalLimit,
    /// No instance is started any more.
    closing: AtomicBool,
}

#[derive(Default)]
struct Member {
    incarnation: u32,
    running: Option<Running>,
    /// What those before it counted.
    past: Tally,
}

#[derive(Clone)]
struct Running {
    process: VirtualProcess,
    /// None while it joins its fleet.
    service: Option<Serving>,
}

/// An instance at work.
#[derive(Clone)]
struct Serving {
    reservoir: Reservoir<Link>,
    shift: Arc<Shift>,
    /// What it has to do with the others, if they share anything.
    part: Option<Arc<Part>>,
}

impl Member {
    fn status(&self) -> Option<Status> {
        let service = self.running.as_ref()?.service.as_ref()?;
        Some(service.reservoir.status())
    }
}

/// What an instance has counted, over all its incarnations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) checkouts: u64,
    pub(crate) empty: u64,
    pub(crate) refills: u64,
    pub(crate) refill_failures: u64,
    pub(crate) discards: [u64; Discard::ALL.len()],
}

impl Tally {
    fn and(mut self, counts: &Counts) -> Self {
        self.checkouts += counts.checkouts;
        self.empty += counts.empty;
        self.refills += counts.refills;
        self.refill_failures += counts.all_failures();
        for reason in Discard::ALL {
            self.discards[reason.index()] += counts.discards(reason);
        }
        self
    }
}

/// How one instance stands.
pub(crate) struct Standing {
    pub(crate) size: usize,
    pub(crate) in_use: usize,
    pub(crate) tally: Tally,
}

/// Machines have been up for a while, each for another: no two monotonic clocks agree.
const LONGEST_UPTIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a graceful stop waits for callers.
pub(crate) const DRAIN: Duration = Duration::from_secs(30);
/// How long it then waits until its slots are given back.
pub(crate) const LEAVE: Duration = Duration::from_secs(10);
/// How long an instance waits to be filled before it serves, as the reservoir's own start does.
const FILL: Duration = Duration::from_secs(30);

impl Fleet {
    pub(crate) fn new(world: Arc<World>) -> Arc<Self> {
        let scenario = &world.scenario;
        let members = scenario.services.iter().map(|_| Mutex::default()).collect();
        Arc::new(Self { members, limit: limit(&world), closing: AtomicBool::new(false), world })
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Starts the instance at `place`, if none is running there.
    pub(crate) fn start(self: &Arc<Self>, place: usize) {
        let world = &self.world;
        let service = &world.scenario.services[place];
        let mut member = self.members[place].lock();
        if member.running.is_some() || self.closing.load(Ordering::Relaxed) {
            return;
        }
        member.incarnation += 1;
        world.books.lock().judge.resized(place, service.max_open);
        let incarnation = member.incarnation;
        let seed = world.seed.fork("instance").fork(&service.name).fork(&incarnation.to_string());
        let process = world.time.process(self.clock(place));
        member.running = Some(Running { process: process.clone(), service: None });
        drop(member);
        let alone = !world.reaches_table(place);
        let birth =
            Birth { fleet: Arc::clone(self), place, incarnation, alone, seed, process: process.clone() };
        if world.scenario.is_coordinated() {
            process.spawn(Box::pin(async move {
                let part = birth.join().await;
                birth.serve(Some(part));
            }));
        } else {
            birth.serve(None);
        }
        world.books.lock().instance_started(place, world.now());
    }

    fn clock(&self, place: usize) -> ProcessClock {
        // Of the machine, not of the process: a restart does not set a clock right.
        let scenario = &self.world.scenario;
        let mut rng = self.world.seed.fork("clock").fork(&scenario.services[place].name).rng();
        let skew = i64::try_from(scenario.clocks.skew.as_nanos()).unwrap_or(i64::MAX / 4);
        let drift = i64::from(scenario.clocks.drift_ppm);
        let mut either_way = |most: i64| {
            let drawn = rng.below(2 * most.unsigned_abs() + 1);
            i64::try_from(drawn).unwrap_or(0) - most
        };
        let (wall_ahead, drift) = (either_way(skew), either_way(drift));
        ProcessClock {
            uptime: rng.up_to(LONGEST_UPTIME),
            wall_ahead,
            drift_ppm: i32::try_from(drift).unwrap_or(0),
        }
    }

    /// The process dies where it stands; its sockets with it, its leases not.
    pub(crate) fn crash(self: &Arc<Self>, place: usize) {
        if let Some(running) = self.bury(place) {
            let owned = running.service.as_ref().map_or(0, |service| service.reservoir.status().size());
            self.world.books.lock().crashed(owned);
            self.kill(place, &running);
        }
    }

    /// Ends what is left of an instance.
    fn kill(&self, place: usize, running: &Running) {
        self.world.cluster.lock().hang_up(place);
        running.process.kill();
        self.world.roll.lock().died(place, self.world.now());
        self.world.books.lock().judge.lost_a_watcher(self.world.now());
        self.world.recount(place);
    }

    /// The instance takes no more work, finishes what it has, closes everything and ends. Returns what it could not finish;
    /// none if it was not running.
    ///
    /// Cancel safe: it can be called again.
    pub(crate) async fn stop(self: &Arc<Self>, place: usize) -> Option<String> {
        let Some(service) = self.members[place].lock().running.clone()?.service else {
            self.crash(place);
            return None;
        };
        service.shift.stop();
        let drained = service.reservoir.drain(DRAIN).await;
        // Callers in line are told at once, but must have a chance to hear it.
        self.world.pass(Duration::from_millis(1)).await;
        let at_work = service.shift.at_work();
        let mut leases = 0;
        if let Some(part) = &service.part {
            part.leave(LEAVE).await;
            leases = part.status().leases;
        }
        // It may have crashed meanwhile.
        if let Some(running) = self.bury(place) {
            self.kill(place, &running);
        }
        let name = &self.world.scenario.services[place].name;
        let left = !drained.is_complete() || at_work > 0 || leases > 0;
        left.then(|| {
            format!("{name} ended with {drained:?}, {leases} leases, and {at_work} callers unanswered or still at work")
        })
    }

    /// Nothing of the instance runs any more.
    pub(crate) fn pause(&self, place: usize) {
        if let Some(running) = &self.members[place].lock().running {
            running.process.pause();
        }
        self.world.books.lock().judge.paused(place);
    }

    /// It goes on where it stood.
    pub(crate) fn resume(&self, place: usize) {
        if let Some(running) = &self.members[place].lock().running {
            running.process.resume();
        }
        let now = self.world.now();
        self.world.books.lock().judge.resumed(place, now);
    }

    /// The instance may own this share of its connections from now on.
    pub(crate) fn resize(&self, place: usize, fraction: f64) {
        let service = self.members[place].lock().running.clone().and_then(|running| running.service);
        let Some(service) = service else { return };
        let most = self.world.scenario.services[place].max_open;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a count below a million"
        )]
        let most = ((most as f64 * fraction) as usize).max(1);
        self.world.books.lock().judge.resized(place, most);
        service.reservoir.resize(most).expect("less of what was checked");
        self.world.recount(place);
    }

    /// Lets nobody start any more.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Takes the running instance off the list, with what it has counted.
    fn bury(&self, place: usize) -> Option<Running> {
        let running = {
            let mut member = self.members[place].lock();
            let running = member.running.take()?;
            if let Some(service) = &running.service {
                member.past = member.past.and(&service.reservoir.status().counts);
            }
            running
        };
        self.world.books.lock().instance_gone(place, self.world.now());
        Some(running)
    }

    pub(crate) fn is_running(&self, place: usize) -> bool {
        self.members[place].lock().running.is_some()
    }

    /// How the instance stands now, over all its incarnations.
    pub(crate) fn standing(&self, place: usize) -> Standing {
        let member = self.members[place].lock();
        match member.status() {
            None => Standing { size: 0, in_use: 0, tally: member.past },
            Some(status) => Standing {
                size: status.size(),
                in_use: status.in_use,
                tally: member.past.and(&status.counts),
            },
        }
    }

    /// How all stand together.
    pub(crate) fn gauges(&self) -> Gauges {
        let mut gauges = Gauges { table: self.world.table.bill(), ..Gauges::default() };
        for member in &self.members {
            if let Some(status) = member.lock().status() {
                gauges.ready += status.ready;
                gauges.in_use += status.in_use + status.in_maintenance;
                gauges.opening += status.opening;
                gauges.waiting += status.waiting;
            }
        }
        gauges
    }

    /// The present status of this very incarnation, if it still runs.
    fn status(&self, place: usize, incarnation: u32) -> Option<Status> {
        let member = self.members[place].lock();
        (member.incarnation == incarnation).then_some(())?;
        member.status()
    }

    /// Looks at an instance because something changed there.
    fn heard(&self, place: usize, incarnation: u32, event: &Event<'_>) {
        // What a dead process still drops is no event of this world.
        let Some(status) = self.status(place, incarnation) else { return };
        let now: Instant = self.world.now();
        let sessions = self.world.cluster.lock().known(place);
        let mut books = self.world.books.lock();
        match event {
            Event::Opened { .. } => books.opened(place, now),
            Event::OpenFailed { error, .. } => books.open_failed(place, now, error.failure()),
            Event::Discarded { reason, .. } => books.discarded(place, now, *reason),
            _ => return,
        }
        books.looked(place, now, &status, sessions);
    }
}

/// An instance on its way.
struct Birth {
    fleet: Arc<Fleet>,
    place: usize,
    incarnation: u32,
    /// It does not reach the table when it begins.
    alone: bool,
    seed: Seed,
    process: VirtualProcess,
}

impl Birth {
    /// Takes its part in what all share.
    async fn join(&self) -> Arc<Part> {
        let world = &self.fleet.world;
        let settings = world.scenario.fleet_settings(&world.scenario.services[self.place]);
        let service = settings.service.clone();
        let counts_each = settings.leases.as_ref().is_some_and(|leases| leases.mode == LeaseMode::Counter);
        let tables = Tables::one(Way::new(world, self.place));
        let part = Part::start(settings, tables, self.process.clone(), self.seed).await;
        let part = part.expect("all count in one mode, and the table is there or away");
        let name = if counts_each { service } else { part.status().instance };
        let first = world.roll.lock().begun(self.place, name, self.alone);
        if first {
            // Nobody has watched the dead so far.
            world.books.lock().judge.lost_a_watcher(world.now());
        }
        Arc::new(part)
    }

    /// Fills a reservoir, and lets callers come.
    fn serve(self, part: Option<Arc<Part>>) {
        let Self { fleet, place, incarnation, seed, process, .. } = self;
        let world = &fleet.world;
        let service = &world.scenario.services[place];
        // What a service gets from its fleet, and nothing else. Who waits for the limit is counted on the way.
        let mut wiring = part.as_ref().map(|part| part.wiring()).unwrap_or_default();
        let limit: Arc<dyn Limit> = match wiring.limit {
            Some(limit) => limit,
            None if world.scenario.limiter.shared => Arc::new(fleet.limit.clone()),
            None => Arc::new(limit(world)),
        };
        wiring.limit = Some(Arc::new(WatchedLimit::new(world, place, limit)));
        let builder = Reservoir::builder(Link::new(Arc::clone(world), place, process.clone()))
            .config(service.config().seed(seed))
            .runtime(process.clone())
            .observer(observer(Arc::downgrade(&fleet), place, incarnation));
        let reservoir =
            wiring.reservoir(builder).start_empty().expect("the scenario's settings have been checked");
        let shift = Arc::new(Shift::new(Arc::clone(world), place, reservoir.clone()));
        if service.workload.enabled {
            let (rng, runtime, shift) = (seed.fork("load").rng(), process.clone(), Arc::clone(&shift));
            process.spawn(Box::pin(async move {
                shift.reservoir.filled(FILL).await;
                load::generate(shift, runtime, rng).await;
            }));
        }
        // No other: a process that was killed runs no more.
        if let Some(running) = &mut fleet.members[place].lock().running {
            running.service = Some(Serving { reservoir, shift, part });
        }
    }
}

fn limit(world: &Arc<World>) -> LocalLimit {
    let limiter = &world.scenario.limiter;
    LocalLimit::new(limiter.per_second, limiter.burst, Arc::new(world.time.clone()))
}

fn observer(
    fleet: Weak<Fleet>,
    place: usize,
    incarnation: u32,
) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
    move |event: &Event<'_>| {
        if let Some(fleet) = fleet.upgrade() {
            fleet.heard(place, incarnation, event);
        }
    }
}
