//! A drain: the relay dismisses a session as soon as it is idle. Meanwhile everything else may happen, too.

use super::frames::{bare, bind, complete, execute, parse, query, ready};
use super::scene::Scene;
use crate::protocol::{ServerError, client};
use crate::session::{Cancelled, Detach, HungUp, Lost, Memory};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Cut,
    Cancel,
    HangUp,
    Dismiss,
}

use Event::{Cancel, Cut, Dismiss, HangUp};

/// In which order one turn of the relay may meet them.
const ORDERS: [[Event; 3]; 6] = [
    [Cut, Cancel, HangUp],
    [Cut, HangUp, Cancel],
    [Cancel, Cut, HangUp],
    [Cancel, HangUp, Cut],
    [HangUp, Cut, Cancel],
    [HangUp, Cancel, Cut],
];

impl Scene {
    /// Whether somebody else can have the backend.
    fn meet(&mut self, event: Event) -> bool {
        match event {
            Cut => {
                self.lost();
            }
            Cancel => {
                self.session.cancel(&mut self.out);
            }
            HangUp => return matches!(self.session.hang_up(&mut self.out), HungUp::Left(_)),
            Dismiss => {
                assert!(self.session.is_idle());
                let error = ServerError::fatal("57P01", "terminating connection");
                self.session.terminate(&error, &mut self.out);
            }
        }
        false
    }
}

#[test]
fn the_statement_is_answered_once_and_its_backend_is_for_nobody() {
    for order in ORDERS {
        let mut scene = Scene::attached();
        scene.client(&[query("INSERT INTO t VALUES (1)")]);
        scene.sent();
        for event in order {
            assert!(!scene.meet(event), "{order:?}");
        }
        let told: &[&str] = match order[0] {
            Cut => &["EE08007", "ZI"],
            Cancel => &["EE57014", "ZI"],
            HangUp | Dismiss => &[],
        };
        assert_eq!(scene.seen(), told, "{order:?}");
        assert!(scene.sent().is_empty() && scene.session.is_over(), "{order:?}");
        assert!(!scene.session.wants_backend() && !scene.session.takes_more(), "{order:?}");
    }
}

#[test]
fn a_transaction_is_rolled_back_if_its_backend_outlives_the_client() {
    for order in ORDERS {
        let mut scene = Scene::attached();
        scene.client(&[query("BEGIN")]);
        scene.server(&[complete("BEGIN"), ready(b'T')]);
        scene.out.clear();
        assert!(!scene.session.is_idle(), "a drain waits for it");
        let mut is_cut = false;
        for event in order {
            let is_left = scene.meet(event);
            is_cut |= event == Cut;
            assert_eq!(is_left, event == HangUp && !is_cut, "{order:?}");
        }
        assert!(scene.seen().is_empty() && scene.session.is_over(), "nobody waits for an answer: {order:?}");
    }
}

#[test]
fn what_comes_behind_the_last_word_is_not_told() {
    for order in ORDERS {
        let mut scene = Scene::attached();
        scene.client(&[query("SELECT 1")]);
        scene.server(&[complete("SELECT 1"), ready(b'I')]);
        scene.seen();
        scene.meet(Dismiss);
        for event in order {
            scene.meet(event);
        }
        assert_eq!(scene.seen(), ["EF57P01"], "{order:?}");
    }
    // Also if a statement is running, because the grace is over.
    let mut scene = Scene::attached();
    scene.client(&[query("SELECT pg_sleep(10)")]);
    scene.session.terminate(&ServerError::fatal("57P01", "terminating connection"), &mut scene.out);
    assert_eq!(scene.session.cancel(&mut scene.out), Cancelled::NothingRunning);
    assert_eq!(scene.lost(), Lost::Ended);
    assert_eq!(scene.seen(), ["EF57P01"]);
}

#[test]
fn whoever_ends_a_session_says_so_if_something_may_be_committed() {
    for (frames, told) in [
        (vec![query("SELECT 1")], "EF57P01"),
        (vec![query("INSERT INTO t VALUES (1)")], "EF08007"),
        (vec![parse("", "INSERT INTO t VALUES (1)"), bind(""), execute()], "EF57P01"),
        (vec![parse("", "INSERT INTO t VALUES (1)"), bind(""), execute(), bare(client::SYNC)], "EF08007"),
    ] {
        let mut scene = Scene::attached();
        scene.client(&frames);
        scene.session.terminate(&ServerError::fatal("57P01", "terminating connection"), &mut scene.out);
        assert_eq!(scene.seen(), [told]);
    }
}

#[test]
fn nothing_follows_the_last_word_and_the_backend_is_known_all_the_same() {
    let answer = [complete("SELECT 1"), ready(b'I'), complete("SELECT 2"), ready(b'I')].concat();
    for split in 0..answer.len() {
        let mut scene = Scene::attached();
        scene.client(&[query("SELECT 1"), query("SELECT 2")]);
        scene.session.terminate(&ServerError::fatal("57P01", "terminating connection"), &mut scene.out);
        for part in [&answer[..split], &answer[split..]] {
            scene.server(&[part.to_vec()]);
        }
        assert_eq!(scene.seen(), ["EF57P01"], "split at {split}");
        assert!(scene.meet(HangUp), "split at {split}");
    }
}

/// Of what it has begun, the backend knows nothing.
#[test]
fn a_client_that_has_begun_a_frame_keeps_no_backend_for_it() {
    let mut scene = Scene::attached();
    let select = query("SELECT 1");
    scene.client(&[select[..1].to_vec()]);
    assert!(scene.session.is_in_frame() && scene.session.can_detach() == Detach::Now);
    scene.session.detach();
    scene.client(&[select[1..7].to_vec()]);
    assert!(!scene.session.is_attached() && scene.seen().is_empty());
    scene.client(&[select[7..].to_vec()]);
    assert!(scene.session.wants_backend());
    scene.attach(Memory::default());
    assert_eq!(scene.sent(), ["QSELECT 1"]);
}
