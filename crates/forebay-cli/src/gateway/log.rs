//! The log of a gateway, on stderr.
//!
//! A thread of its own writes it. Clients can cause lines before they have logged in: if those that are to read them stop, or the disk is
//! full, lines are dropped, and the gateway goes on.

use std::io;

use anyhow::Context as _;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How many lines may wait to be written.
const LINES: usize = 8_192;

/// The log, until it is dropped.
pub(super) struct Log {
    dropped: ErrorCounter,
    told: usize,
    _writer: WorkerGuard,
}

impl Log {
    /// Begins to write lines of the levels that `RUST_LOG` names.
    pub(super) fn start() -> anyhow::Result<Self> {
        let levels = match std::env::var("RUST_LOG") {
            Ok(levels) if !levels.is_empty() => levels.parse::<Targets>().with_context(|| {
                format!("RUST_LOG is {levels:?}, but must be a level, or a list such as info,forebay=debug")
            })?,
            _ => Targets::new().with_default(LevelFilter::INFO),
        };
        let (writer, guard) = NonBlockingBuilder::default()
            .buffered_lines_limit(LINES)
            .thread_name("forebay-log")
            .finish(io::stderr());
        let dropped = writer.error_counter();
        let lines = tracing_subscriber::fmt::layer().with_writer(writer).log_internal_errors(false);
        tracing_subscriber::registry().with(lines).with(levels).init();
        Ok(Self { dropped, told: 0, _writer: guard })
    }

    /// Says how many lines were dropped, if some were.
    pub(super) fn tell_of_dropped(&mut self) {
        let dropped = self.dropped.dropped_lines();
        if dropped > self.told {
            tracing::warn!(
                lines = dropped - self.told,
                "lines of the log were dropped: nobody read them in time"
            );
            self.told = dropped;
        }
    }
}
