//! Statements that the server would refuse, and that drivers send all the same.

use super::frames::{bare, bind, complete, error, execute, parse, query, ready};
use super::scene::Scene;
use crate::protocol::{HEADER, client};
use crate::session::{Detach, Lost, Memory, Tied, scan};

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

/// What a session keeps of a text must not be many times as long.
#[test]
fn a_query_of_very_many_statements_is_refused() {
    let many = "a;".repeat(scan::MOST_STATEMENTS);
    let mut scene = Scene::new(&[("application_name", "a"), ("search_path", &"x".repeat(1_000))]);
    scene.attach(Memory::default());
    scene.server(&[complete("SET"), complete("SET"), ready(b'I')]);
    scene.sent();
    scene.seen();
    for text in [format!("BEGIN;{many}"), "RESET ALL;".repeat(2_000), "reset search_path;".repeat(2_000)] {
        scene.client(&[query(&text)]);
        assert_eq!(scene.sent(), ["QSELECT 1/0"], "{}", &text[..8]);
        scene.server(&[error("22012", "division by zero"), ready(b'I')]);
        assert_eq!(scene.seen(), ["EE54000", "ZI"]);
    }
    // Nothing is kept of these.
    scene.client(&[query(&many)]);
    assert_eq!(scene.sent(), [format!("Q{many}")]);
    assert_eq!(scan::pieces(many.repeat(2).as_bytes(), false).len(), scan::MOST_STATEMENTS + 1);
}

#[test]
fn a_statement_is_gone_once() {
    let mut scene = Scene::attached();
    scene.client(&[parse("a", "SELECT 1"), parse("b", "SELECT 1"), bare(client::SYNC)]);
    scene.server(&[bare(b'1'), bare(b'1'), ready(b'I')]);
    scene.sent();
    scene.client(&[query("DEALLOCATE a;DEALLOCATE b;DEALLOCATE a")]);
    assert_eq!(scene.sent(), ["QSELECT 1    ;SELECT 1    ;SELECT 1/0  "]);
}

#[test]
fn a_query_of_many_statements_waits_for_those_before_it() {
    let many = format!("BEGIN{}", ";a".repeat(100));
    let mut scene = Scene::attached();
    scene.client(&[query(&many), query(&many)]);
    assert_eq!(scene.sent(), [format!("Q{many}"), "H".to_owned()]);
    scene.server(&[complete("BEGIN"), error("42601", "syntax error"), ready(b'I')]);
    assert_eq!(scene.sent(), [format!("Q{many}")]);
    scene.server(&[complete("BEGIN"), error("42601", "syntax error"), ready(b'I')]);
    assert_eq!(scene.seen(), ["CBEGIN", "EE42601", "ZI", "CBEGIN", "EE42601", "ZI"]);
}

/// It cannot take part in a transaction, and requests share one up to their Sync.
#[test]
fn discard_all_behind_another_request_is_refused() {
    let mut scene = Scene::attached();
    scene.client(&[parse("", "SELECT 1"), bind(""), execute()]);
    scene.client(&[parse("", "DISCARD ALL"), bind(""), execute(), bare(client::SYNC)]);
    scene.sent();
    scene.server(&[bare(b'1'), bare(b'2'), complete("SELECT 1"), bare(b'1'), bare(b'2')]);
    assert_eq!(scene.sent(), ["Bforebay none", "S"]);
    scene.server(&[error("26000", "no such statement"), ready(b'I')]);
    assert_eq!(scene.seen(), ["1", "2", "CSELECT 1", "1", "2", "EE25001", "ZI"]);
    // Behind itself it runs.
    for _ in 0..2 {
        scene.client(&[parse("", "DISCARD ALL"), bind(""), execute()]);
        scene.server(&[bare(b'1'), bare(b'2')]);
        scene.server(&[complete("RESET")]);
        assert_eq!(scene.seen(), ["1", "2", "CDISCARD ALL"]);
    }
}
