//! Opening connections: tokens, refusals, and what the reservoir makes of them.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use dsql_local::{EngineKind, Limits};
use forebay::{CheckoutError, Connect, ConnectionMonitor, Failure};
use forebay_dsql::{
    Auth, ConnectorParts, Driver, Dsql, DsqlPool, Error, ErrorKind, Options, Postgres, RawPostgres,
    RootCertificates, SignFuture, Signed, Signer, Sqlx, Token, TokenCache, TokenError, TokenRequest,
};

use crate::fake::{Anybody, Fake, error};

use super::cluster::{Keys, PATIENCE, eventually, fault, options, start, start_over};

/// A connector, and who signs for it.
fn connector<C: Driver>(options: Options, keys: &Keys) -> C {
    let runtime = forebay::rt::TokioRuntime::current().unwrap();
    let tokens = TokenCache::new(keys.clone(), runtime.clone(), "test");
    C::new(ConnectorParts::new(options, tokens, std::sync::Arc::new(runtime))).unwrap()
}

async fn failure_of<C: Driver>(connector: &C) -> Failure {
    match connector.open(ConnectionMonitor::unattached()).await {
        Ok(_) => panic!("it was let in"),
        Err(error) => error.failure(),
    }
}

async fn refusals_are_told_apart<C: Driver>() {
    let cluster = start();
    let keys = Keys::of(&cluster);
    let connector: C = connector(options(&cluster, 1).build().unwrap(), &keys);
    for (text, expected) in [
        ("refuse:how=53300", Failure::TooManyConnections),
        ("refuse:how=53400", Failure::Throttled),
        ("refuse:how=waking", Failure::Throttled),
        ("refuse:how=denied", Failure::Auth),
        ("refuse:how=close", Failure::Open),
    ] {
        let id = cluster.inject(fault(text));
        assert_eq!(failure_of(&connector).await, expected, "{text}");
        cluster.heal(id);
    }
    keys.fails.store(true, Ordering::SeqCst);
    drop(connector.open(ConnectionMonitor::unattached()).await.unwrap_or_else(|error| panic!("{error}")));
}

#[tokio::test]
async fn refusals_are_told_apart_by_tokio_postgres() {
    refusals_are_told_apart::<Postgres>().await;
}

#[tokio::test]
async fn refusals_are_told_apart_by_sqlx() {
    refusals_are_told_apart::<Sqlx>().await;
}

#[tokio::test]
async fn refusals_are_told_apart_by_raw_connections() {
    refusals_are_told_apart::<RawPostgres<()>>().await;
}

async fn an_expired_token_is_replaced_once<C: Driver>() {
    let cluster = start();
    let keys = Keys::of(&cluster);
    let connector: C = connector(options(&cluster, 1).build().unwrap(), &keys);
    connector.prepare().await.unwrap();
    assert_eq!(keys.asked.load(Ordering::SeqCst), 1);
    // By the cluster's clock the token is old; by ours it is new.
    cluster.clock().advance(Duration::from_secs(16 * 60));
    // Two opens in flight have the same token. Each dials once, as it has one permit.
    let (first, second) = tokio::join!(failure_of(&connector), failure_of(&connector));
    assert_eq!((first, second), (Failure::Auth, Failure::Auth));
    assert_eq!(cluster.counters().sockets, 2);
    drop(connector.open(ConnectionMonitor::unattached()).await.unwrap_or_else(|error| panic!("{error}")));
    assert_eq!(keys.asked.load(Ordering::SeqCst), 2);
    assert_eq!((cluster.counters().sockets, cluster.counters().accepted), (3, 1));
}

#[tokio::test]
async fn an_expired_token_is_replaced_once_by_tokio_postgres() {
    an_expired_token_is_replaced_once::<Postgres>().await;
}

#[tokio::test]
async fn an_expired_token_is_replaced_once_by_sqlx() {
    an_expired_token_is_replaced_once::<Sqlx>().await;
}

#[tokio::test]
async fn an_expired_token_is_replaced_once_by_raw_connections() {
    an_expired_token_is_replaced_once::<RawPostgres<()>>().await;
}

