//! Servers that name wrong locations, and send data that cannot be decoded.

use std::time::Duration;

use arrow_flight::FlightData;
use bytes::Bytes;
use flight_local::{Actions, Config, Support};
use forebay_flight::{
    AsyncFlightSQLPool, AsyncSession, CancelHandle, Code, ConnectOptions, Error, PoolConfig, QueryOptions,
    TableFilter,
};

use crate::fixture::{eventually, integers, pool, server_with, small};
use odd_server::{OddServer, Oddity};

mod odd_server;
mod uploads;

/// A port without a server.
const NOWHERE: &str = "grpc://127.0.0.1:1";

fn url(port: u16) -> String {
    format!("grpc://127.0.0.1:{port}")
}

fn at(location: impl Into<String>) -> Oddity {
    Oddity { locations: vec![location.into()], ..Oddity::default() }
}

#[tokio::test]
async fn an_answered_statement_is_not_sent_again() {
    let (server, port) = OddServer::start(at(NOWHERE)).await;
    let pool = AsyncFlightSQLPool::new(&url(port), small(4)).await.unwrap();
    let error = pool.execute("INSERT INTO t VALUES (1) RETURNING a").await.unwrap_err();
    assert!(matches!(error, Error::Transport { may_have_run: true, .. }), "{error}");
    assert!(!error.is_not_executed());
    assert_eq!(server.statements(), 1);
    // A read may be run a second time, once.
    pool.query("SELECT a FROM t").await.unwrap_err();
    assert_eq!(server.statements(), 3);
    let mut session = AsyncSession::connect(url(port).as_str()).await.unwrap();
    assert!(!session.execute("INSERT INTO t VALUES (1) RETURNING a").await.unwrap_err().is_not_executed());
}

#[tokio::test]
async fn a_part_without_columns_does_not_hide_those_of_the_others() {
    for (parts, declares_columns, rows, columns) in [
        (vec![false, true], false, 3, 1),
        (vec![false, false, true, false], false, 3, 1),
        (vec![true, false], false, 3, 1),
        (vec![false, true], true, 3, 1),
        (vec![false], true, 0, 1),
        (vec![false, false], false, 0, 0),
    ] {
        let case = format!("{parts:?}, {declares_columns}");
        let (_server, port) = OddServer::start(Oddity { parts, declares_columns, ..Oddity::default() }).await;
        let mut session = AsyncSession::connect(url(port).as_str()).await.unwrap();
        let result = session.query("SELECT a FROM t").await.unwrap();
        assert_eq!((result.row_count(), result.schema().fields().len()), (rows, columns), "{case}");
        // The columns are there before the first row.
        let mut stream = session.query_stream("SELECT a FROM t").await.unwrap();
        assert_eq!(stream.schema().fields().len(), columns, "{case}");
        while let Some(batch) = stream.next_batch().await {
            assert_eq!(batch.unwrap().num_columns(), 1, "{case}");
        }
    }
}

#[tokio::test]
async fn a_write_whose_rows_cannot_be_read_runs_once() {
    let config =
        Config { log_statements: true, endpoints_per_result: 2, further_listeners: 1, ..Config::default() };
    let server = server_with(config).await;
    let pool = pool(&server, 4).await;
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    server.faults().refuse_connections(true);
    let error = pool.execute("INSERT INTO t VALUES (2) RETURNING a").await.unwrap_err();
    assert!(!error.is_not_executed(), "{error}");
    server.faults().refuse_connections(false);
    assert!(server.statements().iter().filter(|sql| sql.starts_with("INSERT")).count() <= 1);
}

#[tokio::test]
async fn a_poll_that_breaks_off_may_have_executed() {
    let (server, port) = OddServer::start(Oddity { breaks_off_polling: true, ..Oddity::default() }).await;
    let pool = AsyncFlightSQLPool::new(&url(port), small(4)).await.unwrap();
    let options = QueryOptions::new().with_progress(|_| {});
    let error = pool.query_with_options("INSERT INTO t VALUES (1) RETURNING a", options).await.unwrap_err();
    assert!(!error.is_not_executed(), "{error}");
    assert_eq!(server.statements(), 1);
}

#[tokio::test]
async fn credentials_stay_with_their_host() {
    for allow in [false, true] {
        let (stranger, port) = OddServer::start(Oddity::default()).await;
        // Another name of this host is another host.
        let (_home, home_port) = OddServer::start(at(format!("grpc://localhost:{port}"))).await;
        let options = ConnectOptions::new(&url(home_port)).unwrap().basic("me", "hush").cookie("sid", "hush");
        let options = options.header("x-key", "hush").unwrap().credentials_to_other_hosts(allow);
        let mut session = AsyncSession::connect(options).await.unwrap();
        assert_eq!(integers(&session.query("SELECT a FROM t").await.unwrap()), [1, 2, 3]);
        assert_eq!(stranger.secrets().is_empty(), !allow, "{:?}", stranger.secrets());
    }
}

