//! Counters.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters, at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// All counters with their names.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct Tally {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Tally {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Open connections.
    connections_open,
    /// Connections accepted since the start.
    connections_ever,
    /// Sessions, including lingering ones.
    sessions_open,
    /// Sessions without a connection.
    sessions_lingering,
    /// Sessions created since the start.
    sessions_ever,
    /// Statements that have got their session's lock.
    statements_started,
    /// Statements that run now, including those that sleep or wait for their client.
    statements_running,
    /// Statements that ended by themselves, with or without an error.
    statements_finished,
    /// Statements that were cancelled or abandoned.
    statements_interrupted,
    /// The work of SQLite: virtual-machine steps in hundreds, rows, and sleep intervals of `sleep_ms`. If it
    /// does not grow, nothing is computed: an interrupted statement has really stopped.
    steps,
    /// Batches sent.
    batches_sent,
    /// Rows ingested.
    rows_ingested,
    /// Handshakes.
    handshakes,
    /// Calls and connections that were refused: by authentication, the session limit or a fault.
    refused,
    /// `CloseSession` actions.
    close_session,
    /// `SetSessionOptions` actions.
    set_session_options,
    /// `GetSessionOptions` actions.
    get_session_options,
    /// `CancelFlightInfo` actions.
    cancel_flight_info,
    /// `CancelQuery` actions.
    cancel_query,
    /// `PollFlightInfo` calls.
    poll_flight_info,
    /// `BeginTransaction` actions.
    begin_transaction,
    /// `EndTransaction` actions.
    end_transaction,
    /// `CreatePreparedStatement` actions.
    create_prepared_statement,
    /// `ClosePreparedStatement` actions.
    close_prepared_statement,
}

pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// Counts a statement while it runs, and by how it ends.
#[derive(Debug)]
pub(crate) struct RunningStatement<'a> {
    tally: &'a Tally,
    finished: bool,
}

impl<'a> RunningStatement<'a> {
    pub(crate) fn begin(tally: &'a Tally) -> Self {
        count(&tally.statements_started);
        count(&tally.statements_running);
        Self { tally, finished: false }
    }

    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }
}

/// A statement that has not finished was interrupted, even if its task was dropped.
impl Drop for RunningStatement<'_> {
    fn drop(&mut self) {
        let tally = self.tally;
        count(if self.finished { &tally.statements_finished } else { &tally.statements_interrupted });
        tally.statements_running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_counted_while_it_runs_and_by_how_it_ended() {
        let tally = Tally::default();
        {
            let mut one = RunningStatement::begin(&tally);
            let _two = RunningStatement::begin(&tally);
            one.finish();
            assert_eq!((tally.read().statements_running, tally.read().statements_started), (2, 2));
        }
        let ended = tally.read();
        assert_eq!((ended.statements_finished, ended.statements_interrupted), (1, 1));
        assert_eq!(ended.statements_running, 0);
        assert!(ended.named().contains(&("statements_started", 2)));
    }
}
