//! Prepared statements, portals, pipelines, cancel requests.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::NoTls;

use crate::harness::{code, config, connect, eventually, socket, start};

#[tokio::test]
async fn statements_are_prepared_once_and_run_often() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.simple_query("CREATE TABLE t (n int)").await.unwrap();
    let insert = client.prepare("INSERT INTO t (n) VALUES ($1) RETURNING n").await.unwrap();
    for n in 0..5 {
        assert_eq!(client.query_one(&insert, &[&n]).await.unwrap().get::<_, i32>(0), n);
    }
    drop(insert);
    let unknown = client.prepare("SELECT * FROM nowhere").await.err().unwrap();
    assert_eq!(code(&unknown), "42P01");
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let double = client.prepare("SELECT $1::int * 2").await.unwrap();
    let answers = (0..50).map(|n| {
        let (client, double) = (&client, &double);
        async move { client.query_one(double, &[&n]).await.unwrap().get::<_, i32>(0) }
    });
    let mut set = Vec::new();
    for answer in answers {
        set.push(Box::pin(answer));
    }
    // All are sent before the first is awaited.
    let all = futures(set).await;
    assert_eq!(all, (0..50).map(|n| n * 2).collect::<Vec<_>>());
}

async fn futures<F: Future<Output = i32> + Unpin>(mut futures: Vec<F>) -> Vec<i32> {
    let mut done = vec![None; futures.len()];
    std::future::poll_fn(|context| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(value) = std::pin::Pin::new(future).poll(context)
            {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test]
async fn a_portal_gives_its_rows_in_portions() {
    let cluster = start(config());
    let mut client = connect(&cluster).await;
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT g FROM generate_series(1, 10) AS g", &[]).await.unwrap();
    for expected in [4, 4, 2] {
        assert_eq!(transaction.query_portal(&portal, 4).await.unwrap().len(), expected);
    }
}

#[tokio::test]
async fn settings_are_set_shown_and_reported() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.simple_query("SET application_name = 'it'").await.unwrap();
    let shown: String = client.query_one("SHOW application_name", &[]).await.unwrap().get(0);
    assert_eq!(shown, "it");
    let version: String = client.query_one("SHOW server_version", &[]).await.unwrap().get(0);
    assert_eq!(version, "16.15");
}

#[tokio::test]
async fn cancel_requests_are_taken_and_ignored() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let mut cancel = socket(cluster.address()).await;
    cancel.write_all(&[0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 0]).await.unwrap();
    assert_eq!(cancel.read(&mut [0; 1]).await.unwrap(), 0);
    client.simple_query("SELECT 1").await.unwrap();
    assert_eq!(cluster.counters().refusals(), 0);
}

#[tokio::test]
async fn a_client_that_asks_for_gss_first_may_still_have_tls() {
    let cluster = start(config());
    let mut client = socket(cluster.address()).await;
    let mut answer = [0];
    for (request, expected) in [([0, 0, 0, 8, 4, 210, 22, 48], b'N'), ([0, 0, 0, 8, 4, 210, 22, 47], b'S')] {
        client.write_all(&request).await.unwrap();
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[0], expected);
    }
}

#[tokio::test]
async fn without_tls_there_is_an_explanation() {
    let cluster = start(config());
    let address = cluster.address();
    let plain = format!("host={} port={} user=admin sslmode=disable", address.ip(), address.port());
    let error = tokio_postgres::connect(&plain, NoTls).await.err().unwrap();
    let error = error.as_db_error().unwrap();
    assert!(error.message().ends_with("TLS is required") && error.hint().is_some(), "{error:?}");
    eventually("counted", || cluster.counters().refusals() == 1).await;
}
