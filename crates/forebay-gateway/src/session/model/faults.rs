//! The model test with faults: backends are cut, statements cancelled and backends refused at any time, also in the middle of pipelines and frames.
//! Gateways drain: a session is dismissed as soon as it is idle, while all else goes on.

mod client;
mod counts;
mod disturbance;

use std::collections::BTreeSet;

use forebay::{Rng, Seed};

use self::client::Client;
use self::counts::Counts;
use super::judge::{Verdict, values};
use super::play::{Harness, Scripts, play};
use super::search::{only_seed, search, sessions};
use super::server::{ModelServer, REPORTED, World};
use super::{Backend, STARTS};
use crate::protocol::{ServerError, header};
use crate::session::{
    Cancelled, HungUp, LeftBehind, Memory, Outbox, Reported, TransactionStatus, VirtualSession,
};

struct Run {
    rng: Rng,
    world: World,
    pool: Vec<Backend>,
    reported: Reported,
    /// Of backends that are gone.
    committed: Vec<String>,
    executed: Vec<String>,
    /// Of clients that are gone, with the values that they inserted.
    verdicts: Vec<(Verdict, BTreeSet<String>)>,
    /// One in so many opportunities is taken for a fault.
    rate: u64,
    split: u64,
    counts: Counts,
}

impl Harness for Run {
    type Client = Client;

    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn send(&mut self, client: &mut Client, frames: &[u8]) -> Result<(), String> {
        let can_meet = client.own_change.can_meet(frames, self.split == 0) && client.is_quiet();
        if !can_meet || self.rng.below(4) == 0 {
            return self.send_parts(client, frames);
        }
        // Nothing but this may end in a conflict, which the client must not see.
        client.own_change.meets(client.backend.as_mut());
        client.meets = true;
        self.send_parts(client, frames)?;
        self.settle(client)?;
        client.meets = false;
        self.counts.own_changes += u64::from(client.own_change.answered(client.backend.as_mut()));
        Ok(())
    }

    fn sent(&mut self, client: &mut Client) -> Result<(), String> {
        if client.is_over() || self.rng.below(4) > 0 {
            self.check(client)?;
            if !client.is_over() && self.rng.below(4) == 0 {
                self.exchange(client)?;
            }
        }
        if self.rng.below(self.rate * 2) == 0 {
            self.hang_up(client)?;
        }
        if !client.leaving && self.rng.below(self.rate * 2) == 0 {
            self.counts.drains += 1;
            (client.leaving, client.judge.disturbed) = (true, true);
        }
        Ok(())
    }

    /// Everything is quiet.
    fn check(&mut self, client: &mut Client) -> Result<(), String> {
        self.settle(client)?;
        if client.is_over() {
            return self.ended(client);
        }
        client.judge.rest().map_err(|why| format!("{why}; {:?}", client.session))?;
        let session = &client.session;
        if session.is_attached() && session.is_idle() && session.transaction() == TransactionStatus::Idle {
            client.judge.check_values()?;
        }
        Ok(())
    }
}

