//! A role goes with the session, and spoils the backend.

use super::frames::{complete, query, ready};
use super::scene::{Scene, short};
use crate::session::Memory;

#[test]
fn a_role_stays_with_the_session_and_spoils_the_backend() {
    let mut scene = Scene::attached();
    scene.client(&[query("SET ROLE reader")]);
    scene.server(&[complete("SET"), ready(b'I')]);
    assert!(scene.session.detach().is_spoilt());
    scene.client(&[query("SELECT 1")]);
    scene.sent();
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSET ROLE reader"]);
    scene.server(&[complete("SET"), ready(b'I')]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    // RESET ALL leaves the role, RESET ROLE does not. The backend stays spoilt.
    scene.client(&[query("RESET ALL")]);
    scene.server(&[complete("RESET"), ready(b'I')]);
    assert!(scene.session.settings.get("role").is_some());
    scene.client(&[query("RESET ROLE")]);
    scene.server(&[complete("RESET"), ready(b'I')]);
    assert!(scene.session.settings.get("role").is_none() && scene.session.detach().is_spoilt());
}

/// Npgsql resets the role that nobody has set.
#[test]
fn the_own_role_needs_no_reset() {
    let mut scene = Scene::attached();
    scene.client(&[query("SET SESSION AUTHORIZATION DEFAULT;reset role")]);
    let sent = scene.sent();
    assert!(sent.len() == 1 && !sent[0].to_lowercase().contains("role"), "{sent:?}");
    assert!(!sent[0].to_lowercase().contains("authorization"), "{sent:?}");
    scene.out.to_client.clear();
    let selected = || [b"T\0\0\0\x06\0\0".to_vec(), complete("SELECT 0")].concat();
    scene.server(&[selected(), selected(), ready(b'I')]);
    assert_eq!(short(&scene.out.to_client), ["CSET", "CRESET", "ZI"]);
    assert!(!scene.session.detach().is_spoilt());
    // One that was set must be.
    for sql in [
        "SET ROLE a;RESET ROLE",
        "SELECT my_function();RESET ROLE",
        "SET LOCAL ROLE a;RESET ROLE",
        "SELECT set_config('role', 'a', true);RESET ROLE",
        "BEGIN;SET LOCAL SESSION AUTHORIZATION a;RESET SESSION AUTHORIZATION",
    ] {
        let mut scene = Scene::attached();
        scene.client(&[query(sql)]);
        assert_eq!(scene.sent(), [format!("Q{sql}")]);
    }
    let mut scene = Scene::attached();
    scene.client(&[query("SET ROLE a"), query("RESET ROLE")]);
    assert_eq!(scene.sent(), ["QSET ROLE a", "QRESET ROLE"]);
}

#[test]
fn a_reset_of_a_role_that_nobody_set_leaves_the_backend_to_others() {
    let mut scene = Scene::attached();
    scene.client(&[query("SET SESSION AUTHORIZATION DEFAULT;RESET ROLE")]);
    scene.server(&[complete("SET"), complete("RESET"), ready(b'I')]);
    assert!(!scene.session.detach().is_spoilt());
}
