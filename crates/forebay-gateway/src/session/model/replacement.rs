//! Backends are replaced at every opportunity: the client sees, byte by byte, what it would see on one connection.

use forebay::{Rng, Seed};

use super::judge::allow;
use super::own_change::OwnChange;
use super::play::{Harness, Scripts, play};
use super::search::{only_seed, search, sessions};
use super::server::{ModelServer, REPORTED, World};
use super::{Backend, STARTS};
use crate::protocol::{HEADER, header};
use crate::session::{
    Detach, Lost, Memory, Outbox, Reported, SessionLimits, StartSettings, TransactionStatus, VirtualSession,
};

/// How often each thing was done.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    replacements: u64,
    cuts: u64,
    /// Statements were prepared ahead, without settings before them.
    ahead: u64,
    /// A session has met its own change of the schema.
    own_changes: u64,
}

struct Client {
    session: VirtualSession,
    backend: Option<ModelServer>,
    own_change: OwnChange,
    oracle: ModelServer,
    expected: Vec<u8>,
    seen: Vec<u8>,
    /// For the backend, and from it, on the way.
    to_server: Vec<u8>,
    to_session: Vec<u8>,
}

struct Run {
    rng: Rng,
    world: World,
    pool: Vec<Backend>,
    reported: Reported,
    /// How bytes are split: all at once, at random, one by one.
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
        client.expected.extend(client.oracle.feed(frames, &self.world));
        let can_meet = client.own_change.can_meet(frames, self.split == 0) && client.is_quiet();
        let meets = can_meet && self.rng.below(2) == 0;
        if meets {
            client.own_change.meets(client.backend.as_mut());
        }
        self.send_parts(client, frames)?;
        if meets {
            self.settle(client)?;
            self.counts.own_changes += u64::from(client.own_change.answered(client.backend.as_mut()));
        }
        Ok(())
    }

    fn sent(&mut self, client: &mut Client) -> Result<(), String> {
        // Sometimes the client does not wait.
        if self.rng.below(4) > 0 {
            self.check(client)?;
            self.disturb(client)?;
        }
        Ok(())
    }

    /// Everything is answered that is answered on one connection, in the same words.
    fn check(&mut self, client: &mut Client) -> Result<(), String> {
        self.settle(client)?;
        if client.seen.starts_with(&client.expected) {
            return Ok(());
        }
        let same = client.seen.iter().zip(&client.expected).take_while(|(a, b)| a == b).count();
        if allow(&mut client.expected, &client.seen, start_of_frame(&client.seen, same)) {
            return self.check(client);
        }
        let text =
            |bytes: &[u8]| frames(bytes).into_iter().rev().take(12).rev().collect::<Vec<_>>().join("\n    ");
        Err(format!(
            "after {same} bytes\n  seen:\n    {}\n  expected:\n    {}",
            text(&client.seen),
            text(&client.expected)
        ))
    }
}

impl Run {
    fn chunk(&mut self, left: usize) -> usize {
        let size = match self.split {
            0 => left,
            1 => 1 + usize::try_from(self.rng.below(40)).unwrap_or(0),
            _ => 1,
        };
        size.min(left)
    }

    fn attach(&mut self, client: &mut Client) {
        let place = usize::try_from(self.rng.below(self.pool.len() as u64 + 1)).unwrap_or(0);
        let backend = if place < self.pool.len() {
            self.pool.swap_remove(place)
        } else {
            Backend { model: ModelServer::new(&[], true), memory: Memory::default() }
        };
        client.own_change.attached(client.backend.insert(backend.model));
        let mut out = Outbox::default();
        client.session.attach(backend.memory, &self.reported, &mut out);
        client.take(out);
    }

    /// Before the client asks for it. Its statements may come ahead, and it may go on meanwhile.
    fn attach_ahead(&mut self, client: &mut Client) -> Result<(), String> {
        self.attach(client);
        if self.rng.below(4) > 0 {
            let mut out = Outbox::default();
            client.session.prepare_ahead(&mut out);
            self.counts.ahead += u64::from(!out.to_server.is_empty());
            client.take(out);
        }
        if self.rng.below(2) == 0 { self.settle(client) } else { Ok(()) }
    }

    /// Lets everything happen that is under way.
    fn settle(&mut self, client: &mut Client) -> Result<(), String> {
        loop {
            if client.session.wants_backend() {
                assert!(client.backend.is_none());
                self.attach(client);
            } else if !client.to_server.is_empty() {
                let count = self.chunk(client.to_server.len());
                let bytes: Vec<u8> = client.to_server.drain(..count).collect();
                let backend = client.backend.as_mut().expect("bytes for a backend that is not there");
                let answer = backend.feed(&bytes, &self.world);
                client.to_session.extend(answer);
            } else if !client.to_session.is_empty() {
                let count = self.chunk(client.to_session.len());
                let bytes: Vec<u8> = client.to_session.drain(..count).collect();
                let mut out = Outbox::default();
                let result = client.session.from_server(&bytes, &mut out);
                result
                    .map_err(|garbage| format!("{garbage}: {} {:?}", bytes.escape_ascii(), client.session))?;
                client.take(out);
            } else {
                return Ok(());
            }
        }
    }

