//! The instances of the fleet: each is a process with its own clocks, one reservoir, and callers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay::rt::{ProcessClock, Runtime, VirtualProcess};
use forebay::{Counts, Discard, Event, Limit, LocalLimit, Reservoir, Seed, Status};
use forebay_fleet::{Fleet as FleetMember, LeaseMode, Tables};
use parking_lot::Mutex;

use crate::callers::CallerPool;
use crate::latency::share;
use crate::samples::Sample;
use crate::trace::TraceEvent;
use crate::world::{ClusterConnector, CountingLimit, TableLink, World};

pub(crate) struct Fleet {
    pub(crate) world: Arc<World>,
    instances: Vec<Mutex<Instance>>,
    limit: LocalLimit,
    /// No instance starts any more.
    closing: AtomicBool,
}

#[derive(Default)]
struct Instance {
    /// How often it has started.
    incarnation: u32,
    running: Option<Running>,
    /// The counts of earlier incarnations.
    past: Tally,
}

#[derive(Clone)]
struct Running {
    process: VirtualProcess,
    /// None while the process joins its fleet.
    serving: Option<Serving>,
}

#[derive(Clone)]
struct Serving {
    reservoir: Reservoir<ClusterConnector>,
    callers: Arc<CallerPool>,
    /// None if the fleet shares nothing.
    member: Option<Arc<FleetMember>>,
}

impl Instance {
    fn status(&self) -> Option<Status> {
        Some(self.running.as_ref()?.serving.as_ref()?.reservoir.status())
    }
}

/// The counts of an instance over all its incarnations.
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

/// One instance at one moment.
#[derive(Default)]
pub(crate) struct InstanceStatus {
    pub(crate) size: usize,
    pub(crate) in_use: usize,
    pub(crate) tally: Tally,
}

/// Each machine has another uptime: no two monotonic clocks agree.
const LONGEST_UPTIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a graceful stop waits for callers,
pub(crate) const DRAIN: Duration = Duration::from_secs(30);
/// and then for the release of its slots.
pub(crate) const LEAVE: Duration = Duration::from_secs(10);
/// How long an instance waits for its first fill before it serves, as `Reservoir::start` does.
const FILL: Duration = Duration::from_secs(30);

impl Fleet {
    pub(crate) fn new(world: Arc<World>) -> Arc<Self> {
        let instances = world.scenario.services.iter().map(|_| Mutex::default()).collect();
        Arc::new(Self { instances, limit: limit(&world), closing: AtomicBool::new(false), world })
    }

    pub(crate) fn len(&self) -> usize {
        self.instances.len()
    }

    /// Starts an instance unless it runs already.
    pub(crate) fn start(self: &Arc<Self>, instance: usize) {
        let world = &self.world;
        let service = &world.scenario.services[instance];
        let mut state = self.instances[instance].lock();
        if state.running.is_some() || self.closing.load(Ordering::Relaxed) {
            return;
        }
        state.incarnation += 1;
        world.events.lock().judge.resized(instance, service.max_open);
        let incarnation = state.incarnation;
        let seed = world.seed.fork("instance").fork(&service.name).fork(&incarnation.to_string());
        let process = world.time.process(self.clock(instance));
        state.running = Some(Running { process: process.clone(), serving: None });
        drop(state);
        let alone = !world.reaches_table(instance);
        let fleet = Arc::clone(self);
        let startup = Startup { fleet, instance, incarnation, alone, seed, process: process.clone() };
        if world.scenario.is_coordinated() {
            process.spawn(Box::pin(async move {
                let member = startup.join().await;
                startup.serve(Some(member));
            }));
        } else {
            startup.serve(None);
        }
        world.events.lock().trace.add(TraceEvent::Started, world.now(), instance, 0);
    }

