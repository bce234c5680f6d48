//! What happens when something goes wrong, scene by scene.

use super::*;
use crate::protocol::{HEADER, client, header};

fn query(sql: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::query(&mut frame, sql.as_bytes());
    frame
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    let rest: Vec<u8> = sql.bytes().chain([0, 0, 0]).collect();
    write::parse(&mut frame, name.as_bytes(), &rest);
    frame
}

fn bind(name: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::bind(&mut frame, b"", name.as_bytes());
    frame
}

fn describe(name: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::describe_statement(&mut frame, name.as_bytes());
    frame
}

fn execute() -> Vec<u8> {
    let mut frame = Vec::new();
    write::execute(&mut frame, b"");
    frame
}

fn bare(kind: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    write::bare(&mut frame, kind);
    frame
}

fn ready(status: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    write::ready_for_query(&mut frame, status);
    frame
}

fn complete(tag: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::command_complete(&mut frame, tag);
    frame
}

fn error(sqlstate: &'static str, message: &'static str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::error(&mut frame, &ServerError::error(sqlstate, message));
    frame
}

const CONFLICT: &str = "schema has been updated by another transaction, please retry: (OC001)";

/// The frames, short: the type, and of errors the SQLSTATE, of others what can be read.
fn short(mut bytes: &[u8]) -> Vec<String> {
    let mut frames = Vec::new();
    while let Ok(Some((kind, length))) = header(bytes) {
        let body = &bytes[HEADER..length];
        let text = match kind {
            b'E' if body.starts_with(b"S") => {
                let fields: Vec<&[u8]> = body.split(|&byte| byte == 0).collect();
                format!("{}{}", char::from(body[1]), String::from_utf8_lossy(&fields[2][1..]))
            }
            _ => body
                .iter()
                .filter(|byte| byte.is_ascii_graphic() || **byte == b' ')
                .map(|&byte| char::from(byte))
                .collect(),
        };
        frames.push(format!("{}{text}", char::from(kind)));
        bytes = &bytes[length..];
    }
    assert!(bytes.is_empty(), "half a frame");
    frames
}

struct Scene {
    session: VirtualSession,
    out: Outbox,
}

impl Scene {
    fn new(start: &[(&str, &str)]) -> Self {
        let mut session =
            VirtualSession::new(StartSettings::new(start.iter().copied()), SessionLimits::default());
        let reported = Reported::new([("application_name", ""), ("TimeZone", "UTC")]);
        session.greet(&reported, [1; 8], &mut Outbox::default());
        Self { session, out: Outbox::default() }
    }

    fn attached() -> Self {
        let mut scene = Self::new(&[]);
        scene.attach(Memory::default());
        scene
    }

    fn attach(&mut self, memory: Memory) {
        let reported = Reported::new([("application_name", ""), ("TimeZone", "UTC")]);
        self.session.attach(memory, &reported, &mut self.out);
    }

    fn client(&mut self, frames: &[Vec<u8>]) {
        self.session.from_client(&frames.concat(), &mut self.out).unwrap();
    }

    fn server(&mut self, frames: &[Vec<u8>]) {
        self.session.from_server(&frames.concat(), &mut self.out).unwrap();
    }

    fn lost(&mut self) -> Lost {
        self.session.lost(&mut self.out)
    }

    /// What the client got since the last time.
    fn seen(&mut self) -> Vec<String> {
        short(&std::mem::take(&mut self.out.to_client))
    }

    /// What the backend got since the last time.
    fn sent(&mut self) -> Vec<String> {
        short(&std::mem::take(&mut self.out.to_server))
    }
}

#[test]
fn an_idle_session_does_not_notice_that_its_backend_is_gone() {
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT 1")]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    assert_eq!(scene.seen(), ["CSELECT 1", "ZI"]);
    // Some servers say why, before they close.
    let mut fatal = Vec::new();
    write::error(&mut fatal, &ServerError::fatal("57P01", "terminating connection"));
    scene.server(&[fatal]);
    assert_eq!(scene.session.can_detach(), Detach::Not(Tied::Busy));
    assert_eq!(scene.lost(), Lost::Unnoticed);
    assert!(scene.seen().is_empty() && !scene.session.is_attached() && !scene.session.wants_backend());
    scene.client(&[query("SELECT 2")]);
    assert!(scene.session.wants_backend() && !scene.session.takes_more());
    scene.sent();
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSELECT 2"]);
}

#[test]
fn a_pinned_session_ends_with_its_backend() {
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT setseed(0.5)")]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    assert_eq!(scene.session.can_detach(), Detach::Not(Tied::Pinned));
    scene.seen();
    assert_eq!(scene.lost(), Lost::Ended);
    assert_eq!(scene.seen(), ["EF57P01"]);
    assert!(scene.session.is_over());
}

#[test]
fn what_may_have_been_committed_is_unknown_and_nothing_else_is() {
    for (sql, state) in [
        ("SELECT 1", "EE08006"),
        ("INSERT INTO t VALUES (1)", "EE08007"),
        ("SELECT my_function()", "EE08007"),
        ("DELETE FROM t", "EE08007"),
    ] {
        let mut scene = Scene::attached();
        scene.client(&[query(sql)]);
        assert_eq!(scene.lost(), Lost::Told);
        assert_eq!(scene.seen(), [state, "ZI"], "{sql}");
    }
    // In a block, only the COMMIT commits.
    for (sql, state, status) in [("INSERT INTO t VALUES (1)", "EE08006", "ZE"), ("COMMIT", "EE08007", "ZI")] {
        let mut scene = Scene::attached();
        scene.client(&[query("BEGIN")]);
        scene.server(&[complete("BEGIN"), ready(b'T')]);
        scene.client(&[query(sql)]);
        scene.seen();
        assert_eq!(scene.lost(), Lost::Told);
        assert_eq!(scene.seen(), [state, status], "{sql}");
    }
    // The Sync commits what was executed before it.
    let mut scene = Scene::attached();
    scene.client(&[parse("", "INSERT INTO t VALUES (1)"), bind(""), execute(), bare(client::SYNC)]);
    scene.server(&[bare(b'1'), bare(b'2'), complete("INSERT 0 1")]);
    assert_eq!(scene.lost(), Lost::Told);
    assert_eq!(scene.seen(), ["1", "2", "CINSERT 0 1", "EE08007", "ZI"]);
}

