//! What has happened so far.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What happened, at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Each with its name, for programs that print them.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }

        /// The counts as they are kept.
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
    /// Connections that are open now.
    connections_open,
    /// Connections accepted so far.
    connections_ever,
    /// Sessions there are now, lingering ones included.
    sessions_open,
    /// Of these, sessions without a connection.
    sessions_lingering,
    /// Sessions made so far.
    sessions_ever,
    /// Statements that got their session's lock so far.
    statements_started,
    /// Statements that are at it now: computing, asleep, or held back by their consumer.
    statements_running,
    /// Statements that came to their own end, be it an error.
    statements_finished,
    /// Statements that were ended by somebody else.
    statements_interrupted,
    /// What SQLite has done: virtual-machine steps by the hundred, rows, and naps of `sleep_ms`. Stands still when
    /// nothing is computed: the evidence that an interrupted statement has stopped.
    steps,
    /// Batches handed to the transport.
    batches_sent,
    /// Rows taken in by ingestion.
    rows_ingested,
    /// Logins by handshake.
    handshakes,
    /// Calls and connections turned away: without a right, over the session limit, or by a fault.
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

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// So many more.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// A statement at work: what it is counted as while it is, and afterwards.
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

    /// It came to its own end.
    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }
}

/// What has not finished was interrupted, be it because nobody polls it any more.
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
    fn a_statement_is_counted_while_it_is_at_work_and_by_how_it_ended() {
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
