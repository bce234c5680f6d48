//! The processes, and what each has reported.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use serde_json::Value;

use super::servers::Servers;
use super::{PROCESSES, Plan};
use crate::clock::{self, Stopwatch};
use crate::process::this_program;

/// A fixed number of seats for processes, some of them empty.
pub(super) struct Workers<'a> {
    servers: &'a Servers,
    plan: Plan,
    seats: Vec<Seat>,
    /// Processes that served no caller for so long that they never will.
    pub(super) stuck: u64,
}

#[derive(Default)]
struct Seat {
    process: Option<Process>,
    /// When the next process is started here.
    restart: Option<(Stopwatch, Duration)>,
}

struct Process {
    child: Child,
    progress: Arc<Mutex<Progress>>,
    stuck: bool,
}

/// What a process has reported.
struct Progress {
    instance: Option<String>,
    served: u64,
    /// Since its start, or since it last served a caller.
    since: Stopwatch,
}

impl<'a> Workers<'a> {
    pub(super) fn new(servers: &'a Servers, plan: Plan) -> Self {
        let seats = (0..PROCESSES).map(|_| Seat::default()).collect();
        Self { servers, plan, seats, stuck: 0 }
    }

    /// The instances that are alive.
    pub(super) fn instances(&self) -> BTreeSet<String> {
        (0..self.seats.len()).flat_map(|seat| self.instances_of(seat)).collect()
    }

    /// The instance in one seat, if it is alive and has reported its name.
    pub(super) fn instances_of(&self, seat: usize) -> BTreeSet<String> {
        let process = self.seats[seat].process.as_ref();
        process.and_then(|process| process.progress.lock().instance.clone()).into_iter().collect()
    }

    /// Whether every living process has served a caller.
    pub(super) fn is_serving(&self) -> bool {
        let mut processes = self.seats.iter().filter_map(|seat| seat.process.as_ref());
        processes.all(|process| process.progress.lock().served > 0)
    }

    pub(super) fn start_all(&mut self) -> anyhow::Result<()> {
        (0..self.seats.len()).try_for_each(|seat| self.start(seat))
    }

    /// Starts a process in a seat, if that is empty.
    pub(super) fn start(&mut self, seat: usize) -> anyhow::Result<()> {
        let seat = &mut self.seats[seat];
        seat.restart = None;
        if seat.process.is_none() {
            seat.process = Some(Process::start(self.servers)?);
        }
        Ok(())
    }

    /// Kills the process in a seat, and starts another there after `time`. Returns whether there was one.
    pub(super) fn kill_for(&mut self, seat: usize, time: Duration) -> anyhow::Result<bool> {
        let killed = self.kill(seat)?;
        if killed {
            self.seats[seat].restart = Some((Stopwatch::start(), time));
        }
        Ok(killed)
    }

    /// Kills the process in a seat, as `kill -9` does. Returns whether there was one.
    pub(super) fn kill(&mut self, seat: usize) -> anyhow::Result<bool> {
        let Some(mut process) = self.seats[seat].process.take() else { return Ok(false) };
        process.child.kill()?;
        process.child.wait()?;
        Ok(true)
    }

    pub(super) fn kill_all_but_first(&mut self) -> anyhow::Result<()> {
        (1..self.seats.len()).try_for_each(|seat| self.kill(seat).map(drop))
    }

    /// Starts processes that are due, and counts those that are stuck: alive, but without serving a caller
    /// for longer than it takes to get the slots of the dead, and some seconds more.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let patience = self.plan.reaped_within() * 2 + Duration::from_secs(5);
        for seat in 0..self.seats.len() {
            if self.seats[seat].restart.is_some_and(|(since, time)| since.elapsed() >= time) {
                self.start(seat)?;
            }
            if let Some(process) = &mut self.seats[seat].process
                && !process.stuck
                && (process.child.try_wait()?.is_some() || process.progress.lock().since.elapsed() > patience)
            {
                process.stuck = true;
                self.stuck += 1;
            }
        }
        Ok(())
    }

    /// Checks until `holds` is true, for at most `most`. Returns how long that took.
    pub(super) async fn wait_for(
        &mut self,
        most: Duration,
        holds: impl AsyncFn(&Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Option<Duration>> {
        let watch = Stopwatch::start();
        while watch.elapsed() < most {
            self.check()?;
            if holds(self).await? {
                return Ok(Some(watch.elapsed()));
            }
            clock::pause(Duration::from_millis(100)).await;
        }
        Ok(None)
    }

    /// Stops every process. Returns whether all of them succeeded.
    pub(super) async fn end(&mut self) -> anyhow::Result<bool> {
        let mut processes: Vec<Process> =
            self.seats.iter_mut().filter_map(|seat| seat.process.take()).collect();
        for process in &mut processes {
            // A process stops when its input ends.
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
    fn start(servers: &Servers) -> anyhow::Result<Self> {
        let mut child = this_program("fleet-worker")?
            .env_clear()
            .envs(servers.variables())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let progress = Progress { instance: None, served: 0, since: Stopwatch::start() };
        let progress = Arc::new(Mutex::new(progress));
        let output = child.stdout.take().context("no output")?;
        let process = Self { child, progress: Arc::clone(&progress), stuck: false };
        std::thread::Builder::new().spawn(move || listen(output, &progress))?;
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error here means that the process has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Records what a process reports, until it ends.
fn listen(output: ChildStdout, progress: &Mutex<Progress>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let mut progress = progress.lock();
        if let Some(instance) = message["instance"].as_str() {
            progress.instance = Some(instance.to_owned());
        }
        if let Some(served) = message["served"].as_u64().filter(|served| *served > progress.served) {
            progress.served = served;
            progress.since = Stopwatch::start();
        }
    }
}
