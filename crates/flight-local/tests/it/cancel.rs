//! Every way to cancel a statement; the statement really stops.

use std::time::Duration;

use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, CommandPreparedStatementQuery, ProstMessageExt,
};
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightClient, FlightDescriptor,
    FlightInfo,
};
use flight_local::messages::CancelStatement;
use flight_local::{Config, FlightLocal};
use futures_util::TryStreamExt;
use prost::Message;
use prost::bytes::Bytes;
use tonic::{Code, Request};

use crate::client::{
    Client, beside, channel, code, connect, fetch, number, pause, query, start, until, update,
};

const ENDLESS: &str =
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c";
const ASLEEP: &str = "SELECT sleep_ms(600000)";

/// The steps stop growing: nothing is computed any more.
async fn has_stopped(server: &FlightLocal) {
    let counters = until(server, |counters| counters.statements_running == 0).await;
    pause(50).await;
    assert_eq!(server.counters().steps, counters.steps);
    assert_eq!(counters.statements_interrupted, 1);
}

async fn runs(server: &FlightLocal) {
    let before = server.counters().steps;
    until(server, |counters| counters.statements_running == 1 && counters.steps > before).await;
}

async fn cancel_query(client: &mut Client, any: Any) -> CancelStatus {
    let action = Action::new("CancelQuery", any.encode_to_vec());
    let result = client.do_action(action).await.unwrap().message().await.unwrap().unwrap();
    let result: ActionCancelQueryResult = Any::decode(result.body).unwrap().unpack().unwrap().unwrap();
    CancelStatus::try_from(result.result).unwrap()
}

fn statement(request: &CancelStatement) -> Any {
    Any { type_url: CancelStatement::TYPE_URL.to_owned(), value: request.encode_to_vec().into() }
}

/// Starts a statement on its own connection. Returns its info and its task.
async fn begin(
    server: &FlightLocal,
    sql: &str,
) -> (FlightInfo, tokio::task::JoinHandle<Result<usize, arrow_flight::error::FlightError>>) {
    let mut client = connect(server).await;
    let info = client.execute(sql.to_owned(), None).await.unwrap();
    let mine = info.clone();
    let fetching = beside(async move { fetch(&mut client, mine).await.map(|batches| batches.len()) });
    runs(server).await;
    (info, fetching)
}

#[tokio::test]
async fn by_its_flight_info() {
    for sql in [ENDLESS, ASLEEP] {
        let server = start(Config::default()).await;
        let (info, fetching) = begin(&server, sql).await;
        let mut flight = FlightClient::new(channel(&server).await);
        let result = flight.cancel_flight_info(CancelFlightInfoRequest::new(info.clone())).await.unwrap();
        assert_eq!(result.status(), CancelStatus::Cancelled);
        assert_eq!(code(fetching.await.unwrap()), Code::Cancelled);
        has_stopped(&server).await;
        // There is nothing left of it.
        let again = flight.cancel_flight_info(CancelFlightInfoRequest::new(info)).await.unwrap();
        assert_eq!(again.status(), CancelStatus::NotCancellable);
        let counters = server.counters();
        assert_eq!((counters.cancel_flight_info, counters.sessions_ever), (2, 1));
        server.stop().await;
    }
}

#[tokio::test]
async fn before_it_has_begun() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let info = client.execute(ENDLESS.to_owned(), None).await.unwrap();
    let request = CancelFlightInfoRequest::new(info.clone());
    let action = Action::new("CancelFlightInfo", request.encode_to_vec());
    let result = client.do_action(action).await.unwrap().message().await.unwrap().unwrap();
    assert_eq!(CancelFlightInfoResult::decode(result.body).unwrap().status(), CancelStatus::Cancelled);
    assert_eq!(code(fetch(&mut client, info).await), Code::NotFound);
    assert_eq!(server.counters().statements_started, 0);
    server.stop().await;
}

