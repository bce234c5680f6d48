//! Reads the frames of a PostgreSQL connection as they pass, so that its state is known without asking the server.
//!
//! Drivers do not expose whether a transaction is open, a request unanswered or a setting changed. A [`TrackedStream`] sits
//! between driver and TLS, reads the frames in both directions, and keeps a [`StateTracker`] up to date. It copies no frame,
//! buffers nothing and allocates nothing.
//!
//! It also ends requests that are not answered before their deadline. Then the driver gets what the server would have sent had it
//! cancelled them, and the real answers are dropped when they come. Driver and server stay in step, and the connection lives.

mod deadline;
mod driver_task;
mod failure;
mod frames;
#[cfg(test)]
mod give_up_tests;
mod protocol_state;
#[cfg(test)]
mod stalls;
mod stand_in;
mod state_tracker;
#[cfg(test)]
mod tests;
mod tracked_stream;
mod verb;

pub(crate) use driver_task::{AbortOnDrop, DriverTask};
pub use state_tracker::StateTracker;
pub(crate) use tracked_stream::TrackedStream;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// As good as new.
    Clean,
    /// A request is unanswered, such as that of a dropped future. Its effect on the connection is not known yet.
    Unanswered,
    /// In a transaction, open or failed.
    InTransaction,
    /// Settings were changed.
    Altered,
    /// Useless: closed, failed, or ended by the server.
    Broken,
}

impl ConnectionState {
    /// Fails if more was left behind than changed settings.
    pub(crate) fn is_settled(self) -> Result<(), &'static str> {
        match self {
            Self::Clean | Self::Altered => Ok(()),
            Self::InTransaction => Err("it left a transaction open"),
            Self::Unanswered => Err("it left a statement unanswered"),
            Self::Broken => Err("the connection is closed"),
        }
    }
}
