//! Keeps the sessions concurrent: on a busy machine one could end before the next begins.

use std::pin::pin;
use std::sync::Mutex;

use tokio::sync::Notify;

/// How many transactions a session may be ahead.
const LEAD: u32 = 2;

/// The progress of each session.
pub(super) struct Pace {
    done: Mutex<Vec<u32>>,
    moved: Notify,
}

impl Pace {
    pub(super) fn of(sessions: usize) -> Self {
        Self { done: Mutex::new(vec![0; sessions]), moved: Notify::new() }
    }

    pub(super) fn done(&self, session: usize, number: u32) {
        self.done.lock().unwrap()[session] = number;
        self.moved.notify_waiters();
    }

    /// Waits until the session is not too far ahead.
    pub(super) async fn keep(&self, session: usize) {
        loop {
            let mut moved = pin!(self.moved.notified());
            moved.as_mut().enable();
            let ahead = {
                let done = self.done.lock().unwrap();
                done[session] - done.iter().min().unwrap()
            };
            if ahead <= LEAD {
                return;
            }
            moved.await;
        }
    }
}