#[tokio::test]
async fn a_custom_action_has_the_headers_of_its_session_and_keeps_its_deadline() {
    let (server, port) = OddServer::start(Oddity::default()).await;
    let options = ConnectOptions::new(&url(port)).unwrap().header("x-key", "hush").unwrap();
    let mut session = AsyncSession::connect(options).await.unwrap();
    let error = session.action("Unheard", "of", QueryOptions::new()).await.unwrap_err();
    assert!(matches!(error, Error::Server { code: Code::Unimplemented, .. }), "{error}");
    assert_eq!(server.secrets(), ["x-key"]);
    let status: Option<&tonic::Status> =
        std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    assert_eq!(status.map(tonic::Status::code), Some(Code::Unimplemented));
    let options = QueryOptions::new().with_timeout_ms(50);
    let error = session.action("Never", "ends", options).await.unwrap_err();
    assert!(matches!(error, Error::QueryTimeout { .. }), "{error}");
    assert_eq!(integers(&session.query("SELECT a FROM t").await.unwrap()), [1, 2, 3]);
}

/// A server may compress what it sends, and accepts what is compressed.
#[cfg(feature = "lz4")]
#[tokio::test]
async fn compressed_batches_are_read_and_sent() {
    use arrow_array::Array;
    use forebay_flight::{Compression, Ingest};

    for (kind, compression) in [
        (arrow_ipc::CompressionType::LZ4_FRAME, Compression::Lz4),
        #[cfg(feature = "zstd")]
        (arrow_ipc::CompressionType::ZSTD, Compression::Zstd),
    ] {
        let (_server, port) = OddServer::start(Oddity { compression: Some(kind), ..Oddity::default() }).await;
        let mut session = AsyncSession::connect(url(port).as_str()).await.unwrap();
        assert_eq!(integers(&session.query("SELECT a FROM t").await.unwrap()), [1, 2, 3], "{kind:?}");

        // These zeros are too large for one message, unless they are compressed.
        let server = crate::fixture::server().await;
        let options = ConnectOptions::new(&server.url()).unwrap().max_message_size(1 << 20, 1 << 16);
        let mut session = AsyncSession::connect(options).await.unwrap();
        session.update("CREATE TABLE t (a INTEGER)").await.unwrap();
        let zeros = crate::fixture::numbers(std::iter::repeat_n(0, 20_000));
        assert!(zeros.column(0).get_array_memory_size() > 1 << 16);
        let plain = QueryOptions::new().with_params(zeros.clone());
        let error = session.update_with_options("INSERT INTO t VALUES (?)", plain.clone()).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
        let compressed = plain.with_compression(compression);
        let updated =
            session.update_with_options("INSERT INTO t VALUES (?)", compressed.clone()).await.unwrap();
        assert_eq!(updated.rows_affected(), Some(20_000));
        let batches = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(zeros)]);
        let ingest = Ingest::into_table("t").options(compressed);
        assert_eq!(session.ingest(ingest, batches).await.unwrap().rows_affected(), Some(20_000));
    }
}

