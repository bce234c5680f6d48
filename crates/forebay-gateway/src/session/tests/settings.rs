//! Settings go with the session from backend to backend.

use super::frames::{CONFLICT, bare, bind, complete, describe, error, execute, parse, query, ready};
use super::scene::{Scene, short};
use crate::protocol::{ServerError, client, write};
use crate::session::assignment::Assignment;
use crate::session::{Detach, HungUp, Lost, Memory, Tied};

#[test]
fn settings_are_restored_before_anything_else() {
    let mut scene = Scene::new(&[("application_name", "app")]);
    scene.client(&[query("SELECT 1")]);
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSET application_name TO 'app'"]);
    // A conflict is tried again.
    scene.server(&[error("40001", CONFLICT), ready(b'I')]);
    assert_eq!(scene.sent(), ["QSET application_name TO 'app'"]);
    scene.server(&[b"S\0\0\0\x19application_name\0app\0".to_vec(), complete("SET"), ready(b'I')]);
    assert_eq!((scene.seen(), scene.sent()), (vec![], vec!["QSELECT 1".to_owned()]));
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    // The next session with the same settings sends nothing.
    let memory = scene.session.detach();
    let mut next = Scene::new(&[("application_name", "app")]);
    next.attach(memory);
    assert!(next.sent().is_empty() && next.seen().is_empty());
    // One without any resets what is left.
    let memory = next.session.detach();
    let mut other = Scene::new(&[]);
    other.attach(memory);
    assert_eq!(other.sent(), ["QRESET application_name"]);
}

#[test]
fn settings_that_cannot_be_read_stay_where_they_are() {
    for (sqlstate, detach) in [("42501", Detach::Not(Tied::Pinned)), ("40001", Detach::AfterReadingSettings)]
    {
        let mut scene = Scene::attached();
        scene.client(&[query("SELECT my_function()")]);
        scene.server(&[complete("SELECT 1"), ready(b'I')]);
        assert_eq!(scene.session.can_detach(), Detach::AfterReadingSettings);
        scene.session.read_settings(&mut scene.out);
        // The client does not wait for nothing, and hears nothing of it.
        scene.client(&[query("SELECT 2")]);
        scene.seen();
        scene.sent();
        scene.server(&[error(sqlstate, "no"), ready(b'I')]);
        assert_eq!((scene.seen(), scene.sent()), (vec![], vec!["QSELECT 2".to_owned()]), "{sqlstate}");
        scene.server(&[complete("SELECT 1"), ready(b'I')]);
        assert_eq!(scene.session.can_detach(), detach, "{sqlstate}");
        scene.seen();
        assert_eq!(scene.lost(), Lost::Ended);
        assert_eq!(scene.seen(), ["EF57P01"], "nobody knows its settings");
    }
}

#[test]
fn a_setting_that_the_server_refuses_ends_the_session_in_its_words() {
    let mut scene = Scene::new(&[("TimeZone", "Nowhere")]);
    scene.client(&[query("SELECT 1")]);
    scene.attach(Memory::default());
    scene.server(&[error("22023", "invalid value for parameter \"TimeZone\": \"Nowhere\""), ready(b'I')]);
    assert!(scene.session.is_over());
    let text = String::from_utf8_lossy(&scene.out.to_client).into_owned();
    assert!(text.contains("FATAL") && text.contains("22023") && text.contains("Nowhere"), "{text}");
    // Whoever can log in could otherwise make connections be closed, as often as it likes.
    let HungUp::Left(left) = scene.session.hang_up(&mut scene.out) else {
        panic!("somebody else can have it")
    };
    let mut next = Scene::new(&[]);
    next.client(&[query("SELECT 1")]);
    next.attach(left.memory);
    assert_eq!(next.sent(), ["QSELECT 1"]);
}

