//! What a session keeps, what it takes, and what it does not.

use super::frames::{bare, bind, complete, describe, execute, parse, query, ready};
use super::scene::{Scene, short};
use crate::protocol::{ServerError, client, write};
use crate::session::{
    Backend, Detach, Garbage, Lost, Memory, Outbox, Reported, SessionLimits, StartSettings, Tied,
    VirtualSession,
};

#[test]
fn the_client_is_told_its_limits() {
    let limits = SessionLimits { max_message: 100, max_statements: 2, ..SessionLimits::default() };
    let mut session = VirtualSession::new(StartSettings::default(), limits);
    let mut out = Outbox::default();
    session.attach(Memory::default(), &Reported::default(), &mut out);
    session.from_client(&[parse("a", "SELECT 1"), parse("b", "SELECT 1")].concat(), &mut out).unwrap();
    let violation = session.from_client(&parse("c", "SELECT 1"), &mut out).unwrap_err();
    assert_eq!(violation.0.sqlstate, "54000");
    out.to_client.clear();
    session.terminate(&violation.0, &mut out);
    assert_eq!((short(&out.to_client), session.is_over()), (vec!["EF54000".to_owned()], true));
    for (bytes, sqlstate) in [
        (query(&"x".repeat(100)), "54000"),
        (b"Q\0\0\0\x02".to_vec(), "08P01"),
        (b"?\0\0\0\x04".to_vec(), "08P01"),
        (b"p\0\0\0\x05\0".to_vec(), "08P01"),
        (b"P\0\0\0\x05a".to_vec(), "08P01"),
    ] {
        let mut session = VirtualSession::new(StartSettings::default(), limits);
        session.attach(Memory::default(), &Reported::default(), &mut out);
        assert_eq!(session.from_client(&bytes, &mut out).unwrap_err().0.sqlstate, sqlstate);
    }
}

/// All that a session keeps for its client counts.
#[test]
fn everything_that_is_kept_of_statements_and_portals_has_a_limit() {
    let limits = SessionLimits { max_statement_bytes: 40_000, ..SessionLimits::default() };
    let scene = || {
        let mut session = VirtualSession::new(StartSettings::default(), limits);
        session.attach(Memory::default(), &Reported::default(), &mut Outbox::default());
        Scene { session, out: Outbox::default() }
    };
    // The types of parameters: 10,000 bytes of each statement, which is short itself. What is not kept pins.
    let mut types = Vec::new();
    write::frame(&mut types, b't', |out| {
        out.extend_from_slice(&2_500_u16.to_be_bytes());
        out.resize(out.len() + 10_000, 1);
    });
    let mut described = scene();
    for name in ["a", "b", "c", "d", "e"] {
        described.client(&[parse(name, "SELECT $2500"), describe(name), bare(client::SYNC)]);
        described.server(&[bare(b'1'), types.clone(), bare(b'n'), ready(b'I')]);
        assert!(described.session.statements.size() <= 40_000, "{}", described.session.statements.size());
        let expected = if name < "d" { Detach::Now } else { Detach::Not(Tied::Pinned) };
        assert_eq!(described.session.can_detach(), expected, "{name}");
    }
    // What was counted is not counted any more when it is gone.
    let close: Vec<u8> =
        ["a", "b", "c", "d", "e"].map(|name| format!("C\0\0\0\x07S{name}\0").into_bytes()).concat();
    described.client(&[close, bare(client::SYNC)]);
    assert_eq!(described.session.statements.size(), 0);

    // Portals keep statements whose name another has now.
    let bind_to = |portal: &str| {
        let mut frame = Vec::new();
        write::bind(&mut frame, portal.as_bytes(), b"");
        frame
    };
    let long = format!("SELECT '{}'", "x".repeat(9_000));
    let mut bound = scene();
    let refused = (0..9).find_map(|count| {
        let frames = [parse("", &long), bind_to(&format!("p{count}"))].concat();
        let error = bound.session.from_client(&frames, &mut bound.out).err()?;
        Some((count, error.0.sqlstate))
    });
    assert_eq!(refused, Some((4, "54000".into())));
    // And names of their own.
    let mut named = scene();
    named.client(&[parse("", "SELECT 1")]);
    let refused = (0..9).find_map(|count| {
        let frame = bind_to(&format!("{}{count}", "x".repeat(9_000)));
        Some((count, named.session.from_client(&frame, &mut named.out).err()?.0.sqlstate))
    });
    assert_eq!(refused, Some((4, "54000".into())));
    // The same portal again and again is one.
    let mut one = scene();
    for _ in 0..20 {
        one.client(&[parse("", &long), bind(""), execute()]);
        if !one.session.takes_more() {
            break;
        }
    }
    // Unanswered requests keep what they replace. When that is too much, the server is asked to answer first.
    assert!(one.session.requests.kept() <= 60_000 && !one.session.takes_more());
    assert_eq!(one.sent().last().map(String::as_str), Some("H"));
}

