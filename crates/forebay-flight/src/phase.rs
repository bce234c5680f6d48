//! How far a statement had come.

use std::fmt;
use std::sync::Arc;

use forebay::OpenError;

/// What a statement was doing when its time was up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Phase {
    /// It had no connection yet: nothing was sent.
    Acquire {
        /// Why the last attempt to connect failed, if none has succeeded since. None: all connections were in use.
        cause: Option<Arc<OpenError>>,
    },
    /// The server was at work on it.
    Execute,
    /// Its result was being read.
    Fetch,
}

impl Phase {
    /// Waiting for a connection, as far as is known for no other reason than that others have them.
    pub(crate) const ACQUIRE: Self = Self::Acquire { cause: None };

    pub(crate) fn is_acquire(&self) -> bool {
        matches!(self, Self::Acquire { .. })
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquire { .. } => "waiting for a connection",
            Self::Execute => "waiting for the server",
            Self::Fetch => "reading the result",
        })
    }
}