    /// The clock of the machine: a restart of the process does not correct it.
    fn clock(&self, instance: usize) -> ProcessClock {
        let scenario = &self.world.scenario;
        let mut rng = self.world.seed.fork("clock").fork(&scenario.services[instance].name).rng();
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

    /// Kills the process. Its sockets close; its leases stay.
    pub(crate) fn crash(self: &Arc<Self>, instance: usize) {
        if let Some(running) = self.remove(instance) {
            let owned = running.serving.as_ref().map_or(0, |serving| serving.reservoir.status().size());
            self.world.events.lock().totals.lost_in_crashes += owned as u64;
            self.kill(instance, &running);
        }
    }

    fn kill(&self, instance: usize, running: &Running) {
        self.world.cluster.lock().hang_up(instance);
        running.process.kill();
        self.world.lease_audit.lock().died(instance, self.world.now());
        self.world.events.lock().judge.lost_a_watcher(self.world.now());
        self.world.recount(instance);
    }

    /// Stops an instance gracefully: it accepts no callers, drains, closes everything and leaves its fleet.
    /// Returns a message if it could not finish.
    ///
    /// Cancel safe: it can be called again.
    pub(crate) async fn stop(self: &Arc<Self>, instance: usize) -> Option<String> {
        let Some(serving) = self.instances[instance].lock().running.clone()?.serving else {
            self.crash(instance);
            return None;
        };
        serving.callers.stop();
        let drained = serving.reservoir.drain(DRAIN).await;
        // Waiting callers are woken at once; this lets them run.
        self.world.pass(Duration::from_millis(1)).await;
        let active = serving.callers.active();
        let mut leases = 0;
        if let Some(member) = &serving.member {
            member.leave(LEAVE).await;
            leases = member.status().leases;
        }
        // It may have crashed meanwhile.
        if let Some(running) = self.remove(instance) {
            self.kill(instance, &running);
        }
        let name = &self.world.scenario.services[instance].name;
        let left = !drained.is_complete() || active > 0 || leases > 0;
        left.then(|| {
            format!(
                "{name} ended with {drained:?}, {leases} leases, and {active} callers unanswered or active"
            )
        })
    }

    /// Suspends all tasks of the instance.
    pub(crate) fn pause(&self, instance: usize) {
        if let Some(running) = &self.instances[instance].lock().running {
            running.process.pause();
        }
        self.world.events.lock().judge.paused(instance);
    }

    pub(crate) fn resume(&self, instance: usize) {
        if let Some(running) = &self.instances[instance].lock().running {
            running.process.resume();
        }
        let now = self.world.now();
        self.world.events.lock().judge.resumed(instance, now);
    }

    /// Limits the instance to this share of its `maxOpen`.
    pub(crate) fn resize(&self, instance: usize, fraction: f64) {
        let serving = self.instances[instance].lock().running.clone().and_then(|running| running.serving);
        let Some(serving) = serving else { return };
        let most = share(self.world.scenario.services[instance].max_open, fraction).max(1);
        self.world.events.lock().judge.resized(instance, most);
        serving.reservoir.resize(most).expect("not above a size that was checked");
        self.world.recount(instance);
    }

    /// From now on no instance starts.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Takes the running process off the list and keeps its counts.
    fn remove(&self, instance: usize) -> Option<Running> {
        let running = {
            let mut state = self.instances[instance].lock();
            let running = state.running.take()?;
            if let Some(serving) = &running.serving {
                state.past = state.past.and(&serving.reservoir.status().counts);
            }
            running
        };
        self.world.events.lock().instance_gone(instance, self.world.now());
        Some(running)
    }

    pub(crate) fn is_running(&self, instance: usize) -> bool {
        self.instances[instance].lock().running.is_some()
    }

    pub(crate) fn instance_status(&self, instance: usize) -> InstanceStatus {
        let state = self.instances[instance].lock();
        let past = InstanceStatus { tally: state.past, ..InstanceStatus::default() };
        state.status().map_or(past, |status| InstanceStatus {
            size: status.size(),
            in_use: status.in_use,
            tally: state.past.and(&status.counts),
        })
    }

    /// The current state of the whole fleet, without counts.
    pub(crate) fn gauges(&self) -> Sample {
        let mut sample = Sample { table: self.world.table.bill(), ..Sample::default() };
        for instance in &self.instances {
            if let Some(status) = instance.lock().status() {
                sample.ready += status.ready;
                sample.in_use += status.in_use + status.in_maintenance;
                sample.opening += status.opening;
                sample.waiting += status.waiting;
            }
        }
        sample
    }

    /// Records an event of a reservoir, and has the judge check its status.
    fn record(&self, instance: usize, incarnation: u32, event: &Event<'_>) {
        let status = {
            let state = self.instances[instance].lock();
            // A dead process still drops things; those are not events.
            state.status().filter(|_| state.incarnation == incarnation)
        };
        let Some(status) = status else { return };
        let now = self.world.now();
        let sessions = self.world.cluster.lock().known(instance);
        let mut events = self.world.events.lock();
        match event {
            Event::Opened { .. } => events.opened(instance, now),
            Event::OpenFailed { error, .. } => events.open_failed(instance, now, error.failure()),
            Event::Discarded { reason, .. } => events.discarded(instance, now, *reason),
            _ => return,
        }
        events.judge.check_bound(instance, now, &status, sessions);
    }
}

/// An instance that starts.
struct Startup {
    fleet: Arc<Fleet>,
    instance: usize,
    incarnation: u32,
    /// It does not reach the table when it starts.
    alone: bool,
    seed: Seed,
    process: VirtualProcess,
}

impl Startup {
    /// Joins the fleet's ledger and shared rate.
    async fn join(&self) -> Arc<FleetMember> {
        let world = &self.fleet.world;
        let settings = world.scenario.fleet_settings(&world.scenario.services[self.instance]);
        let service = settings.service.clone();
        let is_counter = settings.leases.as_ref().is_some_and(|leases| leases.mode == LeaseMode::Counter);
        let tables = Tables::one(TableLink::table(world, self.instance));
        let member = FleetMember::start(settings, tables, self.process.clone(), self.seed).await;
        let member = member.expect("all use one mode; an outage of the table is not an error");
        let name = if is_counter { service } else { member.status().instance };
        let first = world.lease_audit.lock().started(self.instance, name, self.alone);
        if first {
            // Until now nobody watched the dead.
            world.events.lock().judge.lost_a_watcher(world.now());
        }
        Arc::new(member)
    }

