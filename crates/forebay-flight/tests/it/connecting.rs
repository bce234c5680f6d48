//! Endpoints, TLS, credentials, headers, cookies, sizes.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::{RecordBatch, StringArray};
use flight_local::{Auth, Config, SessionKey, Tls};
use forebay_flight::{
    AsyncFlightSQLPool, AsyncSession, Code, ConnectOptions, Error, FlightSQLClient, Ingest, Phase,
    PoolConfig, QueryOptions, TokenFuture, TokenProvider,
};
use futures_util::stream;

use crate::fixture::{integers, server, server_with, small};

#[tokio::test]
async fn a_session_is_checked_with_the_sql_of_the_pools_settings() {
    let server = server_with(Config { log_statements: true, ..Config::default() }).await;
    let healthcheck_sql = "SELECT 42 AS health".to_owned();
    let config = PoolConfig { healthcheck_sql, min_idle: 0, ..small(1) };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    let mut session = pool.acquire_session().await.unwrap();
    assert_eq!(server.statements(), ["SELECT 42 AS health"], "when it is opened");
    session.ping().await.unwrap();
    assert_eq!(server.statements(), ["SELECT 42 AS health"; 2]);
    drop(session);
    // One that the server refuses comes from a session all the same, so the pool serves; a ping says so.
    let config = PoolConfig { healthcheck_sql: "SELECT nonsense".to_owned(), min_idle: 0, ..small(1) };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.unwrap();
    let mut session = pool.acquire_session().await.unwrap();
    let error = session.ping().await.unwrap_err();
    assert!(matches!(error, Error::Server { .. }), "{error}");
    assert!(session.query("SELECT 7").await.is_ok());
}

#[tokio::test]
async fn every_scheme_reaches_the_server() {
    let server = server().await;
    for scheme in ["grpc", "grpc+tcp"] {
        let url = format!("{scheme}://{}", server.address());
        let mut session = AsyncSession::connect(url.as_str()).await.unwrap();
        assert_eq!(integers(&session.query("SELECT 7").await.unwrap()), [7]);
        session.close().await.unwrap();
    }
}

#[tokio::test]
async fn tls_trusts_the_given_roots() {
    let signed = Tls::self_signed().unwrap();
    let server = server_with(Config { tls: Some(signed.tls.clone()), ..Config::default() }).await;
    let options = || ConnectOptions::new(&server.url()).unwrap();
    assert!(server.url().starts_with("grpc+tls://"));
    let mut session = AsyncSession::connect(options().roots(signed.root_pem.as_str())).await.unwrap();
    assert_eq!(integers(&session.query("SELECT 7").await.unwrap()), [7]);
    let error = AsyncSession::connect(options()).await.unwrap_err();
    assert!(matches!(&error, Error::Transport { message, .. } if message.contains("certificate")), "{error}");
    let other = Tls::self_signed().unwrap();
    assert!(AsyncSession::connect(options().roots(other.root_pem.as_str())).await.is_err());
    assert!(error.to_string().contains("ConnectOptions::roots"), "{error}");
    let named = options().roots(signed.root_pem.as_str()).server_name("elsewhere.example.com");
    let error = AsyncSession::connect(named).await.unwrap_err();
    assert!(error.to_string().contains("ConnectOptions::server_name"), "{error}");
}

#[tokio::test]
async fn tls_with_a_server_that_has_none_says_so() {
    let server = server().await;
    let error = AsyncSession::connect(server.url().replace("grpc", "grpc+tls").as_str()).await.unwrap_err();
    assert!(matches!(error, Error::Transport { may_have_run: false, .. }), "{error}");
    assert!(error.to_string().contains("grpc:// is for"), "{error}");
}

#[tokio::test]
async fn mutual_tls_shows_a_certificate() {
    let signed = Tls::self_signed().unwrap();
    let server = server_with(Config { tls: Some(signed.mutual()), ..Config::default() }).await;
    let options = ConnectOptions::new(&server.url()).unwrap().roots(signed.root_pem.as_str());
    let known =
        options.clone().identity(signed.client_certificate_pem.as_str(), signed.client_key_pem.as_str());
    let mut session = AsyncSession::connect(known).await.unwrap();
    assert_eq!(integers(&session.query("SELECT 7").await.unwrap()), [7]);
    // With TLS 1.3 the client hears of the refusal with its first call.
    if let Ok(mut session) = AsyncSession::connect(options).await {
        assert!(matches!(session.query("SELECT 7").await, Err(Error::SessionLost { .. })));
    }
}

