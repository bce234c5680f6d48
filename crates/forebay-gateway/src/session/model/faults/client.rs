//! A client, its session, and what it makes of it.

use std::collections::BTreeSet;

use crate::session::model::judge::{Judge, split};
use crate::session::model::own_change::OwnChange;
use crate::session::model::server::ModelServer;
use crate::session::{Outbox, Reported, SessionLimits, StartSettings, TransactionStatus, VirtualSession};

pub(super) struct Client {
    pub(super) session: VirtualSession,
    pub(super) backend: Option<ModelServer>,
    pub(super) own_change: OwnChange,
    /// What it has just sent meets a change of its own.
    pub(super) meets: bool,
    pub(super) judge: Judge,
    /// Half a frame that it sees.
    pub(super) half: Vec<u8>,
    /// On their way to the backend and from it.
    pub(super) to_server: Vec<u8>,
    pub(super) to_session: Vec<u8>,
    /// Values that it inserts.
    pub(super) own: BTreeSet<String>,
    /// It did something that is not known to the gateway, so a fault may end its session.
    pub(super) unsure: bool,
    /// The gateway drains: it is dismissed as soon as it is idle. Another process takes the client that comes next.
    pub(super) leaving: bool,
}

impl Client {
    pub(super) fn new(start: &[(&str, &str)], reported: &Reported) -> Self {
        let settings = StartSettings::new(start.iter().copied());
        let mut session = VirtualSession::new(settings, SessionLimits::default());
        let mut out = Outbox::default();
        session.greet(reported, [7; 8], &mut out);
        let mut judge = Judge::new(start);
        for frame in split(&out.to_client).into_iter().filter(|frame| frame[0] == b'S') {
            judge.sees(&frame).expect("a greeting");
        }
        Self {
            session,
            backend: None,
            own_change: OwnChange::default(),
            meets: false,
            judge,
            half: Vec::new(),
            to_server: Vec::new(),
            to_session: Vec::new(),
            own: BTreeSet::new(),
            unsure: false,
            leaving: false,
        }
    }

    pub(super) fn take(&mut self, out: Outbox) -> Result<(), String> {
        if self.backend.is_some() {
            self.to_server.extend(out.to_server);
        }
        self.half.extend(out.to_client);
        let frames = split(&self.half);
        if frames.is_empty() {
            return Ok(());
        }
        for frame in frames {
            self.half.drain(..frame.len());
            self.judge.sees(&frame)?;
        }
        self.judge.follow().map_err(|why| format!("{why}; {:?}", self.session))
    }

    pub(super) fn take_backend(&mut self) -> Option<ModelServer> {
        let backend = self.backend.take()?;
        self.own_change.left(&backend);
        Some(backend)
    }

    pub(super) fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Nothing is under way, and it is in no transaction.
    pub(super) fn is_quiet(&self) -> bool {
        let idle = !self.session.is_attached() || self.session.is_idle();
        idle && !self.session.wants_backend()
            && !self.is_over()
            && self.session.transaction() == TransactionStatus::Idle
            && self.to_server.is_empty()
            && self.to_session.is_empty()
    }

    /// Whether nothing is lost if it is dismissed now.
    pub(super) fn may_leave(&self) -> bool {
        self.session.is_idle()
            && !self.session.is_in_frame()
            && self.to_server.is_empty()
            && self.half.is_empty()
    }

    /// Whether a fault may end its session.
    pub(super) fn may_end(&self) -> bool {
        self.unsure || !self.half.is_empty()
    }
}
