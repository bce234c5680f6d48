//! The token cache through histories drawn by lot, held against what must always be so.

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use forebay::rt::Runtime;
use proptest::prelude::*;

use crate::desk::{Answer, World, number_of};

#[derive(Clone, Copy, Debug)]
enum Event {
    Ask,
    /// Asks, and is dropped at its await.
    AskAndGo,
    Refused,
    Pass(Duration),
    Signer(Answer),
    /// Credentials that expire so long from now, or never.
    Credentials(Option<Duration>),
}

fn event() -> impl Strategy<Value = Event> {
    let answer = prop_oneof![
        3 => Just(Answer::Well),
        2 => Just(Answer::Fail),
        1 => Just(Answer::Hang),
        1 => (1..4_000_u64).prop_map(|millis| Answer::Slow(Duration::from_millis(millis))),
    ];
    prop_oneof![
        6 => Just(Event::Ask),
        1 => Just(Event::AskAndGo),
        1 => Just(Event::Refused),
        4 => (0..5_000_u64).prop_map(|millis| Event::Pass(Duration::from_millis(millis))),
        4 => (0..600_u64).prop_map(|seconds| Event::Pass(Duration::from_secs(seconds))),
        3 => answer.prop_map(Event::Signer),
        1 => proptest::option::of(0..1_200_u64)
            .prop_map(|seconds| Event::Credentials(seconds.map(Duration::from_secs))),
    ]
}

proptest! {
    #[test]
    fn what_must_always_be_so(history in proptest::collection::vec(event(), 1..60)) {
        let world = World::new();
        let mut refused = 0;
        for event in history {
            match event {
                Event::Ask => ask(&world, &mut refused)?,
                Event::AskAndGo => {
                    let mut asking = Box::pin(world.cache.token(&world.request));
                    drop(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())));
                }
                Event::Refused => {
                    if let Ok(token) = world.ask() {
                        refused = number_of(&token);
                        world.cache.invalidate(&world.request.identity, &token);
                    }
                }
                Event::Pass(time) => world.pass(time),
                Event::Signer(answer) => world.desk.answer(answer),
                Event::Credentials(left) => world.desk.expire(left.map(|left| world.clock.wall() + left)),
            }
            let (_, most) = world.desk.0.book.lock().unwrap().flights;
            prop_assert!(most <= 1, "two signings at once");
        }
        // However it went: with a signer that does well, all is well again within a second, and the rest of one that hangs.
        world.desk.answer(Answer::Well);
        world.desk.expire(None);
        let (start, mut token) = (world.clock.now(), world.ask());
        while token.is_err() {
            token = world.ask();
        }
        let took = world.clock.now().since(start);
        prop_assert!(took <= Duration::from_secs(6), "{took:?}");
    }
}

fn ask(world: &World, refused: &mut u64) -> Result<(), TestCaseError> {
    let (now, wall) = (world.clock.now(), world.clock.wall());
    let latest = world.desk.0.book.lock().unwrap().ends.last_key_value().map(|(number, end)| (*number, *end));
    // A little less than its whole life, and never one that was refused.
    let good = latest.is_some_and(|(number, end)| wall + Duration::from_secs(10) < end && number != *refused);
    let answer = world.ask();
    let waited = world.clock.now().since(now);
    match answer {
        Ok(token) => {
            let number = number_of(&token);
            let end = world.desk.0.book.lock().unwrap().ends[&number];
            prop_assert!(world.clock.wall() < end, "handed out {number} after its end");
            prop_assert!(number != *refused, "handed out {number}, which was refused");
        }
        Err(error) => prop_assert!(!good, "failed though there is a good token: {error}"),
    }
    prop_assert!(!good || waited.is_zero(), "waited {waited:?} though there is a good token");
    prop_assert!(waited <= Duration::from_secs(6), "waited {waited:?}");
    Ok(())
}
