//! Asking a server how far a statement is.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::{FlightDescriptor, FlightInfo};
use bytes::Bytes;
use tonic::Status;

use crate::ladder::Statement;
use crate::limits::Limits;
use crate::link::Link;
use crate::query_options::Progress;

/// The least time between two questions: a server may answer at once that there is nothing new.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs a command by `PollFlightInfo` to its end; none if the server does not know that.
pub(super) async fn poll(
    link: &Arc<Link>,
    command: &Bytes,
    limits: &Limits,
    progress: &Progress,
    statement: &mut Statement,
) -> Result<Option<FlightInfo>, Status> {
    let server = &link.server;
    if !server.tells_progress.may_be() {
        return Ok(None);
    }
    let mut descriptor = FlightDescriptor::new_cmd(command.clone());
    loop {
        let next = server.runtime.now() + PAUSE;
        let answer = match link.poll(descriptor, limits.remaining()).await {
            Ok(answer) => answer,
            Err(status) => {
                server.tells_progress.method_refused(&status);
                return if server.tells_progress.may_be() { Err(status) } else { Ok(None) };
            }
        };
        server.tells_progress.works();
        statement.answered();
        if let Some(done) = answer.progress {
            progress.tell(done);
        }
        let again = answer.flight_descriptor;
        match (answer.info, again) {
            (info, None) => return Ok(Some(info.unwrap_or_default())),
            (info, Some(next)) => {
                if let Some(info) = info {
                    statement.known_as(info);
                }
                descriptor = next;
            }
        }
        server.runtime.sleep_until(next).await;
    }
}
