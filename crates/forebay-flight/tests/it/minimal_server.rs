//! A server made of arrow-rs's defaults: no handshake, no transactions, no sessions, no cancellation. It
//! records what it receives.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::Action;
use arrow_flight::flight_service_server::FlightServiceServer;
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionBeginTransactionRequest, ActionBeginTransactionResult, ActionEndTransactionRequest,
    CommandStatementUpdate, SqlInfo,
};
use bytes::Bytes;
use forebay_flight::{
    AsyncFlightSQLPool, AsyncSession, Code, ConnectOptions, Error, FlightSQLClient, PoolConfig, QueryOptions,
};
use parking_lot::Mutex;
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Status};

#[derive(Clone, Default)]
struct Plain {
    told: Arc<Mutex<Vec<(String, MetadataMap)>>>,
    /// Its answers to `BeginTransaction`, the last first; without one it does not know it.
    begins: Arc<Mutex<Vec<Result<Bytes, Status>>>>,
}

#[tonic::async_trait]
impl FlightSqlService for Plain {
    type FlightService = Self;

    async fn do_put_statement_update(
        &self,
        command: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        self.told.lock().push((command.query.clone(), request.metadata().clone()));
        match command.query.as_str() {
            "HANG" => pending().await,
            "INSERT INTO nowhere" => Err(Status::unimplemented("no updates")),
            _ => Ok(-1),
        }
    }

    async fn do_action_begin_transaction(
        &self,
        _: ActionBeginTransactionRequest,
        _: Request<Action>,
    ) -> Result<ActionBeginTransactionResult, Status> {
        let answer = self.begins.lock().pop().unwrap_or_else(|| Err(Status::unimplemented("not here")));
        answer.map(|transaction_id| ActionBeginTransactionResult { transaction_id })
    }

    async fn do_action_end_transaction(
        &self,
        _: ActionEndTransactionRequest,
        _: Request<Action>,
    ) -> Result<(), Status> {
        Ok(())
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}

impl Plain {
    /// Serves until the test's runtime ends.
    #[allow(clippy::disallowed_methods, reason = "a server beside the test")]
    async fn start() -> (Self, String) {
        let plain = Self::default();
        let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let url = format!("grpc://{}", incoming.local_addr().unwrap());
        let server = tonic::transport::Server::builder().add_service(FlightServiceServer::new(plain.clone()));
        tokio::spawn(server.serve_with_incoming(incoming));
        (plain, url)
    }

