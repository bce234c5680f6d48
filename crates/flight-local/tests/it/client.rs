//! A client for these tests: arrow-flight's, on its own connection.

use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_flight::FlightInfo;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use flight_local::{Config, Counters, FlightLocal};
use futures_util::TryStreamExt;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

pub(crate) type Client = FlightSqlServiceClient<Channel>;

pub(crate) async fn start(config: Config) -> FlightLocal {
    FlightLocal::start(config).await.unwrap()
}

pub(crate) async fn channel(server: &FlightLocal) -> Channel {
    let endpoint = Endpoint::from_shared(server.url().replacen("grpc", "http", 1)).unwrap();
    endpoint.connect().await.unwrap()
}

pub(crate) async fn connect(server: &FlightLocal) -> Client {
    FlightSqlServiceClient::new(channel(server).await)
}

/// All batches of a result, from all endpoints, on this connection.
pub(crate) async fn fetch(client: &mut Client, info: FlightInfo) -> Result<Vec<RecordBatch>, FlightError> {
    let mut batches = Vec::new();
    for endpoint in info.endpoint {
        let stream = client.do_get(endpoint.ticket.unwrap()).await?;
        batches.extend(stream.try_collect::<Vec<_>>().await?);
    }
    Ok(batches)
}

pub(crate) async fn query(client: &mut Client, sql: &str) -> Result<Vec<RecordBatch>, FlightError> {
    let info = client.execute(sql.to_owned(), None).await?;
    fetch(client, info).await
}

pub(crate) async fn update(client: &mut Client, sql: &str) -> Result<i64, FlightError> {
    client.execute_update(sql.to_owned(), None).await
}

/// The one number that a query returns.
pub(crate) async fn number(client: &mut Client, sql: &str) -> i64 {
    let batches = query(client, sql).await.unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

/// The gRPC status inside the client's error.
pub(crate) fn status(error: &FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status.clone(),
        other => panic!("no status: {other}"),
    }
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, FlightError>) -> Code {
    status(&result.unwrap_err()).code()
}

/// Waits up to ten seconds for the counters.
pub(crate) async fn until(server: &FlightLocal, wanted: impl Fn(&Counters) -> bool) -> Counters {
    for _ in 0..2_000 {
        let counters = server.counters();
        if wanted(&counters) {
            return counters;
        }
        pause(5).await;
    }
    panic!("still {:?}", server.counters());
}

/// For what happens on the server's own threads, in real time.
#[allow(clippy::disallowed_methods, reason = "the server has threads of its own, which know no virtual time")]
pub(crate) async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

/// Runs a client concurrently.
#[allow(clippy::disallowed_methods, reason = "a test's own tasks")]
pub(crate) fn beside<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(work)
}
