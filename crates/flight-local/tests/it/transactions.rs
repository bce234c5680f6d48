//! Transactions and savepoints.

use arrow_flight::Action;
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionEndSavepointRequest, Any, EndTransaction,
    ProstMessageExt,
};
use flight_local::Config;
use prost::Message;
use prost::bytes::Bytes;
use tonic::Code;

use crate::client::{Client, beside, code, connect, number, start, until, update};

async fn savepoint(client: &mut Client, transaction_id: &Bytes) -> Bytes {
    let request =
        ActionBeginSavepointRequest { transaction_id: transaction_id.clone(), name: "s".to_owned() };
    let action = Action::new("BeginSavepoint", request.as_any().encode_to_vec());
    let result = client.do_action(action).await.unwrap().message().await.unwrap().unwrap();
    let result: Option<ActionBeginSavepointResult> = Any::decode(result.body).unwrap().unpack().unwrap();
    result.unwrap().savepoint_id
}

async fn end_savepoint(client: &mut Client, savepoint_id: Bytes, action: i32) {
    let request = ActionEndSavepointRequest { savepoint_id, action };
    let action = Action::new("EndSavepoint", request.as_any().encode_to_vec());
    assert!(client.do_action(action).await.unwrap().message().await.unwrap().is_none());
}

#[tokio::test]
async fn a_transaction_is_seen_when_it_is_committed_and_not_before() {
    let server = start(Config { log_statements: true, ..Config::default() }).await;
    let (mut one, mut two) = (connect(&server).await, connect(&server).await);
    update(&mut one, "CREATE TABLE t (n INT)").await.unwrap();
    for (end, seen) in
        [(EndTransaction::Commit, 1), (EndTransaction::Rollback, 1), (EndTransaction::Commit, 2)]
    {
        let id = one.begin_transaction().await.unwrap();
        let insert = "INSERT INTO t VALUES (1)".to_owned();
        assert_eq!(one.execute_update(insert, Some(id.clone())).await.unwrap(), 1);
        let before = number(&mut two, "SELECT count(*) FROM t").await;
        one.end_transaction(id, end).await.unwrap();
        assert_eq!(number(&mut two, "SELECT count(*) FROM t").await, seen);
        assert!(before <= 1);
    }
    assert_eq!(server.statements().iter().filter(|sql| *sql == "COMMIT").count(), 2);
    server.stop().await;
}

#[tokio::test]
async fn savepoints_can_be_undone_alone() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TABLE t (n INT)").await.unwrap();
    let id = client.begin_transaction().await.unwrap();
    update(&mut client, "INSERT INTO t VALUES (1)").await.unwrap();
    let undone = savepoint(&mut client, &id).await;
    update(&mut client, "INSERT INTO t VALUES (10)").await.unwrap();
    end_savepoint(&mut client, undone, 2).await;
    let kept = savepoint(&mut client, &id).await;
    update(&mut client, "INSERT INTO t VALUES (100)").await.unwrap();
    end_savepoint(&mut client, kept, 1).await;
    client.end_transaction(id, EndTransaction::Commit).await.unwrap();
    assert_eq!(number(&mut client, "SELECT sum(n) FROM t").await, 101);
    server.stop().await;
}

#[tokio::test]
async fn a_transaction_belongs_to_its_session_and_ends_once() {
    let server = start(Config::default()).await;
    let (mut one, mut two) = (connect(&server).await, connect(&server).await);
    let id = one.begin_transaction().await.unwrap();
    let stolen = two.execute_update("CREATE TABLE t (n INT)".to_owned(), Some(id.clone())).await;
    assert_eq!(code(stolen), Code::InvalidArgument);
    assert_eq!(code(one.begin_transaction().await), Code::FailedPrecondition);
    one.end_transaction(id.clone(), EndTransaction::Rollback).await.unwrap();
    assert_eq!(code(one.end_transaction(id.clone(), EndTransaction::Commit).await), Code::FailedPrecondition);
    assert_eq!(code(one.execute("SELECT 1".to_owned(), Some(id)).await), Code::FailedPrecondition);
    let nonsense = one.execute("SELECT 1".to_owned(), Some(Bytes::from_static(b"nonsense"))).await;
    assert_eq!(code(nonsense), Code::InvalidArgument);
    server.stop().await;
}

#[tokio::test]
async fn a_writer_waits_for_another_and_then_gives_up() {
    let config = Config { busy_timeout: std::time::Duration::from_millis(20), ..Config::default() };
    let server = start(config).await;
    let (mut one, mut two) = (connect(&server).await, connect(&server).await);
    update(&mut one, "CREATE TABLE t (n INT)").await.unwrap();
    update(&mut one, "BEGIN IMMEDIATE").await.unwrap();
    assert_eq!(code(update(&mut two, "INSERT INTO t VALUES (1)").await), Code::Aborted);
    update(&mut one, "COMMIT").await.unwrap();
    assert_eq!(update(&mut two, "INSERT INTO t VALUES (1)").await.unwrap(), 1);
    server.stop().await;
}

#[tokio::test]
async fn nothing_runs_outside_of_a_transaction_that_it_names() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TABLE t (n INT)").await.unwrap();
    let insert = "INSERT INTO t VALUES (1)".to_owned();
    // Ended by a statement.
    let id = client.begin_transaction().await.unwrap();
    update(&mut client, "ROLLBACK").await.unwrap();
    let late = client.execute_update(insert.clone(), Some(id)).await;
    assert_eq!(code(late), Code::FailedPrecondition);
    // Ended by a cancellation.
    let id = client.begin_transaction().await.unwrap();
    client.execute_update(insert.clone(), Some(id.clone())).await.unwrap();
    let mut same = client.clone();
    let (running, steps) = (id.clone(), server.counters().steps);
    let endless = "INSERT INTO t SELECT value FROM generate_series(1, 1000000000)".to_owned();
    let endless = beside(async move { same.execute_update(endless, Some(running)).await });
    until(&server, |counters| counters.steps > steps + 10_000).await;
    endless.abort();
    until(&server, |counters| counters.statements_interrupted == 1).await;
    assert_eq!(code(client.execute_update(insert, Some(id.clone())).await), Code::FailedPrecondition);
    assert_eq!(code(client.end_transaction(id, EndTransaction::Commit).await), Code::FailedPrecondition);
    assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_second_transaction_fails_with_failed_precondition() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "SAVEPOINT a").await.unwrap();
    assert_eq!(code(client.begin_transaction().await), Code::FailedPrecondition);
    update(&mut client, "RELEASE a").await.unwrap();
    assert!(client.begin_transaction().await.is_ok());
    server.stop().await;
}
