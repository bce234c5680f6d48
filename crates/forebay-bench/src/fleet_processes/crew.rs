//! The processes, and what each has told.

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use serde_json::Value;

use super::stage::Stage;
use super::{PROCESSES, Plan};
use crate::clock::{self, Stopwatch};

/// Places for processes, some of them empty.
pub(super) struct Crew<'a> {
    stage: &'a Stage,
    plan: Plan,
    places: Vec<Place>,
    stuck: u64,
}

#[derive(Default)]
struct Place {
    process: Option<Process>,
    /// When another is started here.
    back: Option<(Stopwatch, Duration)>,
}

struct Process {
    child: Child,
    told: Arc<Mutex<Told>>,
    stuck: bool,
}

/// What a process has told of itself.
struct Told {
    instance: Option<String>,
    served: u64,
    /// Since it was started, or since it last served somebody.
    since: Stopwatch,
}

impl<'a> Crew<'a> {
    pub(super) fn new(stage: &'a Stage, plan: Plan) -> Self {
        let places = (0..PROCESSES).map(|_| Place::default()).collect();
        Self { stage, plan, places, stuck: 0 }
    }

    /// How many processes have served nobody for so long that they never would have.
    pub(super) fn stuck(&self) -> u64 {
        self.stuck
    }

    /// The instances that live.
    pub(super) fn instances(&self) -> BTreeSet<String> {
        (0..self.places.len()).flat_map(|place| self.instances_of(place)).collect()
    }

    /// The instance at one place, if one lives there and has told its name.
    pub(super) fn instances_of(&self, place: usize) -> BTreeSet<String> {
        let process = self.places[place].process.as_ref();
        process.and_then(|process| process.told.lock().instance.clone()).into_iter().collect()
    }

    /// Whether every process that lives has served somebody.
    pub(super) fn is_serving(&self) -> bool {
        let mut processes = self.places.iter().filter_map(|place| place.process.as_ref());
        processes.all(|process| process.told.lock().served > 0)
    }

    pub(super) fn start_all(&mut self) -> anyhow::Result<()> {
        (0..self.places.len()).try_for_each(|place| self.start(place))
    }

    /// Starts a process at an empty place.
    pub(super) fn start(&mut self, place: usize) -> anyhow::Result<()> {
        let place = &mut self.places[place];
        place.back = None;
        if place.process.is_none() {
            place.process = Some(Process::start(self.stage)?);
        }
        Ok(())
    }

    /// Kills the process at a place, if there is one, and starts another there after a while. Whether there was one.
    pub(super) fn kill_for(&mut self, place: usize, time: Duration) -> anyhow::Result<bool> {
        let killed = self.kill(place)?;
        if killed {
            self.places[place].back = Some((Stopwatch::start(), time));
        }
        Ok(killed)
    }

    /// As `kill -9` does. Whether there was one.
    pub(super) fn kill(&mut self, place: usize) -> anyhow::Result<bool> {
        let Some(mut process) = self.places[place].process.take() else { return Ok(false) };
        process.child.kill()?;
        process.child.wait()?;
        Ok(true)
    }

    pub(super) fn kill_all_but_first(&mut self) -> anyhow::Result<()> {
        (1..self.places.len()).try_for_each(|place| self.kill(place).map(drop))
    }

    /// Starts those whose time has come, and looks who is stuck: alive, and of no use to anybody for longer than it takes to
    /// be given the slots of the dead, and some seconds.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        let patience = self.plan.reaped_within() * 2 + Duration::from_secs(5);
        for place in 0..self.places.len() {
            if self.places[place].back.is_some_and(|(since, time)| since.elapsed() >= time) {
                self.start(place)?;
            }
            if let Some(process) = &mut self.places[place].process
                && !process.stuck
                && (process.child.try_wait()?.is_some() || process.told.lock().since.elapsed() > patience)
            {
                process.stuck = true;
                self.stuck += 1;
            }
        }
        Ok(())
    }

    /// Looks again and again until something holds, for at most so long. How long that took.
    pub(super) async fn wait_for(
        &mut self,
        most: Duration,
        holds: impl AsyncFn(&Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Option<Duration>> {
        let watch = Stopwatch::start();
        while watch.elapsed() < most {
            self.look()?;
            if holds(self).await? {
                return Ok(Some(watch.elapsed()));
            }
            clock::pause(Duration::from_millis(100)).await;
        }
        Ok(None)
    }

    /// Ends every process in good order. Whether all did.
    pub(super) async fn end(&mut self) -> anyhow::Result<bool> {
        let mut processes: Vec<Process> =
            self.places.iter_mut().filter_map(|place| place.process.take()).collect();
        for process in &mut processes {
            // The end of its input is its signal.
            drop(process.child.stdin.take());
        }
        let (watch, mut well) = (Stopwatch::start(), true);
        for process in &mut processes {
            let status = loop {
                match process.child.try_wait()? {
                    Some(status) => break Some(status),
                    None if watch.elapsed() > Duration::from_secs(30) => break None,
                    None => clock::pause(Duration::from_millis(50)).await,
                }
            };
            well &= status.is_some_and(|status| status.success());
        }
        Ok(well)
    }
}

impl Process {
    fn start(stage: &Stage) -> anyhow::Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .arg("fleet-worker")
            .env_clear()
            .envs(stage.variables())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let told = Told { instance: None, served: 0, since: Stopwatch::start() };
        let told = Arc::new(Mutex::new(told));
        let output = child.stdout.take().context("no output")?;
        let process = Self { child, told: Arc::clone(&told), stuck: false };
        std::thread::Builder::new().spawn(move || listen(output, &told))?;
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Whatever happened to the program that is measured, it leaves nothing behind. What has ended already is no error.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Notes what a process tells, until it ends.
fn listen(output: ChildStdout, told: &Mutex<Told>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let Ok(said) = serde_json::from_str::<Value>(&line) else { continue };
        let mut told = told.lock();
        if let Some(instance) = said["instance"].as_str() {
            told.instance = Some(instance.to_owned());
        }
        if let Some(served) = said["served"].as_u64().filter(|served| *served > told.served) {
            told.served = served;
            told.since = Stopwatch::start();
        }
    }
}