/// asyncpg does this whenever it looks up types.
#[test]
fn a_setting_that_a_parameter_says_is_carried_over() {
    let to_bind = |value: Option<&str>| {
        let mut frame = Vec::new();
        write::frame(&mut frame, client::BIND, |out| {
            out.extend_from_slice(b"\0\0\0\x01\0\x01\0\x01");
            let length = value.map_or(-1, |value| i32::try_from(value.len()).unwrap());
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(value.unwrap_or_default().as_bytes());
            out.extend_from_slice(&[0, 1, 0, 1]);
        });
        frame
    };
    let cur =
        "SELECT current_setting('bytea_output') AS cur, set_config('bytea_output', 'off', false) AS new";
    let back = "SELECT set_config('bytea_output', $1, false)";
    let set = |text: &str| Some(Assignment::Set(text.into()));
    let answer = [bare(b'1'), bare(b'2'), complete("SELECT 1"), ready(b'I')];
    for split in [false, true] {
        let mut scene = Scene::attached();
        scene.client(&[parse("", cur), bind(""), execute(), bare(client::SYNC)]);
        scene.server(&answer);
        assert_eq!(scene.session.settings.get("bytea_output"), set("bytea_output TO 'off'").as_ref());
        assert_eq!(scene.session.can_detach(), Detach::Now);
        let frames = [parse("", back), to_bind(Some("on")), execute(), bare(client::SYNC)].concat();
        scene.out.clear();
        if split {
            for byte in &frames {
                scene.client(&[vec![*byte]]);
            }
        } else {
            scene.client(std::slice::from_ref(&frames));
        }
        assert_eq!(scene.out.to_server, frames);
        scene.server(&answer);
        assert_eq!(scene.session.can_detach(), Detach::Now);
        scene.session.detach();
        scene.client(&[query("SELECT 1")]);
        scene.sent();
        scene.attach(Memory::default());
        assert_eq!(scene.sent(), ["QSET bytea_output TO 'on'"]);
    }
    // NULL is the default, whatever that is.
    let mut scene = Scene::attached();
    scene.client(&[parse("", back), to_bind(None), execute(), bare(client::SYNC)]);
    scene.server(&answer);
    assert_eq!(scene.session.can_detach(), Detach::Not(Tied::Pinned));
    // A portal that is suspended behind its only row has set it, and does so once.
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    let (mut bind_portal, mut execute_portal) = (Vec::new(), Vec::new());
    write::bind(&mut bind_portal, b"p", b"");
    write::execute(&mut execute_portal, b"p");
    scene.client(&[parse("", cur), bind_portal, execute_portal.clone(), bare(client::SYNC)]);
    scene.server(&[bare(b'1'), bare(b'2'), bare(b's'), ready(b'T')]);
    assert_eq!(scene.session.settings.get("bytea_output"), set("bytea_output TO 'off'").as_ref());
    scene.client(&[query("SET bytea_output TO on")]);
    scene.server(&[complete("SET"), ready(b'T')]);
    scene.client(&[execute_portal, bare(client::SYNC)]);
    scene.server(&[complete("SELECT 0"), ready(b'T')]);
    assert_eq!(scene.session.settings.get("bytea_output"), set("bytea_output TO on").as_ref());
}

/// asyncpg leaves it so. Aurora DSQL refuses to SET or RESET it, so whoever restores it breaks the session, or that of the next client.
#[test]
fn a_setting_that_changes_no_result_is_not_carried_over() {
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT set_config('jit', 'off', false)")]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    let memory = scene.session.detach();
    assert!(!memory.is_spoilt());
    scene.client(&[query("SELECT 1")]);
    scene.sent();
    scene.attach(memory);
    assert_eq!(scene.sent(), ["QSELECT 1"]);
}

/// What is not known to take SET and RESET goes the way it came. Its backend is for nobody else.
#[test]
fn a_setting_that_only_the_function_takes_is_set_by_it() {
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT set_config('app.user', 'x', false)")]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    assert_eq!(scene.session.can_detach(), Detach::Now);
    assert!(scene.session.detach().is_spoilt());
    scene.client(&[query("SELECT 1")]);
    scene.sent();
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSELECT pg_catalog.set_config('app.user', 'x', false)"]);
    scene.out.to_client.clear();
    let row = [b"T\0\0\0\x06\0\0".to_vec(), b"D\0\0\0\x06\0\0".to_vec()].concat();
    scene.server(&[row, complete("SELECT 1"), ready(b'I')]);
    assert_eq!(scene.sent(), ["QSELECT 1"]);
    assert!(scene.out.to_client.is_empty(), "{:?}", scene.out.to_client);
}