#[test]
fn every_unanswered_segment_is_answered_once() {
    let mut scene = Scene::attached();
    scene.client(&[
        query("SELECT 1"),
        parse("", "SELECT 2"),
        bind(""),
        execute(),
        bare(client::SYNC),
        parse("", "SELECT 3"),
    ]);
    assert_eq!(scene.lost(), Lost::Told);
    assert_eq!(scene.seen(), ["EE08006", "ZI", "EE08006", "ZI", "EE08006"]);
    // The rest of the last segment is skipped, without a backend.
    scene.client(&[bind(""), execute(), bare(client::SYNC)]);
    assert_eq!(scene.seen(), ["ZI"]);
    assert!(!scene.session.wants_backend());
}

#[test]
fn a_transaction_whose_backend_is_gone_does_not_commit_silently() {
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    scene.seen();
    assert_eq!(scene.lost(), Lost::Told);
    assert_eq!(scene.session.transaction(), TransactionStatus::InTransaction);
    scene.client(&[query("COMMIT")]);
    assert_eq!(scene.seen(), ["EE08006", "ZI"]);

    // Any other statement fails first, and then the block has failed as usual.
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    scene.lost();
    scene.client(&[
        parse("", "SELECT 1"),
        bind(""),
        execute(),
        bare(client::SYNC),
        query("SELECT 1"),
        query("COMMIT; SELECT 2"),
    ]);
    assert_eq!(scene.seen(), ["CBEGIN", "ZT", "EE08006", "ZE", "EE25P02", "ZE", "CROLLBACK"]);
    // What follows the end of the block needs a backend again.
    assert!(scene.session.wants_backend());
    scene.sent();
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSELECT 2"]);
}

#[test]
fn a_failed_block_without_a_backend_ends_with_extended_requests_too() {
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    scene.client(&[query("SELECT pg_sleep(10)")]);
    scene.seen();
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::DropBackend);
    assert_eq!(scene.seen(), ["EE57014", "ZE"]);
    scene.client(&[parse("r", "ROLLBACK"), bind("r"), execute(), bare(client::SYNC)]);
    assert_eq!(scene.seen(), ["1", "2", "CROLLBACK", "ZI"]);
    assert!(scene.session.is_idle());
}

#[test]
fn a_cancel_answers_the_running_statement_and_leaves_the_others_unknown() {
    let mut scene = Scene::attached();
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::NothingRunning);
    scene.client(&[query("SELECT pg_sleep(10)"), query("DELETE FROM t")]);
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::DropBackend);
    assert_eq!(scene.seen(), ["EE57014", "ZI", "EE08007", "ZI"]);
    assert!(!scene.session.is_attached());
    // A COMMIT is not cancelled: the client must learn what became of it.
    let mut scene = Scene::attached();
    scene.client(&[query("COMMIT")]);
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::NothingRunning);
    // Nothing can be said in the middle of a row.
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT a FROM t")]);
    scene.server(&[b"D\0\0\0\x09\0".to_vec()]);
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::Soon);
    scene.server(&[b"\x01abc".to_vec()]);
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::DropBackend);
    assert_eq!(scene.seen(), ["Dabc", "EE57014", "ZI"]);
}

/// DISCARD ALL waits until all before it is answered, and what is behind it waits, too.
#[test]
fn what_waits_in_a_lost_segment_is_never_executed() {
    for cancelled in [false, true] {
        let mut scene = Scene::attached();
        scene.client(&[
            parse("", "SELECT 1"),
            bind(""),
            execute(),
            parse("d", "DISCARD ALL"),
            bind("d"),
            execute(),
        ]);
        scene.client(&[parse("i", "INSERT INTO t VALUES (1)"), bind("i"), execute()]);
        scene.out.clear();
        if cancelled {
            assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::DropBackend);
        } else {
            assert_eq!(scene.session.lost(&mut scene.out), Lost::Told);
        }
        assert!(!scene.session.wants_backend(), "nothing of it needs a backend");
        scene.client(&[bare(client::SYNC)]);
        let told = short(&scene.out.to_client);
        assert_eq!(told.len(), 2, "one error and one ReadyForQuery: {told:?}");
        assert!(told[0].starts_with("EE") && told[1] == "ZI", "{told:?}");
    }
}

#[test]
fn the_beginning_of_a_frame_waits_for_the_rest_when_the_backend_is_lost() {
    let mut scene = Scene::attached();
    scene.session.read_settings(&mut scene.out);
    let text = query("SELECT 1");
    scene.client(&[text[..3].to_vec()]);
    scene.session.lost(&mut scene.out);
    assert!(!scene.session.wants_backend(), "it could not be answered with an error");
    scene.client(&[text[3..].to_vec()]);
    assert!(scene.session.wants_backend());
}

#[test]
fn a_statement_that_gets_no_backend_gets_one_error() {
    let none = ServerError::error("53300", "no connection");
    let mut scene = Scene::new(&[]);
    scene.client(&[parse("", "SELECT 1"), bind("")]);
    scene.session.fail(&none, &mut scene.out);
    assert_eq!(scene.seen(), ["EE53300"]);
    scene.client(&[execute(), bare(client::SYNC), query("SELECT 2")]);
    assert_eq!(scene.seen(), ["ZI"]);
    assert!(scene.session.wants_backend());
    scene.session.fail(&none, &mut scene.out);
    assert_eq!(scene.seen(), ["EE53300", "ZI"]);
    // The rest of a frame that was half there goes nowhere.
    let frame = query("SELECT 'a long text'");
    let (head, tail) = frame.split_at(9);
    scene.client(&[head.to_vec()]);
    scene.session.fail(&none, &mut scene.out);
    scene.client(&[tail.to_vec(), bare(client::SYNC)]);
    assert_eq!(scene.seen(), ["EE53300", "ZI", "ZI"]);
    assert!(scene.sent().is_empty() && scene.session.is_idle());
}

