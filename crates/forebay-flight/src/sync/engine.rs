//! A thread with a runtime of its own, and waiting for what runs on it.
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

/// A private runtime. When it is dropped, its thread says good-bye to what is left and ends, without anybody waiting for it.
pub(crate) struct Engine {
    handle: Handle,
    runtime: Arc<dyn Runtime>,
    farewell: Mutex<Option<Task>>,
    stop: Mutex<Option<oneshot::Sender<Option<Task>>>>,
}

impl Engine {
    pub(crate) fn start() -> Result<Arc<Self>> {
        let failed = |error: std::io::Error| Error::config(format!("no thread for the connections: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<Option<Task>>();
        std::thread::Builder::new()
            .name("forebay-flight".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    if let Ok(Some(farewell)) = stopped.await {
                        farewell.await;
                    }
                });
                // A name that is being looked up cannot be interrupted, and is not waited for.
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok(Arc::new(Self {
            runtime: Arc::new(TokioRuntime::new(handle.clone())),
            handle,
            farewell: Mutex::new(None),
            stop: Mutex::new(Some(stop)),
        }))
    }

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime)
    }

    /// What the thread does last.
    pub(crate) fn at_end(&self, farewell: impl Future<Output = ()> + Send + 'static) {
        *self.farewell.lock() = Some(Box::pin(farewell));
    }

    /// Runs `task` on the thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(Box::pin(task));
    }

    /// Runs `future` on the caller's thread, which sleeps while there is nothing to do.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let _inside = self.handle.enter();
        let parker = Parked::here();
        let waker = Waker::from(Arc::clone(&parker.0));
        let mut context = Context::from_waker(&waker);
        // Without tokio's budget: inside a task of another runtime it would be that task's, used up and never renewed here.
        let mut future = pin!(tokio::task::unconstrained(future));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            parker.0.sleep();
        }
    }

    /// Runs `main` on a thread of its own, and `side` on the caller's, which `main` does not wait for.
    pub(crate) fn beside<T: Send>(
        &self,
        main: impl Future<Output = Result<T>> + Send,
        side: impl FnOnce(),
    ) -> Result<T> {
        // As if it ran here, to whoever listens.
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

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.lock().take() {
            // A thread that has ended already needs no good-bye.
            let _ = stop.send(self.farewell.lock().take());
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

/// Where a thread sleeps. Not `std::thread::park`, whose one token others may be waiting for.
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

/// This thread's parker, while it is in use: one who waits inside of another's wait gets its own.
struct Parked(Arc<Parker>);

impl Parked {
    fn here() -> Self {
        let parker = PARKER.with(Cell::take).unwrap_or_default();
        // A wake-up of a former wait may have come late.
        *parker.is_awake.lock() = false;
        Self(parker)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let parker = Arc::clone(&self.0);
        // Not at the end of the thread, when there is no place for it any more.
        let _ = PARKER.try_with(|place| place.set(Some(parker)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn nap(engine: &Engine) -> u32 {
        let runtime = engine.runtime();
        runtime.sleep_until(runtime.now() + Duration::from_millis(1)).await;
        7
    }

    #[test]
    fn it_waits_outside_a_runtime_and_inside_of_any() {
        let engine = Engine::start().unwrap();
        assert_eq!(engine.block_on(nap(&engine)), 7);
        let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(single.block_on(async { engine.block_on(nap(&engine)) }), 7);
        assert_eq!(
            engine.block_on(async { engine.block_on(nap(&engine)) + nap(&engine).await }),
            14,
            "nested"
        );
    }

    #[test]
    fn a_task_without_budget_does_not_spin() {
        let engine = Engine::start().unwrap();
        let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
        single.block_on(async {
            let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
            // More than a task may take in one go.
            (0..1_000).for_each(|number| send.send(number).unwrap());
            for _ in 0..1_000 {
                assert!(engine.block_on(receive.recv()).is_some());
            }
        });
    }

    #[test]
    fn its_thread_says_good_bye_and_ends() {
        let engine = Engine::start().unwrap();
        let (said, heard) = std::sync::mpsc::channel();
        engine.at_end(async move { said.send(std::thread::current().name().map(str::to_owned)).unwrap() });
        drop(engine);
        assert_eq!(heard.recv().unwrap().as_deref(), Some("forebay-flight"));
        assert!(heard.recv().is_err(), "the thread has dropped its end");
    }
}