#[test]
fn what_is_not_the_answer_is_garbage() {
    for bytes in [complete("X"), ready(b'I'), bare(b'1'), bare(b'?'), b"Z\0\0\0\x02".to_vec()] {
        let mut scene = Scene::attached();
        assert_eq!(scene.session.from_server(&bytes, &mut scene.out), Err(Garbage));
    }
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT 1")]);
    assert_eq!(scene.session.from_server(&ready(b'?'), &mut scene.out), Err(Garbage));
}

#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<VirtualSession>() <= 640, "{}", size_of::<VirtualSession>());
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT 1")]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    let session = &scene.session;
    assert_eq!(
        session.held.capacity()
            + session.client_side.partial.capacity()
            + session.server_side.partial.capacity(),
        0
    );
    println!("a session: {} bytes, a backend: {} bytes", size_of::<VirtualSession>(), size_of::<Backend>());
}

/// PostgreSQL repeats in its errors what it cannot read, however long it is.
#[test]
fn a_long_error_passes_and_is_not_kept() {
    const LONG: usize = 3 << 20;
    let long = || format!("invalid input syntax for type integer: \"{}\"", "x".repeat(LONG));
    let mut error = Vec::new();
    write::error(&mut error, &ServerError::error("22P02", long()).with_routine("pg_strtoint32_safe"));
    let mut notice = Vec::new();
    write::notice(&mut notice, &ServerError::notice("00000", long()));
    for part in [1_000, 64 << 10, LONG + 1_000] {
        let mut scene = Scene::attached();
        scene.client(&[query("SELECT 'x'::int"), parse("s", "SELECT 1"), bind("s"), execute()]);
        let answer = [notice.clone(), error.clone(), ready(b'I'), error.clone()].concat();
        for bytes in answer.chunks(part) {
            scene.server(&[bytes.to_vec()]);
            let kept = scene.session.server_side.partial.len();
            assert!(kept <= 1 << 20, "{kept}");
        }
        assert!(scene.out.to_client == answer, "in parts of {part}");
        scene.out.to_client.clear();
        // What was behind the second one is skipped.
        scene.client(&[bare(client::SYNC)]);
        scene.server(&[ready(b'I')]);
        assert!(scene.session.is_idle() && scene.session.statements.count() == 0);
    }
    // A client that does not want to hear of notices hears of no long one.
    let mut scene = Scene::attached();
    scene.client(&[query("SET client_min_messages TO error")]);
    scene.server(&[complete("SET"), ready(b'I')]);
    scene.seen();
    scene.client(&[query("SELECT f()")]);
    for bytes in [notice, complete("SELECT 1"), ready(b'I')].concat().chunks(64 << 10) {
        scene.server(&[bytes.to_vec()]);
    }
    assert_eq!(scene.seen(), ["CSELECT 1", "ZI"]);
}

/// An error that has begun is told, and nothing else fits into it.
#[test]
fn a_backend_that_is_lost_in_a_long_error_ends_the_session() {
    let mut error = Vec::new();
    write::error(&mut error, &ServerError::error("22P02", "x".repeat(2 << 20)));
    let half = &error[..(1 << 20) + 1_000];
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT 'x'::int")]);
    scene.server(&[half.to_vec()]);
    assert_eq!(scene.lost(), Lost::Ended);
    assert!(scene.out.to_client == half);
    // Too little of it: nothing has begun.
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT 'x'::int")]);
    scene.server(&[error[..1 << 19].to_vec()]);
    assert_eq!(scene.lost(), Lost::Told);
    assert_eq!(scene.seen(), ["EE08006", "ZI"]);
}
