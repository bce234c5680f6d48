//! A thread with its own runtime, and waiting for what runs on it.
#![allow(clippy::disallowed_methods, reason = "the one place where threads are started")]

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use forebay::rt::{Runtime, Task, TokioRuntime};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::error::{Error, Result};

/// A private runtime. When it is dropped, its thread runs a last task and ends in the background.
pub(crate) struct RuntimeThread {
    handle: Handle,
    runtime: Arc<dyn Runtime>,
    last_task: Mutex<Option<Task>>,
    stop: Mutex<Option<oneshot::Sender<Option<Task>>>>,
}

impl RuntimeThread {
    pub(crate) fn start() -> Result<Arc<Self>> {
        let failed = |error: std::io::Error| Error::config(format!("no thread for the connections: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<Option<Task>>();
        std::thread::Builder::new()
            .name("forebay-flight".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    if let Ok(Some(last_task)) = stopped.await {
                        last_task.await;
                    }
                });
                // A name lookup cannot be interrupted. It is not waited for.
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok(Arc::new(Self {
            runtime: Arc::new(TokioRuntime::new(handle.clone())),
            handle,
            last_task: Mutex::new(None),
            stop: Mutex::new(Some(stop)),
        }))
    }

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime)
    }

    /// Sets the task that the thread runs before it ends.
    pub(crate) fn run_last(&self, task: impl Future<Output = ()> + Send + 'static) {
        *self.last_task.lock() = Some(Box::pin(task));
    }

    /// Runs `task` on the thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(Box::pin(task));
    }

    /// Runs `future` on the caller's thread, which sleeps while the future is pending.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let _context = self.handle.enter();
        let parker = Parked::here();
        let waker = Waker::from(Arc::clone(&parker.0));
        let mut context = Context::from_waker(&waker);
        // Without tokio's budget. Inside a task of another runtime it would be that task's, which is never
        // renewed here.
        let mut future = pin!(tokio::task::unconstrained(future));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            parker.0.sleep();
        }
    }

    /// Runs `main` on its own thread, and `side` on the caller's. `main` does not wait for `side`.
    pub(crate) fn run_beside<T: Send>(
        &self,
        main: impl Future<Output = Result<T>> + Send,
        side: impl FnOnce(),
    ) -> Result<T> {
        // Its spans and events belong to the caller's.
        let main = main.in_current_span().with_current_subscriber();
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("forebay-flight-ingest".to_owned());
            let main = thread
                .spawn_scoped(scope, || self.block_on(main))
                .map_err(|error| Error::config(format!("no thread for the ingest: {error}")))?;
            side();
            main.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.lock().take() {
            // Fails if the thread has ended already.
            let _ = stop.send(self.last_task.lock().take());
        }
    }
}

impl fmt::Debug for RuntimeThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuntimeThread")
    }
}

/// Where a thread sleeps. Not `std::thread::park`, whose single token other code of the thread may use.
#[derive(Default)]
struct Parker {
    is_awake: Mutex<bool>,
    woken: Condvar,
}

impl Parker {
    fn sleep(&self) {
        let mut is_awake = self.is_awake.lock();
        while !*is_awake {
            self.woken.wait(&mut is_awake);
        }
        *is_awake = false;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.is_awake.lock() = true;
        self.woken.notify_one();
    }
}

thread_local! {
    static PARKER: Cell<Option<Arc<Parker>>> = const { Cell::new(None) };
}

/// This thread's parker while it is in use. A wait inside another wait gets its own.
struct Parked(Arc<Parker>);

impl Parked {
    fn here() -> Self {
        let parker = PARKER.with(Cell::take).unwrap_or_default();
        // A late wake-up of an earlier wait.
        *parker.is_awake.lock() = false;
        Self(parker)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let parker = Arc::clone(&self.0);
        // Fails at the end of the thread, when its local storage is gone.
        let _ = PARKER.try_with(|place| place.set(Some(parker)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn nap(thread: &RuntimeThread) -> u32 {
        let runtime = thread.runtime();
        runtime.sleep_until(runtime.now() + Duration::from_millis(1)).await;
        7
    }

    #[test]
    fn it_waits_outside_a_runtime_and_inside_any() {
        let thread = RuntimeThread::start().unwrap();
        assert_eq!(thread.block_on(nap(&thread)), 7);
        let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(single.block_on(async { thread.block_on(nap(&thread)) }), 7);
        assert_eq!(
            thread.block_on(async { thread.block_on(nap(&thread)) + nap(&thread).await }),
            14,
            "nested"
        );
    }

    #[test]
    fn a_task_without_budget_does_not_spin() {
        let thread = RuntimeThread::start().unwrap();
        let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
        single.block_on(async {
            let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
            // More than a task may take in one go.
            (0..1_000).for_each(|number| send.send(number).unwrap());
            for _ in 0..1_000 {
                assert!(thread.block_on(receive.recv()).is_some());
            }
        });
    }

    #[test]
    fn its_thread_runs_the_last_task_and_ends() {
        let thread = RuntimeThread::start().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        thread
            .run_last(async move { sender.send(std::thread::current().name().map(str::to_owned)).unwrap() });
        drop(thread);
        assert_eq!(receiver.recv().unwrap().as_deref(), Some("forebay-flight"));
        assert!(receiver.recv().is_err(), "the thread has dropped its end");
    }
}
