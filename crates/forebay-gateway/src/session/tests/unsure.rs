//! What was not understood leaves doubt.

use super::frames::{complete, error, query, ready};
use super::scene::Scene;
use crate::session::{Detach, Tied};

/// What the server has run in between may be any statement.
#[test]
fn another_number_of_answers_than_statements_leaves_doubt() {
    for (answers, certain) in [(1, false), (2, true), (3, false)] {
        let mut scene = Scene::attached();
        scene.client(&[query("SELECT 1; SET search_path TO a")]);
        scene.server(&vec![complete("SET"); answers]);
        scene.server(&[ready(b'I')]);
        let detach = if certain { Detach::Now } else { Detach::AfterReadingSettings };
        assert_eq!(scene.session.can_detach(), detach, "{answers}");
        assert_eq!(scene.session.detach().is_spoilt(), !certain, "{answers}");
    }
    // An error ends it before its end.
    let mut scene = Scene::attached();
    scene.client(&[query("SET search_path TO a; SELECT wrong")]);
    scene.server(&[complete("SET"), error("42703", "wrong"), ready(b'I')]);
    assert_eq!(scene.session.can_detach(), Detach::Now);
    assert!(!scene.session.detach().is_spoilt());
}

/// What it takes back is not known, so nobody else may get the backend.
#[test]
fn a_savepoint_whose_name_is_spelt_with_escapes_pins() {
    for (savepoint, rollback) in [("U&\"\\0061\"", "a"), ("a", "u&\"!0061\" uescape '!'")] {
        let mut scene = Scene::attached();
        scene.client(&[query(&format!(
            "BEGIN; SAVEPOINT {savepoint}; SET search_path TO x; ROLLBACK TO {rollback}; COMMIT"
        ))]);
        scene.server(&["BEGIN", "SAVEPOINT", "SET", "ROLLBACK", "COMMIT"].map(complete));
        scene.server(&[ready(b'I')]);
        assert_eq!(scene.session.can_detach(), Detach::Not(Tied::Pinned), "{savepoint}");
    }
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN; SAVEPOINT U&\"a\"; SET search_path TO x; ROLLBACK TO a; COMMIT")]);
    scene.server(&["BEGIN", "SAVEPOINT", "SET", "ROLLBACK", "COMMIT"].map(complete));
    scene.server(&[ready(b'I')]);
    assert_eq!(scene.session.can_detach(), Detach::Now);
    assert!(scene.session.settings.get("search_path").is_none());
}
