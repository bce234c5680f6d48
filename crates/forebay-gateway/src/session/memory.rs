//! What a backend still has of the sessions that it served.

use std::sync::Arc;

use super::reported::ReportedNow;
use super::settings::Settings;

/// What a backend still has of the sessions that it served: settings in force, prepared statements, values reported.
///
/// It stays with the backend in the pool. The default is a backend as the server opened it.
#[derive(Debug, Default)]
pub struct Memory {
    pub(super) settings: Arc<Settings>,
    pub(super) statements: Vec<Box<[u8]>>,
    pub(super) unnamed: bool,
    /// None: as it was at the start.
    pub(super) reported: Option<ReportedNow>,
    pub(super) spoilt: bool,
}

impl Memory {
    /// Whether another session would notice what was done here, such as a change of the role. Never lend it again.
    #[must_use]
    pub const fn is_spoilt(&self) -> bool {
        self.spoilt
    }
}
