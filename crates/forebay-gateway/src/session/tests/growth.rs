//! What a client can make a session keep while it does not let everything be answered.

use super::frames::{bare, bind, column, complete, describe, error, execute, parse, query, ready};
use super::scene::Scene;
use crate::protocol::{client, write};
use crate::session::requests::Request;
use crate::session::{Memory, Outbox, Reported, SessionLimits, StartSettings, VirtualSession};

const LIMIT: usize = 100_000;

fn scene() -> Scene {
    let limits =
        SessionLimits { max_statement_bytes: LIMIT, max_statements: 100, ..SessionLimits::default() };
    let mut session = VirtualSession::new(StartSettings::default(), limits);
    session.attach(Memory::default(), &Reported::default(), &mut Outbox::default());
    Scene { session, out: Outbox::default() }
}

/// A Bind with a text for its only parameter.
fn bind_to(portal: &str, statement: &str, value: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::frame(&mut frame, client::BIND, |out| {
        for name in [portal, statement] {
            out.extend_from_slice(name.as_bytes());
            out.push(0);
        }
        out.extend_from_slice(&[0, 0, 0, 1]);
        out.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(&[0, 0]);
    });
    frame
}

/// What a portal sets is its own. The text of its statement is not.
#[test]
fn portals_of_a_statement_share_its_text() {
    let sets = format!("SELECT set_config('TimeZone', $1, false) --{}", "x".repeat(50_000));
    let mut scene = scene();
    scene.client(&[parse("s", &sets)]);
    let before = scene.session.statements.size();
    for count in 0..50 {
        scene.client(&[bind_to(&format!("p{count}"), "s", "UTC")]);
    }
    let statement = scene.session.statements.get(b"s").statement.clone().unwrap();
    for count in 0..50 {
        let portal = scene.session.portals.get(format!("p{count}").as_bytes()).unwrap();
        assert!(
            portal.statement.step.is_some() && portal.statement.text().as_ptr() == statement.text().as_ptr()
        );
    }
    assert_eq!(scene.session.statements.size(), before);
    assert_eq!(scene.session.portals.size_of_replaced(&scene.session.statements), 0);
    // What is its own counts.
    let kept = scene.session.portals.size();
    assert!((50 * 200..50 * 500).contains(&kept), "{kept}");
    let value = "x".repeat(4_000);
    let refused = (0..50).find_map(|count| {
        let frame = bind_to(&format!("long{count}"), "s", &value);
        Some((count, scene.session.from_client(&frame, &mut scene.out).err()?.0.sqlstate))
    });
    assert_eq!(refused, Some((7, "54000".into())));
    // The name of the statement is gone, and the text is still kept: once.
    let mut closed = Vec::new();
    write::close_statement(&mut closed, b"s");
    scene.client(&[closed]);
    let replaced = scene.session.portals.size_of_replaced(&scene.session.statements);
    assert!((50_000..60_000).contains(&replaced), "{replaced}");
    for count in 0..50 {
        scene.session.portals.remove(format!("p{count}").as_bytes());
        scene.session.portals.remove(format!("long{count}").as_bytes());
    }
    assert_eq!(scene.session.portals.size(), 0);
}

/// An Execute that is not answered keeps what its portal sets.
#[test]
fn portals_without_a_name_are_executed_only_as_fast_as_they_are_answered() {
    let mut scene = scene();
    let answer = || [bare(b'2'), complete("SELECT 1")].concat();
    scene.client(&[parse("s", "SELECT set_config('TimeZone', $1, false)")]);
    scene.server(&[bare(b'1')]);
    let (mut sent, mut waited) = (0, 0);
    while sent < 500 {
        scene.client(&[bind_to("", "s", &"x".repeat(4_000)), execute()]);
        sent += 1;
        assert!(scene.session.requests.kept() < LIMIT + 5_000, "{}", scene.session.requests.kept());
        if !scene.session.takes_more() {
            waited += 1;
            assert_eq!(scene.sent().last().map(String::as_str), Some("H"));
            let unanswered = scene.session.requests.len() / 2;
            scene.server(&vec![answer(); unanswered]);
            assert!(scene.session.takes_more());
        }
    }
    assert!((15..50).contains(&waited), "{waited}");
    // Those that were answered do not count.
    let mut scene = self::scene();
    scene.client(&[parse("s", "SELECT set_config('TimeZone', $1, false)")]);
    scene.server(&[bare(b'1')]);
    scene.client(&[bind_to("", "s", &"x".repeat(4_000)), execute()]);
    for _ in 0..500 {
        scene.client(&[bind_to("", "s", &"x".repeat(4_000)), execute()]);
        scene.server(&[answer()]);
        assert!(scene.session.takes_more(), "two are unanswered at most");
    }
    scene.client(&[bare(client::SYNC)]);
    scene.server(&[answer(), ready(b'I')]);
    assert!(scene.session.is_idle());
}