/// Aurora DSQL refuses to set it.
#[test]
fn client_min_messages_is_a_setting_of_the_session_alone() {
    let notice = |severity: &str| {
        let mut frame = Vec::new();
        write::frame(&mut frame, b'N', |out| out.extend(format!("S{severity}\0V{severity}\0Mx\0\0").bytes()));
        frame
    };
    let row = || [b"D\0\0\0\x0b\0\x01\0\0\0\x011".to_vec(), complete("SELECT 1")].concat();
    let show = ["Tclient_min_messages", "D", "CSHOW", "ZI"];
    let shown = |scene: &mut Scene| {
        scene.client(&[query("SHOW client_min_messages")]);
        scene.server(&[row(), ready(b'I')]);
        let bytes = std::mem::take(&mut scene.out.to_client);
        let frames = short(&bytes);
        let value = frames.iter().find_map(|frame| frame.strip_prefix('D')).unwrap_or_default().to_owned();
        assert_eq!(frames.len(), show.len(), "{frames:?}");
        value
    };
    let mut scene = Scene::new(&[("client_min_messages", "warning")]);
    scene.client(&[query("SELECT 1")]);
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSELECT 1"], "there is nothing to restore");
    scene.server(&[notice("NOTICE"), notice("WARNING"), notice("INFO"), complete("SELECT 1"), ready(b'I')]);
    assert_eq!(scene.seen(), ["NSWARNINGVWARNINGMx", "NSINFOVINFOMx", "CSELECT 1", "ZI"]);
    // Why it waits for a backend is a notice, too.
    scene.session.notice(&ServerError::notice("00000", "x"), &mut scene.out);
    assert!(scene.seen().is_empty());
    assert_eq!(shown(&mut scene), "warning");

    // Each of several statements, in a transaction that is rolled back, up to its end.
    scene.client(&[query(
        "BEGIN; SET client_min_messages = 'error'; SET LOCAL client_min_messages TO debug1",
    )]);
    scene.sent();
    scene.server(&[complete("BEGIN"), row(), row(), notice("NOTICE"), ready(b'T')]);
    assert_eq!(scene.seen(), ["CBEGIN", "CSET", "CSET", "NSNOTICEVNOTICEMx", "ZT"]);
    scene.client(&[query("ROLLBACK")]);
    scene.server(&[complete("ROLLBACK"), ready(b'I')]);
    scene.seen();
    assert_eq!(shown(&mut scene), "warning");

    // Prepared, and reset.
    scene.client(&[
        parse("", "SET client_min_messages TO error"),
        describe(""),
        bind(""),
        execute(),
        bare(client::SYNC),
    ]);
    assert!(scene.sent().iter().any(|frame| frame.starts_with("PSELECT 1")));
    scene.server(&[bare(b'1'), b"t\0\0\0\x06\0\0".to_vec(), bare(b'n'), bare(b'2'), row(), ready(b'I')]);
    assert_eq!(scene.seen(), ["1", "t", "n", "2", "CSET", "ZI"]);
    assert_eq!(shown(&mut scene), "error");
    scene.sent();
    scene.client(&[query("RESET ALL")]);
    assert_eq!(scene.sent(), ["QRESET ALL"]);
    scene.server(&[complete("RESET"), ready(b'I')]);
    scene.seen();
    assert_eq!(shown(&mut scene), "warning");

    // What it cannot be.
    scene.client(&[query("SET client_min_messages TO panic")]);
    scene.server(&[error("22012", "division by zero"), ready(b'I')]);
    assert_eq!(scene.seen(), ["EE22023", "ZI"]);

    // The next client of the backend has its own.
    let memory = scene.session.detach();
    let mut next = Scene::new(&[]);
    next.attach(memory);
    assert!(next.sent().is_empty());
    assert_eq!(shown(&mut next), "notice");
}