impl Run {
    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.rng.below(count as u64)).unwrap_or(0)
    }

    fn chunk(&mut self, left: usize) -> usize {
        let size = match self.split {
            0 => left,
            1 => 1 + self.below(60),
            _ => 1,
        };
        size.min(left)
    }

    /// A backend of the pool or a new one; sometimes there is none.
    fn attach(&mut self, client: &mut Client) -> Result<(), String> {
        let mut out = Outbox::default();
        if client.session.wants_backend() && self.rng.below(self.rate * 2) == 0 {
            client.judge.disturbed = true;
            self.counts.refused += 1;
            client.session.fail(&ServerError::error("53300", "no connection"), &mut out);
            return client.take(out);
        }
        let place = self.below(self.pool.len() + 1);
        let backend = if place < self.pool.len() {
            self.pool.swap_remove(place)
        } else {
            let mut model = ModelServer::new(&[], true);
            if self.rng.below(4) == 0 {
                model.conflicts = 1 + u32::from(self.rng.below(3) == 0);
                model.spared = [0, 0, 1, 2, 5][self.below(5)];
                self.counts.conflicts += u64::from(model.conflicts);
            }
            Backend { model, memory: Memory::default() }
        };
        client.judge.disturbed |= backend.model.conflicts > 0;
        client.judge.conflicts |= backend.model.conflicts > 0;
        client.own_change.attached(client.backend.insert(backend.model));
        client.session.attach(backend.memory, &self.reported, &mut out);
        client.take(out)
    }

    fn deliver_to_server(&mut self, client: &mut Client, count: usize) {
        let bytes: Vec<u8> = client.to_server.drain(..count).collect();
        let backend = client.backend.as_mut().expect("bytes for a backend that is not there");
        client.to_session.extend(backend.feed(&bytes, &self.world));
    }

    fn deliver_to_session(&mut self, client: &mut Client, count: usize) -> Result<(), String> {
        let bytes: Vec<u8> = client.to_session.drain(..count).collect();
        let mut out = Outbox::default();
        let result = client.session.from_server(&bytes, &mut out);
        client.take(out)?;
        result.map_err(|garbage| format!("{garbage}: {} {:?}", bytes.escape_ascii(), client.session))?;
        if client.session.is_giving_up() {
            self.give_up(client, VirtualSession::give_up_now)?;
        }
        Ok(())
    }

    /// One step of what is under way. Whether there was any.
    fn step(&mut self, client: &mut Client) -> Result<bool, String> {
        if client.is_over() {
            return Ok(false);
        }
        if client.leaving && client.may_leave() {
            self.dismiss(client)?;
            return Ok(true);
        }
        let both = !client.to_server.is_empty() && !client.to_session.is_empty();
        if client.session.wants_backend() {
            if client.backend.is_some() {
                return Err(format!("it wants another backend: {:?}", client.session));
            }
            self.attach(client)?;
        } else if !client.to_server.is_empty() && (!both || self.rng.below(2) == 0) {
            let count = self.chunk(client.to_server.len());
            self.deliver_to_server(client, count);
        } else if !client.to_session.is_empty() {
            let count = self.chunk(client.to_session.len());
            self.deliver_to_session(client, count)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Lets happen what is under way, with faults in between.
    fn settle(&mut self, client: &mut Client) -> Result<(), String> {
        loop {
            if !self.step(client)? {
                return Ok(());
            }
            self.disturb(client)?;
        }
    }

    fn send_parts(&mut self, client: &mut Client, frames: &[u8]) -> Result<(), String> {
        let mut starts = Vec::new();
        let mut at = 0;
        while let Ok(Some((_, length))) = header(&frames[at..]) {
            starts.push((at, length));
            at += length;
        }
        let mut starts = starts.into_iter().peekable();
        let mut at = 0;
        while at < frames.len() {
            while !client.session.takes_more() && !client.is_over() {
                if !self.step(client)? {
                    return Err(format!("it waits for nothing: {:?}", client.session));
                }
                self.disturb(client)?;
            }
            let count = self.chunk(frames.len() - at);
            while let Some((start, length)) = starts.next_if(|(start, _)| *start < at + count) {
                let frame = &frames[start..start + length];
                client.judge.sends(frame, self.world);
                client.own.extend(values(frame));
                let says = |text: &[u8]| frame.windows(text.len()).any(|part| part == text);
                client.unsure |= frame[0] == b'F' || says(b"set_config") || says(b"DO 'notice'");
            }
            if client.is_over() {
                break;
            }
            let mut out = Outbox::default();
            let result = client.session.from_client(&frames[at..at + count], &mut out);
            client.take(out)?;
            result.map_err(|violation| violation.to_string())?;
            at += count;
            for _ in 0..self.rng.below(3) {
                self.step(client)?;
            }
            if client.leaving && self.rng.below(self.rate) == 0 {
                // With it goes the rest of the frames.
                return self.all_at_once(client);
            }
            self.disturb(client)?;
        }
        Ok(())
    }

    fn retire(&mut self, mut model: ModelServer) {
        model.disconnect();
        self.committed.append(&mut model.ledger.committed);
        self.executed.append(&mut model.ledger.executed);
    }

    /// The client is gone, and with it what it thinks of it.
    fn replace(&mut self, client: &mut Client, cut: bool) -> Result<(), String> {
        // What was written to the backend is on its way.
        if client.backend.is_some() {
            let count = client.to_server.len();
            self.deliver_to_server(client, count);
        }
        match (self.linger(client)?, client.backend.take()) {
            (Some(left), Some(mut model)) => {
                self.counts.passed_on += 1;
                if !client.to_session.is_empty() {
                    return Err(format!("the next would get {}", client.to_session.escape_ascii()));
                }
                model.clean(left.unknown_settings);
                self.pool.push(Backend { model, memory: left.memory });
            }
            (_, Some(model)) => self.retire(model),
            (_, None) => {}
        }
        let start = STARTS[self.below(4)];
        let gone = std::mem::replace(client, Client::new(start, &self.reported));
        let halfway = !gone.half.is_empty();
        self.verdicts.push((gone.judge.end(cut || halfway)?, gone.own));
        Ok(())
    }

    /// What the client leaves behind, once its backend has answered everything. Now and then that takes too long.
    fn linger(&mut self, client: &mut Client) -> Result<Option<LeftBehind>, String> {
        let late = self.rng.below(self.rate) == 0;
        loop {
            let mut out = Outbox::default();
            let hung_up = client.session.hang_up(&mut out);
            // Its last words may not be written yet. A cancel request that comes now finds nothing.
            let mut nothing = Outbox::default();
            let cancelled = client.session.cancel(&mut nothing);
            if cancelled != Cancelled::NothingRunning
                || !nothing.to_client.is_empty()
                || !nothing.to_server.is_empty()
            {
                return Err(format!("a late cancel: {cancelled:?}, {}", nothing.to_client.escape_ascii()));
            }
            match hung_up {
                HungUp::Left(left) => return Ok(Some(left)),
                HungUp::Useless => return Ok(None),
                HungUp::Drain if late => return Ok(None),
                HungUp::Drain => self.counts.lingered += 1,
            }
            client.to_server.append(&mut out.to_server);
            let count = client.to_server.len();
            self.deliver_to_server(client, count);
            if client.to_session.is_empty() {
                return Err(format!("it waits for nothing: {:?}", client.session));
            }
            let count = self.chunk(client.to_session.len());
            let bytes: Vec<u8> = client.to_session.drain(..count).collect();
            let result = client.session.from_server(&bytes, &mut out);
            result.map_err(|garbage| format!("{garbage}: {} {:?}", bytes.escape_ascii(), client.session))?;
            client.to_server.append(&mut out.to_server);
        }
    }

    /// The session has ended, and the client connects again.
    fn ended(&mut self, client: &mut Client) -> Result<(), String> {
        self.counts.ended += 1;
        if !client.judge.disturbed {
            return Err("it ended for no reason".to_owned());
        }
        if client.half.is_empty() && !client.judge.has_ended() {
            return Err("it ended without a word".to_owned());
        }
        self.replace(client, false)
    }
}

fn run(seed: u64, scripts: &Scripts) -> Result<Counts, String> {
    let mut rng = Seed::new(seed).fork("faults").rng();
    let reported = Reported::new(REPORTED);
    let mut clients = [(); 2].map(|()| {
        let start = STARTS[usize::try_from(rng.below(4)).unwrap_or(0)];
        Client::new(start, &reported)
    });
    let rate = [4, 12, 40, 120][usize::try_from(rng.below(4)).unwrap_or(0)];
    let split = if seed.is_multiple_of(16) { 2 } else { rng.below(2) };
    let mut run = Run {
        rng,
        world: World { column_type: 23 },
        pool: Vec::new(),
        reported,
        committed: Vec::new(),
        executed: Vec::new(),
        verdicts: Vec::new(),
        rate,
        split,
        counts: Counts::default(),
    };
    play(&mut run, &mut clients, scripts)?;
    for mut client in clients {
        run.check(&mut client)?;
        if !client.half.is_empty() {
            return Err("half a frame is left".to_owned());
        }
        if client.session.transaction() == TransactionStatus::Idle
            && !client.session.is_idle()
            && !client.is_over()
        {
            return Err(format!("not idle: {:?}", client.session));
        }
        run.replace(&mut client, false)?;
    }
    for backend in std::mem::take(&mut run.pool) {
        run.retire(backend.model);
    }
    let committed: BTreeSet<String> = run.committed.iter().cloned().collect();
    let executed: BTreeSet<&String> = run.executed.iter().collect();
    if executed.len() != run.executed.len() {
        return Err("a statement was executed twice".to_owned());
    }
    for (verdict, own) in &run.verdicts {
        verdict.check(&committed, own)?;
    }
    run.counts.values = committed.len() as u64;
    Ok(run.counts)
}

#[test]
fn whatever_happens_a_client_sees_a_postgresql_session_that_fails_in_places() {
    let mut counts = Counts::default();
    for counted in search(run) {
        counts.add(&counted);
    }
    println!("{counts:?}");
    if only_seed().is_none() {
        let least = sessions() / 100;
        for (count, what) in [
            (counts.cuts, "cuts"),
            (counts.cancels, "cancels"),
            (counts.half_sent, "cancels in half a row"),
            (counts.lingered, "answers without a client"),
            (counts.passed_on, "backends passed on"),
            (counts.refused, "refusals"),
            (counts.conflicts, "conflicts"),
            (counts.own_changes, "own changes met"),
            (counts.replaced, "replacements"),
            (counts.ahead, "statements prepared ahead"),
            (counts.dismissed, "dismissals by a drain"),
            (counts.all_at_once, "cuts, cancels and hang-ups at once during a drain"),
            (counts.values, "values"),
        ] {
            assert!(count > least, "{count} {what}");
        }
    }
}