#[tokio::test]
async fn without_a_token_nothing_is_dialled() {
    for reservoir in [true, false] {
        let cluster = start();
        let keys = Keys::of(&cluster);
        keys.fails.store(true, Ordering::SeqCst);
        let options = options(&cluster, 1)
            .reservoir(reservoir)
            .variable("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "1ms")
            .variable("DSQL_RESERVOIR_EMPTY_WAIT", "10ms");
        let connect = Dsql::builder(options.build().unwrap(), keys.clone());
        let pool = if reservoir {
            connect.connect().await.unwrap()
        } else {
            // Its warm-up would try for a while: let the keys come back while it does.
            let (pool, ()) = tokio::join!(connect.connect(), async {
                eventually("it was asked", || keys.asked.load(Ordering::SeqCst) > 0).await;
                assert_eq!(cluster.counters().sockets, 0);
                keys.fails.store(false, Ordering::SeqCst);
            });
            pool.unwrap()
        };
        if reservoir {
            match pool.acquire().await {
                Err(CheckoutError::Empty { last_open_error: Some(error), .. }) => {
                    assert_eq!(error.failure(), Failure::Token);
                    assert!(error.to_string().contains("the token service is away"), "{error}");
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(cluster.counters().sockets, 0);
            keys.fails.store(false, Ordering::SeqCst);
        }
        let lent = pool.acquire_within(PATIENCE).await.unwrap();
        lent.batch_execute("SELECT 1").await.unwrap();
    }
}

/// As `role "nix" does not exist` and a wrong secret do: no pause will help, and the error says so.
#[tokio::test]
async fn what_will_never_be_let_in_is_told_so_once() {
    let cluster = start();
    let keys = Keys::of(&cluster);
    let options = options(&cluster, 1).reservoir(true).variable("DSQL_RESERVOIR_EMPTY_WAIT", "10ms");
    let pool = Dsql::connect(options.build().unwrap(), keys).await.unwrap();
    cluster.inject(fault("refuse:how=denied"));
    cluster.sever(1.0);
    eventually("it was refused", || pool.reservoir_status().unwrap().counts.failures(Failure::Auth) > 0)
        .await;
    let error = pool.acquire().await.unwrap_err();
    assert_eq!(ErrorKind::of(&error), ErrorKind::Auth(Auth::Denied), "{error}");
    let told = error.to_string();
    assert_eq!((told.matches("access denied").count(), told.matches("auth: ").count()), (1, 1), "{told}");
    let failed = pool.run("pay", async |_| Ok::<_, Error>(())).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Auth(Auth::Denied), "{failed}");
}

/// No fill and no warm-up would end in time here, if it were waited for.
async fn connect_fails_at_once_if_access_is_denied<C: Driver>() {
    for reservoir in [true, false] {
        for (engine, user, words) in [
            (EngineKind::Builtin, "admin", "unable to accept connection, access denied"),
            (EngineKind::Postgres, "nix", "role \"nix\" does not exist"),
        ] {
            let cluster = start_over(engine, Limits::default());
            if user == "admin" {
                cluster.inject(fault("refuse:how=denied"));
            }
            let options = options(&cluster, 3)
                .user(user)
                .reservoir(reservoir)
                .variable("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "1h")
                .variable("DSQL_POOL_WARMUP_STAGGER_DURATION", "1h");
            let connect = DsqlPool::<C>::connect(options.build().unwrap(), Keys::of(&cluster));
            let error = tokio::time::timeout(PATIENCE, connect).await.expect("at once").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Auth(Auth::Denied), "{error}");
            let told = error.to_string();
            assert_eq!((told.matches(words).count(), told.matches("auth: ").count()), (1, 1), "{told}");
            let sockets = cluster.counters().sockets;
            assert!((1..=6).contains(&sockets), "{sockets}: once for each, and once with a fresh token");
        }
    }
}

#[tokio::test]
async fn connect_fails_at_once_if_access_is_denied_with_tokio_postgres() {
    connect_fails_at_once_if_access_is_denied::<Postgres>().await;
}

#[tokio::test]
async fn connect_fails_at_once_if_access_is_denied_with_sqlx() {
    connect_fails_at_once_if_access_is_denied::<Sqlx>().await;
}

#[tokio::test]
async fn connect_fails_at_once_if_access_is_denied_with_raw_connections() {
    connect_fails_at_once_if_access_is_denied::<RawPostgres<()>>().await;
}

/// The clock may be set right.
async fn connect_goes_on_if_a_signature_has_expired<C: Driver>() {
    let cluster = start();
    let late = Late(parking_lot::Mutex::new(vec![Token::new(cluster.token("admin").unwrap())]));
    cluster.clock().advance(Duration::from_secs(16 * 60));
    let options =
        options(&cluster, 1).reservoir(true).variable("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "100ms");
    let pool = DsqlPool::<C>::connect(options.build().unwrap(), late).await.unwrap();
    assert_eq!(pool.status().open, 0);
}

#[tokio::test]
async fn connect_goes_on_if_a_signature_has_expired_with_both_clients() {
    connect_goes_on_if_a_signature_has_expired::<Postgres>().await;
    connect_goes_on_if_a_signature_has_expired::<Sqlx>().await;
}

async fn an_open_given_up_anywhere_leaves_nothing<C: Driver>() {
    let cluster = start();
    let connector: C = connector(options(&cluster, 1).build().unwrap(), &Keys::of(&cluster));
    let mut whole = 0;
    for polls in 0..200 {
        let mut open = Box::pin(connector.open(ConnectionMonitor::unattached()));
        let mut opened = None;
        for _ in 0..polls {
            let polled = std::future::poll_fn(|context| Poll::Ready(open.as_mut().poll(context)));
            if let Poll::Ready(done) = polled.await {
                opened = Some(done);
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(open);
        if let Some(opened) = opened {
            connector.close(opened.unwrap_or_else(|error| panic!("{error}"))).await;
            whole += 1;
        }
    }
    // Whether some were fast enough is the machine's business; in the end one is.
    let opened = connector.open(ConnectionMonitor::unattached()).await;
    connector.close(opened.unwrap_or_else(|error| panic!("{error}"))).await;
    eventually("no session is left", || cluster.counters().live == 0).await;
    assert!(cluster.counters().accepted > whole, "the last one at least was let in");
}

#[tokio::test]
async fn an_open_given_up_anywhere_leaves_nothing_with_tokio_postgres() {
    an_open_given_up_anywhere_leaves_nothing::<Postgres>().await;
}

#[tokio::test]
async fn an_open_given_up_anywhere_leaves_nothing_with_sqlx() {
    an_open_given_up_anywhere_leaves_nothing::<Sqlx>().await;
}

#[tokio::test]
async fn an_open_given_up_anywhere_leaves_nothing_with_raw_connections() {
    an_open_given_up_anywhere_leaves_nothing::<RawPostgres<()>>().await;
}

#[tokio::test]
async fn a_stranger_is_not_believed() {
    let (cluster, other) = (start(), start());
    let strange = options(&cluster, 1).roots(RootCertificates::Pem(other.ca_pem().as_bytes().into()));
    let connector: Postgres = connector(strange.build().unwrap(), &Keys::of(&cluster));
    let error = connector.open(ConnectionMonitor::unattached()).await.unwrap_err();
    assert_eq!(error.failure(), Failure::Open);
    assert!(error.to_string().contains("certificate"), "{error}");

    // The right authority, and another name: here it is the server that finds nobody of that name.
    let named = Options::builder("another.dsql.us-east-1.on.aws")
        .address("127.0.0.1")
        .port(cluster.address().port())
        .roots(RootCertificates::Pem(cluster.ca_pem().as_bytes().into()));
    let connector: Postgres = super::opening::connector(named.build().unwrap(), &Keys::of(&cluster));
    let error = connector.open(ConnectionMonitor::unattached()).await.unwrap_err();
    assert_eq!(error.failure(), Failure::Open);
    assert_eq!(cluster.counters().accepted, 0);
}

#[tokio::test]
async fn tls_can_begin_at_once() {
    let cluster = start();
    let connector: Postgres =
        connector(options(&cluster, 1).direct_tls(true).build().unwrap(), &Keys::of(&cluster));
    let connection = connector.open(ConnectionMonitor::unattached()).await.unwrap();
    connection.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_on() {
    let cluster = start();
    cluster.inject(fault("silent"));
    let options = options(&cluster, 1)
        .reservoir(true)
        .variable("DSQL_CONNECT_TIMEOUT", "500ms")
        .variable("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "1ms");
    let pool = Dsql::connect(options.build().unwrap(), Keys::of(&cluster)).await.unwrap();
    eventually("it timed out", || pool.reservoir_status().unwrap().counts.failures(Failure::Timeout) > 0)
        .await;
    cluster.heal_all();
    pool.acquire_within(PATIENCE).await.unwrap().batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn sqlx_cannot_go_to_another_address() {
    let cluster = start();
    let keys = Keys::of(&cluster);
    let elsewhere = options(&cluster, 1).address("127.0.0.1").build().unwrap();
    let error = forebay_dsql::SqlxDsql::connect(elsewhere, keys).await.unwrap_err();
    assert!(error.to_string().contains("address"), "{error}");
}

#[tokio::test]
async fn a_token_of_old_keys_is_replaced_once_it_is_denied() {
    for reservoir in [true, false] {
        let cluster = start();
        let keys = Keys::of(&cluster);
        let options = options(&cluster, 1).reservoir(reservoir).build().unwrap();
        let dsql = Dsql::connect(options, keys.clone()).await.unwrap();
        cluster.set_credentials(vec![dsql_local::Credentials::new("AKIDNEW", "another")]);
        cluster.sever(1.0);
        let asked = || keys.asked.load(Ordering::SeqCst);
        // The first may still get the connection that has just died.
        let served = async {
            while dsql.acquire().await.is_err() || asked() == 1 {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, served).await.is_ok(), "the old token is shown for ever");
        assert_eq!(asked(), 2);
        // A role that is not let in with any token does not have one signed for each attempt.
        cluster.inject(fault("refuse:how=denied"));
        cluster.sever(1.0);
        for _ in 0..5 {
            drop(dsql.acquire_within(Duration::from_millis(100)).await);
        }
        assert!(asked() <= 3, "{}", asked());
    }
}

/// Signs what the cluster's clock has left behind, another one each time.
struct Late(parking_lot::Mutex<Vec<Token>>);

impl Signer for Late {
    fn sign<'a>(&'a self, _: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(async {
            let token = self.0.lock().pop().ok_or_else(|| TokenError::unavailable("no more"))?;
            Ok(Signed { token, credentials_expire: None })
        })
    }
}

async fn a_wrong_clock_costs_one_connect_for_each_open<C: Driver>() {
    let cluster = start();
    let sign = || {
        cluster.clock().advance(Duration::from_secs(1));
        Token::new(cluster.token("admin").unwrap())
    };
    let late = Late(parking_lot::Mutex::new((0..20).map(|_| sign()).collect()));
    cluster.clock().advance(Duration::from_secs(16 * 60));
    let runtime = forebay::rt::TokioRuntime::current().unwrap();
    let tokens = TokenCache::new(late, runtime.clone(), "test");
    let parts =
        ConnectorParts::new(options(&cluster, 1).build().unwrap(), tokens, std::sync::Arc::new(runtime));
    let connector = C::new(parts).unwrap();
    for _ in 0..10 {
        let error = connector.open(ConnectionMonitor::unattached()).await.err().expect("it was let in");
        assert_eq!(error.failure(), Failure::Auth);
        assert_eq!(ErrorKind::of(&error), ErrorKind::Auth(Auth::SignatureExpired), "{error}");
    }
    // Each open has one permit, and dials once.
    assert_eq!(cluster.counters().sockets, 10);
}

#[tokio::test]
async fn a_wrong_clock_costs_one_connect_for_each_open_with_tokio_postgres() {
    a_wrong_clock_costs_one_connect_for_each_open::<Postgres>().await;
}

#[tokio::test]
async fn a_wrong_clock_costs_one_connect_for_each_open_with_sqlx() {
    a_wrong_clock_costs_one_connect_for_each_open::<Sqlx>().await;
}

/// Its goodbye comes with its welcome.
#[tokio::test]
async fn a_session_that_ends_with_its_start_is_not_open() {
    let fake = Fake::that_greets(error("FATAL", "57P01", "terminating connection"), |_| vec![]).await;
    let runtime = forebay::rt::TokioRuntime::current().unwrap();
    let tokens = TokenCache::new(Anybody, runtime.clone(), "test");
    let parts = ConnectorParts::new(fake.options(1).build().unwrap(), tokens, std::sync::Arc::new(runtime));
    let connector = Postgres::new(parts).unwrap();
    assert_eq!(failure_of(&connector).await, Failure::Open);
}