#[test]
fn a_change_of_the_schema_is_met_once_more_with_the_same_statement() {
    let mut scene = Scene::attached();
    scene.client(&[query("INSERT INTO t VALUES (1)")]);
    scene.sent();
    scene.server(&[error("40001", CONFLICT)]);
    scene.server(&[ready(b'I')]);
    assert_eq!((scene.seen(), scene.sent()), (vec![], vec!["QINSERT INTO t VALUES (1)".to_owned()]));
    // Only once.
    scene.server(&[error("40001", CONFLICT), ready(b'I')]);
    assert_eq!(scene.seen(), ["EE40001", "ZI"]);
    // And only if it is the first answer of this backend.
    scene.client(&[query("SELECT 1")]);
    scene.sent();
    scene.server(&[error("OC001", "x"), ready(b'I')]);
    assert_eq!((scene.seen(), scene.sent()), (vec!["EEOC001".to_owned(), "ZI".to_owned()], vec![]));

    // Not if more was sent: it would overtake.
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT 1"), query("SELECT 2")]);
    scene.sent();
    scene.server(&[error("40001", CONFLICT), ready(b'I')]);
    assert_eq!(scene.seen(), ["EE40001", "ZI"]);

    // Extended requests, up to their Sync.
    let mut scene = Scene::attached();
    scene.client(&[parse("s", "SELECT 1"), bind("s"), execute(), bare(client::SYNC)]);
    let first = scene.sent();
    scene.server(&[error("40001", CONFLICT), ready(b'I')]);
    assert_eq!((scene.seen(), scene.sent()), (vec![], first));
    scene.server(&[bare(b'1'), bare(b'2'), complete("SELECT 1"), ready(b'I')]);
    assert_eq!(scene.seen(), ["1", "2", "CSELECT 1", "ZI"]);
}

