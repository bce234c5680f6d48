//! The threads that serve clients.
//!
//! A client stays with one worker, and so does its backend while it has one: no message crosses from one thread to another. The system gives
//! each new client to some worker. If that one has more clients than another, it passes the client on.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use forebay::rt::{Runtime, TokioRuntime};
use tokio::sync::watch;

/// Threads with a runtime each, for [`Gateway::start_on`](crate::Gateway::start_on). They end when this is dropped, and what runs on them
/// with them.
pub struct WorkerThreads {
    runtimes: Vec<Arc<dyn Runtime>>,
    /// Dropped, it ends the threads.
    stop: Option<watch::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl WorkerThreads {
    /// Starts so many threads.
    ///
    /// # Errors
    /// If the system gives no thread or no event queue.
    pub fn start(count: usize) -> io::Result<Self> {
        let (stop, _) = watch::channel(());
        let (mut runtimes, mut threads) = (Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let handle = {
                let _inside = runtime.enter();
                TokioRuntime::current().map_err(io::Error::other)?
            };
            let mut stopped = stop.subscribe();
            // It fails when the sender is gone.
            let until_stopped = async move { while stopped.changed().await.is_ok() {} };
            let thread = std::thread::Builder::new().name(format!("gateway-{number}"));
            threads.push(thread.spawn(move || runtime.block_on(until_stopped))?);
            runtimes.push(Arc::new(handle) as _);
        }
        Ok(Self { runtimes, stop: Some(stop), threads })
    }

    /// The runtimes of the threads.
    pub fn runtimes(&self) -> impl Iterator<Item = Arc<dyn Runtime>> {
        self.runtimes.iter().cloned()
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.stop = None;
        for thread in self.threads.drain(..) {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for WorkerThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkerThreads").field(&self.runtimes.len()).finish()
    }
}

/// A worker passes a new client on if it has more than this many clients more than another. Passing one on costs about as much as serving a
/// connect, and short connections even out by themselves.
const UNEVEN: usize = 4;

/// The workers of a gateway.
#[derive(Clone)]
pub(crate) struct Workers(Arc<[Worker]>);

struct Worker {
    runtime: Arc<dyn Runtime>,
    clients: Arc<AtomicUsize>,
}

/// A client of a worker, counted until it is dropped.
pub(crate) struct Load(Arc<AtomicUsize>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// One for each runtime.
    pub(crate) fn new(runtimes: impl IntoIterator<Item = Arc<dyn Runtime>>) -> Self {
        let worker = |runtime| Worker { runtime, clients: Arc::default() };
        Self(runtimes.into_iter().map(worker).collect())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Where the tasks of this worker run.
    pub(crate) fn runtime(&self, number: usize) -> &Arc<dyn Runtime> {
        &self.0[number].runtime
    }

    /// A client came to this worker. Which one is to have it.
    pub(crate) fn place(&self, here: usize) -> (usize, Load) {
        let clients = |number: usize| self.0[number].clients.load(Ordering::Relaxed);
        let least = (0..self.0.len()).min_by_key(|number| clients(*number)).unwrap_or(here);
        let chosen = if clients(here) > clients(least) + UNEVEN { least } else { here };
        let count = Arc::clone(&self.0[chosen].clients);
        count.fetch_add(1, Ordering::Relaxed);
        (chosen, Load(count))
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|worker| worker.clients.load(Ordering::Relaxed))).finish()
    }
}

#[cfg(test)]
mod tests {
    use forebay::rt::VirtualTime;

    use super::*;

    #[test]
    fn no_worker_has_many_more_than_another() {
        let time: Arc<dyn Runtime> = Arc::new(VirtualTime::new());
        let workers = Workers::new([0; 3].map(|_| Arc::clone(&time)));
        let mut placed: Vec<_> = (0..13).map(|_| workers.place(1)).collect();
        let counts = |workers: &Workers| format!("{workers:?}");
        assert_eq!(counts(&workers), "[3, 7, 3]");
        placed.retain(|(worker, _)| *worker != 0);
        assert_eq!(counts(&workers), "[0, 7, 3]");
        assert_eq!(workers.place(1).0, 0);
        assert_eq!(workers.place(2).0, 2, "few more are no reason");
    }
}
