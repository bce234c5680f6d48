//! The options of one statement.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
#[cfg(any(feature = "lz4", feature = "zstd"))]
use arrow_ipc::{CompressionType, writer::IpcWriteOptions};

use super::cancel_handle::CancelHandle;

/// Options of one statement. The pool's configuration applies where nothing is set.
///
/// ```
/// use forebay_flight::QueryOptions;
///
/// let options = QueryOptions::new().with_timeout_ms(2_000).with_retry(false);
/// ```
#[derive(Clone, Debug, Default)]
pub struct QueryOptions {
    pub(crate) params: Option<RecordBatch>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<bool>,
    pub(crate) cancel: Option<CancelHandle>,
    pub(crate) progress: Option<Progress>,
    #[cfg(any(feature = "lz4", feature = "zstd"))]
    compression: Option<Compression>,
}

/// How to compress the batches that are sent.
#[cfg(any(feature = "lz4", feature = "zstd"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// LZ4 frames: fast.
    #[cfg(feature = "lz4")]
    Lz4,
    /// Zstandard: smaller.
    #[cfg(feature = "zstd")]
    Zstd,
}

/// Called with the progress of a statement.
#[derive(Clone)]
pub(crate) struct Progress(Arc<dyn Fn(f64) + Send + Sync>);

impl Progress {
    pub(crate) fn report(&self, done: f64) {
        if !done.is_nan() {
            (self.0)(done.clamp(0.0, 1.0));
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

impl QueryOptions {
    /// No options: the pool's configuration applies.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs the statement with these parameters: a query once, an update once for each row. The columns are
    /// the parameters, in order.
    ///
    /// The statement is prepared, run and closed.
    #[must_use]
    pub fn with_params(mut self, params: RecordBatch) -> Self {
        self.params = Some(params);
        self
    }

    /// Compresses the batches that are sent: the parameters, and the batches of an ingest. The server must
    /// support it.
    #[cfg(any(feature = "lz4", feature = "zstd"))]
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// An encoder of the batches that are sent.
    pub(super) fn encoder(&self) -> FlightDataEncoderBuilder {
        let encoder = FlightDataEncoderBuilder::new();
        #[cfg(any(feature = "lz4", feature = "zstd"))]
        if let Some(compression) = self.compression {
            let kind = match compression {
                #[cfg(feature = "lz4")]
                Compression::Lz4 => CompressionType::LZ4_FRAME,
                #[cfg(feature = "zstd")]
                Compression::Zstd => CompressionType::ZSTD,
            };
            let options = IpcWriteOptions::default().try_with_compression(Some(kind));
            return encoder.with_options(options.expect("the default format supports compression"));
        }
        encoder
    }

    /// One deadline for everything: waiting for a connection, executing, and reading the result to its end.
    /// The server gets it too.
    #[must_use]
    pub fn with_timeout_ms(self, timeout_ms: u64) -> Self {
        self.with_timeout(Duration::from_millis(timeout_ms))
    }

    /// As [`with_timeout_ms`](Self::with_timeout_ms).
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Whether a read-only statement may run a second time, on another connection, if the first fails before
    /// it has returned anything.
    #[must_use]
    pub fn with_retry(mut self, retry: bool) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Lets this handle cancel it.
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancelHandle) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Calls `progress` with how far a query is, from 0 to 1, if the server supports `PollFlightInfo`. This
    /// takes an additional call or more. `progress` must not block.
    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(f64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Progress(Arc::new(progress)));
        self
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn progress_is_from_0_to_1() {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reported);
        let options = QueryOptions::new().with_progress(move |done| sink.lock().push(done));
        for done in [0.5, f64::NAN, -1.0, f64::INFINITY] {
            options.progress.as_ref().unwrap().report(done);
        }
        assert_eq!(*reported.lock(), [0.5, 0.0, 1.0]);
    }
}