/// A row of one column that is NULL.
fn row() -> Vec<u8> {
    let mut frame = Vec::new();
    write::frame(&mut frame, b'D', |out| out.extend_from_slice(&[0, 1, 0xff, 0xff, 0xff, 0xff]));
    frame
}

fn close(name: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    write::close_statement(&mut frame, name.as_bytes());
    frame
}

/// Names that nobody has prepared are not kept, and those that were closed only until that is answered.
#[test]
fn names_that_are_closed_are_not_kept_without_limit() {
    let name = |count: usize| format!("{}{count}", "x".repeat(1_000));
    let mut scene = scene();
    scene.client(&[parse("s", "SELECT 1")]);
    for count in 0..1_000 {
        scene.client(&[close(&name(count)), close("")]);
    }
    assert!(scene.session.takes_more());
    assert_eq!((scene.session.statements.count(), scene.session.statements.spare()), (1, 0));
    assert_eq!(scene.session.requests.len(), 2_001);
    // Whoever binds or describes what is not there leaves nothing, either.
    for count in 0..1_000 {
        scene.client(&[bind_to(&name(count), &name(count), ""), describe(&name(count))]);
    }
    assert_eq!((scene.session.statements.count(), scene.session.statements.spare()), (1, 0));
    assert_eq!((scene.session.portals.count(), scene.session.requests.kept()), (0, 1));
    // What is under way may have prepared one.
    let mut scene = self::scene();
    let mut waited = 0;
    scene.client(&[parse(&name(0), "SELECT 1")]);
    for count in 0..500 {
        // Something is unanswered at any time.
        scene.client(&[close(&name(count)), parse(&name(count + 1), "SELECT 1")]);
        assert!(scene.session.statements.spare() <= LIMIT + 2_000, "{}", scene.session.statements.spare());
        assert!(scene.session.statements.count() <= 101, "{}", scene.session.statements.count());
        if !scene.session.takes_more() {
            waited += 1;
            assert_eq!(scene.sent().last().map(String::as_str), Some("H"));
        }
        while scene.session.requests.len() > 1 || !scene.session.takes_more() {
            let parsed = matches!(scene.session.requests.first(), Some(Request::Parse(_)));
            scene.server(&[bare(if parsed { b'1' } else { b'3' })]);
        }
    }
    assert!((4..10).contains(&waited), "{waited}");
    scene.client(&[bare(client::SYNC)]);
    scene.server(&[bare(b'1'), ready(b'I')]);
    assert_eq!((scene.session.statements.count(), scene.session.statements.spare()), (1, 0));
    // A name that an earlier segment closes, which may be skipped, is closed again.
    let mut scene = self::scene();
    scene.client(&[parse("s", "SELECT 1"), bare(client::SYNC)]);
    scene.server(&[bare(b'1'), ready(b'I')]);
    scene.client(&[bind("none"), close("s"), bare(client::SYNC), close("s"), bare(client::SYNC)]);
    scene.server(&[error("26000", "no statement"), ready(b'I')]);
    scene.server(&[bare(b'3'), ready(b'I')]);
    assert_eq!(scene.session.statements.count(), 0);
}

/// The server does not hear of DEALLOCATE. Drivers that count their names up must not run out of them.
#[test]
fn names_that_are_deallocated_give_place_to_others() {
    for (sql, tag) in [("DEALLOCATE s", "DEALLOCATE"), ("DEALLOCATE ALL", "DEALLOCATE ALL")] {
        let mut scene = scene();
        let mut waited = 0;
        for count in 0..350 {
            let name = format!("s{count}");
            scene.client(&[parse(&name, "SELECT 1"), bare(client::SYNC)]);
            if !scene.session.takes_more() {
                waited += 1;
                let sent = scene.sent();
                assert_eq!((sent.len(), &*sent[100]), (101, "H"), "{sent:?}");
                scene.server(&vec![bare(b'3'); 100]);
                assert_eq!(scene.sent(), [format!("P{name}SELECT 1"), "S".to_owned()]);
            }
            scene.server(&[bare(b'1'), ready(b'I')]);
            let sql = if tag == "DEALLOCATE" { format!("{sql}{count}") } else { sql.to_owned() };
            scene.client(&[query(&sql)]);
            scene.server(&[column(23), row(), complete("SELECT 1"), ready(b'I')]);
            assert_eq!(scene.seen(), ["1", "ZI", &format!("C{tag}"), "ZI"]);
            scene.sent();
        }
        assert_eq!(waited, 3);
    }
}

