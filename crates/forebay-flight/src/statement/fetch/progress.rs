//! The progress of a query, by `PollFlightInfo`.

use std::time::Duration;

use arrow_flight::{FlightDescriptor, FlightInfo};
use bytes::Bytes;
use tonic::Status;

use crate::connection::Connection;
use crate::statement::cancellation::RunningStatement;
use crate::statement::limits::Limits;
use crate::statement::options::Progress;

/// The shortest time between two calls: a server may answer at once that nothing has changed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs a command to its end by `PollFlightInfo`. Returns none if the server does not support that.
pub(super) async fn poll(
    connection: &Connection,
    command: &Bytes,
    limits: &Limits,
    progress: &Progress,
    statement: &mut RunningStatement,
) -> Result<Option<FlightInfo>, Status> {
    let server = &connection.server;
    if !server.poll_flight_info.may_work() {
        return Ok(None);
    }
    let mut descriptor = FlightDescriptor::new_cmd(command.clone());
    loop {
        let next = server.runtime.now() + POLL_INTERVAL;
        let answer = match connection.poll(descriptor, limits.remaining()).await {
            Ok(answer) => answer,
            Err(status) => {
                server.poll_flight_info.record_method_refusal(&status);
                return if server.poll_flight_info.may_work() { Err(status) } else { Ok(None) };
            }
        };
        server.poll_flight_info.record_success();
        statement.set_answered();
        if let Some(done) = answer.progress {
            progress.report(done);
        }
        match (answer.info, answer.flight_descriptor) {
            (info, None) => return Ok(Some(info.unwrap_or_default())),
            (info, Some(next)) => {
                if let Some(info) = info {
                    statement.set_info(info);
                }
                descriptor = next;
            }
        }
        server.runtime.sleep_until(next).await;
    }
}
