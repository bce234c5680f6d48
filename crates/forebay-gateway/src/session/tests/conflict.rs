//! A backend meets a change of the schema: the statement is sent once more.

use super::frames::{CONFLICT, bare, bind, complete, describe, error, execute, parse, query, ready};
use super::scene::Scene;
use crate::protocol::{HEADER, client};
use crate::session::{Lost, Memory};

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
