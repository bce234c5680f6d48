//! The process of a service instance: threads of its own, which can be killed.

use std::io;

use forebay::rt::TokioRuntime;
use parking_lot::Mutex;

/// Threads that run the tasks of one instance, as a process of its own would.
#[derive(Debug)]
pub(super) struct Process {
    /// None once it was killed.
    threads: Mutex<Option<tokio::runtime::Runtime>>,
    runtime: TokioRuntime,
}

impl Process {
    pub(super) fn start(name: String) -> io::Result<Self> {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(name)
            .enable_all()
            .build()?;
        let runtime = TokioRuntime::new(threads.handle().clone());
        Ok(Self { threads: Mutex::new(Some(threads)), runtime })
    }

    /// Where its tasks run.
    pub(super) fn runtime(&self) -> &TokioRuntime {
        &self.runtime
    }

    /// Ends every task where it stands. What a task would do at its end is not done: nothing is given back, and no table
    /// is told. Sockets are closed, as the system does for a process.
    pub(super) fn kill(&self) {
        if let Some(threads) = self.threads.lock().take() {
            threads.shutdown_background();
        }
    }
}

/// tokio forbids to drop its runtime within a task. To kill it is allowed.
impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
