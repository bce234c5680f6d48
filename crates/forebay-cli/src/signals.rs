//! How a command ends ahead of time, and who may ask for it.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use forebay::rt::{Runtime, TokioRuntime};

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was done.
    Complete,
    /// Its viewer had seen enough.
    Quit,
    /// Ctrl-C.
    Interrupted,
    /// The system, or whoever started it, asked it to end.
    Terminated,
}

impl Ending {
    /// In one word, for records.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Quit => "quit",
            Self::Interrupted => "interrupted",
            Self::Terminated => "terminated",
        }
    }

    /// The exit status: 128 and the number of the signal, if it was one.
    pub(crate) fn status(self) -> ExitCode {
        ExitCode::from(u8::try_from(self.number()).unwrap_or(1))
    }

    fn number(self) -> i32 {
        match self {
            Self::Complete | Self::Quit => 0,
            Self::Interrupted => 128 + 2,
            Self::Terminated => 128 + 15,
        }
    }
}

/// Requests from outside to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(Arc<OnceLock<Ending>>);

impl Requests {
    /// Listens for signals from now on. They no longer end the process by themselves. To be called within tokio's
    /// context, so that the very next signal is heard.
    pub(crate) fn listen(runtime: &TokioRuntime) -> Self {
        let requests = Self::default();
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            for (kind, ending) in [
                (SignalKind::interrupt(), Ending::Interrupted),
                (SignalKind::terminate(), Ending::Terminated),
            ] {
                if let Ok(mut signals) = signal(kind) {
                    let this = requests.clone();
                    runtime.spawn(Box::pin(async move {
                        signals.recv().await;
                        this.ask(ending);
                        // Whoever asks twice does not want to wait for a clean end.
                        signals.recv().await;
                        std::process::exit(ending.number());
                    }));
                }
            }
        }
        #[cfg(not(unix))]
        {
            let this = requests.clone();
            runtime.spawn(Box::pin(async move {
                if tokio::signal::ctrl_c().await.is_ok() {
                    this.ask(Ending::Interrupted);
                }
            }));
        }
        requests
    }

    fn ask(&self, ending: Ending) {
        // The first request counts.
        let _ = self.0.set(ending);
    }

    /// Whether to go on.
    pub(crate) fn go_on(&self) -> ControlFlow<()> {
        if self.asked().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// What was asked for, if anything was.
    pub(crate) fn asked(&self) -> Option<Ending> {
        self.0.get().copied()
    }
}
