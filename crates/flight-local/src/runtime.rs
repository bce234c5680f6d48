//! The server's runtime: threads, time and random numbers. No other file takes them from the machine.
#![allow(clippy::disallowed_methods, reason = "the one file that may")]

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::error::StartError;

/// The server has its own runtime, so that it works in any test, also one with a single thread that blocks.
#[derive(Debug)]
pub(crate) struct ServerRuntime {
    runtime: Option<Runtime>,
    handle: Handle,
}

impl ServerRuntime {
    /// `blocking` is the largest number of concurrent statements.
    pub(crate) fn start(workers: Option<usize>, blocking: usize) -> Result<Self, StartError> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        let runtime = Builder::new_multi_thread()
            .worker_threads(workers.unwrap_or(cores).max(1))
            .max_blocking_threads(blocking)
            .thread_name("flight-local")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let handle = runtime.handle().clone();
        Ok(Self { runtime: Some(runtime), handle })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops every task and waits for the threads.
    ///
    /// Tokio forbids this wait inside another runtime's task, so another thread does it. If dropped, it
    /// continues.
    pub(crate) async fn stop(&mut self, patience: Duration) {
        if let Some(runtime) = self.runtime.take() {
            let (done, stopped) = oneshot::channel();
            std::thread::spawn(move || {
                runtime.shutdown_timeout(patience);
                done.send(())
            });
            let (Ok(()) | Err(_)) = stopped.await;
        }
    }
}

/// Also after a start that failed. The port is free afterwards.
impl Drop for ServerRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            let waiting = std::thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(1)));
            drop(waiting.join());
        }
    }
}

pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

pub(crate) fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    tokio::task::spawn_blocking(work)
}

pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    Handle::current().block_on(future)
}

pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A random hexadecimal string.
pub(crate) fn secret() -> Result<String, StartError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| StartError::Random(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