#[tokio::test]
async fn a_location_with_a_secret_in_it_is_not_repeated() {
    for location in ["grpc://me:hush@127.0.0.1:9", "grpc://127.0.0.1:9?token=hush"] {
        let (_server, port) = OddServer::start(at(location)).await;
        let mut session = AsyncSession::connect(url(port).as_str()).await.unwrap();
        let error = session.query("SELECT a FROM t").await.unwrap_err();
        assert!(
            matches!(error, Error::Transport { .. }) && !format!("{error:?}").contains("hush"),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_malformed_batch_is_an_error() {
    let spoilt: [fn(&mut FlightData); 4] = [
        |message| message.data_body = message.data_body.slice(..4),
        |message| message.data_body = Bytes::new(),
        |message| message.data_header = message.data_header.slice(..5),
        |message| message.data_header = Bytes::from_static(&[0xff; 64]),
    ];
    for spoil in spoilt {
        let (_server, port) = OddServer::start(Oddity { spoil: Some(spoil), ..Oddity::default() }).await;
        let pool = AsyncFlightSQLPool::new(&url(port), small(1)).await.unwrap();
        let error = pool.query("SELECT a FROM t").await.unwrap_err();
        assert!(matches!(error, Error::Transport { may_have_run: true, .. }), "{error}");
    }
}

#[tokio::test]
async fn a_dropped_catalog_query_does_not_disable_cancellation() {
    let server = server_with(Config { interrupt_on_drop: false, ..Config::default() }).await;
    let pool = pool(&server, 1).await;
    for micros in (100..4_000).step_by(100) {
        let mut session = pool.acquire_session().await.unwrap();
        let tables = session.tables(TableFilter::default());
        let _ = forebay_timeout(Duration::from_micros(micros), tables).await;
    }
    assert_eq!(server.counters().cancel_flight_info, 0);
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    pool.query_with_options(endless, QueryOptions::new().with_timeout_ms(100)).await.unwrap_err();
    eventually("the server has stopped it", || server.counters().statements_running == 0).await;
}

#[allow(clippy::disallowed_methods, reason = "the server keeps real time")]
async fn forebay_timeout<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, future).await.ok()
}

#[tokio::test]
async fn a_statement_that_is_late_or_cancelled_before_it_begins_is_not_sent() {
    let server = server_with(Config { log_statements: true, ..Config::default() }).await;
    let pool = pool(&server, 1).await;
    let cancel = CancelHandle::new();
    cancel.cancel();
    for _ in 0..10 {
        let cancelled = QueryOptions::new().with_cancel(cancel.clone());
        let error =
            pool.update_with_options("CREATE TABLE t (a INTEGER)", cancelled.clone()).await.unwrap_err();
        assert!(
            matches!(error, Error::Cancelled { may_have_run: false }) && error.is_not_executed(),
            "{error}"
        );
        assert!(pool.query_with_options("SELECT 7", cancelled).await.is_err());
        let late = QueryOptions::new().with_timeout_ms(0);
        let error = pool.update_with_options("CREATE TABLE t (a INTEGER)", late).await.unwrap_err();
        assert!(error.is_not_executed(), "{error}");
    }
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    for options in [QueryOptions::new().with_cancel(cancel), QueryOptions::new().with_timeout_ms(0)] {
        assert!(session.query_with_options("SELECT 7", options.clone()).await.is_err());
        assert!(session.update_with_options("CREATE TABLE t (a INTEGER)", options).await.is_err());
    }
    let asked = server.statements().into_iter().filter(|sql| sql != "SELECT 1").collect::<Vec<_>>();
    assert!(asked.is_empty(), "{asked:?}");
    assert_eq!(server.counters().cancel_query, 0, "there is nothing to cancel");
}

#[tokio::test]
async fn an_update_is_stopped_by_closing_its_session_if_nothing_else_will() {
    let actions = Actions { close_session: Support::Known, ..Actions::all(Support::Unknown) };
    let server = server_with(Config { actions, interrupt_on_drop: false, ..Config::default() }).await;
    let pool =
        AsyncFlightSQLPool::new(&server.url(), PoolConfig { quarantine_ms: 600_000, ..small(1) }).await;
    let pool = pool.unwrap();
    pool.update("CREATE TABLE t (a INTEGER)").await.unwrap();
    let endless = "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    pool.update_with_options(endless, QueryOptions::new().with_timeout_ms(100)).await.unwrap_err();
    eventually("the server has stopped it", || server.counters().statements_running == 0).await;
}

#[tokio::test]
async fn another_location_is_connected_to_once_per_result_and_closed() {
    let config = Config { endpoints_per_result: 6, further_listeners: 1, ..Config::default() };
    let server = server_with(config).await;
    let pool = pool(&server, 1).await;
    pool.query("SELECT 7").await.unwrap();
    let before = server.counters().connections_ever;
    let rows = pool.query("SELECT value FROM generate_series(1, 12)").await.unwrap();
    assert_eq!(rows.row_count(), 12);
    assert!(server.counters().connections_ever <= before + 1, "{:?}", server.counters());
    eventually("its session is closed", || server.counters().sessions_open <= 1).await;
}

#[tokio::test]
async fn a_port_that_speaks_no_http2_is_no_connection() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = ConnectOptions::new(&url(silent.local_addr().unwrap().port())).unwrap();
    let error = AsyncSession::connect(options.connect_timeout(Duration::from_millis(100))).await.unwrap_err();
    assert!(matches!(error, Error::Transport { may_have_run: false, .. }), "{error}");
    let tls = flight_local::Tls::self_signed().unwrap().tls;
    let server = server_with(Config { tls: Some(tls), ..Config::default() }).await;
    let plain = server.url().replace("grpc+tls", "grpc");
    let error = AsyncSession::connect(plain.as_str()).await.unwrap_err();
    assert!(error.to_string().contains("grpc+tls:// is for servers with TLS"), "{error}");
}
