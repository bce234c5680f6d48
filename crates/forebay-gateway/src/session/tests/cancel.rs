//! A statement is cancelled, or given up.

use super::frames::{bare, bind, complete, error, execute, parse, query, ready};
use super::scene::Scene;
use crate::protocol::{ServerError, client};
use crate::session::Cancelled;

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
    assert!(scene.session.is_giving_up());
    assert_eq!(scene.session.give_up_now(&mut scene.out), Cancelled::DropBackend);
    let told = String::from_utf8_lossy(&scene.out.to_client).into_owned();
    assert!(told.contains("statement timeout"), "{told}");
}

#[test]
fn a_statement_that_completes_before_it_can_be_given_up_costs_the_next_one_nothing() {
    for ready_came in [true, false] {
        let mut scene = Scene::attached();
        scene.client(&[query("SELECT a FROM t"), query("INSERT INTO t VALUES (1)")]);
        scene.server(&[b"D\0\0\0\x09\0".to_vec()]);
        assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::Soon);
        let end = if ready_came { ready(b'I') } else { Vec::new() };
        scene.server(&[b"\x01abc".to_vec(), complete("SELECT 1"), end]);
        assert!(!scene.session.is_giving_up());
        assert_eq!(scene.session.give_up_now(&mut scene.out), Cancelled::NothingRunning);
        assert!(scene.session.is_attached());
    }
}

/// Otherwise a COMMIT at the end of a text, or behind a statement, would switch off cancels and timeouts.
#[test]
fn a_statement_in_front_of_a_commit_is_cancelled() {
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN; SELECT pg_sleep(6); COMMIT")]);
    scene.server(&[complete("BEGIN"), complete("SELECT 1")]);
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::NothingRunning, "it commits");
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN; SELECT pg_sleep(6); COMMIT")]);
    scene.server(&[complete("BEGIN")]);
    scene.seen();
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::DropBackend);
    let told = String::from_utf8_lossy(&scene.out.to_client).into_owned();
    assert!(told.contains("57014") && told.contains("may have been executed and committed"), "{told}");
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    scene.client(&[query("SELECT pg_sleep(6)"), query("COMMIT")]);
    scene.seen();
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::DropBackend);
    assert_eq!(scene.seen(), ["EE57014", "ZE", "EE08007", "ZI"]);
}
