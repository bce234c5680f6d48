//! The emulator's own threads: the one file that starts tasks.
#![allow(clippy::disallowed_methods, reason = "the one file that spawns")]

use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::Error;

/// Deep enough for the deepest statement that is read at all.
const STACK: usize = 16 << 20;

/// A runtime of its own: the emulator serves tests of any kind, also those with a single thread that blocks.
pub(crate) struct ServerRuntime {
    runtime: Option<Runtime>,
    tasks: Spawner,
}

/// Starts tasks on it.
#[derive(Clone, Debug)]
pub(crate) struct Spawner {
    handle: Handle,
}

impl ServerRuntime {
    pub(crate) fn start() -> Result<Self, Error> {
        // A single one would leave the sockets alone while it hands over to another.
        let workers = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        let runtime = Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("dsql-local")
            // Statements are read by recursion; what is not used costs nothing.
            .thread_stack_size(STACK)
            .enable_all()
            .build()
            .map_err(Error::Threads)?;
        let tasks = Spawner { handle: runtime.handle().clone() };
        Ok(Self { runtime: Some(runtime), tasks })
    }

    pub(crate) fn tasks(&self) -> &Spawner {
        &self.tasks
    }

    /// Ends every task and waits for the threads, at most so long. May be called from a task of another runtime.
    pub(crate) fn stop(&mut self, patience: Duration) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting for threads is refused inside another runtime's task; a thread of our own may do it.
            let waiting = std::thread::spawn(move || runtime.shutdown_timeout(patience));
            drop(waiting.join());
        }
    }
}

/// Also after a start that failed half-way, in whatever context.
impl Drop for ServerRuntime {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Spawner {
    /// Of the runtime that runs the caller.
    pub(crate) fn here() -> Self {
        Self { handle: Handle::current() }
    }

    /// Lets sockets be made for this runtime.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.handle.enter()
    }

    /// Does it to its end, also if nobody waits for that any more. None if the runtime ends before.
    ///
    /// # Cancel safety
    /// If dropped, it goes on.
    pub(crate) async fn finish<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.handle.spawn(future).await.ok()
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(future);
    }
}
