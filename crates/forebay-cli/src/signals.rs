//! The signals that end a command early.

use std::io;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use forebay::rt::{Runtime, TokioRuntime};
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Complete,
    /// The user pressed a key.
    Quit,
    /// Ctrl-C.
    Interrupted,
    /// SIGTERM.
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

/// SIGINT, and SIGTERM where there is one.
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

impl Signals {
    /// Listens from now on: the signals no longer end the process by themselves. Must be called in tokio's
    /// context.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            interrupt: signal(SignalKind::interrupt())?,
            #[cfg(unix)]
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    /// Dropping it loses no signal: the next call returns it.
    pub(crate) async fn recv(&mut self) -> Ending {
        #[cfg(unix)]
        {
            std::future::poll_fn(|context| {
                if self.interrupt.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(Ending::Interrupted);
                }
                self.terminate.poll_recv(context).map(|_| Ending::Terminated)
            })
            .await
        }
        #[cfg(not(unix))]
        {
            // If it cannot listen, the signal ends the process by itself.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
            Ending::Interrupted
        }
    }
}

/// A flag that the first signal sets, for commands that look at it now and then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    ending: OnceLock<Ending>,
    /// Wakes up whoever waits for it.
    news: tokio::sync::Notify,
}

impl Requests {
    /// Listens from now on. Must be called in tokio's context.
    pub(crate) fn listen(runtime: &TokioRuntime) -> Self {
        let requests = Self::default();
        if let Ok(mut signals) = Signals::listen() {
            let this = requests.clone();
            runtime.spawn(Box::pin(async move {
                let _ = this.0.ending.set(signals.recv().await);
                this.0.news.notify_waiters();
                // After a second signal, the user does not want to wait for a clean end.
                std::process::exit(signals.recv().await.number());
            }));
        }
        requests
    }

    /// Whether to go on.
    pub(crate) fn go_on(&self) -> ControlFlow<()> {
        if self.asked().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The signal that came, if one did.
    pub(crate) fn asked(&self) -> Option<Ending> {
        self.0.ending.get().copied()
    }

    /// Waits for the first signal.
    ///
    /// # Cancel safety
    /// Dropping it loses no signal.
    #[cfg(feature = "schema")]
    pub(crate) async fn wait(&self) -> Ending {
        loop {
            let news = self.0.news.notified();
            if let Some(ending) = self.asked() {
                return ending;
            }
            news.await;
        }
    }
}