#[test]
fn a_session_that_changes_how_its_text_is_read_is_unsure_of_its_settings() {
    for (sql, detach) in [
        ("SET standard_conforming_strings = on", Detach::Now),
        ("SET client_encoding TO 'UTF8'", Detach::Now),
        ("SET standard_conforming_strings = off", Detach::AfterReadingSettings),
        ("SET NAMES 'SJIS'", Detach::AfterReadingSettings),
    ] {
        let mut scene = Scene::attached();
        scene.client(&[query(sql)]);
        scene.server(&[complete("SET"), ready(b'I')]);
        assert_eq!(scene.session.can_detach(), detach, "{sql}");
    }
    // And stays so while the server reads it in that way.
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT 1")]);
    scene.server(&[
        b"S\0\0\0\x24standard_conforming_strings\0off\0".to_vec(),
        complete("SELECT 1"),
        ready(b'I'),
    ]);
    assert_eq!(scene.session.can_detach(), Detach::AfterReadingSettings);
    // What has come before the server reads it as the scanner does was not yet understood.
    let mut scene = Scene::attached();
    scene.client(&[
        query("SET standard_conforming_strings = on"),
        query("SELECT 'a\\'; SET search_path TO b; --'"),
    ]);
    scene.server(&[
        b"S\0\0\0\x24standard_conforming_strings\0off\0".to_vec(),
        b"S\0\0\0\x23standard_conforming_strings\0on\0".to_vec(),
        complete("SET"),
        ready(b'I'),
        complete("SELECT 1"),
        complete("SET"),
        ready(b'I'),
    ]);
    assert_eq!(scene.session.can_detach(), Detach::AfterReadingSettings);
}

#[test]
fn a_rollback_to_a_savepoint_takes_settings_back() {
    let mut scene = Scene::attached();
    for (sql, tag) in [
        ("BEGIN", "BEGIN"),
        ("SET search_path TO a", "SET"),
        ("SAVEPOINT s", "SAVEPOINT"),
        ("SET search_path TO b", "SET"),
        ("ROLLBACK TO s", "ROLLBACK"),
    ] {
        scene.client(&[query(sql)]);
        scene.server(&[complete(tag), ready(b'T')]);
    }
    scene.client(&[query("COMMIT")]);
    scene.server(&[complete("COMMIT"), ready(b'I')]);
    assert_eq!(scene.session.can_detach(), Detach::Now);
    scene.session.detach();
    scene.client(&[query("SELECT 1")]);
    scene.sent();
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSET search_path TO a"]);
}

/// In a failed block, the server lets no statement in that would take the unnamed portal. So that still ends the block.
#[test]
fn a_portal_that_ends_a_failed_block_outlives_a_query_there() {
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN"), query("SELECT 1/0")]);
    scene.server(&[complete("BEGIN"), ready(b'T'), error("22012", "division by zero"), ready(b'E')]);
    scene.client(&[parse("", "ROLLBACK"), bind(""), bare(client::SYNC), query("SELECT 1")]);
    scene.server(&[bare(b'1'), bare(b'2'), ready(b'E'), error("25P02", "it is aborted"), ready(b'E')]);
    scene.client(&[execute(), query("SET TimeZone = 'Etc/GMT'"), bare(client::SYNC)]);
    scene.server(&[complete("ROLLBACK"), complete("SET"), ready(b'I'), ready(b'I')]);
    scene.sent();
    assert_eq!(scene.session.can_detach(), Detach::Now);
    scene.session.detach();
    scene.client(&[query("SELECT 2")]);
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSET TimeZone = 'Etc/GMT'"]);
}

/// As does one whose successor could not be bound. It is not known here what it runs.
#[test]
fn a_portal_that_is_not_known_ends_a_failed_block() {
    let mut scene = Scene::attached();
    let mut failing = Vec::new();
    write::bind(&mut failing, b"", b"gone");
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    scene.client(&[parse("", "COMMIT"), bind(""), failing, bare(client::SYNC)]);
    scene.server(&[bare(b'1'), bare(b'2'), error("26000", "no such statement"), ready(b'E')]);
    // It ends the block, so what follows takes place outside of one.
    let set = "SET client_min_messages TO notice";
    scene.client(&[execute(), parse("", set), bind(""), execute()]);
    scene.server(&[complete("ROLLBACK"), bare(b'1'), bare(b'2'), complete("SELECT 1")]);
    scene.sent();
    // The server would run once more what it runs instead.
    scene.client(&[execute()]);
    assert!(!scene.sent().iter().any(|frame| frame.starts_with('E')));
}

/// A row of texts.
fn row(columns: [Option<&[u8]>; 2]) -> Vec<u8> {
    let mut frame = Vec::new();
    write::frame(&mut frame, b'D', |out| {
        out.extend_from_slice(&[0, 2]);
        for column in columns {
            let length = column.map_or(-1, |column| i32::try_from(column.len()).unwrap());
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(column.unwrap_or_default());
        }
    });
    frame
}

