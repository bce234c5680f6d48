//! Prepared statements go with the session from backend to backend.

use super::frames::{
    bare, bind, column, complete, describe, error, execute, no_parameters, parse, query, ready,
};
use super::scene::Scene;
use crate::protocol::{client, write};
use crate::session::{Detach, Lost, Memory, Tied};

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

/// A client that has prepared these and knows their columns, with another backend before it asks again.
fn ahead(names: &[&str]) -> Scene {
    let mut scene = Scene::attached();
    for name in names {
        scene.client(&[parse(name, &format!("SELECT {name}")), describe(name), bare(client::SYNC)]);
        scene.server(&[bare(b'1'), no_parameters(), column(23), ready(b'I')]);
    }
    scene.seen();
    scene.session.detach();
    scene.attach(Memory::default());
    scene.sent();
    scene.session.prepare_ahead(&mut scene.out);
    scene
}

#[test]
fn the_next_backend_of_an_idle_client_has_its_statements() {
    let mut scene = ahead(&["a", "b"]);
    assert_eq!(scene.sent(), ["PbSELECT b", "DSb", "S", "PaSELECT a", "DSa", "S"]);
    // It goes on meanwhile.
    scene.client(&[bind("a"), execute(), bare(client::SYNC)]);
    let prepared = [bare(b'1'), no_parameters(), column(23), ready(b'I')];
    scene.server(&prepared);
    assert!(scene.sent().is_empty());
    scene.server(&prepared);
    assert_eq!(scene.sent(), ["Ba", "E", "S"]);
    assert!(scene.seen().is_empty());
    scene.server(&[bare(b'2'), complete("SELECT 1"), ready(b'I')]);
    scene.client(&[bind("b")]);
    assert_eq!(
        (scene.sent(), scene.seen()),
        (vec!["Bb".to_owned()], ["2", "CSELECT 1", "ZI"].map(str::to_owned).to_vec())
    );
}

/// What a statement means may depend on them.
#[test]
fn settings_come_before_statements() {
    let mut scene = Scene::attached();
    scene.client(&[query("SET search_path = a"), parse("s", "SELECT 1"), bare(client::SYNC)]);
    scene.server(&[complete("SET"), ready(b'I'), bare(b'1'), ready(b'I')]);
    scene.session.detach();
    scene.sent();
    scene.attach(Memory::default());
    scene.session.prepare_ahead(&mut scene.out);
    assert_eq!(scene.sent(), ["QSET search_path = a"]);
    scene.server(&[complete("SET"), ready(b'I')]);
    assert_eq!(scene.sent(), ["PsSELECT 1", "S"]);
}

#[test]
fn what_cannot_be_prepared_ahead_is_told_when_it_is_used() {
    // It fails, or has other columns now.
    for (answer, told) in [
        (vec![error("42P01", "no table")], "EE42P01"),
        (vec![bare(b'1'), no_parameters(), column(25)], "EE0A000"),
    ] {
        let mut scene = ahead(&["b", "a"]);
        scene.server(&[answer.concat(), ready(b'I'), bare(b'1'), no_parameters(), column(23), ready(b'I')]);
        assert!(scene.seen().is_empty() && scene.session.is_idle());
        scene.sent();
        scene.client(&[bind("b"), execute(), bare(client::SYNC)]);
        assert_eq!(scene.sent(), ["Bb", "E", "S"]);
        scene.server(&[bare(b'2'), complete("SELECT 1"), ready(b'I')]);
        scene.seen();
        scene.client(&[bind("a"), execute(), bare(client::SYNC)]);
        let asked = scene.sent();
        assert_eq!(asked[asked.len() - 3..], ["PaSELECT a", "DSa", "H"]);
        if asked.len() > 3 {
            assert_eq!(asked[0], "CSa");
            scene.server(&[bare(b'3')]);
        }
        scene.server(&[answer.concat()]);
        if told == "EE0A000" {
            assert_eq!(scene.sent()[0], "CSa");
            scene.server(&[bare(b'3'), error("26000", "no statement")]);
        }
        assert_eq!(scene.seen(), [told]);
    }
}

#[test]
fn a_backend_that_is_lost_while_it_prepares_is_not_missed() {
    let mut scene = ahead(&["a"]);
    scene.client(&[bind("a"), execute(), bare(client::SYNC)]);
    assert_eq!(scene.lost(), Lost::Unnoticed);
    scene.sent();
    scene.attach(Memory::default());
    assert_eq!(
        (scene.sent(), scene.seen()),
        (["PaSELECT a", "DSa", "H"].map(str::to_owned).to_vec(), vec![])
    );
}

/// Those that were changed last.
#[test]
fn not_too_many_are_prepared_ahead() {
    let names: Vec<String> = (0..100).map(|number| format!("s{number}")).collect();
    let mut scene = ahead(&names.iter().map(|name| &**name).collect::<Vec<_>>());
    let sent = scene.sent();
    assert_eq!((sent.len(), &*sent[0]), (3 * 32, "Ps99SELECT s99"));
}
