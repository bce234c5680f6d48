//! A slow reader: how many batches the server sends ahead.

use std::time::Duration;

use anyhow::Context;
use forebay_flight::AsyncFlightSQLPool;

use super::Effort;
use crate::clock;
use crate::flight::full;
use crate::flight::server::Server;
use crate::report::Report;
use crate::section::progress;

/// The pause before each batch.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress("a slow consumer");
    let server = Server::start()?;
    let pool = AsyncFlightSQLPool::new(&server.url(), full(1)).await?;
    let before = server.count("batches_sent")?;
    // Batches of a megabyte, as the server makes them of large results.
    let mut batches = pool.query_stream("SELECT * FROM prebuilt(rows => 1000000000)").await?;
    let (mut taken, mut most) = (0, 0);
    for _ in 0..effort.taken {
        clock::pause(PAUSE).await;
        most = most.max((server.count("batches_sent")? - before).saturating_sub(taken));
        batches.next_batch().await.context("the result ended early")??;
        taken += 1;
    }
    drop(batches);
    let goal = "a slow consumer: batches of a megabyte that the server is ahead, at most";
    report.at_most(goal, most, 8.0, "batches");
    Ok(())
}
