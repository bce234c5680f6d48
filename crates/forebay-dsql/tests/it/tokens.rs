//! The token cache in virtual time: a signer that fails, hangs, panics; credentials that expire; clocks that are set.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay::rt::{Runtime, VirtualTime};
use forebay_dsql::{Options, Signed, Token, TokenCache, TokenError, TokenRequest};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::desk::{Answer, Clock, Desk, World};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn one_signing_serves_all_who_wait_and_all_who_come_later() {
    let world = World::new();
    world.desk.answer(Answer::Slow(SECOND));
    let mut waiting: Vec<_> = (0..64).map(|_| Box::pin(world.cache.token(&world.request))).collect();
    assert!(waiting.iter_mut().all(|token| poll(token).is_pending()));
    world.pass(SECOND);
    let tokens: Vec<Token> = waiting
        .iter_mut()
        .map(|token| match poll(token) {
            Poll::Ready(token) => token.unwrap(),
            Poll::Pending => panic!("still waiting"),
        })
        .collect();
    assert!(tokens.iter().all(|token| *token == tokens[0]));
    world.pass(4 * MINUTE);
    assert_eq!(world.ask().unwrap(), tokens[0]);
    assert_eq!(world.desk.asked(), 1);
}

#[test]
fn identities_have_tokens_of_their_own_and_lives_do_not_part_them() {
    let world = World::new();
    let mut other = world.request.clone();
    other.identity.user = "app".into();
    assert_eq!(world.ask().unwrap().expose_secret(), "1 for admin");
    let token = world.clock.time.run(world.cache.token(&other)).unwrap();
    assert_eq!(token.expose_secret(), "2 for app");
    let mut longer = world.request.clone();
    longer.life = 60 * MINUTE;
    assert_eq!(world.clock.time.run(world.cache.token(&longer)).unwrap().expose_secret(), "1 for admin");
    // The life last asked for is that of the next token.
    world.pass(5 * MINUTE);
    assert_eq!(*world.desk.0.book.lock().unwrap().lives.last().unwrap(), 60 * MINUTE);
}

#[test]
fn a_token_in_use_is_renewed_before_a_third_of_its_life_and_one_nobody_wants_is_not() {
    let world = World::new();
    assert_eq!(world.number(), 1);
    world.pass(4 * MINUTE);
    assert_eq!(world.desk.asked(), 1, "too early");
    assert_eq!(world.number(), 1);
    world.pass(MINUTE);
    assert_eq!(world.desk.asked(), 2, "wanted, and so renewed");
    world.pass(60 * MINUTE);
    assert_eq!(world.desk.asked(), 2, "nobody wants it");
    assert_eq!(world.number(), 3, "the old one is over, and a new one is signed when asked for");
}

#[test]
fn the_status_tells_the_age_of_a_token_and_never_the_token() {
    let world = World::new();
    let status = || world.cache.status(&world.request.identity);
    assert_eq!(status(), None, "nobody has asked");
    assert_eq!(world.number(), 1);
    world.pass(2 * MINUTE);
    let known = status().unwrap();
    assert_eq!((known.age, known.failures), (Some(2 * MINUTE), 0));
    assert_eq!(known.good_for, 13 * MINUTE - 10 * SECOND, "with a margin");
    assert_eq!(world.number(), 1, "it is wanted, and so it is to be renewed");
    world.desk.answer(Answer::Fail);
    world.pass(20 * MINUTE);
    let known = status().unwrap();
    assert_eq!((known.age, known.good_for), (None, Duration::ZERO));
    assert!(known.failures > 0, "{known:?}");
    assert!(!format!("{known:?}").contains("for admin"));
}

#[test]
fn ten_minutes_without_a_signer_go_unnoticed() {
    let world = World::new();
    assert_eq!(world.number(), 1);
    // It fails from the worst moment on: just before the renewal.
    world.pass(4 * MINUTE + 14 * SECOND);
    world.desk.answer(Answer::Fail);
    for _ in 0..600 {
        world.pass(SECOND);
        assert_eq!(world.number(), 1, "at {:?}", world.clock.now());
    }
    let tried = world.desk.asked() - 1;
    assert!((100..1_000).contains(&tried), "{tried} attempts in ten minutes");
    world.desk.answer(Answer::Well);
    world.pass(5 * SECOND);
    assert!(world.number() > 1, "renewed soon after the signer is back");
}

#[test]
fn after_a_longer_outage_the_first_token_comes_within_a_second() {
    for slack in 0..20_u64 {
        let world = World::new();
        assert_eq!(world.number(), 1);
        world.desk.answer(Answer::Fail);
        let mut failed = 0;
        for _ in 0..(20 * 60) {
            world.pass(SECOND);
            failed += u64::from(world.ask().is_err());
        }
        assert!((290..320).contains(&failed), "it failed {failed} times in the last five of twenty minutes");
        world.pass(Duration::from_millis(slack * 97));
        world.desk.answer(Answer::Well);
        let back = world.clock.now();
        let mut token = world.ask();
        while token.is_err() {
            token = world.ask();
        }
        let late = world.clock.now().since(back);
        assert!(late <= SECOND, "{late:?} late");
    }
}

