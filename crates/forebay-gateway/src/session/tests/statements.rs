//! Prepared statements go with the session from backend to backend.

use super::frames::{bare, bind, complete, execute, parse, query, ready};
use super::scene::Scene;
use crate::protocol::{client, write};
use crate::session::{Detach, Memory, Tied};

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
