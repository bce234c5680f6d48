//! arrow-flight's own client on tonic's own channel, and nothing around it.

use anyhow::Context;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures_util::TryStreamExt;
use tonic::transport::{Channel, Endpoint};

use super::callers::Ask;
use super::server::Server;

/// As this project's client has it: how far ahead a server may send decides how fast results stream.
const WINDOW: u32 = 4 << 20;
/// The same of its largest frame.
const FRAME: u32 = 256 << 10;

/// A client with a connection of its own. A clone shares the connection.
#[derive(Clone, Debug)]
pub(crate) struct Bare(FlightSqlServiceClient<Channel>);

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

    /// As many as that, with a connection each.
    pub(crate) async fn several(server: &Server, count: usize) -> anyhow::Result<Vec<Self>> {
        let mut clients = Vec::with_capacity(count);
        while clients.len() < count {
            clients.push(Self::connect(&server.address().to_string()).await?);
        }
        Ok(clients)
    }

    pub(crate) fn client(&mut self) -> &mut FlightSqlServiceClient<Channel> {
        &mut self.0
    }

    /// The batches of a result that has one endpoint.
    pub(crate) async fn stream(&mut self, sql: &str) -> anyhow::Result<FlightRecordBatchStream> {
        let info = self.0.execute(sql.to_owned(), None).await?;
        let ticket = info.endpoint.into_iter().next().and_then(|endpoint| endpoint.ticket);
        Ok(self.0.do_get(ticket.context("no ticket")?).await?)
    }
}

impl Ask for Bare {
    async fn ask(&mut self, sql: &'static str) -> anyhow::Result<usize> {
        let batches = self.stream(sql).await?;
        Ok(batches.try_fold(0, async |rows, batch| Ok(rows + batch.num_rows())).await?)
    }
}
