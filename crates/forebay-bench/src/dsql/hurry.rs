//! Time that runs faster, as the server's can.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay::Instant;
use forebay::rt::{Runtime, Starved, Task, TokioRuntime};

/// A runtime on whose clocks more time passes than on the machine's. A clone has the same clocks.
#[derive(Clone, Debug)]
pub(super) struct Hurried {
    inner: TokioRuntime,
    course: Arc<Mutex<Course>>,
    /// The time of day, less the time that had passed.
    wall: Duration,
}

/// Since when time runs at which speed.
#[derive(Clone, Copy, Debug)]
struct Course {
    speed: u32,
    machine: Instant,
    ours: Instant,
}

impl Course {
    fn at(&self, machine: Instant) -> Instant {
        self.ours + machine.since(self.machine) * self.speed
    }
}

impl Hurried {
    pub(super) fn new(inner: TokioRuntime, speed: u32) -> Self {
        let now = inner.now();
        let wall = inner.wall().saturating_sub(now.since(Instant::ZERO));
        Self { inner, course: Arc::new(Mutex::new(Course { speed, machine: now, ours: now })), wall }
    }

    /// From now on, time runs at this speed.
    pub(super) fn set_speed(&self, speed: u32) {
        let machine = self.inner.now();
        let mut course = self.course.lock().unwrap_or_else(PoisonError::into_inner);
        *course = Course { speed, machine, ours: course.at(machine) };
    }

    fn course(&self) -> Course {
        *self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime for Hurried {
    fn now(&self) -> Instant {
        self.course().at(self.inner.now())
    }

    fn wall(&self) -> Duration {
        self.wall + self.now().since(Instant::ZERO)
    }

    fn sleep_until(&self, at: Instant) -> Task {
        let time = self.clone();
        Box::pin(async move {
            // Again, should time have slowed down meanwhile.
            while time.now() < at {
                let left = at.since(time.now()) / time.course().speed;
                time.inner.sleep_until(time.inner.now() + left).await;
            }
        })
    }

    fn spawn(&self, task: Task) {
        self.inner.spawn(task);
    }

    fn entropy(&self) -> u64 {
        self.inner.entropy()
    }

    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved> {
        self.inner.block(wait)
    }
}
