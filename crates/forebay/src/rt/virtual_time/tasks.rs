//! Tasks, owned by the executor; wakers only know their names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use super::Inner;
use crate::rt::Task;

/// Names a process whose tasks live and die together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessId(u32);

impl ProcessId {
    /// Of tasks that belong to no process.
    pub(super) const NONE: Self = Self(0);
}

/// Names a task. Places are used again; the generation tells who was there.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskId {
    place: u32,
    generation: u32,
}

/// A task and how to wake it, out of its place while it runs.
pub(super) struct Running {
    task: Task,
    waker: Waker,
}

impl Running {
    pub(super) fn poll(&mut self) -> Poll<()> {
        self.task.as_mut().poll(&mut Context::from_waker(&self.waker))
    }
}

#[derive(Default)]
pub(super) struct Tasks {
    places: Vec<Place>,
    vacant: Vec<u32>,
    runnable: VecDeque<TaskId>,
    processes: u32,
    dead: BTreeSet<ProcessId>,
    /// Processes that stand still, with their tasks that could run.
    paused: BTreeMap<ProcessId, Vec<TaskId>>,
    closed: bool,
}

struct Place {
    generation: u32,
    process: ProcessId,
    occupied: bool,
    queued: bool,
    /// There unless it is running.
    running: Option<Running>,
}

impl Tasks {
    pub(super) fn new_process(&mut self) -> ProcessId {
        self.processes += 1;
        ProcessId(self.processes)
    }

    /// Takes a task in, to run in its turn. One of a dead process is handed back.
    pub(super) fn spawn(
        &mut self,
        process: ProcessId,
        task: Task,
        waker: impl FnOnce(TaskId) -> Waker,
    ) -> Option<Task> {
        if self.closed || self.dead.contains(&process) {
            return Some(task);
        }
        let place = self.vacant.pop().unwrap_or_else(|| {
            let vacant = Place { generation: 0, process, occupied: false, queued: false, running: None };
            self.places.push(vacant);
            u32::try_from(self.places.len() - 1).expect("fewer than four billion tasks")
        });
        let slot = &mut self.places[place as usize];
        let id = TaskId { place, generation: slot.generation };
        (slot.process, slot.occupied, slot.queued) = (process, true, true);
        slot.running = Some(Running { task, waker: waker(id) });
        self.runnable.push_back(id);
        None
    }

    /// The next task that can run.
    pub(super) fn next(&mut self) -> Option<(TaskId, Running)> {
        while let Some(id) = self.runnable.pop_front() {
            let Some(slot) = self.resolve(id) else { continue };
            let process = slot.process;
            if let Some(held_up) = self.paused.get_mut(&process) {
                // Still queued, so that it is not queued twice.
                held_up.push(id);
                continue;
            }
            let Some(slot) = self.resolve(id) else { continue };
            slot.queued = false;
            if let Some(running) = slot.running.take() {
                return Some((id, running));
            }
        }
        None
    }

    /// A task has run and is not done. It is handed back if it was killed meanwhile.
    pub(super) fn put_back(&mut self, id: TaskId, running: Running) -> Option<Running> {
        let Some(slot) = self.resolve(id) else { return Some(running) };
        slot.running = Some(running);
        None
    }

    /// A task is done.
    pub(super) fn finish(&mut self, id: TaskId) {
        if self.resolve(id).is_some() {
            self.vacate(id.place);
        }
    }

    pub(super) fn wake(&mut self, id: TaskId) {
        if let Some(slot) = self.resolve(id).filter(|slot| !slot.queued) {
            slot.queued = true;
            self.runnable.push_back(id);
        }
    }

    /// Lets no task of a process run.
    pub(super) fn pause(&mut self, process: ProcessId) {
        self.paused.entry(process).or_default();
    }

    /// Lets the tasks of a process run again, in the order in which they could have.
    pub(super) fn resume(&mut self, process: ProcessId) {
        self.runnable.extend(self.paused.remove(&process).unwrap_or_default());
    }

    /// Takes every task of a process out, to be dropped. It takes no more.
    pub(super) fn kill(&mut self, process: ProcessId) -> Vec<Running> {
        self.dead.insert(process);
        self.paused.remove(&process);
        self.take(|owner| owner == process)
    }

    /// Takes every task out, to be dropped. No more are taken in.
    pub(super) fn close(&mut self) -> Vec<Running> {
        self.closed = true;
        self.take(|_| true)
    }

    fn take(&mut self, whose: impl Fn(ProcessId) -> bool) -> Vec<Running> {
        let mut taken = Vec::new();
        for place in 0..self.places.len() {
            if self.places[place].occupied && whose(self.places[place].process) {
                taken.extend(self.places[place].running.take());
                // A place counts in `u32`: see `spawn`.
                self.vacate(u32::try_from(place).unwrap_or(u32::MAX));
            }
        }
        taken
    }

    fn resolve(&mut self, id: TaskId) -> Option<&mut Place> {
        let slot = &mut self.places[id.place as usize];
        (slot.occupied && slot.generation == id.generation).then_some(slot)
    }

    fn vacate(&mut self, place: u32) {
        let slot = &mut self.places[place as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.occupied = false;
        self.vacant.push(place);
    }
}

/// What a waker of a task holds.
pub(super) struct Handle {
    id: TaskId,
    time: Weak<Inner>,
}

impl Handle {
    pub(super) fn new(id: TaskId, time: Weak<Inner>) -> Self {
        Self { id, time }
    }
}

impl Wake for Handle {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(time) = self.time.upgrade() {
            time.queue.lock().tasks.wake(self.id);
        }
    }
}
