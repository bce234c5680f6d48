//! The model test: clients whose backends are replaced at random see exactly what they would see on one connection.
//!
//! Two clients share a few backends, so that each finds what the other has left. Each has an oracle: a model of a PostgreSQL session that is its
//! alone. Input is split at random, or at every byte; answers are late; backends are taken away, exchanged and cut whenever that is allowed.
//! A failure prints its seed and a script that was made as short as possible.
//!
//! `faults` does what `judge` must allow for, too: it cuts, cancels and refuses at any time.

mod faults;
mod judge;
mod own_change;
mod script;
mod server;
mod statement;

use std::panic::{AssertUnwindSafe, catch_unwind};

use forebay::{Rng, Seed};

use self::own_change::OwnChange;
pub(super) use self::script::{Event, script};
pub(super) use self::server::{ModelServer, REPORTED, World};
use crate::protocol::{HEADER, header};

use super::{
    Detach, Lost, Memory, Outbox, Reported, SessionLimits, StartSettings, TransactionStatus, VirtualSession,
};

/// A backend in the pool.
struct Backend {
    model: ModelServer,
    memory: Memory,
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
    replacements: u64,
    cuts: u64,
    /// How often a session has met its own change of the schema.
    own_changes: u64,
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

    /// Everything is answered that is answered on one connection, in the same words.
    fn check(&mut self, client: &mut Client) -> Result<(), String> {
        self.settle(client)?;
        if client.seen.starts_with(&client.expected) {
            return Ok(());
        }
        let same = client.seen.iter().zip(&client.expected).take_while(|(a, b)| a == b).count();
        let text =
            |bytes: &[u8]| frames(bytes).into_iter().rev().take(12).rev().collect::<Vec<_>>().join("\n    ");
        Err(format!(
            "after {same} bytes\n  seen:\n    {}\n  expected:\n    {}",
            text(&client.seen),
            text(&client.expected)
        ))
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
            self.own_changes += u64::from(client.own_change.answered(client.backend.as_mut()));
        }
        Ok(())
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
                self.attach(client);
                self.settle(client)?;
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
                self.replacements += 1;
                if self.rng.below(2) == 0 {
                    self.attach(client);
                    self.settle(client)?;
                }
            }
            (Detach::Now, 3) => {
                let model = client.backend.take().expect("a backend");
                client.own_change.left(&model);
                let mut out = Outbox::default();
                assert_eq!(client.session.lost(&mut out), Lost::Unnoticed);
                client.take(out);
                self.cuts += 1;
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

const STARTS: [&[(&str, &str)]; 4] = [
    &[],
    &[("application_name", "one"), ("client_min_messages", "warning")],
    &[("application_name", "two"), ("TimeZone", "Europe/Paris"), ("search_path", "x")],
    &[("extra_float_digits", "3"), ("application_name", "one")],
];

/// Runs two clients with these scripts. How often a backend was replaced, how often one was cut, and how often a session met its own change of the schema.
fn run(seed: u64, scripts: &[Vec<Event>; 2]) -> Result<[u64; 3], String> {
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
        replacements: 0,
        cuts: 0,
        own_changes: 0,
    };
    let mut at = [0; 2];
    while at != [scripts[0].len(), scripts[1].len()] {
        let who = usize::try_from(run.rng.below(2)).unwrap_or(0);
        let Some(event) = scripts[who].get(at[who]) else {
            at[who] = scripts[who].len();
            at = if at[1 - who] < scripts[1 - who].len() { at } else { [scripts[0].len(), scripts[1].len()] };
            continue;
        };
        at[who] += 1;
        match event {
            Event::Alter(column_type) => {
                for client in &mut clients {
                    run.check(client)?;
                }
                run.world.column_type = *column_type;
            }
            Event::Send { frames, .. } => {
                let client = &mut clients[who];
                run.send(client, frames)?;
                // Sometimes the client does not wait.
                if run.rng.below(4) > 0 {
                    run.check(client)?;
                    run.disturb(client)?;
                }
            }
        }
    }
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
    Ok([run.replacements, run.cuts, run.own_changes])
}

fn scripts(seed: u64) -> [Vec<Event>; 2] {
    let mut rng = Seed::new(seed).fork("script").rng();
    [(); 2].map(|()| {
        let length = 4 + rng.below(16);
        script(&mut rng, length)
    })
}

fn fails(seed: u64, scripts: &[Vec<Event>; 2]) -> bool {
    !matches!(catch_unwind(AssertUnwindSafe(|| run(seed, scripts))), Ok(Ok(_)))
}

/// Leaves out what is not needed to fail, one by one.
fn shrink_by(
    fails: &dyn Fn(u64, &[Vec<Event>; 2]) -> bool,
    seed: u64,
    mut scripts: [Vec<Event>; 2],
) -> [Vec<Event>; 2] {
    loop {
        let mut shorter = false;
        for who in 0..2 {
            let mut place = 0;
            // The last one is the Sync that ends everything.
            while place + 1 < scripts[who].len() {
                let mut attempt = scripts.clone();
                attempt[who].remove(place);
                if fails(seed, &attempt) {
                    (scripts, shorter) = (attempt, true);
                } else {
                    place += 1;
                }
            }
        }
        if !shorter {
            return scripts;
        }
    }
}

/// How many sessions: `FOREBAY_MODEL_SESSIONS`, or what a test has time for.
fn sessions() -> u64 {
    std::env::var("FOREBAY_MODEL_SESSIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(3_000)
}

#[test]
fn a_client_sees_what_it_would_see_on_one_connection() {
    let only = std::env::var("FOREBAY_MODEL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(0..sessions() / 2, |seed: u64| seed..seed + 1);
    let mut sums = [0; 3];
    for seed in seeds {
        let scripts = scripts(seed);
        let result = catch_unwind(AssertUnwindSafe(|| run(seed, &scripts)));
        let Ok(Ok(counts)) = result else {
            let short = shrink_by(&fails, seed, scripts);
            let text: Vec<String> =
                short.iter().map(|events| events.iter().map(describe).collect()).collect();
            // Once more, for its message.
            eprintln!("seed {seed} (FOREBAY_MODEL_SEED), one client:\n{}other client:\n{}", text[0], text[1]);
            panic!("{}", run(seed, &short).expect_err("it fails"));
        };
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    let [replacements, cuts, own_changes] = sums;
    let text = format!("{replacements} replacements, {cuts} cuts, {own_changes} own changes met");
    println!("{text}");
    let enough = replacements > sessions() && cuts > sessions() / 4 && own_changes > sessions() / 50;
    assert!(only.is_some() || enough, "{text}");
}

fn describe(event: &Event) -> String {
    match event {
        Event::Send { what, .. } => format!("  {what}\n"),
        Event::Alter(oid) => format!("  -- column of type {oid}\n"),
    }
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
