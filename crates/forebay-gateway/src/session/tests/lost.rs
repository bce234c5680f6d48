//! The backend is gone, or there is none: what the client is told, and what it is not.

use super::frames::{bare, bind, complete, describe, error, execute, parse, query, ready};
use super::scene::{Scene, short};
use crate::protocol::{ServerError, client, write};
use crate::session::{Cancelled, Detach, Lost, Memory, Tied, TransactionStatus};

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

/// The server commits extended requests at the Sync. Of changes of the schema that is not certain.
#[test]
fn what_lacks_its_sync_is_not_committed() {
    for (sql, told) in [("INSERT INTO t VALUES (1)", "EE08006"), ("CREATE TABLE t (id int)", "EE08007")] {
        for answered in [false, true] {
            let mut scene = Scene::attached();
            scene.client(&[parse("", sql), bind(""), execute(), bare(client::FLUSH)]);
            if answered {
                scene.server(&[bare(b'1'), bare(b'2'), complete("OK")]);
            }
            scene.seen();
            assert_eq!(scene.lost(), Lost::Told);
            assert_eq!(scene.seen(), [told], "{sql}");
        }
    }
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

/// What the server says before it closes is not the end of the client's session.
#[test]
fn a_server_that_says_why_it_ends_is_lost_for_this_reason() {
    let mut fatal = Vec::new();
    write::error(&mut fatal, &ServerError::fatal("57P01", "terminating connection"));
    for (sql, told) in [("SELECT 1", "EE08006"), ("INSERT INTO t VALUES (1)", "EE08007")] {
        let mut scene = Scene::attached();
        scene.client(&[query(sql)]);
        scene.server(&[fatal.clone()]);
        assert!(scene.seen().is_empty());
        assert_eq!(scene.lost(), Lost::Told);
        let said = String::from_utf8_lossy(&scene.out.to_client).into_owned();
        assert!(said.contains("DThe server said: terminating connection."), "{said}");
        assert_eq!(scene.seen(), [told, "ZI"], "{sql}");
        assert!(!scene.session.is_over());
    }
}
