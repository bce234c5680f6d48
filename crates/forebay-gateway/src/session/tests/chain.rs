//! The end of a transaction block that begins another at once.

use super::frames::{bare, bind, complete, error, execute, parse, query, ready};
use super::scene::Scene;
use crate::protocol::client;
use crate::session::{Detach, Memory, TransactionStatus};

/// What the next backend gets, when the session is out of all blocks.
fn restored(mut scene: Scene) -> Vec<String> {
    assert_eq!(scene.session.can_detach(), Detach::Now);
    scene.session.detach();
    scene.client(&[query("SELECT 1")]);
    scene.sent();
    scene.attach(Memory::default());
    scene.sent()
}

#[test]
fn a_commit_that_chains_keeps_what_was_set_until_then() {
    for commit in ["COMMIT AND CHAIN", "end work /* x */ and chain -- y"] {
        let mut scene = Scene::attached();
        scene.client(&[query("BEGIN"), query("SET search_path TO a"), query(commit)]);
        scene.server(&[complete("BEGIN"), ready(b'T'), complete("SET"), ready(b'T')]);
        scene.server(&[complete("COMMIT"), ready(b'T')]);
        scene.client(&[query("SET search_path TO b"), query("ROLLBACK")]);
        scene.server(&[complete("SET"), ready(b'T'), complete("ROLLBACK"), ready(b'I')]);
        assert_eq!(restored(scene), ["QSET search_path TO a"], "{commit}");
    }
}

#[test]
fn the_commit_of_a_failed_block_that_chains_keeps_nothing() {
    for (end, tag) in [("COMMIT AND CHAIN", "ROLLBACK"), ("ROLLBACK AND CHAIN --", "ROLLBACK")] {
        let mut scene = Scene::attached();
        scene.client(&[query("BEGIN"), query("SET search_path TO a"), query("SELECT wrong"), query(end)]);
        scene.server(&[complete("BEGIN"), ready(b'T'), complete("SET"), ready(b'T')]);
        scene.server(&[error("42703", "wrong"), ready(b'E'), complete(tag), ready(b'T')]);
        scene.client(&[query("COMMIT")]);
        scene.server(&[complete("COMMIT"), ready(b'I')]);
        assert_eq!(restored(scene), ["QSELECT 1"], "{end}");
    }
}

/// What follows before the Sync is in the next block.
#[test]
fn a_commit_that_chains_ends_in_a_block() {
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    scene.client(&[parse("", "COMMIT AND CHAIN"), bind(""), execute(), bare(client::FLUSH)]);
    scene.server(&[bare(b'1'), bare(b'2'), complete("COMMIT")]);
    assert_eq!(scene.session.transaction(), TransactionStatus::InTransaction);
}

/// The next block needs a backend, which is not there any more.
#[test]
fn a_block_that_is_lost_does_not_end_with_another() {
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN"), query("SELECT wrong")]);
    scene.server(&[complete("BEGIN"), ready(b'T'), error("42703", "wrong"), ready(b'E')]);
    scene.lost();
    scene.seen();
    scene.client(&[query("COMMIT AND CHAIN -- y"), parse("", "ROLLBACK AND CHAIN"), bare(client::SYNC)]);
    assert_eq!(scene.seen(), ["EE25P02", "ZE", "EE25P02", "ZE"]);
}