#[tokio::test]
async fn a_password_becomes_a_token() {
    let server = server_with(Config { auth: Some(Auth::basic("me", "secret")), ..Config::default() }).await;
    let options = || ConnectOptions::new(&server.url()).unwrap();
    let pool = AsyncFlightSQLPool::with_options(options().basic("me", "secret"), small(1)).await.unwrap();
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7]);
    assert_eq!(server.counters().handshakes, 1);
    let error = AsyncFlightSQLPool::with_options(options().basic("me", "guess"), small(2)).await.unwrap_err();
    assert!(matches!(error, Error::Server { code: Code::Unauthenticated, .. }), "{error}");
    assert!(
        error.is_not_executed() && error.to_string().contains("the password of ConnectOptions::basic"),
        "{error}"
    );
    let error = AsyncFlightSQLPool::with_options(options(), small(2)).await.unwrap_err();
    assert!(matches!(error, Error::Server { code: Code::Unauthenticated, .. }), "{error}");
    assert!(error.to_string().contains("set ConnectOptions::basic, bearer or token_provider"), "{error}");
    // A session of one's own logs in with its first call, if it has nothing to shake hands with.
    let mut session = AsyncSession::connect(options().bearer("guess")).await.unwrap();
    let error = session.query("SELECT 7").await.unwrap_err();
    assert!(
        error.is_not_executed() && error.to_string().contains("the token of ConnectOptions::bearer"),
        "{error}"
    );
}

/// Gives a token that has been revoked, and then a good one.
struct Renewed(Arc<AtomicUsize>);

impl TokenProvider for Renewed {
    fn token(&self) -> TokenFuture<'_> {
        let turn = self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { Ok(if turn == 0 { "revoked" } else { "good" }.to_owned()) })
    }
}

