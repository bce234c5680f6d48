//! What all parts of a server share.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;

use crate::auth::Gate;
use crate::config::Config;
use crate::counters::{Counters, Tally};
use crate::database::Database;
use crate::door::Reboot;
use crate::error::StartError;
use crate::faults::Faults;
use crate::sessions::Sessions;
use crate::wire::Lines;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) tally: Arc<Tally>,
    pub(crate) faults: Faults,
    pub(crate) gate: Gate,
    pub(crate) database: Database,
    pub(crate) lines: Lines,
    pub(crate) sessions: Sessions,
    /// Where the other listeners are.
    pub(crate) locations: OnceLock<Vec<String>>,
    /// The runtime: a connection may end where there is no other way to it.
    pub(crate) runtime: Handle,
    /// To whoever keeps the doors.
    pub(crate) reboots: UnboundedSender<Reboot>,
    log: Mutex<Vec<String>>,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        runtime: Handle,
        reboots: UnboundedSender<Reboot>,
    ) -> Result<Self, StartError> {
        Ok(Self {
            tally: Arc::default(),
            faults: Faults::default(),
            gate: Gate::new(config.auth.clone())?,
            database: Database::open(config.database.clone())?,
            lines: Lines::default(),
            sessions: Sessions::new()?,
            locations: OnceLock::new(),
            runtime,
            reboots,
            log: Mutex::default(),
            config,
        })
    }

    pub(crate) fn counters(&self) -> Counters {
        let (open, lingering) = self.sessions.number();
        Counters {
            connections_open: self.lines.open() as u64,
            sessions_open: open as u64,
            sessions_lingering: lingering as u64,
            ..self.tally.read()
        }
    }

    /// Keeps the text of a statement, if that is wanted.
    pub(crate) fn log(&self, text: &str) {
        if self.config.log_statements {
            self.log.lock().push(text.to_owned());
        }
    }

    pub(crate) fn logged(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}