#[test]
fn a_session_does_not_meet_its_own_change_of_the_schema_on_its_next_backends() {
    let sent = |scene: &mut Scene, frames: &[Vec<u8>]| {
        scene.client(frames);
        let sent = scene.sent();
        assert!(!sent.is_empty() && scene.seen().is_empty());
        sent
    };
    let change = [query("ALTER TABLE t ADD COLUMN a int")];
    let read = [query("SELECT a FROM t")];
    let conflict = [error("40001", CONFLICT), ready(b'I')];
    let row = [complete("SELECT 1"), ready(b'I')];
    let mut scene = Scene::attached();
    sent(&mut scene, &change);
    scene.server(&[complete("ALTER TABLE"), ready(b'I')]);
    assert_eq!(scene.seen(), ["CALTER TABLE", "ZI"]);
    // This backend knows. Nothing is kept.
    assert!(scene.session.backend.as_ref().is_some_and(|backend| backend.first.is_none()));
    sent(&mut scene, &read);
    scene.server(&conflict);
    assert_eq!(scene.seen(), ["EE40001", "ZI"]);

    let memory = scene.session.detach();
    scene.attach(memory);
    for _ in 0..3 {
        // Of this it does not hear.
        sent(&mut scene, &[query("SELECT 'x'")]);
        scene.server(&row);
        scene.seen();
        // But of this. It is sent once more, and only once.
        let first = sent(&mut scene, &read);
        scene.server(&conflict);
        assert_eq!((scene.seen(), scene.sent()), (vec![], first));
        scene.server(&conflict);
        assert_eq!((scene.seen(), scene.sent()), (vec!["EE40001".to_owned(), "ZI".to_owned()], vec![]));
    }
    // Not if the client has seen a part of the answer.
    sent(&mut scene, &[query("SELECT 'x'; SELECT a FROM t")]);
    scene.server(&[complete("SELECT 1"), conflict.concat()]);
    assert_eq!(
        (scene.seen(), scene.sent()),
        (["CSELECT 1", "EE40001", "ZI"].map(str::to_owned).to_vec(), vec![])
    );
    let pipeline = [parse("", "SELECT a FROM t"), bind(""), execute(), execute(), bare(client::SYNC)];
    sent(&mut scene, &pipeline);
    scene.server(&[bare(b'1'), bare(b'2'), complete("SELECT 1"), conflict.concat()]);
    assert_eq!(scene.sent(), Vec::<String>::new());
    assert_eq!(scene.seen(), ["1", "2", "CSELECT 1", "EE40001", "ZI"]);
    // Nor if it has sent more, which would be overtaken.
    sent(&mut scene, &[read.concat(), read.concat()]);
    scene.server(&conflict);
    scene.server(&row);
    assert_eq!((scene.seen().len(), scene.sent()), (4, vec![]));
    // Nor in a block, however it began, nor if its COMMIT fails.
    sent(&mut scene, &[query("BEGIN; SELECT a FROM t")]);
    scene.server(&[complete("BEGIN"), error("40001", CONFLICT), ready(b'E')]);
    assert_eq!((scene.seen().len(), scene.sent()), (3, vec![]));
    sent(&mut scene, &[query("ROLLBACK")]);
    scene.server(&[complete("ROLLBACK"), ready(b'I')]);
    scene.seen();
    sent(&mut scene, &[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    scene.seen();
    sent(&mut scene, &[query("COMMIT")]);
    scene.server(&conflict);
    assert_eq!((scene.seen(), scene.sent()), (vec!["EE40001".to_owned(), "ZI".to_owned()], vec![]));
    // Copy data that was sent too early would be lost.
    sent(&mut scene, &[query("COPY t FROM STDIN"), bare(client::COPY_DONE)]);
    scene.server(&conflict);
    assert_eq!((scene.seen(), scene.sent()), (vec!["EE40001".to_owned(), "ZI".to_owned()], vec![]));
    // And all of the next one, as if nothing had happened. What the server ignores does not begin it.
    scene.client(&[bare(client::COPY_DONE), bare(client::FLUSH)]);
    scene.sent();
    let first = sent(&mut scene, &pipeline);
    scene.server(&conflict);
    assert_eq!((scene.seen(), scene.sent()), (vec![], first));
}

#[test]
fn a_statement_that_is_prepared_again_may_meet_a_change_of_the_schema() {
    let again = [bind("s"), execute(), bare(client::SYNC)].concat();
    let prepared = || {
        let mut scene = Scene::attached();
        scene.client(&[parse("s", "SELECT a FROM t"), describe("s"), bare(client::SYNC)]);
        scene.server(&[bare(b'1'), bare(b'n'), ready(b'I')]);
        let memory = scene.session.detach();
        scene.attach(memory);
        scene.sent();
        scene.seen();
        scene
    };
    let asked = ["PsSELECT a FROM t", "DSs", "H"].map(str::to_owned).to_vec();
    let rest = ["Bs", "E", "S"].map(str::to_owned).to_vec();
    for more in [vec![], query("SELECT 2")] {
        let mut scene = prepared();
        scene.client(&[again.clone(), more.clone()]);
        assert_eq!(scene.sent(), asked);
        // Its Sync ends what the server skips. Nothing follows it.
        scene.server(&[error("40001", CONFLICT)]);
        assert_eq!((scene.seen(), scene.sent()), (vec![], rest.clone()));
        scene.server(&[ready(b'I')]);
        assert_eq!((scene.seen(), scene.sent()), (vec![], asked.clone()));
        scene.server(&[bare(b'1'), bare(b'n')]);
        assert_eq!(scene.sent()[..3], rest);
        scene.server(&[bare(b'2'), complete("SELECT 1"), ready(b'I')]);
        assert_eq!(scene.seen(), ["2", "CSELECT 1", "ZI"]);
        // Lost in between, it fails as ever.
        let mut scene = prepared();
        scene.client(&[again.clone(), more.clone()]);
        scene.server(&[error("40001", CONFLICT)]);
        assert_eq!((scene.lost(), scene.seen()), (Lost::Told, vec!["EE08006".to_owned(), "ZI".to_owned()]));
    }
    // Without its Sync, the client may wait for an answer.
    for end in [bare(client::FLUSH), bare(client::SYNC)[..3].to_vec()] {
        let mut scene = prepared();
        scene.client(&[bind("s"), execute(), end]);
        scene.server(&[error("40001", CONFLICT)]);
        assert_eq!(scene.seen(), ["EE40001"]);
    }
}

#[test]
fn a_conflict_is_met_once_more_however_the_segment_arrived() {
    let frames = [parse("s", "SELECT 1"), bind("s"), execute(), bare(client::SYNC)].concat();
    let bound = parse("s", "SELECT 1").len();
    let in_bind = bound + HEADER + "\0s\0".len()..bound + bind("s").len();
    for cut in 1..frames.len() {
        let mut scene = Scene::attached();
        scene.client(&[frames[..cut].to_vec()]);
        scene.client(&[frames[cut..].to_vec()]);
        let (first, all) = (scene.out.to_server.clone(), scene.sent());
        assert_eq!(first, frames, "cut at {cut}");
        // What the client sends since then comes behind the second attempt: all of a frame, or a part, before the error or behind it.
        let (more, next) = (query("SELECT 2"), query("SELECT 3"));
        let before = if cut.is_multiple_of(2) { 7 } else { 0 };
        scene.client(&[more[..before].to_vec()]);
        scene.server(&[error("40001", CONFLICT)]);
        let rest = [&more[before..], &next[..7]].concat();
        let (now, later) = rest.split_at(if before > 0 { 0 } else { rest.len() });
        scene.client(&[now.to_vec()]);
        scene.server(&[ready(b'I')]);
        scene.client(&[later.to_vec(), next[7..].to_vec()]);
        if in_bind.contains(&cut) {
            // Of a Bind that came in parts, nothing is kept.
            assert_eq!(scene.seen(), ["EE40001", "ZI"], "cut at {cut}");
        } else {
            let expected = [all, vec!["QSELECT 2".to_owned(), "QSELECT 3".to_owned()]].concat();
            assert_eq!((scene.seen(), scene.sent()), (vec![], expected), "cut at {cut}");
        }
    }
    // What the gateway has sent behind it itself would be answered twice.
    let mut scene = Scene::attached();
    scene.client(&[parse("s", "SELECT 1"), describe("s"), bare(client::SYNC)]);
    scene.server(&[bare(b'1'), b"t\0\0\0\x06\0\0".to_vec(), bare(b'n'), ready(b'I')]);
    scene.session.detach();
    scene.client(&[query("SELECT 2")]);
    scene.attach(Memory::default());
    scene.client(&[bind("s")]);
    scene.out.clear();
    scene.server(&[error("40001", CONFLICT), ready(b'I')]);
    assert_eq!((scene.seen(), scene.sent()), (vec!["EE40001".to_owned(), "ZI".to_owned()], vec![]));
    // A Query behind extended requests does not end what the server skips.
    let mut scene = Scene::attached();
    scene.client(&[parse("s", "SELECT 1"), query("SELECT 2")]);
    scene.sent();
    scene.server(&[error("40001", CONFLICT)]);
    scene.client(&[bare(client::SYNC)]);
    scene.server(&[ready(b'I')]);
    assert_eq!(
        (scene.seen(), scene.sent()),
        (vec!["EE40001".to_owned(), "ZI".to_owned()], vec!["S".to_owned()])
    );
}

#[test]
fn settings_that_cannot_be_read_stay_where_they_are() {
    for (sqlstate, detach) in [("42501", Detach::Not(Tied::Pinned)), ("40001", Detach::AfterReadingSettings)]
    {
        let mut scene = Scene::attached();
        scene.client(&[query("SELECT my_function()")]);
        scene.server(&[complete("SELECT 1"), ready(b'I')]);
        assert_eq!(scene.session.can_detach(), Detach::AfterReadingSettings);
        scene.session.read_settings(&mut scene.out);
        // The client does not wait for nothing, and hears nothing of it.
        scene.client(&[query("SELECT 2")]);
        scene.seen();
        scene.sent();
        scene.server(&[error(sqlstate, "no"), ready(b'I')]);
        assert_eq!((scene.seen(), scene.sent()), (vec![], vec!["QSELECT 2".to_owned()]), "{sqlstate}");
        scene.server(&[complete("SELECT 1"), ready(b'I')]);
        assert_eq!(scene.session.can_detach(), detach, "{sqlstate}");
        scene.seen();
        assert_eq!(scene.lost(), Lost::Ended);
        assert_eq!(scene.seen(), ["EF57P01"], "nobody knows its settings");
    }
}

#[test]
fn a_block_whose_backend_is_lost_before_its_statement_was_sent_has_failed() {
    for cancelled in [false, true] {
        let mut scene = Scene::attached();
        scene.client(&[parse("s", "SELECT 1"), describe("s"), bare(client::SYNC)]);
        scene.server(&[bare(b'1'), b"t\0\0\0\x06\0\0".to_vec(), bare(b'n'), ready(b'I')]);
        scene.session.detach();
        scene.client(&[query("BEGIN")]);
        scene.attach(Memory::default());
        scene.server(&[complete("BEGIN"), ready(b'T')]);
        scene.seen();
        // The statement is prepared again first, and compared with what the client saw.
        scene.client(&[bind("s"), execute(), bare(client::SYNC), query("INSERT INTO t VALUES (1)")]);
        scene.sent();
        let state = if cancelled {
            assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::DropBackend);
            "EE57014"
        } else {
            assert_eq!(scene.lost(), Lost::Told);
            "EE08006"
        };
        assert!(!scene.session.wants_backend(), "nothing of it may run outside of the block");
        assert_eq!(scene.seen(), [state, "ZE", "EE25P02", "ZE"]);
        assert!(scene.sent().is_empty());
    }
}

#[test]
fn what_follows_a_rollback_may_be_committed() {
    for frames in [
        vec![query("ROLLBACK; INSERT INTO t VALUES (1)")],
        vec![query("ROLLBACK"), query("INSERT INTO t VALUES (1)")],
        vec![parse("", "ROLLBACK"), bind(""), execute(), bare(client::SYNC), query("DELETE FROM t")],
    ] {
        let mut scene = Scene::attached();
        scene.client(&[query("BEGIN")]);
        scene.server(&[complete("BEGIN"), ready(b'T')]);
        scene.client(&frames);
        scene.seen();
        assert_eq!(scene.lost(), Lost::Told);
        assert_eq!(scene.seen()[0], "EE08007");
    }
}

#[test]
fn a_refusal_is_the_answer_to_a_request_of_the_client() {
    let mut scene = Scene::attached();
    scene.client(&[parse("", "DEALLOCATE no"), bind(""), bare(client::FLUSH)]);
    scene.server(&[bare(b'1'), bare(b'2')]);
    // The server skips the Query, too.
    scene.client(&[execute(), query("SELECT 1"), bare(client::SYNC)]);
    assert_eq!(scene.lost(), Lost::Told);
    assert_eq!(scene.seen(), ["1", "2", "EE08006", "ZI"]);
}

#[test]
fn a_refusal_waits_for_the_end_of_a_transaction_that_has_failed() {
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN"), query("SELECT wrong")]);
    scene.server(&[complete("BEGIN"), ready(b'T'), error("42703", "wrong"), ready(b'E')]);
    scene.client(&[
        query("ROLLBACK"),
        parse("", "SELECT lastval()"),
        bind(""),
        execute(),
        bare(client::SYNC),
    ]);
    scene.sent();
    scene.server(&[complete("ROLLBACK"), ready(b'I'), bare(b'1'), bare(b'2')]);
    assert!(scene.sent()[0].starts_with("Bforebay none"), "the value of somebody else is never asked for");
}

#[test]
fn the_rest_of_a_text_is_not_a_text_of_its_own() {
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN"), query("SELECT wrong")]);
    scene.server(&[complete("BEGIN"), ready(b'T'), error("42703", "wrong"), ready(b'E')]);
    scene.lost();
    scene.client(&[query("ROLLBACK; DISCARD ALL")]);
    scene.sent();
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSELECT 1/0 "]);
    scene.seen();
    scene.server(&[error("22012", "division by zero"), ready(b'I')]);
    assert_eq!(scene.seen(), ["EE25001", "ZI"]);
}

#[test]
fn a_parse_that_fails_without_a_backend_removes_the_unnamed_statement() {
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    scene.lost();
    scene.seen();
    scene.client(&[parse("", "ROLLBACK"), parse("", "SELECT 1"), bare(client::SYNC)]);
    assert_eq!(scene.seen(), ["1", "EE08006", "ZE"]);
    scene.client(&[bind(""), bare(client::SYNC)]);
    assert_eq!(scene.seen(), ["EE25P02", "ZE"]);
}

#[test]
fn a_commit_behind_an_error_was_not_executed() {
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN; SELECT wrong; COMMIT")]);
    scene.server(&[complete("BEGIN"), error("42703", "wrong")]);
    assert_eq!(scene.lost(), Lost::Told);
    assert_eq!(scene.seen(), ["CBEGIN", "EE42703", "ZE"]);
}

#[test]
fn a_portal_that_has_run_fails_as_its_transaction_does() {
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    scene.client(&[parse("", "UNLISTEN *"), bind(""), execute(), bare(client::SYNC)]);
    scene.server(&[bare(b'1'), bare(b'2'), complete("SELECT 1"), ready(b'T')]);
    scene.seen();
    scene.sent();
    scene.client(&[parse("s", "SELECT wrong"), bare(client::SYNC), execute(), bare(client::SYNC)]);
    assert_eq!(scene.sent(), ["PsSELECT wrong", "S", "H"], "it waits");
    scene.server(&[error("42703", "wrong"), ready(b'E')]);
    scene.server(&[error("25P02", "aborted"), ready(b'E')]);
    assert_eq!(scene.seen(), ["EE42703", "ZE", "EE25P02", "ZE"]);
}

#[test]
fn a_segment_that_has_failed_is_not_told_another_error() {
    let mut scene = Scene::attached();
    scene.client(&[parse("", "SELECT wrong"), bare(client::SYNC), query("SELECT 1")]);
    scene.server(&[error("42703", "wrong")]);
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::DropBackend);
    assert_eq!(scene.seen(), ["EE42703", "ZI", "EE57014", "ZI"]);
}

