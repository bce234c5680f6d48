//! One statement: its options, how it runs, its result, and how it is stopped.

pub(crate) mod cancellation;
pub(crate) mod fetch;
pub(crate) mod limits;
pub(crate) mod options;
pub(crate) mod prepared;
pub(crate) mod stream;
pub(crate) mod undoable_action;
pub(crate) mod update;

mod cancel_handle;
mod ingest;
mod result;

pub use cancel_handle::CancelHandle;
pub use ingest::{Ingest, IngestProgress};
#[cfg(any(feature = "lz4", feature = "zstd"))]
pub use options::Compression;
pub use options::QueryOptions;
pub use prepared::AsyncPreparedQuery;
pub use result::{QueryResult, UpdateResult};
pub use stream::QueryStream;