#[test]
fn a_signer_that_hangs_is_given_up_and_asked_again() {
    let world = World::new();
    world.desk.answer(Answer::Hang);
    let start = world.clock.now();
    let error = world.ask().unwrap_err();
    assert!(matches!(error, TokenError::TimedOut { .. }), "{error}");
    assert_eq!(world.clock.now().since(start), 5 * SECOND);
    world.desk.answer(Answer::Well);
    assert_eq!(world.number(), 2);

    // While a token lives, nobody waits for one that hangs.
    world.desk.answer(Answer::Hang);
    for _ in 0..800 {
        world.pass(SECOND);
        let before = world.clock.now();
        assert_eq!(world.number(), 2);
        assert_eq!(world.clock.now(), before);
    }
}

/// A program that ends drops its runtime, perhaps in the middle of a signing.
#[test]
fn the_end_of_the_runtime_is_no_failure_of_the_signer() {
    let lines = crate::pools::logs::Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let clock = Clock { time: VirtualTime::new(), ahead: Arc::default() };
        let desk = Desk::new(&clock);
        desk.answer(Answer::Hang);
        let entered = runtime.enter();
        let cache = TokenCache::new(desk.clone(), forebay::rt::TokioRuntime::current().unwrap(), "orders");
        drop(entered);
        let request = Options::builder("abc.dsql.us-east-1.on.aws").build().unwrap().token_request();
        let mut waits = Box::pin(cache.token(&request));
        runtime.block_on(async {
            let asked = std::future::poll_fn(|context| match waits.as_mut().poll(context) {
                _ if desk.asked() > 0 => std::task::Poll::Ready(()),
                _ => {
                    context.waker().wake_by_ref();
                    std::task::Poll::Pending
                }
            });
            asked.await;
        });
        drop(runtime);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(Err(error)) = waits.as_mut().poll(&mut context) else {
            panic!("it waits for ever");
        };
        assert!(error.to_string().contains("the runtime of the signer's task has ended"), "{error}");
    });
    assert_eq!(lines.all(), [""; 0]);
}

#[test]
fn a_signer_that_panics_leaves_no_one_waiting() {
    // In virtual time a panic of a task is the program's; tokio keeps it to the task.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let clock = Clock { time: VirtualTime::new(), ahead: Arc::default() };
    let desk = Desk::new(&clock);
    desk.answer(Answer::Panic);
    runtime.block_on(async {
        let cache = TokenCache::new(desk.clone(), forebay::rt::TokioRuntime::current().unwrap(), "orders");
        let request = Options::builder("abc.dsql.us-east-1.on.aws").build().unwrap().token_request();
        let error = cache.token(&request).await.unwrap_err();
        assert!(error.to_string().contains("fell over"), "{error}");
        desk.answer(Answer::Well);
        cache.token(&request).await.unwrap();
    });
}

#[test]
fn a_token_is_never_older_than_the_credentials_behind_it() {
    let world = World::new();
    let expire = world.clock.wall() + 2 * MINUTE;
    world.desk.expire(Some(expire));
    assert_eq!(world.number(), 1);
    world.desk.answer(Answer::Fail);
    world.pass(107 * SECOND);
    assert_eq!(world.number(), 1);
    world.pass(4 * SECOND);
    assert!(world.ask().is_err(), "signed for fifteen minutes, but its credentials end now");

    // Renewals keep up with credentials that come late, and are not a busy loop.
    world.desk.answer(Answer::Well);
    world.desk.expire(Some(world.clock.wall() + 2 * MINUTE));
    let before = world.desk.asked();
    for _ in 0..60 {
        world.pass(2 * SECOND);
        if world.clock.wall() + 5 * SECOND > expire {
            world.desk.expire(Some(world.clock.wall() + 2 * MINUTE));
        }
        assert!(world.ask().is_ok());
    }
    assert!(world.desk.asked() - before < 30);
}

#[test]
fn expired_credentials_are_an_error_of_their_own() {
    let world = World::new();
    world.desk.expire(Some(world.clock.wall() - MINUTE));
    match world.ask().unwrap_err() {
        TokenError::CredentialsExpired { ago } => assert_eq!(ago, MINUTE),
        other => panic!("{other:?}"),
    }
    // While an older token lives it is better than none.
    world.desk.expire(None);
    let number = world.number();
    world.desk.expire(Some(world.clock.wall() - MINUTE));
    world.pass(10 * MINUTE);
    assert_eq!(world.number(), number);
}