    /// Starts the reservoir and its callers.
    fn serve(self, member: Option<Arc<FleetMember>>) {
        let Self { fleet, instance, incarnation, seed, process, .. } = self;
        let world = &fleet.world;
        let service = &world.scenario.services[instance];
        // The wiring of a real service; only the limit is wrapped, to count denials.
        let mut wiring = member.as_ref().map(|member| member.wiring()).unwrap_or_default();
        let limit: Arc<dyn Limit> = match wiring.limit {
            Some(limit) => limit,
            None if world.scenario.limiter.shared => Arc::new(fleet.limit.clone()),
            None => Arc::new(limit(world)),
        };
        wiring.limit = Some(Arc::new(CountingLimit::new(world, instance, limit)));
        let observed = Arc::downgrade(&fleet);
        let connector = ClusterConnector::new(Arc::clone(world), instance, process.clone());
        let builder = Reservoir::builder(connector)
            .config(service.config().seed(seed))
            .runtime(process.clone())
            .observer(move |event: &Event<'_>| {
                if let Some(fleet) = Weak::upgrade(&observed) {
                    fleet.record(instance, incarnation, event);
                }
            });
        let reservoir = wiring.reservoir(builder).start_empty().expect("the scenario has been checked");
        let callers = Arc::new(CallerPool::new(Arc::clone(world), instance, reservoir.clone()));
        if service.workload.enabled {
            let (rng, runtime, callers) = (seed.fork("load").rng(), process.clone(), Arc::clone(&callers));
            process.spawn(Box::pin(async move {
                callers.reservoir.filled(FILL).await;
                callers.generate(runtime, rng).await;
            }));
        }
        // It is still this process: a killed one does not run.
        if let Some(running) = &mut fleet.instances[instance].lock().running {
            running.serving = Some(Serving { reservoir, callers, member });
        }
    }
}

fn limit(world: &Arc<World>) -> LocalLimit {
    let limiter = &world.scenario.limiter;
    LocalLimit::new(limiter.per_second, limiter.burst, Arc::new(world.time.clone()))
}
