//! Random histories of a fleet: joins, crashes, restarts, pauses, partitions, lost answers, skewed clocks, resizes.
//!
//! `FLEET_SEEDS=1000 cargo test -p forebay-fleet --test it histories` runs a thousand of them, `FLEET_SEED=7` with it one.

use std::time::Duration;

use forebay::rt::{ProcessClock, Runtime};
use forebay::{Rng, Seed};
use forebay_fleet::{Faults, LeaseMode, RateMode, StoreOutagePolicy};

use crate::support::{bucket, leases, seconds, settings};
use crate::world::{Actor, World};

const LIMIT: u64 = 200;

fn seeds() -> u64 {
    std::env::var("FLEET_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// A random history.
struct History {
    world: World,
    actors: Vec<Actor>,
    started: usize,
    rng: Rng,
    policy: StoreOutagePolicy,
    /// When each instance that is cut off or stopped recovers.
    ailing: Vec<(usize, forebay::Instant)>,
}

impl History {
    fn new(seed: u64, policy: StoreOutagePolicy) -> Self {
        let mut settings = settings();
        settings.leases = Some(leases(LeaseMode::Ledger, LIMIT));
        settings.rate = Some(bucket(RateMode::Bucket, 20, 150));
        settings.outage_policy = policy;
        settings.max_open = 40;
        let world = World::new(settings, seed);
        world.watch_numbers();
        let rng = Seed::new(seed).fork("history").rng();
        Self { world, actors: Vec::new(), started: 0, rng, policy, ailing: Vec::new() }
    }

    fn join(&mut self) {
        let clock = ProcessClock {
            uptime: self.rng.up_to(seconds(100_000)),
            wall_ahead: i64::try_from(self.rng.below(900_000_000)).unwrap() - 450_000_000,
            drift_ppm: i32::try_from(self.rng.below(60)).unwrap() - 30,
        };
        let target = self.rng.below(41);
        let actor = self.world.start(self.started, target, seconds(200), clock);
        let share = |rng: &mut Rng, most| u32::try_from(rng.below(most)).unwrap();
        actor.table.set(Faults {
            latency: (Duration::from_millis(2), Duration::from_millis(60)),
            lost_requests: share(&mut self.rng, 30),
            lost_answers: share(&mut self.rng, 30),
            late_requests: share(&mut self.rng, 15),
            throttled: share(&mut self.rng, 20),
            ..Faults::default()
        });
        self.started += 1;
        self.actors.push(actor);
    }

    fn step(&mut self) {
        let now = self.world.time.now();
        let well: Vec<usize> = (0..self.actors.len())
            .filter(|index| self.ailing.iter().all(|(ill, _)| *ill != self.actors[*index].number()))
            .collect();
        let any = |rng: &mut Rng| well[usize::try_from(rng.below(well.len() as u64)).unwrap()];
        match self.rng.below(10) {
            0 | 1 if self.actors.len() < 10 => self.join(),
            2 if well.len() > 2 => {
                let actor = self.actors.remove(any(&mut self.rng));
                actor.crash();
            }
            3 if well.len() > 2 => {
                let actor = &self.actors[any(&mut self.rng)];
                actor.cut_off(true);
                self.ailing.push((actor.number(), now + self.rng.up_to(seconds(300))));
            }
            4 if well.len() > 2 => {
                let actor = &self.actors[any(&mut self.rng)];
                // With `strict`, only a pause longer than a lease may exceed the limit.
                let longest = if self.policy == StoreOutagePolicy::Strict { 60 } else { 300 };
                if self.policy != StoreOutagePolicy::Strict {
                    self.world.cluster.lock().cut_off.insert(actor.number(), true);
                }
                actor.machine.stop();
                self.ailing.push((actor.number(), now + self.rng.up_to(seconds(longest))));
            }
            5 if well.len() > 2 && self.actors[well[0]].status().is_some() => {
                let index = well[0];
                let fleet = self.actors[index].fleet();
                self.actors[index].want(0);
                self.world.time.advance(seconds(10));
                // What is not given back in time is freed when the instance is gone.
                self.world.time.run(fleet.leave(seconds(10)));
                self.actors.remove(index).crash();
            }
            _ if !well.is_empty() => {
                let target = self.rng.below(41);
                self.actors[any(&mut self.rng)].want(target);
            }
            _ => {}
        }
        let pause = self.rng.up_to(seconds(40));
        let until = self.world.time.now() + pause;
        while self.world.time.now() < until {
            self.world.time.advance(seconds(1));
            self.recover();
        }
    }

    /// Lets instances recover whose time has come. Those that have joined again are no longer excused.
    fn recover(&mut self) {
        if self.ailing.is_empty() && self.world.cluster.lock().cut_off.is_empty() {
            return;
        }
        let (now, entries) = (self.world.time.now(), self.world.entries());
        for actor in &self.actors {
            let number = actor.number();
            if self.ailing.iter().any(|(ill, until)| *ill == number && *until <= now) {
                actor.cut_off(false);
                actor.machine.go_on();
                self.ailing.retain(|(ill, _)| *ill != number);
            }
            let ill = self.ailing.iter().any(|(ill, _)| *ill == number);
            // By the table: an instance that was taken for dead may not know it yet. And only after an answer: before, its entry
            // may be about to be removed.
            let covered = actor.status().is_some_and(|status| {
                let slots = entries.get(&status.instance).copied().unwrap_or(0);
                status.lease_outage.is_none() && slots >= i64::try_from(status.leases).unwrap()
            });
            if !ill && covered {
                self.world.cluster.lock().cut_off.remove(&number);
            }
        }
    }

    fn run(mut self) {
        for _ in 0..4 {
            self.join();
        }
        for _ in 0..30 {
            self.step();
        }
        self.calm();
    }

    /// Lets all recover for a while. Then every slot belongs to a live instance, and every connection has a slot.
    fn calm(mut self) {
        for (_, until) in &mut self.ailing {
            *until = self.world.time.now();
        }
        self.recover();
        for actor in &self.actors {
            let faults = actor.table.faults();
            actor.table.set(Faults { latency: faults.latency, ..Faults::default() });
        }
        // A lease and some heartbeats for the dead, and longer than a connection lives: an instance that was cut off
        // may hold more connections than it has slots.
        self.world.time.advance(seconds(400));
        // A write may be in flight at any moment, so one of five checks must succeed.
        let mut differing = None;
        for _ in 0..5 {
            differing = self.difference();
            if differing.is_none() {
                break;
            }
            self.world.time.advance(seconds(1));
        }
        assert_eq!(differing, None, "what the table and the instances say differs");
        self.judge();
        self.world.time.shut_down();
    }

    /// The difference between the table and the instances, if any.
    fn difference(&self) -> Option<String> {
        let entries = self.world.entries();
        let mut expected = std::collections::BTreeMap::new();
        for actor in &self.actors {
            let status = actor.status().unwrap();
            assert!(status.leases <= status.slots, "{status:?}");
            assert_eq!(status.lease_outage, None, "{status:?}");
            expected.insert(status.instance, i64::try_from(status.slots).unwrap());
        }
        (entries != expected).then(|| format!("the table: {entries:?}; the instances: {expected:?}"))
    }

    fn judge(&self) {
        let cluster = self.world.cluster.lock();
        assert!(cluster.opens.len() > 100, "only {} opens: nothing is shown", cluster.opens.len());
        if self.policy == StoreOutagePolicy::Strict {
            assert!(cluster.most <= LIMIT, "{} connections, at most {LIMIT}", cluster.most);
        }
        assert_eq!(cluster.over, 0, "over the cap by more than those cut off hold");
        // In an outage, `local` opens at the local rate, and only the server limits the fleet.
        if self.policy != StoreOutagePolicy::Local {
            assert!(cluster.least_tokens >= 0, "the server would have refused: {}", cluster.least_tokens);
        }
    }
}

fn all(policy: StoreOutagePolicy, part: u64) {
    let one = std::env::var("FLEET_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    for seed in (0..seeds()).filter(|seed| one.map_or(seed % 3 == part, |one| one == *seed)) {
        let outcome = std::panic::catch_unwind(|| History::new(seed, policy).run());
        if let Err(panic) = outcome {
            eprintln!("seed {seed}, policy {policy:?}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn histories_under_local_exceed_the_cap_only_by_those_cut_off() {
    all(StoreOutagePolicy::Local, 0);
}

#[test]
fn histories_under_closed_exceed_the_cap_only_by_those_cut_off_and_keep_the_rate() {
    all(StoreOutagePolicy::Closed, 1);
}

#[test]
fn histories_under_strict_never_exceed_the_cap_and_keep_the_rate() {
    all(StoreOutagePolicy::Strict, 2);
}