#[test]
fn a_clock_that_is_set_ends_tokens_signed_by_the_old_one() {
    for (step, signs_again) in
        [(0, false), (-59_000, false), (-62_000, true), (-3_600_000, true), (60_000, false), (900_000, true)]
    {
        let world = World::new();
        assert_eq!(world.number(), 1);
        world.pass(SECOND);
        world.clock.step(step);
        assert_eq!(world.number() == 2, signs_again, "a step of {step} ms");
        assert_eq!(world.number() == 2, signs_again, "and then the new one is kept");
    }
    // The machine slept: only the time of day went on.
    let world = World::new();
    assert_eq!(world.number(), 1);
    world.clock.step(3_600_000);
    world.desk.answer(Answer::Fail);
    assert!(world.ask().is_err());
}

#[test]
fn a_refused_token_is_replaced_once_however_many_report_it() {
    let world = World::new();
    let refused = world.ask().unwrap();
    world.cache.invalidate(&world.request.identity, &refused);
    assert_eq!(world.number(), 2);
    world.cache.invalidate(&world.request.identity, &refused);
    assert_eq!(world.number(), 2, "the new one was not refused");
    assert_eq!(world.desk.asked(), 2);
}

#[test]
fn dropping_a_caller_at_its_await_loses_nothing() {
    for answer in [Answer::Slow(SECOND), Answer::Fail, Answer::Hang] {
        for polls in 0..3 {
            let world = World::new();
            world.desk.answer(answer);
            let mut token = Box::pin(world.cache.token(&world.request));
            for _ in 0..polls {
                if poll(&mut token).is_ready() {
                    break;
                }
                world.clock.time.settle();
            }
            drop(token);
            world.desk.answer(Answer::Well);
            world.pass(10 * SECOND);
            let expected = match (polls, answer) {
                (0, _) => 1,
                // What was being signed when its only caller went is there for the next.
                (_, Answer::Slow(_)) => 1,
                (_, _) => 2,
            };
            assert_eq!(world.number(), expected, "{answer:?}, polled {polls} times");
        }
    }
}

#[test]
fn a_dropped_cache_leaves_no_task_behind() {
    for answer in [Answer::Well, Answer::Fail, Answer::Hang] {
        let World { clock, desk, cache, request } = World::new();
        desk.answer(answer);
        let clone = cache.clone();
        drop(clock.time.run(cache.token(&request)));
        drop((cache, clone));
        clock.time.settle();
        let asked = desk.asked();
        let held = Arc::strong_count(&desk.0);
        assert_eq!(held, 1, "{answer:?}: a task still holds the signer");
        clock.time.advance(60 * MINUTE);
        assert_eq!(desk.asked(), asked);
    }
}

#[test]
fn everything_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let world = World::new();
        assert_eq!(world.number(), 1);
        assert_eq!(world.number(), 1);
        world.desk.answer(Answer::Fail);
        world.pass(30 * MINUTE);
        assert!(world.ask().is_err());
    });
    let text = handle.render();
    let value = |name: &str| -> u64 {
        let line = format!("{name}{{service=\"orders\"}} ");
        text.lines()
            .find_map(|text| text.strip_prefix(&line))
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .parse()
            .unwrap()
    };
    assert_eq!(value("dsql_token_cache_hits"), 1);
    assert_eq!(value("dsql_token_cache_misses"), 2);
    assert_eq!(value("dsql_token_refreshes"), 1);
    assert!(value("dsql_token_refresh_failures") > 10);
}

#[test]
fn secrets_are_not_printed() {
    let world = World::new();
    let token = world.ask().unwrap();
    let signed = Signed { token: token.clone(), credentials_expire: None };
    for text in [format!("{token:?}"), format!("{signed:?}"), format!("{:?}", world.cache)] {
        assert!(!text.contains("for admin"), "{text}");
    }
}

#[test]
fn a_token_has_the_life_it_was_signed_with() {
    let world = World::new();
    world.desk.answer(Answer::Slow(SECOND));
    let short = TokenRequest { life: 60 * SECOND, ..world.request.clone() };
    let long = TokenRequest { life: 604_800 * SECOND, ..world.request.clone() };
    let mut first = Box::pin(world.cache.token(&short));
    assert!(poll(&mut first).is_pending());
    world.pass(SECOND / 2);
    // This one asks for a week while the other's minute is being signed.
    let mut second = Box::pin(world.cache.token(&long));
    assert!(poll(&mut second).is_pending());
    world.pass(2 * SECOND);
    world.desk.answer(Answer::Well);
    world.pass(3_600 * SECOND);
    let number = world.number();
    let end = world.desk.0.book.lock().unwrap().ends[&number];
    assert!(end > world.clock.wall(), "it has ended long ago");
}

#[test]
fn no_life_is_too_long() {
    for life in [Duration::MAX, Duration::MAX / 2, 604_801 * SECOND] {
        let world = World::new();
        let request = TokenRequest { life, ..world.request.clone() };
        assert!(world.clock.time.run(world.cache.token(&request)).is_ok(), "{life:?}");
        assert_eq!(world.desk.0.book.lock().unwrap().lives, [604_800 * SECOND], "as much as is signed");
    }
}
