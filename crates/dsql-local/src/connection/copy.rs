//! COPY FROM STDIN: the client sends the data, which becomes a part of the call.
//!
//! The statement runs once all data is here. Until then the database has nothing of it, so a client that
//! leaves in the middle leaves nothing behind.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, TICK};
use crate::engine::{Call, Engine, Rows};
use crate::error::SqlError;
use crate::faults::Failure;
use crate::race::{self, First};
use crate::transaction_state::Outcome;

/// The largest size of the data in bytes. A transaction may write 10 MiB; numbers are longer as text.
const MAX_BYTES: usize = 64 << 20;

/// How much larger a message may be, so that the client gets an error and is not cut off.
const SLACK: usize = 16 << 20;

impl<E: Engine, S: AsyncRead + AsyncWrite + Unpin> Connection<E, S> {
    /// Requests the data from the client, and runs the statement with it.
    pub(super) async fn copy_in(&mut self, call: Call<'_>, rows: &mut Rows) -> Result<Outcome, Failure> {
        let (format, call) = self.transactions.begin_copy(call).await?;
        self.wire.replies.copy_in_response(format);
        let message_limit = self.wire.set_message_limit(MAX_BYTES + SLACK);
        let data = self.receive_copy().await;
        self.wire.set_message_limit(message_limit);
        let data = data?;
        // It may have come together with the end of the time for it.
        self.transactions.check_age()?;
        self.transactions.run_begun(Call { input: Some(&data), ..call }, rows).await
    }

    /// Collects the data until the client says that it is complete.
    async fn receive_copy(&mut self) -> Result<Bytes, Failure> {
        let mut data = BytesMut::new();
        loop {
            let (tag, body) = match self.wire.buffered()? {
                Some(message) => message,
                None => {
                    self.wire.flush().await?;
                    let too_late =
                        self.shared.clock.sleep_until(self.transactions.deadline().saturating_add(TICK));
                    match race::first(self.wire.more(), too_late).await {
                        First::Left(more) => more?,
                        First::Right(()) => return Err(self.transactions.too_old().into()),
                    }
                    continue;
                }
            };
            match tag {
                b'd' if data.len() + body.len() > MAX_BYTES => {
                    return Err(SqlError::too_large(data.len() + body.len()).into());
                }
                b'd' => data.extend_from_slice(&body),
                b'c' => return Ok(data.freeze()),
                b'f' => {
                    let reason = String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(&body));
                    return Err(SqlError::new("57014", format!("COPY from stdin failed: {reason}")).into());
                }
                // A client may send these before it knows that the statement is a COPY.
                b'H' | b'S' => {}
                b'X' => return Err(Failure::Gone),
                _ => {
                    let message = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
                    return Err(SqlError::protocol(message).into());
                }
            }
        }
    }
}
