//! arrow-flight's client on tonic's channel, without a pool.

use anyhow::Context;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures_util::TryStreamExt;
use tonic::transport::{Channel, Endpoint};

use super::callers::Query;
use super::server::Server;

/// The same window as in this project's client: it bounds how fast results stream.
const WINDOW: u32 = 4 << 20;
/// The same frame size as in this project's client.
const FRAME: u32 = 256 << 10;

/// A client with one connection. A clone shares the connection.
#[derive(Clone, Debug)]
pub(crate) struct Bare(pub(crate) FlightSqlServiceClient<Channel>);

impl Bare {
    pub(crate) async fn connect(address: &str) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_frame_size(FRAME)
            .connect()
            .await?;
        Ok(Self(FlightSqlServiceClient::new(channel)))
    }

    /// This many clients, each with a connection.
    pub(crate) async fn several(server: &Server, count: usize) -> anyhow::Result<Vec<Self>> {
        let mut clients = Vec::with_capacity(count);
        while clients.len() < count {
            clients.push(Self::connect(&server.address.to_string()).await?);
        }
        Ok(clients)
    }

    /// The batches of a result that has one endpoint.
    pub(crate) async fn stream(&mut self, sql: &str) -> anyhow::Result<FlightRecordBatchStream> {
        let info = self.0.execute(sql.to_owned(), None).await?;
        let ticket = info.endpoint.into_iter().next().and_then(|endpoint| endpoint.ticket);
        Ok(self.0.do_get(ticket.context("no ticket")?).await?)
    }
}

impl Query for Bare {
    async fn query(&mut self, sql: &'static str) -> anyhow::Result<usize> {
        let batches = self.stream(sql).await?;
        Ok(batches.try_fold(0, async |rows, batch| Ok(rows + batch.num_rows())).await?)
    }
}
