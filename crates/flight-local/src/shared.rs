//! The state that all parts of a server share.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;

use crate::auth::Authenticator;
use crate::client::Clients;
use crate::config::Config;
use crate::counters::{Counters, Tally};
use crate::database::Database;
use crate::error::StartError;
use crate::faults::Faults;
use crate::listener::Reboot;
use crate::sessions::Sessions;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) tally: Arc<Tally>,
    pub(crate) faults: Faults,
    pub(crate) authenticator: Authenticator,
    pub(crate) database: Database,
    pub(crate) clients: Clients,
    pub(crate) sessions: Sessions,
    /// The URLs of the additional listeners.
    pub(crate) locations: OnceLock<Vec<String>>,
    /// The server's runtime. A connection may be dropped outside of it.
    pub(crate) runtime: Handle,
    /// Requests to reboot, for the task that owns the listeners.
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
            authenticator: Authenticator::new(config.auth.clone())?,
            database: Database::open(config.database.clone())?,
            clients: Clients::default(),
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
            connections_open: self.clients.open() as u64,
            sessions_open: open as u64,
            sessions_lingering: lingering as u64,
            ..self.tally.read()
        }
    }

    pub(crate) fn log(&self, text: &str) {
        if self.config.log_statements {
            self.log.lock().push(text.to_owned());
        }
    }

    pub(crate) fn logged(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}
