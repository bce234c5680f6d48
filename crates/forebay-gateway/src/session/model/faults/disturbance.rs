//! What is done to a session while its client plays.

use super::Run;
use super::client::Client;
use crate::protocol::{ServerError, write};
use crate::session::model::Backend;
use crate::session::{Cancelled, Detach, Lost, Outbox, VirtualSession};

impl Run {
    /// The connection to the backend ends, in both directions, with some of what is under way. The transaction there is rolled back.
    fn drop_backend(&mut self, client: &mut Client) {
        let Some(mut model) = client.take_backend() else { return };
        let count = self.below(client.to_server.len() + 1);
        model.feed(&client.to_server[..count], &self.world);
        client.to_server.clear();
        client.to_session.clear();
        self.retire(model);
    }

    fn lose(&mut self, client: &mut Client) -> Result<(), String> {
        let Some(mut model) = client.take_backend() else { return Ok(()) };
        let count = self.below(client.to_server.len() + 1);
        client.to_session.extend(model.feed(&client.to_server[..count], &self.world));
        client.to_server.clear();
        let fatal = self.rng.below(4) == 0;
        if fatal {
            // It says why, behind all else.
            self.counts.fatal += 1;
            let error = ServerError::fatal("57P01", "terminating connection due to administrator command");
            write::error(&mut client.to_session, &error);
        }
        self.retire(model);
        self.counts.cuts += 1;
        client.judge.disturbed = true;
        let count = if fatal { client.to_session.len() } else { self.below(client.to_session.len() + 1) };
        let bytes: Vec<u8> = client.to_session.drain(..).take(count).collect();
        let mut out = Outbox::default();
        let result = client.session.from_server(&bytes, &mut out);
        out.to_server.clear();
        client.take(out)?;
        result.map_err(|garbage| format!("{garbage}: {} {:?}", bytes.escape_ascii(), client.session))?;
        // The last answers may have ended it, such as a conflict too many.
        let was_over = client.is_over();
        let mut out = Outbox::default();
        let lost = client.session.lost(&mut out);
        client.take(out)?;
        let may_be_over = was_over || client.may_end();
        if client.is_over() != (lost == Lost::Ended) || client.is_over() && !may_be_over {
            return Err(format!("{lost:?}: {:?}", client.session));
        }
        Ok(())
    }

    /// As the relay does, `how` it is done.
    pub(super) fn give_up(
        &mut self,
        client: &mut Client,
        how: impl FnOnce(&mut VirtualSession, &mut Outbox) -> Cancelled,
    ) -> Result<(), String> {
        let mut out = Outbox::default();
        client.judge.disturbed = true;
        let had = client.session.is_attached();
        match how(&mut client.session, &mut out) {
            Cancelled::NothingRunning => self.counts.nothing_running += 1,
            Cancelled::Soon => self.counts.half_sent += 1,
            cancelled @ (Cancelled::DropBackend | Cancelled::Ended) => {
                self.counts.cancels += 1;
                let over = cancelled == Cancelled::Ended;
                if client.session.is_attached() || client.is_over() != over || over && !client.may_end() {
                    return Err(format!("{cancelled:?}: {:?}", client.session));
                }
                if had {
                    self.drop_backend(client);
                }
            }
        }
        client.take(out)
    }

    /// As the relay does when the gateway drains.
    pub(super) fn dismiss(&mut self, client: &mut Client) -> Result<(), String> {
        self.counts.dismissed += 1;
        let mut out = Outbox::default();
        let error = ServerError::fatal("57P01", "terminating connection due to administrator command");
        client.session.terminate(&error, &mut out);
        client.take(out)
    }

    /// In one turn of the relay of a session that is to leave, in any order: the backend is cut, the statement is cancelled, and the
    /// client hangs up.
    pub(super) fn all_at_once(&mut self, client: &mut Client) -> Result<(), String> {
        self.counts.all_at_once += 1;
        let mut left = vec![Self::lose, Self::cancel, Self::say_goodbye];
        while !left.is_empty() {
            let next = self.below(left.len());
            left.swap_remove(next)(self, client)?;
        }
        self.replace(client, true)
    }

    fn cancel(&mut self, client: &mut Client) -> Result<(), String> {
        if self.rng.below(2) == 0 {
            return self.give_up(client, VirtualSession::cancel);
        }
        let late = ServerError::error("57014", "canceling statement due to statement timeout");
        self.give_up(client, |session, out| session.give_up(&late, out))
    }

    /// Clients do so before they close the connection, or they do not. In the middle of a frame they cannot.
    fn say_goodbye(&mut self, client: &mut Client) -> Result<(), String> {
        let halfway = client.session.is_in_frame();
        if self.rng.below(2) == 0 && client.session.takes_more() && !halfway {
            // What it does not wait for is not sent a second time.
            client.judge.conflicts |= client.meets;
            let mut out = Outbox::default();
            client
                .session
                .from_client(b"X\0\0\0\x04", &mut out)
                .map_err(|violation| violation.to_string())?;
            client.take(out)?;
        }
        Ok(())
    }

    /// The client leaves, and another takes its place.
    pub(super) fn hang_up(&mut self, client: &mut Client) -> Result<(), String> {
        self.counts.hang_ups += 1;
        self.say_goodbye(client)?;
        self.replace(client, true)
    }

    /// Does something to the session, if it is time for it.
    pub(super) fn disturb(&mut self, client: &mut Client) -> Result<(), String> {
        if client.is_over() || self.rng.below(self.rate) > 0 {
            return Ok(());
        }
        match self.rng.below(8) {
            0..=2 => self.lose(client),
            3 | 4 => self.cancel(client),
            _ => self.exchange(client),
        }
    }

    /// Takes the backend away, if that is allowed.
    pub(super) fn exchange(&mut self, client: &mut Client) -> Result<(), String> {
        if client.backend.is_none() || !client.to_server.is_empty() {
            return Ok(());
        }
        let mut out = Outbox::default();
        match client.session.can_detach() {
            Detach::Now => {
                self.counts.replaced += 1;
                let memory = client.session.detach();
                let model = client.take_backend().expect("a backend");
                if memory.is_spoilt() {
                    self.retire(model);
                } else {
                    self.pool.push(Backend { model, memory });
                }
                client.take(out)?;
                return self.attach_ahead(client);
            }
            Detach::AfterReadingSettings => client.session.read_settings(&mut out),
            Detach::Not(_) => {}
        }
        client.take(out)
    }

    /// Sometimes the next backend comes before the client asks for it, and its statements with it.
    fn attach_ahead(&mut self, client: &mut Client) -> Result<(), String> {
        if self.rng.below(2) == 0 {
            return Ok(());
        }
        self.attach(client)?;
        if client.backend.is_none() || self.rng.below(4) == 0 {
            return Ok(());
        }
        let mut out = Outbox::default();
        client.session.prepare_ahead(&mut out);
        self.counts.ahead += u64::from(!out.to_server.is_empty());
        client.take(out)
    }
}