#[test]
fn a_statement_that_is_given_up_in_half_a_row_has_the_same_reason_afterwards() {
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT a FROM t")]);
    scene.server(&[b"D\0\0\0\x09\0".to_vec()]);
    let reason = ServerError::error("57014", "canceling statement due to statement timeout");
    assert_eq!(scene.session.give_up(&reason, &mut scene.out), Cancelled::Soon);
    scene.server(&[b"\x01abc".to_vec()]);
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::DropBackend);
    let told = String::from_utf8_lossy(&scene.out.to_client).into_owned();
    assert!(told.contains("statement timeout"), "{told}");
}

#[test]
fn settings_are_restored_before_anything_else() {
    let mut scene = Scene::new(&[("application_name", "app")]);
    scene.client(&[query("SELECT 1")]);
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSET application_name TO 'app'"]);
    // A conflict is tried again.
    scene.server(&[error("40001", CONFLICT), ready(b'I')]);
    assert_eq!(scene.sent(), ["QSET application_name TO 'app'"]);
    scene.server(&[b"S\0\0\0\x19application_name\0app\0".to_vec(), complete("SET"), ready(b'I')]);
    assert_eq!((scene.seen(), scene.sent()), (vec![], vec!["QSELECT 1".to_owned()]));
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    // The next session with the same settings sends nothing.
    let memory = scene.session.detach();
    let mut next = Scene::new(&[("application_name", "app")]);
    next.attach(memory);
    assert!(next.sent().is_empty() && next.seen().is_empty());
    // One without any resets what is left.
    let memory = next.session.detach();
    let mut other = Scene::new(&[]);
    other.attach(memory);
    assert_eq!(other.sent(), ["QRESET application_name"]);
}