/// `pg_settings` does not list it, so its value is asked for by name.
#[test]
fn a_setting_of_the_clients_own_is_read_with_the_others() {
    let tenant = "SELECT pg_catalog.set_config('app.tenant', '43', false)";
    for (value, restored) in [
        (Some(&b"43"[..]), vec![format!("Q{tenant}"), "QSELECT 1".to_owned()]),
        (None, vec!["QSELECT 1".to_owned()]),
    ] {
        let mut scene = Scene::attached();
        for sql in ["SELECT set_config('app.tenant', '42', false)", "SELECT my_function()"] {
            scene.client(&[query(sql)]);
            scene.server(&[complete("SELECT 1"), ready(b'I')]);
        }
        scene.sent();
        scene.session.read_settings(&mut scene.out);
        let sent = scene.sent();
        assert!(
            sent[0].ends_with("SELECT 'app.tenant', pg_catalog.current_setting('app.tenant', true)"),
            "{sent:?}"
        );
        scene.server(&[row([Some(b"app.tenant"), value]), complete("SELECT 1"), ready(b'I')]);
        assert_eq!(scene.session.can_detach(), Detach::Now);
        // Nobody else may see it.
        assert_eq!(scene.session.detach().is_spoilt(), value.is_some());
        scene.client(&[query("SELECT 1")]);
        scene.attach(Memory::default());
        let mut sent = scene.sent();
        if value.is_some() {
            scene.server(&[complete("SELECT 1"), ready(b'I')]);
            sent.extend(scene.sent());
        }
        assert_eq!(sent, restored);
    }
}

#[test]
fn a_setting_in_another_encoding_stays_where_it_is() {
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT my_function()")]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    scene.session.read_settings(&mut scene.out);
    scene.server(&[row([Some(b"search_path"), Some(b"\xe9")]), complete("SELECT 1"), ready(b'I')]);
    assert_eq!(scene.session.can_detach(), Detach::Not(Tied::Pinned));
}

/// It may have locked something, or set what cannot be read.
#[test]
fn a_backend_of_a_function_call_is_for_nobody_else() {
    let mut scene = Scene::attached();
    let mut call = Vec::new();
    write::frame(&mut call, client::FUNCTION_CALL, |out| out.extend_from_slice(&[0; 10]));
    scene.client(&[call]);
    let mut result = Vec::new();
    write::frame(&mut result, b'V', |out| out.extend_from_slice(&[0xff; 4]));
    scene.server(&[result, ready(b'I')]);
    assert_eq!(scene.session.can_detach(), Detach::AfterReadingSettings);
    scene.session.read_settings(&mut scene.out);
    scene.server(&[complete("SELECT 0"), ready(b'I')]);
    assert!(scene.session.detach().is_spoilt());
}

/// The server skipped its Bind.
#[test]
fn a_portal_that_was_not_bound_is_not_answered_for() {
    let bound = |portal: &[u8], name: &[u8]| {
        let mut frame = Vec::new();
        write::bind(&mut frame, portal, name);
        frame
    };
    let mut scene = Scene::attached();
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    scene.client(&[bound(b"", b"gone"), parse("d", "DEALLOCATE s9"), bound(b"", b"d"), bare(client::SYNC)]);
    scene.server(&[error("26000", "no such statement"), ready(b'E')]);
    let mut last = Vec::new();
    write::execute(&mut last, b"p");
    scene.client(&[parse("", "COMMIT"), bound(b"p", b""), last]);
    scene.server(&[bare(b'1'), bare(b'2'), complete("ROLLBACK")]);
    scene.sent();
    scene.client(&[execute()]);
    assert_eq!(scene.sent(), ["E"], "the server knows that there is no such portal");
}

/// The statement of the gateway's own is left on the server if something fails behind its Parse.
#[test]
fn what_the_gateway_prepares_is_closed_first() {
    let mut scene = Scene::new(&[("application_name", "app")]);
    scene.attach(Memory::default());
    scene.client(&[query("SELECT 1")]);
    scene.server(&[complete("SET"), ready(b'I')]);
    scene.server(&[complete("SELECT 1"), ready(b'I')]);
    scene.sent();
    scene.client(&[parse("", "RESET ALL"), bind(""), execute()]);
    let sent = scene.sent();
    let of_ours: Vec<&str> =
        sent.iter().filter(|frame| frame.contains("forebay")).map(|frame| &frame[..1]).collect();
    assert_eq!(of_ours, ["C", "P", "B", "E", "C", "C"], "{sent:?}");
}
