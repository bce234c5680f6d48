//! Statements that keep the server from ending a session that holds something.

use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay::rt;

use super::{Connection, StatementPermit};

/// How long the statement may take.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

impl Connection {
    /// Runs the health check at intervals, while the session is idle and holds something. Ends with the session.
    pub(super) fn keep_session_alive(self: &Arc<Self>) {
        let Some(interval) = self.server.options.session_keep_alive else { return };
        let runtime = Arc::clone(&self.server.runtime);
        // Weak, since the task must not hold a session that its owner has dropped.
        let connection = Arc::downgrade(self);
        self.server.runtime.spawn(Box::pin(async move {
            loop {
                runtime.sleep_until(runtime.now() + interval).await;
                if !ping_if_needed(&connection).await {
                    return;
                }
            }
        }));
    }
}

/// Returns whether the session is still there.
async fn ping_if_needed(connection: &Weak<Connection>) -> bool {
    let Some(connection) = connection.upgrade().filter(|connection| connection.is_usable()) else {
        return false;
    };
    if connection.is_idle() && connection.holds_state() {
        let _permit = StatementPermit::take(&connection);
        // A session that does not answer is noticed by its next statement.
        let _ = rt::within(&*connection.server.runtime, PING_TIMEOUT, connection.ping()).await;
    }
    true
}