    fn statements(&self) -> Vec<String> {
        self.told.lock().iter().map(|(sql, _)| sql.clone()).collect()
    }
}

#[tokio::test]
async fn transactions_are_begun_by_sql_without_the_action() {
    let (plain, url) = Plain::start().await;
    let mut session = AsyncSession::connect(url.as_str()).await.unwrap();
    for _ in 0..2 {
        let mut transaction = session.begin().await.unwrap();
        assert_eq!(transaction.update("INSERT").await.unwrap().rows_affected(), None, "it does not know");
        transaction.commit().await.unwrap();
    }
    drop(session.begin().await.unwrap());
    session.update("INSERT").await.unwrap();
    let expected = ["BEGIN", "INSERT", "COMMIT", "BEGIN", "INSERT", "COMMIT", "BEGIN", "ROLLBACK", "INSERT"];
    assert_eq!(plain.statements(), expected);
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_server_without_updates_gets_a_query_and_the_transaction_goes_on() {
    let (plain, url) = Plain::start().await;
    let mut session = AsyncSession::connect(url.as_str()).await.unwrap();
    let mut transaction = session.begin().await.unwrap();
    for _ in 0..2 {
        // It does not support queries either, but says so by itself.
        let error = transaction.query("INSERT INTO nowhere").await.unwrap_err();
        assert!(matches!(error, Error::Server { code: Code::Unimplemented, .. }), "{error}");
    }
    transaction.update("INSERT").await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(plain.statements(), ["BEGIN", "INSERT INTO nowhere", "INSERT", "COMMIT"]);
}

#[tokio::test]
async fn a_transaction_that_is_refused_once_is_begun_by_sql_once() {
    let (plain, url) = Plain::start().await;
    let busy = Status::invalid_argument("too many transactions");
    *plain.begins.lock() =
        vec![Ok(Bytes::from_static(b"it")), Err(Status::permission_denied("no")), Err(busy)];
    let mut session = AsyncSession::connect(url.as_str()).await.unwrap();
    for _ in 0..3 {
        session.begin().await.unwrap().commit().await.unwrap();
    }
    assert_eq!(plain.statements(), ["BEGIN", "COMMIT", "BEGIN", "COMMIT"], "the third is the server's own");
    // What has worked is not worked around any more.
    plain.begins.lock().push(Err(Status::invalid_argument("one is open")));
    let error = session.begin().await.unwrap_err();
    assert!(matches!(error, Error::Server { code: Code::InvalidArgument, .. }), "{error}");
}

#[tokio::test]
async fn a_pool_rolls_back_by_sql_too() {
    let (plain, url) = Plain::start().await;
    let pool =
        AsyncFlightSQLPool::new(&url, PoolConfig { max_size: 1, ..PoolConfig::default() }).await.unwrap();
    let mut session = pool.acquire_session().await.unwrap();
    session.begin_transaction().await.unwrap();
    drop(session);
    pool.update("INSERT").await.unwrap();
    assert_eq!(plain.statements(), ["BEGIN", "ROLLBACK", "INSERT"]);
}

#[tokio::test]
async fn every_call_has_the_headers_and_cookies() {
    let (plain, url) = Plain::start().await;
    let options = ConnectOptions::new(&url)
        .unwrap()
        .header("X-Tenant", "blue")
        .unwrap()
        .cookie("lang", "en")
        .basic("me", "pass");
    let mut session = AsyncSession::connect(options).await.unwrap();
    session.update_with_options("UPDATE", QueryOptions::new().with_timeout_ms(60_000)).await.unwrap();
    let (_, headers) = plain.told.lock()[0].clone();
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(header("x-tenant").as_deref(), Some("blue"));
    assert_eq!(header("cookie").as_deref(), Some("lang=en"));
    assert_eq!(
        header("authorization").as_deref(),
        Some("Basic bWU6cGFzcw=="),
        "without a handshake, with each call"
    );
    assert!(header("user-agent").is_some_and(|agent| agent.starts_with("forebay-flight/")));
    assert!(header("grpc-timeout").is_some(), "the server is told the deadline");
}

#[tokio::test]
async fn an_unsupported_call_is_an_error_of_the_server() {
    let (_, url) = Plain::start().await;
    let mut session = AsyncSession::connect(url.as_str()).await.unwrap();
    let error = session.query("SELECT 1").await.unwrap_err();
    assert!(matches!(error, Error::Server { code: Code::Unimplemented, .. }), "{error}");
    assert!(matches!(session.options().await, Err(Error::Server { code: Code::InvalidArgument, .. })));
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_call_that_hangs_frees_its_caller_and_its_connection() {
    let (plain, url) = Plain::start().await;
    let config = PoolConfig { max_size: 1, healthcheck_sql: "SELECT 1".into(), ..PoolConfig::default() };
    let pool = AsyncFlightSQLPool::new(&url, config).await.unwrap();
    for _ in 0..3 {
        let options = QueryOptions::new().with_timeout(Duration::from_millis(200));
        assert!(matches!(pool.update_with_options("HANG", options).await, Err(Error::QueryTimeout { .. })));
        pool.update("INSERT").await.unwrap();
    }
    assert_eq!(plain.statements(), ["HANG", "INSERT", "HANG", "INSERT", "HANG", "INSERT"]);
}

/// The blocking face inside runtimes of both kinds, called from their own threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_of_a_runtime_may_block() {
    let (_, url) = Plain::start().await;
    let mut client = FlightSQLClient::connect(url.as_str()).unwrap();
    client.update("INSERT").unwrap();
    let inner = url.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
            single.block_on(async {
                let mut client = FlightSQLClient::connect(inner.as_str()).unwrap();
                client.update("INSERT").unwrap();
                client.close().unwrap();
            });
        });
    });
    client.close().unwrap();
}
