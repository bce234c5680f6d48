//! What is sent behind a COPY that takes data, before the client knows.

use super::frames::{bare, bind, complete, error, execute, parse, query, ready};
use super::scene::Scene;
use crate::protocol::{client, server, write};

fn copy_in() -> Vec<u8> {
    let mut frame = Vec::new();
    write::frame(&mut frame, server::COPY_IN, |out| out.extend_from_slice(&[0; 3]));
    frame
}

const UNEXPECTED: &str = "unexpected message type 0x51 during COPY from stdin";

#[test]
fn a_query_that_ends_a_copy_is_answered_by_its_error() {
    // The unnamed statement, which each Query would remove.
    let mut scene = Scene::attached();
    scene.client(&[parse("", "SELECT 1"), bare(client::SYNC)]);
    scene.server(&[bare(b'1'), ready(b'I')]);
    scene.client(&[query("COPY t FROM STDIN"), query("SELECT 2"), query("SELECT 3")]);
    scene.seen();
    scene.server(&[copy_in(), error("57014", UNEXPECTED), ready(b'I')]);
    assert!(!scene.session.is_idle());
    scene.server(&[complete("SELECT 3"), ready(b'I')]);
    assert_eq!(scene.seen(), ["G", "EE57014", "ZI", "CSELECT 3", "ZI"]);
    assert!(scene.session.is_idle());
}

/// The Query was consumed, so the unnamed statement is still there.
#[test]
fn a_query_that_ends_a_copy_removes_no_statement() {
    let mut scene = Scene::attached();
    scene.client(&[
        parse("", "COPY t FROM STDIN"),
        bind(""),
        execute(),
        bare(client::SYNC),
        query("SELECT 2"),
    ]);
    scene.server(&[bare(b'1'), bare(b'2'), copy_in(), error("57014", UNEXPECTED)]);
    // The Sync came too early.
    scene.client(&[bare(client::SYNC)]);
    scene.server(&[ready(b'I')]);
    assert_eq!(scene.seen(), ["1", "2", "G", "EE57014", "ZI"]);
    assert!(scene.session.is_idle());
    scene.sent();
    scene.session.detach();
    scene.attach(crate::session::Memory::default());
    scene.client(&[bind(""), bare(client::SYNC)]);
    assert_eq!(scene.sent(), ["PCOPY t FROM STDIN", "B", "S"]);
}
