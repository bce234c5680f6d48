//! Random and damaged bytes from both sides: no panic, and no more memory than the limits allow.

use forebay::{Rng, Seed};

use super::model::{Event, ModelServer, REPORTED, World, script};
use super::{Detach, Memory, Outbox, Reported, SessionLimits, StartSettings, VirtualSession};
use crate::protocol::ServerError;

const LIMITS: SessionLimits =
    SessionLimits { max_message: 4096, max_statements: 20, max_statement_bytes: 8192, max_unanswered: 200 };

fn index(rng: &mut Rng, count: usize) -> usize {
    usize::try_from(rng.below(count as u64)).unwrap_or(0)
}

/// Changes, inserts, removes or repeats a few bytes.
fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.below(4) {
        let at = index(rng, bytes.len() + 1);
        let byte = rng.bits().to_le_bytes()[0];
        match rng.below(5) {
            0 => bytes.insert(at, byte),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 if at < bytes.len() => bytes[at] = byte,
            3 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            _ => {
                let part: Vec<u8> = bytes[at.saturating_sub(9)..at].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
}

fn new_session() -> VirtualSession {
    let start = StartSettings::new([("application_name", "fuzz")]);
    let mut session = VirtualSession::new(start, LIMITS);
    session.greet(&Reported::new(REPORTED), [0; 8], &mut Outbox::default());
    session
}

/// What it may keep: what is held, two partial frames, statements and what they were described as.
fn check(session: &VirtualSession) {
    let (statements, requests) = (session.statements.size(), session.requests.len());
    assert!(session.held.len() <= LIMITS.max_message + (1 << 20), "{} held", session.held.len());
    assert!(
        session.client_side.partial.len() <= LIMITS.max_message.max(64 << 10) + 256,
        "{} of a frame",
        session.client_side.partial.len()
    );
    assert!(
        session.server_side.partial.len() <= 1 << 20,
        "{} of an answer",
        session.server_side.partial.len()
    );
    assert!(statements <= LIMITS.max_statement_bytes + LIMITS.max_message, "{statements} of statements");
    let portals = session.portals.size() + session.portals.size_of_replaced(&session.statements);
    assert!(portals <= LIMITS.max_statement_bytes + LIMITS.max_message, "{portals} of portals");
    let spare = session.statements.spare();
    assert!(spare <= LIMITS.max_statement_bytes + LIMITS.max_message, "{spare} of names without a statement");
    let kept = session.requests.kept();
    let most = LIMITS.max_statement_bytes + 2 * LIMITS.max_message + requests * 1024;
    assert!(kept <= most, "{kept} of {requests} requests");
    assert!(requests <= 20_000, "{requests} requests");
}

fn run(seed: u64, rounds: u64) {
    let mut rng = Seed::new(seed).fork("fuzz").rng();
    let world = World { column_type: 23 };
    let reported = Reported::new(REPORTED);
    let mut session = new_session();
    let mut model = ModelServer::new(&[], true);
    let mut out = Outbox::default();
    for _ in 0..rounds {
        if session.is_over() {
            session = new_session();
        }
        out.to_client.clear();
        out.to_server.clear();
        match rng.below(12) {
            0..=5 if session.takes_more() => {
                let mut bytes = Vec::new();
                for event in script(&mut rng, 2) {
                    if let Event::Send { frames, .. } = event {
                        bytes.extend(frames);
                    }
                }
                if rng.below(3) == 0 {
                    damage(&mut rng, &mut bytes);
                }
                bytes.truncate(1 + index(&mut rng, bytes.len().max(1)));
                if let Err(violation) = session.from_client(&bytes, &mut out) {
                    session.terminate(&violation.0, &mut out);
                }
            }
            6 => {
                let noise: Vec<u8> = (0..rng.below(64)).map(|_| rng.bits().to_le_bytes()[0]).collect();
                if session.from_server(&noise, &mut out).is_err() {
                    session.lost(&mut out);
                    model = ModelServer::new(&[], true);
                }
            }
            7 => {
                session.cancel(&mut out);
                if !session.is_attached() {
                    model = ModelServer::new(&[], true);
                }
            }
            8 => {
                session.lost(&mut out);
                model = ModelServer::new(&[], true);
            }
            9 => session.fail(&ServerError::error("53300", "no backend"), &mut out),
            10 => match session.can_detach() {
                Detach::Now => {
                    session.detach();
                    model = ModelServer::new(&[], true);
                }
                Detach::AfterReadingSettings => session.read_settings(&mut out),
                Detach::Not(_) => {}
            },
            _ if session.wants_backend() => {
                session.attach(Memory::default(), &reported, &mut out);
            }
            _ => {}
        }
        // The model panics at what no client sends, so it gets only what is whole.
        if session.is_attached() && !out.to_server.is_empty() && rng.below(4) > 0 {
            let Some(mut answer) = model.try_feed(&out.to_server, &world) else {
                model = ModelServer::new(&[], true);
                session.lost(&mut out);
                continue;
            };
            if rng.below(6) == 0 {
                damage(&mut rng, &mut answer);
            }
            if session.from_server(&answer, &mut out).is_err() {
                session.lost(&mut out);
                model = ModelServer::new(&[], true);
            }
        }
        check(&session);
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// `FOREBAY_FUZZ_SEEDS` says how many seeds, `FOREBAY_SEED` from which on. A test has time for few.
#[test]
fn whatever_comes_there_is_no_panic_and_no_growth() {
    let first = number("FOREBAY_SEED", 0);
    for seed in first..first + number("FOREBAY_FUZZ_SEEDS", 300) {
        run(seed, 60);
    }
}

#[test]
fn texts_of_all_kinds_are_scanned_to_their_end() {
    const PARTS: [&str; 24] = [
        "'",
        "\"",
        "$$",
        "$a$",
        "/*",
        "*/",
        "--",
        "\n",
        ";",
        "(",
        ")",
        "\\",
        "E'",
        "U&'",
        "SET ",
        "a",
        " TO ",
        "RESET ALL",
        "BEGIN ATOMIC ",
        "CREATE FUNCTION ",
        "SELECT f(",
        "é",
        "\0",
        "DEALLOCATE ",
    ];
    let mut rng = Seed::new(number("FOREBAY_SEED", 1)).fork("texts").rng();
    for _ in 0..4_000 {
        let text: String = (0..rng.below(20)).map(|_| PARTS[index(&mut rng, PARTS.len())]).collect();
        for escapes in [false, true] {
            for piece in super::scan::pieces(text.as_bytes(), escapes) {
                assert!(piece.range.start < piece.range.end && piece.range.end <= text.len(), "{text}");
            }
            super::scan::read(text.as_bytes(), escapes);
            super::scan::single(text.as_bytes(), escapes);
        }
    }
}
