//! What waiting does not cure is not waited for: a certificate that is not trusted any more. What may pass is.

use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{CheckoutError, Failure};
use forebay_dsql::{Driver, DsqlPool, ErrorKind, Postgres, Sqlx};

use super::cluster::{Keys, PATIENCE, eventually, options, start};
use super::door::Door;
use super::hand_time::HandTime;
use super::modes::Speak;

/// Takes and uses connections until there are none, and returns why.
async fn until_none_is_left<C: Driver<Connection: Speak>>(pool: &DsqlPool<C>) -> CheckoutError {
    loop {
        match tokio::time::timeout(PATIENCE, pool.acquire()).await.expect("it waits") {
            Ok(mut lent) => lent.notice().await,
            Err(error) => return error,
        }
    }
}

async fn a_wrong_certificate_is_not_waited_for<C: Driver<Connection: Speak>>(reservoir: bool) {
    let (right, wrong) = (start(), start());
    let (door, port) = Door::open(right.address()).await;
    let time = HandTime::new();
    let options = options(&right, 2).port(port).reservoir(reservoir).build().unwrap();
    let pool: DsqlPool<C> = time
        .passing(DsqlPool::builder(options.clone(), Keys::of(&right)).runtime(time.clone()).connect())
        .await
        .unwrap();
    time.passing(pool.acquire()).await.unwrap().execute("SELECT 1").await.unwrap();

    door.lead_to(Some(wrong.address()));
    right.sever(1.0);
    eventually("they are cut", || right.counters().live == 0).await;
    if !reservoir {
        // Its keeper opens connections only when it looks.
        time.advance(Duration::from_secs(1));
    }
    let began = time.now();
    for _ in 0..3 {
        let error = until_none_is_left(&pool).await;
        assert!(matches!(error, CheckoutError::Denied { .. }), "{error}");
        assert_eq!(ErrorKind::of(&error), ErrorKind::Permanent, "{error}");
    }
    assert_eq!(time.now(), began, "nobody waited");
    // Nor does a start.
    let started = DsqlPool::<C>::builder(options, Keys::of(&right)).runtime(time.clone()).connect();
    let error = time.passing(started).await.expect_err("it has started");
    assert_eq!(error.kind(), ErrorKind::Permanent, "{error}");

    door.lead_to(Some(right.address()));
    let served = async {
        loop {
            match pool.acquire().await {
                Ok(mut lent) => break lent.execute("SELECT 1").await.unwrap(),
                Err(_) => time.advance(Duration::from_millis(500)),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, time.passing(served)).await.expect("it serves again by itself");
}

#[tokio::test]
async fn a_wrong_certificate_is_not_waited_for_with_tokio_postgres() {
    for reservoir in [true, false] {
        a_wrong_certificate_is_not_waited_for::<Postgres>(reservoir).await;
    }
}

#[tokio::test]
async fn a_wrong_certificate_is_not_waited_for_with_sqlx() {
    for reservoir in [true, false] {
        a_wrong_certificate_is_not_waited_for::<Sqlx>(reservoir).await;
    }
}

/// A socket that is closed before TLS, as of a network that is being changed.
#[tokio::test]
async fn what_may_pass_is_waited_for() {
    let cluster = start();
    let (door, port) = Door::open(cluster.address()).await;
    let time = HandTime::new();
    let options = options(&cluster, 1).port(port).reservoir(true).build().unwrap();
    let connect = DsqlPool::<Postgres>::builder(options, Keys::of(&cluster)).runtime(time.clone()).connect();
    let pool = time.passing(connect).await.unwrap();
    door.lead_to(None);
    cluster.sever(1.0);
    let failures = || pool.reservoir_status().unwrap().counts.failures(Failure::Open);
    eventually("an open has failed", || failures() > 0).await;
    let began = time.now();
    let error = time.passing(pool.acquire()).await.expect_err("nothing is there");
    assert!(matches!(error, CheckoutError::Empty { .. }), "{error}");
    assert!(time.now().since(began) >= Duration::from_secs(30));
}