#[tokio::test]
async fn a_refused_token_is_replaced() {
    let server = server_with(Config { auth: Some(Auth::bearer("good")), ..Config::default() }).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let options = ConnectOptions::new(&server.url()).unwrap().token_provider(Renewed(Arc::clone(&asked)));
    let pool =
        AsyncFlightSQLPool::with_options(options, PoolConfig { min_idle: 0, ..small(1) }).await.unwrap();
    assert_eq!(integers(&pool.query("SELECT 7").await.unwrap()), [7], "on the second connection");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn cookies_keep_their_session() {
    let server = server_with(Config { session_key: SessionKey::Cookie, ..Config::default() }).await;
    let mut one = AsyncSession::connect(server.url().as_str()).await.unwrap();
    let mut two = AsyncSession::connect(server.url().as_str()).await.unwrap();
    one.update("CREATE TEMP TABLE mine (a INTEGER)").await.unwrap();
    assert!(one.query("SELECT * FROM mine").await.unwrap().is_empty());
    assert!(matches!(two.query("SELECT * FROM mine").await, Err(Error::Server { .. })));
    assert_eq!(server.counters().sessions_ever, 2);
}

#[tokio::test]
async fn large_batches_pass_and_the_error_names_the_limit() {
    let server = server().await;
    // Eight megabytes in one value; arrow-flight by itself takes four.
    let large = "SELECT zeroblob(8000000)";
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    assert_eq!(session.query(large).await.unwrap().row_count(), 1);
    let options = ConnectOptions::new(&server.url()).unwrap().max_message_size(1_000_000, 1_000_000);
    let mut session = AsyncSession::connect(options).await.unwrap();
    let error = session.query(large).await.unwrap_err();
    assert!(matches!(&error, Error::Server { code: Code::OutOfRange, .. }), "{error}");
    assert!(error.to_string().contains("max_message_size"), "{error}");
    assert_eq!(integers(&session.query("SELECT 7").await.unwrap()), [7]);
}

#[tokio::test]
async fn a_message_that_is_too_large_is_not_sent() {
    let server = server_with(Config { log_statements: true, ..Config::default() }).await;
    let options = ConnectOptions::new(&server.url()).unwrap().max_message_size(1_000_000, 1_000_000);
    let pool = AsyncFlightSQLPool::with_options(options, small(1)).await.unwrap();
    pool.update("CREATE TABLE t (a TEXT)").await.unwrap();
    let large = "x".repeat(3_000_000);
    let batch = RecordBatch::try_from_iter([("a", Arc::new(StringArray::from(vec![large.clone()])) as _)]);
    let (batch, sql) = (batch.unwrap(), format!("SELECT '{large}'"));
    let insert = "INSERT INTO t VALUES (?)";
    let none = RecordBatch::new_empty(batch.schema());
    for error in [
        pool.query(&sql).await.unwrap_err(),
        pool.query_with_options(&sql, QueryOptions::new().with_progress(|_| {})).await.unwrap_err(),
        pool.update(&sql).await.unwrap_err(),
        pool.query_with_param(&sql, none).await.unwrap_err(),
        pool.query_with_param("SELECT ?", batch.clone()).await.unwrap_err(),
        pool.update_with_record_batch(insert, batch.clone()).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Config { .. }) && error.is_not_executed(), "{error}");
        assert!(error.to_string().contains("max_message_size"), "{error}");
    }
    assert_eq!(server.counters().cancel_query, 0, "there is nothing to cancel");
    let batches = stream::iter([Ok::<_, Infallible>(batch)]);
    let error = pool.ingest(Ingest::into_table("t"), batches).await.unwrap_err();
    assert!(matches!(&error, Error::Input { message } if message.contains("max_message_size")), "{error}");
    assert_eq!(integers(&pool.query("SELECT count(*) FROM t").await.unwrap()), [0]);
    assert!(server.statements().iter().all(|sql| !sql.contains("xxx")));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_clear_error() {
    let server = server().await;
    let url = server.url();
    server.stop().await;
    let error = AsyncFlightSQLPool::with_default(&url).await.unwrap_err();
    assert!(matches!(error, Error::Transport { may_have_run: false, .. }), "{error}");
    assert!(error.to_string().contains(&url), "{error}");
    assert!(matches!(AsyncSession::connect("nowhere").await, Err(Error::Config { .. })));
    // Without a first connection there is nothing to fail yet; a caller hears why there is none.
    let config = PoolConfig { min_idle: 0, acquire_timeout_ms: 300, ..PoolConfig::default() };
    let pool = AsyncFlightSQLPool::new(&url, config).await.unwrap();
    let error = pool.query("SELECT 1").await.unwrap_err();
    assert!(matches!(&error, Error::PoolTimeout { cause: Some(_), .. }), "{error}");
    assert!(error.to_string().contains("cannot connect"), "{error}");
    // The same for one with a deadline of its own.
    let options = QueryOptions::new().with_timeout_ms(100);
    let error = pool.query_with_options("SELECT 1", options).await.unwrap_err();
    let Error::QueryTimeout { phase: Phase::Acquire { cause: Some(cause) }, .. } = &error else {
        panic!("{error:?}");
    };
    let own = cause.get_ref().downcast_ref();
    assert!(
        matches!(own, Some(Error::Transport { may_have_run: false, .. })),
        "the connection's own: {error:?}"
    );
    assert!(error.is_not_executed() && error.to_string().contains("cannot connect"), "{error}");
    assert!(std::error::Error::source(&error).is_none(), "its text contains all causes: {error:?}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("grpc+tls://{}", silent.local_addr().unwrap());
    let options = ConnectOptions::new(&url).unwrap().connect_timeout(Duration::from_millis(100));
    let error = AsyncSession::connect(options).await.unwrap_err();
    assert!(error.to_string().contains("no answer within 100ms"), "{error}");
}

#[test]
fn the_async_pool_needs_a_runtime_and_the_client_does_not() {
    let error = futures_util::FutureExt::now_or_never(AsyncFlightSQLPool::with_default("grpc://localhost:1"));
    assert!(matches!(error, Some(Err(Error::Config { .. }))));
    assert!(matches!(FlightSQLClient::connect("grpc://127.0.0.1:1"), Err(Error::Transport { .. })));
}
