use super::*;
use crate::session::{Cancelled, Lost, Memory, Reported, SessionLimits, StartSettings};

const CONFLICT: &str = "schema has been updated by another transaction, please retry: (OC001)";

struct Scene(VirtualSession);

impl Scene {
    /// On a fresh backend.
    fn new() -> Self {
        let mut session = VirtualSession::new(StartSettings::default(), SessionLimits::default());
        session.attach(Memory::default(), &Reported::default(), &mut Outbox::default());
        Self(session)
    }

    /// In a block of a fresh backend, in which nothing has happened.
    fn in_block() -> Self {
        let mut scene = Self::new();
        assert_eq!(scene.client(|out| write::query(out, b"BEGIN READ ONLY")), ["QBEGIN READ ONLY"]);
        assert_eq!(scene.server(|out| completed(out, "BEGIN", b'T')), (strings(&["CBEGIN", "ZT"]), vec![]));
        scene
    }

    /// What the server gets.
    fn client(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<String> {
        let (mut bytes, mut out) = (Vec::new(), Outbox::default());
        write(&mut bytes);
        self.0.from_client(&bytes, &mut out).unwrap();
        assert!(out.to_client.is_empty());
        frames(&out.to_server)
    }

    /// What the client and the server get.
    fn server(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> (Vec<String>, Vec<String>) {
        let (mut bytes, mut out) = (Vec::new(), Outbox::default());
        write(&mut bytes);
        // Split anywhere.
        for byte in bytes {
            self.0.from_server(&[byte], &mut out).unwrap();
        }
        (frames(&out.to_client), frames(&out.to_server))
    }
}

/// The type and what can be read, without the text of an error.
fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut frames = Vec::new();
    while let Ok(Some((kind, length))) = header(bytes) {
        let readable = bytes[HEADER..length].iter().filter(|byte| byte.is_ascii_graphic() || **byte == b' ');
        let mut text: String = readable.map(|&byte| char::from(byte)).collect();
        if let Some(code) = text.find("40001").filter(|_| kind == server::ERROR) {
            text = text[code..code + 5].to_owned();
        }
        frames.push(format!("{}{text}", char::from(kind)));
        bytes = &bytes[length..];
    }
    frames
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn completed(out: &mut Vec<u8>, tag: &str, status: u8) {
    write::command_complete(out, tag);
    write::ready_for_query(out, status);
}

fn conflict(out: &mut Vec<u8>) {
    write::error(out, &ServerError::error("40001", CONFLICT));
    write::ready_for_query(out, b'E');
}

fn begins_again(out: &mut Vec<u8>) {
    completed(out, "ROLLBACK", b'I');
    completed(out, "BEGIN", b'T');
}

#[test]
fn a_block_in_which_nothing_has_happened_begins_again() {
    let mut scene = Scene::in_block();
    let read = |out: &mut Vec<u8>| write::query(out, b"SELECT 1");
    scene.client(read);
    let begins = strings(&["QROLLBACK", "QBEGIN READ ONLY"]);
    assert_eq!(scene.server(conflict), (vec![], begins));
    // What the client sends meanwhile comes behind it.
    assert!(!scene.0.takes_more());
    assert_eq!(scene.server(begins_again), (vec![], strings(&["QSELECT 1"])));
    assert_eq!(scene.0.transaction(), TransactionStatus::InTransaction);
    // Once.
    assert_eq!(scene.server(conflict), (strings(&["E40001", "ZE"]), vec![]));
    assert_eq!(scene.0.transaction(), TransactionStatus::Failed);
}

#[test]
fn extended_requests_are_sent_again_up_to_their_sync() {
    let mut scene = Scene::in_block();
    let segment = |out: &mut Vec<u8>| {
        write::parse(out, b"s", b"SELECT 1\0\0\0");
        write::bind(out, b"", b"s");
        write::execute(out, b"");
        write::bare(out, client::SYNC);
    };
    let sent = scene.client(segment);
    assert_eq!(sent.len(), 4);
    assert_eq!(scene.server(conflict), (vec![], strings(&["QROLLBACK", "QBEGIN READ ONLY"])));
    assert_eq!(scene.server(begins_again), (vec![], sent));
    let (seen, _) = scene.server(|out| {
        write::bare(out, server::PARSE_COMPLETE);
        write::bare(out, server::BIND_COMPLETE);
        completed(out, "SELECT 1", b'T');
    });
    assert_eq!(seen, ["1", "2", "CSELECT 1", "ZT"]);
}

#[test]
fn a_block_in_which_something_has_happened_does_not() {
    let mut scene = Scene::in_block();
    scene.client(|out| write::query(out, b"SELECT 1"));
    scene.server(|out| completed(out, "SELECT 1", b'T'));
    scene.client(|out| write::query(out, b"SELECT 2"));
    assert_eq!(scene.server(conflict), (strings(&["E40001", "ZE"]), vec![]));
    // Nor if more was sent behind it.
    let mut scene = Scene::in_block();
    scene.client(|out| {
        write::query(out, b"SELECT 1");
        write::query(out, b"SELECT 2");
    });
    assert_eq!(scene.server(conflict), (strings(&["E40001", "ZE"]), vec![]));
    // Nor if it is the end of the block.
    let mut scene = Scene::in_block();
    scene.client(|out| write::query(out, b"COMMIT"));
    assert_eq!(scene.server(conflict).0, ["E40001", "ZE"]);
    // Nor if the block began with more than a BEGIN.
    let mut scene = Scene::new();
    scene.client(|out| write::query(out, b"BEGIN; SELECT 1"));
    scene.server(|out| {
        write::command_complete(out, "BEGIN");
        completed(out, "SELECT 1", b'T');
    });
    scene.client(|out| write::query(out, b"SELECT 2"));
    assert_eq!(scene.server(conflict), (strings(&["E40001", "ZE"]), vec![]));
    // Nor is it any other error.
    let mut scene = Scene::in_block();
    scene.client(|out| write::query(out, b"SELECT 1"));
    let (seen, sent) = scene.server(|out| {
        write::error(out, &ServerError::error("40001", "change conflicts with another transaction (OC000)"));
        write::ready_for_query(out, b'E');
    });
    assert_eq!((seen, sent), (strings(&["E40001", "ZE"]), vec![]));
}

/// A savepoint, or a BEGIN that the server warns of: it has an answer.
#[test]
fn a_second_begin_is_a_statement_of_the_block() {
    let mut scene = Scene::in_block();
    scene.client(|out| write::query(out, b"BEGIN"));
    scene.server(|out| completed(out, "BEGIN", b'T'));
    scene.client(|out| write::query(out, b"SELECT 1"));
    assert_eq!(scene.server(conflict), (strings(&["E40001", "ZE"]), vec![]));
}

#[test]
fn a_later_block_begins_again_only_if_the_session_has_changed_the_schema_itself() {
    for changes in [true, false] {
        let mut scene = Scene::new();
        let text: &[u8] = if changes { b"ALTER TABLE t ADD COLUMN a int" } else { b"SELECT 1" };
        scene.client(|out| write::query(out, text));
        scene.server(|out| completed(out, "ALTER TABLE", b'I'));
        let memory = scene.0.detach();
        scene.0.attach(memory, &Reported::default(), &mut Outbox::default());
        scene.client(|out| write::query(out, b"SELECT 1"));
        scene.server(|out| completed(out, "SELECT 1", b'I'));
        for _ in 0..2 {
            scene.client(|out| write::query(out, b"BEGIN"));
            scene.server(|out| completed(out, "BEGIN", b'T'));
            scene.client(|out| write::query(out, b"SELECT a FROM t"));
            let (seen, sent) = scene.server(conflict);
            assert_eq!((seen.is_empty(), sent.len()), if changes { (true, 2) } else { (false, 0) });
            if changes {
                assert_eq!(scene.server(begins_again).1, ["QSELECT a FROM t"]);
                scene.server(|out| completed(out, "SELECT 1", b'T'));
            }
            scene.client(|out| write::query(out, b"ROLLBACK"));
            scene.server(|out| completed(out, "ROLLBACK", b'I'));
        }
    }
}

#[test]
fn a_backend_that_is_lost_meanwhile_fails_the_transaction() {
    let begins = || {
        let mut scene = Scene::in_block();
        scene.client(|out| write::query(out, b"SELECT 1"));
        scene.server(conflict);
        scene
    };
    let (mut scene, mut out) = (begins(), Outbox::default());
    assert_eq!(scene.0.lost(&mut out), Lost::Told);
    assert_eq!(frames(&out.to_client).len(), 2, "an error, and the server is ready");
    assert_eq!(scene.0.transaction(), TransactionStatus::Failed);
    // A cancel request loses it, too.
    let (mut scene, mut out) = (begins(), Outbox::default());
    assert_eq!(scene.0.cancel(&mut out), Cancelled::DropBackend);
    let told = String::from_utf8_lossy(&out.to_client).into_owned();
    assert!(told.contains("57014") && scene.0.transaction() == TransactionStatus::Failed, "{told}");
    // A client that leaves loses nothing.
    let (mut scene, mut out) = (begins(), Outbox::default());
    assert!(matches!(scene.0.hang_up(&mut out), crate::session::HungUp::Drain));
    assert_eq!(scene.server(begins_again), (vec![], vec![]));
    assert!(matches!(scene.0.hang_up(&mut out), crate::session::HungUp::Left(_)));
}

#[test]
fn a_block_that_does_not_begin_again_ends_the_session() {
    let mut scene = Scene::in_block();
    scene.client(|out| write::query(out, b"SELECT 1"));
    scene.server(conflict);
    let (seen, sent) = scene.server(|out| {
        completed(out, "ROLLBACK", b'I');
        write::error(out, &ServerError::error("53400", "as told"));
        write::ready_for_query(out, b'I');
    });
    assert!(seen.len() == 1 && seen[0].contains("FATAL") && seen[0].contains("53400"), "{seen:?}");
    assert!(sent.is_empty() && scene.0.is_over());
}