#[test]
fn statements_of_the_session_before_are_closed() {
    let mut scene = Scene::attached();
    scene.client(&[parse("s", "SELECT 1"), bare(client::SYNC)]);
    scene.server(&[bare(b'1'), ready(b'I')]);
    let memory = scene.session.detach();
    let mut next = Scene::new(&[]);
    next.attach(memory);
    assert_eq!(next.sent(), ["CSs", "H"]);
    next.server(&[bare(b'3')]);
    assert!(next.seen().is_empty() && next.session.is_idle());
    // The first session prepares its own again when it uses it.
    scene.client(&[bind("s"), execute(), bare(client::SYNC)]);
    scene.sent();
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["PsSELECT 1", "Bs", "E", "S"]);
}

#[test]
fn a_setting_that_the_server_refuses_ends_the_session_in_its_words() {
    let mut scene = Scene::new(&[("TimeZone", "Nowhere")]);
    scene.client(&[query("SELECT 1")]);
    scene.attach(Memory::default());
    scene.server(&[error("22023", "invalid value for parameter \"TimeZone\": \"Nowhere\""), ready(b'I')]);
    assert!(scene.session.is_over());
    let text = String::from_utf8_lossy(&scene.out.to_client).into_owned();
    assert!(text.contains("FATAL") && text.contains("22023") && text.contains("Nowhere"), "{text}");
    assert_eq!(scene.session.can_detach(), Detach::Not(Tied::Busy));
}