#[tokio::test]
async fn by_cancel_query_in_each_of_its_forms() {
    let server = start(Config::default()).await;
    let mut other = connect(&server).await;
    for form in 0..4 {
        let (info, fetching) = begin(&server, ENDLESS).await;
        let ticket = info.endpoint[0].ticket.clone().unwrap().ticket;
        let handle = info.app_metadata.clone();
        let session_id = String::from_utf8(handle.to_vec()).unwrap().rsplit_once('.').unwrap().0.to_owned();
        let any = match form {
            0 => ActionCancelQueryRequest { info: info.encode_to_vec().into() }.as_any(),
            1 => statement(&CancelStatement { session_id, ticket, ..CancelStatement::default() }),
            2 => statement(&CancelStatement { session_id, statement_handle: handle, ticket: Bytes::new() }),
            _ => statement(&CancelStatement { session_id, ..CancelStatement::default() }),
        };
        assert_eq!(cancel_query(&mut other, any).await, CancelStatus::Cancelled, "{form}");
        assert_eq!(code(fetching.await.unwrap()), Code::Cancelled);
    }
    assert_eq!(server.counters().statements_interrupted, 4);
    let nothing =
        statement(&CancelStatement { session_id: "nobody".to_owned(), ..CancelStatement::default() });
    assert_eq!(cancel_query(&mut other, nothing).await, CancelStatus::NotCancellable);
    server.stop().await;
}

