//! Why a pool does not start: the first connection tells.

use forebay::Event;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::Error;

/// Why the first open failed.
#[derive(Default)]
pub(crate) struct FirstFailure {
    error: Mutex<Option<Error>>,
    told: Notify,
}

impl FirstFailure {
    pub(crate) fn note(&self, event: &Event<'_>) {
        if let Event::OpenFailed { error, .. } = event {
            let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Error>());
            let cause = cause
                .cloned()
                .unwrap_or_else(|| Error::Transport { message: error.to_string(), may_have_run: false });
            self.error.lock().get_or_insert(cause);
            self.told.notify_waiters();
        }
    }

    /// Done once an open has failed. Cancel safe.
    pub(crate) async fn told(&self) -> Error {
        loop {
            let mut told = std::pin::pin!(self.told.notified());
            // Asked to be told before looking, so that nothing falls in between.
            told.as_mut().enable();
            if let Some(error) = self.error.lock().take() {
                return error;
            }
            told.await;
        }
    }
}