#[test]
fn a_role_stays_with_the_session_and_spoils_the_backend() {
    let mut scene = Scene::attached();
    scene.client(&[query("SET ROLE reader")]);
    scene.server(&[complete("SET"), ready(b'I')]);
    assert!(scene.session.detach().is_spoilt());
    scene.client(&[query("SELECT 1")]);
    scene.sent();
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSET ROLE reader"]);
    scene.server(&[complete("SET"), ready(b'I')]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    // RESET ALL leaves the role, RESET ROLE does not. The backend stays spoilt.
    scene.client(&[query("RESET ALL")]);
    scene.server(&[complete("RESET"), ready(b'I')]);
    assert!(scene.session.settings.get("role").is_some());
    scene.client(&[query("RESET ROLE")]);
    scene.server(&[complete("RESET"), ready(b'I')]);
    assert!(scene.session.settings.get("role").is_none() && scene.session.detach().is_spoilt());
}

/// asyncpg does this whenever it looks up types.
#[test]
fn a_setting_that_a_parameter_says_is_carried_over() {
    let to_bind = |value: Option<&str>| {
        let mut frame = Vec::new();
        write::frame(&mut frame, client::BIND, |out| {
            out.extend_from_slice(b"\0\0\0\x01\0\x01\0\x01");
            let length = value.map_or(-1, |value| i32::try_from(value.len()).unwrap());
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(value.unwrap_or_default().as_bytes());
            out.extend_from_slice(&[0, 1, 0, 1]);
        });
        frame
    };
    let cur =
        "SELECT current_setting('bytea_output') AS cur, set_config('bytea_output', 'off', false) AS new";
    let back = "SELECT set_config('bytea_output', $1, false)";
    let answer = [bare(b'1'), bare(b'2'), complete("SELECT 1"), ready(b'I')];
    for split in [false, true] {
        let mut scene = Scene::attached();
        scene.client(&[parse("", cur), bind(""), execute(), bare(client::SYNC)]);
        scene.server(&answer);
        assert_eq!(scene.session.settings.get("bytea_output"), Some("bytea_output TO 'off'"));
        assert_eq!(scene.session.can_detach(), Detach::Now);
        let frames = [parse("", back), to_bind(Some("on")), execute(), bare(client::SYNC)].concat();
        scene.out.clear();
        if split {
            for byte in &frames {
                scene.client(&[vec![*byte]]);
            }
        } else {
            scene.client(std::slice::from_ref(&frames));
        }
        assert_eq!(scene.out.to_server, frames);
        scene.server(&answer);
        assert_eq!(scene.session.can_detach(), Detach::Now);
        scene.session.detach();
        scene.client(&[query("SELECT 1")]);
        scene.sent();
        scene.attach(Memory::default());
        assert_eq!(scene.sent(), ["QSET bytea_output TO 'on'"]);
    }
    // NULL is the default, whatever that is.
    let mut scene = Scene::attached();
    scene.client(&[parse("", back), to_bind(None), execute(), bare(client::SYNC)]);
    scene.server(&answer);
    assert_eq!(scene.session.can_detach(), Detach::Not(Tied::Pinned));
    // A portal that is suspended behind its only row has set it, and does so once.
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    let (mut bind_portal, mut execute_portal) = (Vec::new(), Vec::new());
    write::bind(&mut bind_portal, b"p", b"");
    write::execute(&mut execute_portal, b"p");
    scene.client(&[parse("", cur), bind_portal, execute_portal.clone(), bare(client::SYNC)]);
    scene.server(&[bare(b'1'), bare(b'2'), bare(b's'), ready(b'T')]);
    assert_eq!(scene.session.settings.get("bytea_output"), Some("bytea_output TO 'off'"));
    scene.client(&[query("SET bytea_output TO on")]);
    scene.server(&[complete("SET"), ready(b'T')]);
    scene.client(&[execute_portal, bare(client::SYNC)]);
    scene.server(&[complete("SELECT 0"), ready(b'T')]);
    assert_eq!(scene.session.settings.get("bytea_output"), Some("bytea_output TO on"));
}

/// On another backend its text would be read by other rules.
#[test]
fn a_statement_that_was_prepared_under_other_rules_stays_with_its_backend() {
    let off = || {
        let mut frame = Vec::new();
        write::parameter_status(&mut frame, "standard_conforming_strings", "off");
        frame
    };
    for (is_prepared, detach) in [(true, Detach::Not(Tied::Pinned)), (false, Detach::AfterReadingSettings)] {
        let mut scene = Scene::attached();
        if is_prepared {
            scene.client(&[parse("s", "SELECT 'a\\'"), bare(client::SYNC)]);
            scene.server(&[bare(b'1'), ready(b'I')]);
        }
        scene.client(&[query("SET standard_conforming_strings = off")]);
        scene.server(&[complete("SET"), off(), ready(b'I')]);
        assert_eq!(scene.session.can_detach(), detach);
    }
}

/// Npgsql resets the role that nobody has set.
#[test]
fn the_own_role_needs_no_reset() {
    let mut scene = Scene::attached();
    scene.client(&[query("SET SESSION AUTHORIZATION DEFAULT;reset role")]);
    let sent = scene.sent();
    assert!(sent.len() == 1 && !sent[0].to_lowercase().contains("role"), "{sent:?}");
    assert!(!sent[0].to_lowercase().contains("authorization"), "{sent:?}");
    scene.out.to_client.clear();
    let selected = || [b"T\0\0\0\x06\0\0".to_vec(), complete("SELECT 0")].concat();
    scene.server(&[selected(), selected(), ready(b'I')]);
    assert_eq!(short(&scene.out.to_client), ["CSET", "CRESET", "ZI"]);
    assert!(!scene.session.detach().is_spoilt());
    // One that was set must be.
    for sql in ["SET ROLE a;RESET ROLE", "SELECT my_function();RESET ROLE"] {
        let mut scene = Scene::attached();
        scene.client(&[query(sql)]);
        assert_eq!(scene.sent(), [format!("Q{sql}")]);
    }
    let mut scene = Scene::attached();
    scene.client(&[query("SET ROLE a"), query("RESET ROLE")]);
    assert_eq!(scene.sent(), ["QSET ROLE a", "QRESET ROLE"]);
}

/// asyncpg leaves it so. Aurora DSQL refuses to SET or RESET it, so whoever restores it breaks the session, or that of the next client.
#[test]
fn a_setting_that_changes_no_result_is_not_carried_over() {
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT set_config('jit', 'off', false)")]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    let memory = scene.session.detach();
    assert!(!memory.is_spoilt());
    scene.client(&[query("SELECT 1")]);
    scene.sent();
    scene.attach(memory);
    assert_eq!(scene.sent(), ["QSELECT 1"]);
}

/// What is not known to take SET and RESET goes the way it came. Its backend is for nobody else.
#[test]
fn a_setting_that_only_the_function_takes_is_set_by_it() {
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT set_config('app.user', 'x', false)")]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    assert_eq!(scene.session.can_detach(), Detach::Now);
    assert!(scene.session.detach().is_spoilt());
    scene.client(&[query("SELECT 1")]);
    scene.sent();
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSELECT set_config('app.user', 'x', false)"]);
    scene.out.to_client.clear();
    let row = [b"T\0\0\0\x06\0\0".to_vec(), b"D\0\0\0\x06\0\0".to_vec()].concat();
    scene.server(&[row, complete("SELECT 1"), ready(b'I')]);
    assert_eq!(scene.sent(), ["QSELECT 1"]);
    assert!(scene.out.to_client.is_empty(), "{:?}", scene.out.to_client);
}

/// Aurora DSQL refuses to set it.
#[test]
fn client_min_messages_is_a_setting_of_the_session_alone() {
    let notice = |severity: &str| {
        let mut frame = Vec::new();
        write::frame(&mut frame, b'N', |out| out.extend(format!("S{severity}\0V{severity}\0Mx\0\0").bytes()));
        frame
    };
    let row = || [b"D\0\0\0\x0b\0\x01\0\0\0\x011".to_vec(), complete("SELECT 1")].concat();
    let show = ["Tclient_min_messages", "D", "CSHOW", "ZI"];
    let shown = |scene: &mut Scene| {
        scene.client(&[query("SHOW client_min_messages")]);
        scene.server(&[row(), ready(b'I')]);
        let bytes = std::mem::take(&mut scene.out.to_client);
        let frames = short(&bytes);
        let value = frames.iter().find_map(|frame| frame.strip_prefix('D')).unwrap_or_default().to_owned();
        assert_eq!(frames.len(), show.len(), "{frames:?}");
        value
    };
    let mut scene = Scene::new(&[("client_min_messages", "warning")]);
    scene.client(&[query("SELECT 1")]);
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSELECT 1"], "there is nothing to restore");
    scene.server(&[notice("NOTICE"), notice("WARNING"), notice("INFO"), complete("SELECT 1"), ready(b'I')]);
    assert_eq!(scene.seen(), ["NSWARNINGVWARNINGMx", "NSINFOVINFOMx", "CSELECT 1", "ZI"]);
    // Why it waits for a backend is a notice, too.
    scene.session.notice(&ServerError::notice("00000", "x"), &mut scene.out);
    assert!(scene.seen().is_empty());
    assert_eq!(shown(&mut scene), "warning");

    // Each of several statements, in a transaction that is rolled back, up to its end.
    scene.client(&[query(
        "BEGIN; SET client_min_messages = 'error'; SET LOCAL client_min_messages TO debug1",
    )]);
    scene.sent();
    scene.server(&[complete("BEGIN"), row(), row(), notice("NOTICE"), ready(b'T')]);
    assert_eq!(scene.seen(), ["CBEGIN", "CSET", "CSET", "NSNOTICEVNOTICEMx", "ZT"]);
    scene.client(&[query("ROLLBACK")]);
    scene.server(&[complete("ROLLBACK"), ready(b'I')]);
    scene.seen();
    assert_eq!(shown(&mut scene), "warning");

    // Prepared, and reset.
    scene.client(&[
        parse("", "SET client_min_messages TO error"),
        describe(""),
        bind(""),
        execute(),
        bare(client::SYNC),
    ]);
    assert!(scene.sent().iter().any(|frame| frame.starts_with("PSELECT 1")));
    scene.server(&[bare(b'1'), b"t\0\0\0\x06\0\0".to_vec(), bare(b'n'), bare(b'2'), row(), ready(b'I')]);
    assert_eq!(scene.seen(), ["1", "t", "n", "2", "CSET", "ZI"]);
    assert_eq!(shown(&mut scene), "error");
    scene.sent();
    scene.client(&[query("RESET ALL")]);
    assert_eq!(scene.sent(), ["QRESET ALL"]);
    scene.server(&[complete("RESET"), ready(b'I')]);
    scene.seen();
    assert_eq!(shown(&mut scene), "warning");

    // What it cannot be.
    scene.client(&[query("SET client_min_messages TO panic")]);
    scene.server(&[error("22012", "division by zero"), ready(b'I')]);
    assert_eq!(scene.seen(), ["EE22023", "ZI"]);

    // The next client of the backend has its own.
    let memory = scene.session.detach();
    let mut next = Scene::new(&[]);
    next.attach(memory);
    assert!(next.sent().is_empty());
    assert_eq!(shown(&mut next), "notice");
}

#[test]
fn a_reset_of_a_role_that_nobody_set_leaves_the_backend_to_others() {
    let mut scene = Scene::attached();
    scene.client(&[query("SET SESSION AUTHORIZATION DEFAULT;RESET ROLE")]);
    scene.server(&[complete("SET"), complete("RESET"), ready(b'I')]);
    assert!(!scene.session.detach().is_spoilt());
}

#[test]
fn the_last_value_of_a_sequence_is_never_that_of_another_session() {
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT lastval()")]);
    assert_eq!(scene.sent(), ["QSELECT 1/0      "]);
    scene.server(&[error("22012", "division by zero"), ready(b'I')]);
    assert_eq!(scene.seen(), ["EE55000", "ZI"]);
    assert_eq!(scene.session.can_detach(), Detach::Now);
    // After an INSERT on this backend it may be its own, and then the session stays here.
    scene.client(&[query("INSERT INTO t VALUES (1)")]);
    scene.server(&[complete("INSERT 0 1"), ready(b'I')]);
    scene.client(&[query("SELECT lastval()")]);
    assert_eq!(scene.sent(), ["QINSERT INTO t VALUES (1)", "QSELECT lastval()"]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    assert_eq!(scene.session.can_detach(), Detach::Not(Tied::Pinned));
}

#[test]
fn a_session_that_changes_how_its_text_is_read_is_unsure_of_its_settings() {
    for (sql, detach) in [
        ("SET standard_conforming_strings = on", Detach::Now),
        ("SET client_encoding TO 'UTF8'", Detach::Now),
        ("SET standard_conforming_strings = off", Detach::AfterReadingSettings),
        ("SET NAMES 'SJIS'", Detach::AfterReadingSettings),
    ] {
        let mut scene = Scene::attached();
        scene.client(&[query(sql)]);
        scene.server(&[complete("SET"), ready(b'I')]);
        assert_eq!(scene.session.can_detach(), detach, "{sql}");
    }
    // And stays so while the server reads it in that way.
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT 1")]);
    scene.server(&[
        b"S\0\0\0\x24standard_conforming_strings\0off\0".to_vec(),
        complete("SELECT 1"),
        ready(b'I'),
    ]);
    assert_eq!(scene.session.can_detach(), Detach::AfterReadingSettings);
    // What has come before the server reads it as the scanner does was not yet understood.
    let mut scene = Scene::attached();
    scene.client(&[
        query("SET standard_conforming_strings = on"),
        query("SELECT 'a\\'; SET search_path TO b; --'"),
    ]);
    scene.server(&[
        b"S\0\0\0\x24standard_conforming_strings\0off\0".to_vec(),
        b"S\0\0\0\x23standard_conforming_strings\0on\0".to_vec(),
        complete("SET"),
        ready(b'I'),
        complete("SELECT 1"),
        complete("SET"),
        ready(b'I'),
    ]);
    assert_eq!(scene.session.can_detach(), Detach::AfterReadingSettings);
}

#[test]
fn the_batch_of_asyncpg_is_answered_statement_by_statement() {
    let mut scene = Scene::new(&[("application_name", "app")]);
    scene.attach(Memory::default());
    scene.server(&[complete("SET"), ready(b'I')]);
    scene.sent();
    scene.seen();
    scene.client(&[query("SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;")]);
    let sent = String::from_utf8(scene.out.to_server[HEADER..].to_vec()).unwrap();
    let rest = "SELECT 1                       ;\nSELECT 1 ;\nSELECT 1  ;\nRESET ALL;SET application_name TO 'app';\0";
    assert_eq!(sent, rest);
    let row = [
        b"T\0\0\0\x21\0\x01?column?\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0".to_vec(),
        b"D\0\0\0\x0b\0\x01\0\0\0\x011".to_vec(),
    ];
    for _ in 0..3 {
        scene.server(&row);
        scene.server(&[complete("SELECT 1")]);
    }
    scene.server(&[complete("RESET"), complete("SET"), ready(b'I')]);
    assert_eq!(
        scene.seen(),
        ["Tpg_advisory_unlock_all", "D", "CSELECT 1", "CCLOSE CURSOR ALL", "CUNLISTEN", "CRESET", "ZI"]
    );
}

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
    assert_eq!(session.held.capacity() + session.partial.capacity() + session.answer.capacity(), 0);
    println!("a session: {} bytes, a backend: {} bytes", size_of::<VirtualSession>(), size_of::<Backend>());
}
