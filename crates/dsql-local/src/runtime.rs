//! The emulator's own runtime. No other file spawns tasks.
#![allow(clippy::disallowed_methods, reason = "the one file that spawns")]

use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::Error;

/// Enough for the deepest statement that is parsed.
const STACK: usize = 16 << 20;

/// The emulator has its own runtime, so that it works in any test, also one with a single thread that blocks.
pub(crate) struct ServerRuntime {
    runtime: Option<Runtime>,
    tasks: Spawner,
}

/// Spawns tasks on the runtime.
#[derive(Clone, Debug)]
pub(crate) struct Spawner {
    handle: Handle,
}

impl ServerRuntime {
    pub(crate) fn start() -> Result<Self, Error> {
        // With one worker, nobody would poll the sockets during a hand-over.
        let workers = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        let runtime = Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("dsql-local")
            // The parser is recursive. Unused stack costs nothing.
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

    /// Stops every task and waits for the threads. It may be called from a task of another runtime.
    pub(crate) fn stop(&mut self, patience: Duration) {
        if let Some(runtime) = self.runtime.take() {
            // Tokio forbids this wait inside another runtime's task, so another thread does it.
            let waiting = std::thread::spawn(move || runtime.shutdown_timeout(patience));
            drop(waiting.join());
        }
    }
}

/// Also after a start that failed.
impl Drop for ServerRuntime {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Spawner {
    /// The runtime of the caller.
    pub(crate) fn here() -> Self {
        Self { handle: Handle::current() }
    }

    /// Makes new sockets belong to this runtime.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.handle.enter()
    }

    /// Runs a future to its end, even if the caller is cancelled. Returns none if the runtime ends first.
    ///
    /// # Cancel safety
    /// If dropped, the future continues.
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
