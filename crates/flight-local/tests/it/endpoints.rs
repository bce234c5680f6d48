//! Results with several endpoints.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use flight_local::Config;
use futures_util::TryStreamExt;
use tonic::transport::Endpoint;

use crate::client::{Client, connect, fetch, number, start, until};

#[tokio::test]
async fn the_parts_of_a_result_are_in_order() {
    let server = start(Config { endpoints_per_result: 3, max_batch_rows: 4, ..Config::default() }).await;
    let mut client = connect(&server).await;
    let sql = "SELECT value FROM generate_series(1, 10)".to_owned();
    let info = client.execute(sql, None).await.unwrap();
    assert_eq!((info.endpoint.len(), info.ordered), (3, true));
    assert!(info.endpoint.iter().all(|endpoint| endpoint.location.is_empty()));
    // The schema is known, because the statement has run.
    assert_eq!(info.clone().try_decode_schema().unwrap().field(0).name(), "value");
    let batches = fetch(&mut client, info).await.unwrap();
    let values: Vec<i64> = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    assert_eq!(values, (1..=10).collect::<Vec<i64>>());
    let info = client.execute("SELECT * FROM prebuilt(rows => 1000)".to_owned(), None).await.unwrap();
    let batches = fetch(&mut client, info).await.unwrap();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1_000);
    server.stop().await;
}

#[tokio::test]
async fn a_part_may_be_at_another_listener_and_costs_no_session_there() {
    let config = Config { endpoints_per_result: 3, further_listeners: 2, ..Config::default() };
    let server = start(config).await;
    let mut client = connect(&server).await;
    number(&mut client, "SELECT 1").await;
    let sql = "SELECT value FROM generate_series(1, 9)".to_owned();
    let info = client.execute(sql, None).await.unwrap();
    let mut values = Vec::new();
    let mut locations = Vec::new();
    for endpoint in info.endpoint {
        let mut there = match endpoint.location.first() {
            None => client.clone(),
            Some(location) => {
                locations.push(location.uri.clone());
                let url = location.uri.replacen("grpc", "http", 1);
                Client::new(Endpoint::from_shared(url).unwrap().connect().await.unwrap())
            }
        };
        let batches = there.do_get(endpoint.ticket.unwrap()).await.unwrap();
        let batches: Vec<_> = batches.try_collect().await.unwrap();
        values.extend(batches[0].column(0).as_primitive::<Int64Type>().values().to_vec());
    }
    assert_eq!(locations, server.locations());
    assert_eq!(values, (1..=9).collect::<Vec<i64>>());
    assert_eq!(server.counters().sessions_ever, 1);
    drop(client);
    until(&server, |counters| counters.sessions_open == 0).await;
    server.stop().await;
}