    fn send_parts(&mut self, client: &mut Client, frames: &[u8]) -> Result<(), String> {
        let mut rest = frames;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(self.chunk(rest.len()));
            rest = behind;
            if !client.session.takes_more() {
                self.settle(client)?;
            }
            let mut out = Outbox::default();
            client.session.from_client(part, &mut out).map_err(|violation| violation.to_string())?;
            client.take(out);
            if self.split == 1 && self.rng.below(8) == 0 {
                while client.session.wants_backend() {
                    self.attach(client);
                }
            }
        }
        Ok(())
    }

    /// Takes the backend away, exchanges it, or cuts it, if that is allowed.
    fn disturb(&mut self, client: &mut Client) -> Result<(), String> {
        if client.backend.is_none() {
            if self.rng.below(4) == 0 && client.session.is_idle() {
                self.attach_ahead(client)?;
            }
            return Ok(());
        }
        let detach = client.session.can_detach();
        match (detach, self.rng.below(6)) {
            (Detach::Now, 0..=2) => {
                let memory = client.session.detach();
                let model = client.backend.take().expect("a backend");
                client.own_change.left(&model);
                if !memory.is_spoilt() {
                    self.pool.push(Backend { model, memory });
                }
                self.counts.replacements += 1;
                if self.rng.below(2) == 0 {
                    self.attach_ahead(client)?;
                }
            }
            (Detach::Now, 3) => {
                let model = client.backend.take().expect("a backend");
                client.own_change.left(&model);
                let mut out = Outbox::default();
                assert_eq!(client.session.lost(&mut out), Lost::Unnoticed);
                client.take(out);
                self.counts.cuts += 1;
            }
            (Detach::AfterReadingSettings, 0..=3) => {
                let mut out = Outbox::default();
                client.session.read_settings(&mut out);
                client.take(out);
                self.settle(client)?;
                assert_eq!(client.session.can_detach(), Detach::Now);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Client {
    fn new(start: &[(&str, &str)], reported: &Reported) -> Self {
        let mut oracle = ModelServer::new(start, false);
        let mut session =
            VirtualSession::new(StartSettings::new(start.iter().copied()), SessionLimits::default());
        let mut out = Outbox::default();
        session.greet(reported, [7; 8], &mut out);
        let key = out
            .to_client
            .windows(13)
            .position(|part| part == b"K\0\0\0\x0c\x07\x07\x07\x07\x07\x07\x07\x07")
            .expect("a key");
        out.to_client.drain(key..key + 13);
        let expected = oracle.greeting();
        let mut client = Self {
            session,
            backend: None,
            own_change: OwnChange::default(),
            oracle,
            expected,
            seen: Vec::new(),
            to_server: Vec::new(),
            to_session: Vec::new(),
        };
        client.take(out);
        client
    }

    /// Nothing is under way, and it is in no transaction.
    fn is_quiet(&self) -> bool {
        let idle = !self.session.is_attached() || self.session.is_idle();
        idle && !self.session.wants_backend()
            && self.session.transaction() == TransactionStatus::Idle
            && self.to_server.is_empty()
            && self.to_session.is_empty()
    }

    fn take(&mut self, out: Outbox) {
        self.seen.extend(out.to_client);
        self.to_server.extend(out.to_server);
    }
}

fn run(seed: u64, scripts: &Scripts) -> Result<Counts, String> {
    let mut rng = Seed::new(seed).fork("run").rng();
    let reported = Reported::new(REPORTED);
    let mut clients = [(); 2].map(|()| {
        let start = STARTS[usize::try_from(rng.below(4)).unwrap_or(0)];
        Client::new(start, &reported)
    });
    let split = if seed.is_multiple_of(16) { 2 } else { rng.below(2) };
    let mut run = Run {
        rng,
        world: World { column_type: 23 },
        pool: Vec::new(),
        reported,
        split,
        counts: Counts::default(),
    };
    play(&mut run, &mut clients, scripts)?;
    for client in &mut clients {
        run.check(client)?;
        if client.seen != client.expected {
            return Err(format!(
                "more than the client should see: {:?}",
                frames(&client.seen[client.expected.len()..])
            ));
        }
    }
    // Everything is answered, so nothing may keep a session from its next backend.
    for client in &clients {
        if client.session.transaction() == TransactionStatus::Idle && !client.session.is_idle() {
            return Err(format!("not idle: {:?}", client.session));
        }
    }
    Ok(run.counts)
}

#[test]
fn a_client_sees_what_it_would_see_on_one_connection() {
    let mut sum = Counts::default();
    for counts in search(run) {
        sum.replacements += counts.replacements;
        sum.cuts += counts.cuts;
        sum.ahead += counts.ahead;
        sum.own_changes += counts.own_changes;
    }
    println!("{sum:?}");
    let sessions = sessions();
    let enough = sum.replacements > sessions
        && sum.cuts > sessions / 4
        && sum.ahead > sessions / 20
        && sum.own_changes > sessions / 50;
    assert!(only_seed().is_some() || enough, "{sum:?}");
}

/// Where the frame begins that has this byte.
fn start_of_frame(bytes: &[u8], place: usize) -> usize {
    let mut start = 0;
    while let Ok(Some((_, length))) = header(&bytes[start..])
        && start + length <= place
    {
        start += length;
    }
    start
}

fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let Ok(Some((kind, length))) = header(bytes) {
        let (frame, rest) = bytes.split_at(length.min(bytes.len()));
        all.push(format!("{} {}", kind as char, frame[HEADER..].escape_ascii()));
        bytes = rest;
    }
    all
}