/// A transaction whose backend is gone.
fn lost_in_transaction() -> Scene {
    let mut scene = scene();
    scene.client(&[query("BEGIN")]);
    scene.server(&[complete("BEGIN"), ready(b'T')]);
    scene.lost();
    scene.seen();
    scene
}

/// The first of these that is refused, and what is kept until then.
fn refused(scene: &mut Scene, frames: impl Fn(usize) -> Vec<u8>) -> (Option<usize>, usize) {
    let refused = (0..1_000).find(|&count| {
        let result = scene.session.from_client(&frames(count), &mut scene.out);
        result.is_err_and(|violation| violation.0.sqlstate == "54000")
    });
    (refused, scene.session.statements.size() + scene.session.portals.size())
}

#[test]
fn a_transaction_whose_backend_is_gone_has_the_same_limits() {
    let parse_and_sync =
        |count: usize, sql: &str| [parse(&format!("n{count}"), sql), bare(client::SYNC)].concat();
    let long = format!("COMMIT --{}", "x".repeat(20_000));
    let (count, kept) = refused(&mut lost_in_transaction(), |count| parse_and_sync(count, &long));
    assert!(count == Some(4) && kept <= LIMIT, "{count:?}, {kept}");
    let (count, kept) = refused(&mut lost_in_transaction(), |count| parse_and_sync(count, "COMMIT"));
    assert!(count == Some(100) && kept <= LIMIT, "{count:?}, {kept}");
    // Portals have their names, and keep statements whose names others have now.
    let bind_as = |portal: &str| {
        let mut frame = Vec::new();
        write::bind(&mut frame, portal.as_bytes(), b"");
        frame
    };
    let mut scene = lost_in_transaction();
    scene.client(&[parse("", "COMMIT")]);
    let (count, kept) = refused(&mut scene, |count| bind_as(&format!("{}{count}", "x".repeat(20_000))));
    assert!(count == Some(4) && kept <= LIMIT, "{count:?}, {kept}");
    let (count, _) = refused(&mut lost_in_transaction(), |count| {
        [parse("", &long), bind_as(&format!("p{count}"))].concat()
    });
    assert_eq!(count, Some(4));
    // Names that nobody has prepared are not kept.
    let mut scene = lost_in_transaction();
    for count in 0..1_000 {
        scene.client(&[close(&format!("{}{count}", "x".repeat(1_000)))]);
    }
    assert_eq!((scene.session.statements.count(), scene.session.statements.spare()), (0, 0));
}

/// What is taken off the count is what was put on it, though a statement has grown meanwhile.
#[test]
fn a_statement_that_is_described_while_it_is_replaced_is_counted_once() {
    let mut types = Vec::new();
    write::frame(&mut types, b't', |out| {
        out.extend_from_slice(&2_500_u16.to_be_bytes());
        out.resize(out.len() + 10_000, 1);
    });
    let mut scene = scene();
    let long = format!("SELECT '{}'", "x".repeat(9_000));
    scene.client(&[parse("", "SELECT $2500"), describe(""), parse("", &long), parse("", "SELECT 1")]);
    scene.server(&[bare(b'1'), types, bare(b'n'), bare(b'1')]);
    let kept = scene.session.requests.kept();
    assert!((9_000..10_000).contains(&kept), "{kept}");
}

/// A session that is pinned for them, or for another reason, carries no settings over.
#[test]
fn settings_that_nobody_carries_over_are_not_kept() {
    let mut scene = scene();
    for number in 0..100 {
        scene.client(&[query(&format!("SET app.n{number} TO '{}'", "x".repeat(4_000)))]);
        scene.server(&[complete("SET"), ready(b'I')]);
        scene.out.clear();
    }
    let size = scene.session.settings.size();
    assert!(size < 30_000, "{size} bytes");
}
