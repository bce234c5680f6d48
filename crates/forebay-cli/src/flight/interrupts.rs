//! Ctrl-C.

use std::sync::Arc;

use forebay::rt::{Runtime, TokioRuntime};
use forebay_flight::CancelHandle;
use parking_lot::Mutex;

/// The exit status after SIGINT: 128 and the number of the signal.
pub(crate) const INTERRUPTED: u8 = 128 + 2;

/// Ctrl-C cancels the statement that runs. At a prompt it is a key and not a signal. In a script it ends the
/// process if no statement runs, or if the statement was already cancelled.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    running: Option<CancelHandle>,
    is_interactive: bool,
}

impl Interrupts {
    /// Listens from now on. Must be called in tokio's context.
    pub(crate) fn listen(runtime: &TokioRuntime, is_interactive: bool) -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let this = Self(Arc::new(Mutex::new(State { running: None, is_interactive })));
        let (mut signals, listener) = (signal(SignalKind::interrupt())?, this.clone());
        runtime.spawn(Box::pin(async move {
            while signals.recv().await.is_some() {
                if !listener.interrupt() {
                    std::process::exit(INTERRUPTED.into());
                }
            }
        }));
        Ok(this)
    }

    /// Returns whether the shell goes on.
    fn interrupt(&self) -> bool {
        let state = self.0.lock();
        match &state.running {
            Some(running) if !running.is_cancelled() => {
                running.cancel();
                true
            }
            _ => state.is_interactive,
        }
    }

    /// Ctrl-C cancels `handle` as long as the guard lives.
    pub(crate) fn cancel(&self, handle: &CancelHandle) -> Running {
        self.0.lock().running = Some(handle.clone());
        Running(self.clone())
    }
}

/// A guard: something runs that Ctrl-C cancels.
#[derive(Debug)]
pub(crate) struct Running(Interrupts);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.lock().running = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_cancels_the_statement_and_then_ends_a_script() {
        for is_interactive in [true, false] {
            let interrupts = Interrupts(Arc::new(Mutex::new(State { running: None, is_interactive })));
            let handle = CancelHandle::new();
            let running = interrupts.cancel(&handle);
            assert!(interrupts.interrupt() && handle.is_cancelled());
            assert_eq!(interrupts.interrupt(), is_interactive, "the second");
            drop(running);
            assert_eq!(interrupts.interrupt(), is_interactive, "at rest");
        }
    }
}