#[tokio::test]
async fn an_update_by_its_session_over_the_same_connection() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TABLE t (n INT)").await.unwrap();
    let mut same = client.clone();
    let updating = beside(async move {
        update(&mut client, "INSERT INTO t SELECT value FROM generate_series(1, 1000000000)").await
    });
    runs(&server).await;
    let any = statement(&CancelStatement::default());
    assert_eq!(cancel_query(&mut same, any).await, CancelStatus::Cancelled);
    assert_eq!(code(updating.await.unwrap()), Code::Cancelled);
    has_stopped(&server).await;
    assert_eq!(number(&mut same, "SELECT count(*) FROM t").await, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_prepared_statement_by_its_handle_and_one_that_waits_for_its_turn() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let request = ActionCreatePreparedStatementRequest { query: ENDLESS.to_owned(), transaction_id: None };
    let action = Action::new("CreatePreparedStatement", request.as_any().encode_to_vec());
    let result = client.do_action(action).await.unwrap().message().await.unwrap().unwrap();
    let prepared: ActionCreatePreparedStatementResult =
        Any::decode(result.body).unwrap().unpack().unwrap().unwrap();
    let statement_handle = prepared.prepared_statement_handle;
    let command = CommandPreparedStatementQuery { prepared_statement_handle: statement_handle.clone() };
    let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
    let info = client.inner_mut().get_flight_info(descriptor).await.unwrap().into_inner();
    let (mut first, mut second) = (client.clone(), client.clone());
    let waiting = client.execute("SELECT 1".to_owned(), None).await.unwrap();
    let running = beside(async move { fetch(&mut first, info).await });
    runs(&server).await;
    let turn = waiting.clone();
    let patient = beside(async move { fetch(&mut second, turn).await });
    let mut flight = FlightClient::new(channel(&server).await);
    // It may not have arrived yet; then only its ticket can be cancelled.
    let result = flight.cancel_flight_info(CancelFlightInfoRequest::new(waiting)).await.unwrap();
    assert_eq!(result.status(), CancelStatus::Cancelled);
    assert!(matches!(code(patient.await.unwrap()), Code::Cancelled | Code::NotFound));
    assert!(!running.is_finished());
    let any = statement(&CancelStatement { statement_handle, ..CancelStatement::default() });
    assert_eq!(cancel_query(&mut client, any).await, CancelStatus::Cancelled);
    assert_eq!(code(running.await.unwrap()), Code::Cancelled);
    has_stopped(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn by_dropping_the_call_before_its_first_row() {
    for sql in [ENDLESS, ASLEEP] {
        let server = start(Config::default()).await;
        let (_, fetching) = begin(&server, sql).await;
        fetching.abort();
        has_stopped(&server).await;
        server.stop().await;
    }
}

#[tokio::test]
async fn by_dropping_the_stream_and_the_session_goes_on() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let sql = "SELECT value, sleep_ms(20) FROM generate_series(1, 1000000)".to_owned();
    let info = client.execute(sql, None).await.unwrap();
    let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    // The first rows arrive before the last are computed.
    assert!(stream.try_next().await.unwrap().unwrap().num_rows() < 100);
    drop(stream);
    has_stopped(&server).await;
    assert_eq!(number(&mut client, "SELECT 1").await, 1);
    assert_eq!(server.counters().sessions_ever, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_statement_that_waits_for_its_client_can_be_cancelled() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let info = client.execute("SELECT * FROM prebuilt(rows => 100000000)".to_owned(), None).await.unwrap();
    let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    stream.try_next().await.unwrap().unwrap();
    let mut flight = FlightClient::new(channel(&server).await);
    let result = flight.cancel_flight_info(CancelFlightInfoRequest::new(info)).await.unwrap();
    assert_eq!(result.status(), CancelStatus::Cancelled);
    // The stream does not end as if it were complete.
    let rest: Result<Vec<_>, _> = stream.try_collect().await;
    assert_eq!(code(rest), Code::Cancelled);
    has_stopped(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn by_its_deadline() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let info = client.execute(ENDLESS.to_owned(), None).await.unwrap();
    let mut request = Request::new(info.endpoint[0].ticket.clone().unwrap());
    request.set_timeout(Duration::from_millis(100));
    let error = client.inner_mut().do_get(request).await.unwrap_err();
    assert!(matches!(error.code(), Code::Cancelled | Code::DeadlineExceeded), "{error}");
    has_stopped(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn by_its_deadline_while_nobody_reads_on() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let sql = "SELECT value FROM generate_series(1, 100000000000)";
    let info = client.execute(sql.to_owned(), None).await.unwrap();
    let mut request = Request::new(info.endpoint[0].ticket.clone().unwrap());
    request.set_timeout(Duration::from_secs(2));
    let mut unread = client.inner_mut().do_get(request).await.unwrap().into_inner();
    until(&server, |counters| counters.statements_interrupted == 1).await;
    has_stopped(&server).await;
    let end = loop {
        match unread.message().await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert_eq!(end.unwrap_err().code(), Code::Cancelled, "it does not look like its end");
    server.stop().await;
}

#[tokio::test]
async fn by_closing_the_connection_or_the_session() {
    let server = start(Config::default()).await;
    let (_, fetching) = begin(&server, ENDLESS).await;
    assert_eq!(server.counters().sessions_open, 1);
    fetching.abort();
    let counters = until(&server, |counters| counters.connections_open == 0).await;
    assert_eq!(counters.sessions_open, 0);
    has_stopped(&server).await;
    let mut client = connect(&server).await;
    let mut same = client.clone();
    let running = beside(async move { query(&mut same, ASLEEP).await });
    until(&server, |counters| counters.statements_running == 1).await;
    client.do_action(Action::new("CloseSession", Bytes::new())).await.unwrap();
    assert_eq!(code(running.await.unwrap()), Code::Cancelled);
    until(&server, |counters| counters.statements_interrupted == 2).await;
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_cannot_cancel_runs_on_with_its_lock() {
    let server = start(Config { session_limit: 2, ..Config::like_swanlake() }).await;
    let (_, fetching) = begin(&server, "SELECT sleep_ms(400)").await;
    fetching.abort();
    let counters = until(&server, |counters| counters.connections_open == 0).await;
    assert_eq!((counters.statements_running, counters.sessions_lingering), (1, 1));
    let counters = until(&server, |counters| counters.statements_running == 0).await;
    assert_eq!((counters.statements_finished, counters.statements_interrupted), (1, 0));
    // The session still exists, though no connection has it.
    let (mut one, mut two) = (connect(&server).await, connect(&server).await);
    assert_eq!(number(&mut one, "SELECT 1").await, 1);
    assert_eq!(code(query(&mut two, "SELECT 1").await), Code::ResourceExhausted);
    server.stop().await;
}

#[tokio::test]
async fn a_catalog_query_cannot_be_cancelled() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let info = client.get_catalogs().await.unwrap();
    let request = CancelFlightInfoRequest::new(info).encode_to_vec();
    let answer = client.inner_mut().do_action(Action::new("CancelFlightInfo", request)).await.unwrap();
    let body = answer.into_inner().try_next().await.unwrap().unwrap().body;
    let result = CancelFlightInfoResult::decode(body).unwrap();
    assert_eq!(result.status(), CancelStatus::NotCancellable);
    server.stop().await;
}
