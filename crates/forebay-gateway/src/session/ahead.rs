//! While a client is idle, its next backend gets the statements that it has prepared: then its next statement need not wait for them.
//!
//! Each statement is a segment of the gateway's own, with its Sync. The client's frames wait until all are answered. What fails here, nobody
//! has asked for: it is prepared again when the client uses it, and fails then, in the server's words.

use std::cmp::Reverse;
use std::sync::Arc;

use super::requests::Request;
use super::statements::Statement;
use super::{Hold, Outbox, VirtualSession};
use crate::protocol::{client, write};

/// A client that goes on meanwhile waits for these, so they are few.
const MOST: usize = 32;

impl VirtualSession {
    /// Prepares on its new backend what the client has prepared. Call it behind [`attach`](Self::attach), if the client is idle.
    pub fn prepare_ahead(&mut self, out: &mut Outbox) {
        if !self.held.is_empty() || self.over {
            return;
        }
        let Some(backend) = &mut self.backend else { return };
        if self.requests.iter().any(|request| matches!(request, Request::OurRestore(_))) {
            // What a text means may depend on settings.
            backend.ahead = true;
            return;
        }
        backend.ahead = false;
        let mut lacking: Vec<(u64, Arc<Statement>)> = self.statements.lacking().collect();
        lacking.sort_by_key(|(since, _)| Reverse(*since));
        lacking.truncate(MOST);
        for (_, statement) in lacking {
            self.agree(&statement.name, out);
            if self.statements.get(&statement.name).unverified {
                write::describe_statement(&mut out.to_server, &statement.name);
                self.requests.push(Request::OurDescribe(statement));
            }
            write::bare(&mut out.to_server, client::SYNC);
            self.requests.push(Request::OurSync);
            self.hold = Hold::All;
        }
    }

    /// The settings are as the session needs them.
    pub(super) fn go_ahead(&mut self, out: &mut Outbox) {
        if self.backend.as_ref().is_some_and(|backend| backend.ahead) {
            self.prepare_ahead(out);
        }
    }
}
