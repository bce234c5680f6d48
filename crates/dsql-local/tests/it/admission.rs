//! Admission: the bucket, the cap, and when a refusal comes.

use std::time::Duration;

use dsql_local::{Config, Limits, RefuseWhen};
use tokio::task::JoinSet;

use crate::harness::{code, config, connect, connect_with, options, start, told, try_connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_1001_connects_at_once_exactly_1000_are_admitted() {
    // A thousand logins at once may be slow; only their number matters here.
    let patient = Config { login_timeout: Duration::from_secs(600), ..config() };
    let cluster = std::sync::Arc::new(start(patient));
    let options = options(&cluster);
    let mut attempts = JoinSet::new();
    for _ in 0..1_001 {
        let (cluster, options) = (cluster.clone(), options.clone());
        attempts.spawn(async move { connect_with(&cluster, &options).await });
    }
    let (mut admitted, mut refused) = (Vec::new(), Vec::new());
    while let Some(outcome) = attempts.join_next().await {
        match outcome.unwrap() {
            Ok(client) => admitted.push(client),
            Err(error) => refused.push(told(&error)),
        }
    }
    let refusal = ("53400".to_owned(), "Unable to accept connection, rate exceeded.".to_owned(), None);
    assert_eq!((admitted.len(), refused), (1_000, vec![refusal]));
    let counters = cluster.counters();
    assert_eq!((counters.accepted, counters.live, counters.live_high_water), (1_000, 1_000, 1_000));
    assert_eq!((counters.refused["53400"], counters.refusals()), (1, 1));
    // A hundredth of a second later there is exactly one more token.
    cluster.clock().advance(std::time::Duration::from_millis(10));
    admitted.push(connect(&cluster).await);
    assert_eq!(code(&try_connect(&cluster).await.err().unwrap()), "53400");
}

#[tokio::test]
async fn the_cap_refuses_with_53300_and_frees_slots() {
    let cluster = start(Config { limits: Limits { connections: 2, ..Limits::default() }, ..config() });
    let first = connect(&cluster).await;
    let _second = connect(&cluster).await;
    let refused = try_connect(&cluster).await.err().unwrap();
    let expected = "Unable to accept connection, too many open connections.".to_owned();
    assert_eq!(told(&refused), ("53300".to_owned(), expected, None));
    drop(first);
    crate::harness::eventually("a free place", || cluster.counters().live == 1).await;
    let _third = connect(&cluster).await;
    assert_eq!(cluster.counters().live_high_water, 2);
}

#[tokio::test]
async fn a_refusal_comes_before_or_after_authentication() {
    for (refuse, expected) in [(RefuseWhen::BeforeAuth, "53400"), (RefuseWhen::AfterAuth, "28000")] {
        let limits = Limits { per_second: 0, burst: 0, refuse, ..Limits::default() };
        let cluster = start(Config { limits, ..config() });
        let mut options = options(&cluster);
        options.password("no token");
        let error = connect_with(&cluster, &options).await.err().unwrap();
        assert_eq!(code(&error), expected);
        assert_eq!(code(&try_connect(&cluster).await.err().unwrap()), "53400");
    }
}

#[tokio::test]
async fn a_failed_login_before_admission_costs_nothing() {
    let limits = Limits { per_second: 0, burst: 1, refuse: RefuseWhen::AfterAuth, ..Limits::default() };
    let cluster = start(Config { limits, ..config() });
    let mut wrong = options(&cluster);
    wrong.password("no token");
    for _ in 0..3 {
        assert_eq!(code(&connect_with(&cluster, &wrong).await.err().unwrap()), "28000");
    }
    let _admitted = connect(&cluster).await;
    assert_eq!(cluster.counters().live, 1);
}

#[tokio::test]
async fn a_refusal_costs_a_token_if_configured() {
    for (refusal_costs, left) in [(false, 1), (true, 0)] {
        let limits = Limits { connections: 1, per_second: 0, burst: 2, refusal_costs, ..Limits::default() };
        let cluster = start(Config { limits, ..config() });
        let only = connect(&cluster).await;
        assert_eq!(code(&try_connect(&cluster).await.err().unwrap()), "53300");
        drop(only);
        crate::harness::eventually("a free place", || cluster.counters().live == 0).await;
        assert_eq!(u32::from(try_connect(&cluster).await.is_ok()), left);
    }
}

#[tokio::test]
async fn a_failed_login_costs_a_token_if_configured() {
    for refuse in [RefuseWhen::BeforeAuth, RefuseWhen::AfterAuth] {
        for (refusal_costs, admitted) in [(false, 1), (true, 0)] {
            let limits = Limits { per_second: 0, burst: 2, refuse, refusal_costs, ..Limits::default() };
            let cluster = start(Config { limits, ..config() });
            let mut denied = options(&cluster);
            denied.password("no token");
            assert_eq!(code(&connect_with(&cluster, &denied).await.err().unwrap()), "28000");
            let mut elsewhere = options(&cluster);
            elsewhere.dbname("elsewhere");
            assert_eq!(code(&connect_with(&cluster, &elsewhere).await.err().unwrap()), "3D000");
            let outcomes = [try_connect(&cluster).await, try_connect(&cluster).await];
            let let_in = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
            assert_eq!(let_in, admitted * 2, "{refuse:?} {refusal_costs}");
            assert_eq!(cluster.counters().refusals(), 4 - u64::try_from(let_in).unwrap());
        }
    }
}

#[tokio::test]
async fn limits_change_while_it_runs() {
    let cluster = start(config());
    cluster.set_limits(Limits { burst: 0, per_second: 0, ..cluster.limits() });
    assert_eq!(code(&try_connect(&cluster).await.err().unwrap()), "53400");
    cluster.set_limits(Limits { burst: 1, ..cluster.limits() });
    cluster.refill();
    let _admitted = connect(&cluster).await;
}
