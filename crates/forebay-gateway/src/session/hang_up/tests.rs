use super::*;
use crate::protocol::server;
use crate::session::{Reported, SessionLimits, StartSettings};

/// A session with a backend.
fn session() -> VirtualSession {
    let mut session = VirtualSession::new(StartSettings::default(), SessionLimits::default());
    session.attach(Memory::default(), &Reported::default(), &mut Outbox::default());
    session
}

fn bytes(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

fn client(session: &mut VirtualSession, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Outbox::default();
    session.from_client(&bytes(write), &mut out).unwrap();
    out.to_server
}

fn server(session: &mut VirtualSession, write: impl FnOnce(&mut Vec<u8>)) -> Outbox {
    let mut out = Outbox::default();
    session.from_server(&bytes(write), &mut out).unwrap();
    out
}

/// Parse, Bind and Execute, without a Sync.
fn execute(out: &mut Vec<u8>, sql: &str) {
    write::parse(out, b"", &[sql.as_bytes(), &[0, 0, 0]].concat());
    write::bind(out, b"", b"");
    write::execute(out, b"");
}

fn completed(out: &mut Vec<u8>, tag: &str, status: u8) {
    write::command_complete(out, tag);
    write::ready_for_query(out, status);
}

fn copy_in(out: &mut Vec<u8>) {
    write::frame(out, server::COPY_IN, |out| out.extend_from_slice(&[0; 3]));
}

fn failed(out: &mut Vec<u8>, sqlstate: &'static str) {
    write::error(out, &ServerError::error(sqlstate, "as told"));
}

/// The types of the frames that the backend gets now.
#[track_caller]
fn drains(session: &mut VirtualSession) -> String {
    let mut out = Outbox::default();
    let hung_up = session.hang_up(&mut out);
    assert!(matches!(hung_up, HungUp::Drain), "{hung_up:?}");
    let (mut rest, mut kinds) = (&out.to_server[..], String::new());
    while let Ok(Some((kind, length))) = crate::protocol::header(rest) {
        kinds.push(char::from(kind));
        rest = &rest[length..];
    }
    kinds
}

#[track_caller]
fn left(session: &mut VirtualSession) -> LeftBehind {
    let mut out = Outbox::default();
    match session.hang_up(&mut out) {
        HungUp::Left(left) => {
            assert!(out.to_server.is_empty());
            left
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn is_useless(session: &mut VirtualSession) {
    let hung_up = session.hang_up(&mut Outbox::default());
    assert!(matches!(hung_up, HungUp::Useless), "{hung_up:?}");
}

#[test]
fn a_statement_that_runs_is_answered_and_what_it_leaves_is_known() {
    let mut session = session();
    client(&mut session, |out| write::query(out, b"SET search_path = 'mine'"));
    assert_eq!(drains(&mut session), "");
    // Split anywhere.
    for byte in bytes(|out| completed(out, "SET", b'I')) {
        assert_eq!(drains(&mut session), "");
        session.from_server(&[byte], &mut Outbox::default()).unwrap();
    }
    let left = left(&mut session);
    assert!(left.memory.settings.get("search_path").is_some());
    assert!(!left.unknown_settings);
}

#[test]
fn an_open_transaction_is_left_to_be_rolled_back() {
    let mut session = session();
    client(&mut session, |out| write::query(out, b"BEGIN"));
    server(&mut session, |out| completed(out, "BEGIN", b'T'));
    client(&mut session, |out| write::query(out, b"SET search_path = 'mine'"));
    assert_eq!(drains(&mut session), "");
    server(&mut session, |out| completed(out, "SET", b'T'));
    let left = left(&mut session);
    assert!(left.unknown_settings && left.memory.settings.get("search_path").is_none());
}

/// A Sync alone would commit what the client has not ended.
#[test]
fn extended_requests_without_a_sync_are_made_to_fail() {
    let mut session = session();
    client(&mut session, |out| execute(out, "INSERT INTO t VALUES (1)"));
    assert_eq!(
        drains(&mut session),
        "fBS",
        "a COPY is given up, an unknown statement is bound, and the Sync"
    );
    assert_eq!(drains(&mut session), "", "once");
    server(&mut session, |out| {
        write::bare(out, server::PARSE_COMPLETE);
        write::bare(out, server::BIND_COMPLETE);
        write::command_complete(out, "INSERT 0 1");
        failed(out, "26000");
    });
    assert_eq!(drains(&mut session), "");
    server(&mut session, |out| write::ready_for_query(out, b'I'));
    left(&mut session);
}

/// The answers may be there already: a Flush asks for them.
#[test]
fn extended_requests_that_are_answered_are_made_to_fail_too() {
    let mut session = session();
    client(&mut session, |out| {
        execute(out, "INSERT INTO t VALUES (1)");
        write::bare(out, client::FLUSH);
    });
    server(&mut session, |out| {
        write::bare(out, server::PARSE_COMPLETE);
        write::bare(out, server::BIND_COMPLETE);
        write::command_complete(out, "INSERT 0 1");
    });
    assert_eq!(drains(&mut session), "fBS");
    server(&mut session, |out| {
        failed(out, "26000");
        write::ready_for_query(out, b'I');
    });
    left(&mut session);
}

#[test]
fn a_server_that_skips_gets_its_sync() {
    let mut session = session();
    client(&mut session, |out| {
        execute(out, "SELECT nonsense");
        write::bare(out, client::FLUSH);
    });
    server(&mut session, |out| failed(out, "42703"));
    assert_eq!(drains(&mut session), "fS");
    server(&mut session, |out| write::ready_for_query(out, b'I'));
    left(&mut session);
}

#[test]
fn a_copy_is_given_up() {
    let mut session = session();
    client(&mut session, |out| write::query(out, b"COPY t FROM STDIN"));
    server(&mut session, copy_in);
    client(&mut session, |out| write::frame(out, client::COPY_DATA, |out| out.extend_from_slice(b"1\n")));
    assert_eq!(drains(&mut session), "f");
    server(&mut session, |out| {
        failed(out, "57014");
        write::ready_for_query(out, b'I');
    });
    left(&mut session);
}

#[test]
fn a_copy_that_begins_later_is_given_up_then() {
    let mut session = session();
    client(&mut session, |out| write::query(out, b"COPY t FROM STDIN"));
    assert_eq!(drains(&mut session), "");
    server(&mut session, copy_in);
    assert_eq!(drains(&mut session), "f");
    server(&mut session, |out| {
        failed(out, "57014");
        write::ready_for_query(out, b'I');
    });
    left(&mut session);
}

/// A server overlooks a Sync that comes before the data.
#[test]
fn a_copy_by_extended_requests_is_given_up_and_gets_another_sync() {
    let parsed = |out: &mut Vec<u8>| {
        write::bare(out, server::PARSE_COMPLETE);
        write::bare(out, server::BIND_COMPLETE);
        copy_in(out);
    };
    let end = |out: &mut Vec<u8>| {
        failed(out, "57014");
        write::ready_for_query(out, b'I');
    };
    let mut early = session();
    client(&mut early, |out| {
        execute(out, "COPY t FROM STDIN");
        write::bare(out, client::SYNC);
    });
    assert_eq!(drains(&mut early), "");
    server(&mut early, parsed);
    assert_eq!(drains(&mut early), "fBS");
    server(&mut early, end);
    left(&mut early);
    // Before the server has said that it is a COPY.
    let mut none = session();
    client(&mut none, |out| execute(out, "COPY t FROM STDIN"));
    assert_eq!(drains(&mut none), "fBS");
    server(&mut none, parsed);
    assert_eq!(drains(&mut none), "");
    server(&mut none, end);
    left(&mut none);
}

#[test]
fn what_waits_is_not_sent() {
    let mut session = VirtualSession::new(StartSettings::default(), SessionLimits::default());
    client(&mut session, |out| write::query(out, b"INSERT INTO t VALUES (1)"));
    is_useless(&mut session);
    // A backend has come, and its settings are being restored.
    let mut session =
        VirtualSession::new(StartSettings::new([("search_path", "mine")]), SessionLimits::default());
    client(&mut session, |out| write::query(out, b"INSERT INTO t VALUES (1)"));
    let mut out = Outbox::default();
    session.attach(Memory::default(), &Reported::default(), &mut out);
    assert_eq!(out.to_server[0], client::QUERY);
    assert_eq!(drains(&mut session), "");
    let out = server(&mut session, |out| completed(out, "SET", b'I'));
    assert!(out.to_server.is_empty(), "{}", out.to_server.escape_ascii());
    assert!(left(&mut session).memory.settings.get("search_path").is_some());
}

/// Nobody waits for it any more.
#[test]
fn a_conflict_with_a_change_of_the_schema_is_no_reason_to_try_again() {
    let mut session = session();
    client(&mut session, |out| write::query(out, b"SELECT 1"));
    assert_eq!(drains(&mut session), "");
    let out = server(&mut session, |out| {
        write::error(
            out,
            &ServerError::error(
                "40001",
                "schema has been updated by another transaction, please retry: (OC001)",
            ),
        );
        write::ready_for_query(out, b'I');
    });
    assert!(out.to_server.is_empty());
    left(&mut session);
}

#[test]
fn half_a_request_makes_it_useless() {
    let whole = bytes(|out| write::frame(out, client::COPY_DATA, |out| out.extend_from_slice(&[b'1'; 100])));
    let mut session = session();
    client(&mut session, |out| write::query(out, b"COPY t FROM STDIN"));
    server(&mut session, copy_in);
    client(&mut session, |out| out.extend_from_slice(&whole[..50]));
    is_useless(&mut session);
}

#[test]
fn half_a_request_that_was_not_sent_on_is_nothing() {
    let whole = bytes(|out| write::query(out, b"SELECT 2"));
    let mut session = session();
    let sent = client(&mut session, |out| {
        write::query(out, b"SELECT 1");
        out.extend_from_slice(&whole[..9]);
    });
    assert_eq!(sent, bytes(|out| write::query(out, b"SELECT 1")));
    assert_eq!(drains(&mut session), "");
    server(&mut session, |out| completed(out, "SELECT 1", b'I'));
    left(&mut session);
}

#[test]
fn a_server_that_ends_the_connection_leaves_nothing() {
    let mut session = session();
    client(&mut session, |out| write::query(out, b"SELECT 1"));
    assert_eq!(drains(&mut session), "");
    server(&mut session, |out| write::error(out, &ServerError::fatal("57P01", "as told")));
    is_useless(&mut session);
}

#[test]
fn a_session_that_becomes_pinned_meanwhile_leaves_nothing() {
    let mut session = session();
    client(&mut session, |out| write::query(out, b"SELECT setseed(0.5)"));
    assert_eq!(drains(&mut session), "");
    server(&mut session, |out| completed(out, "SELECT 1", b'I'));
    is_useless(&mut session);
}

#[test]
fn a_statement_that_is_to_be_cancelled_is_not_waited_for() {
    let mut session = session();
    client(&mut session, |out| write::query(out, b"SELECT 1"));
    // Half a row.
    server(&mut session, |out| out.extend_from_slice(b"D\0\0\0\x20\0\x01"));
    assert_eq!(session.cancel(&mut Outbox::default()), crate::session::Cancelled::Soon);
    is_useless(&mut session);
}

/// Terminate behind a statement is no reason to wait for less.
#[test]
fn a_client_that_says_good_bye_behind_a_statement_is_the_same() {
    let mut session = session();
    client(&mut session, |out| {
        write::query(out, b"SELECT 1");
        write::bare(out, client::TERMINATE);
    });
    assert!(session.is_over());
    assert_eq!(drains(&mut session), "");
    server(&mut session, |out| completed(out, "SELECT 1", b'I'));
    left(&mut session);
}
