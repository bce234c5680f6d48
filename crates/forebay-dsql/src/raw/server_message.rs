//! What a server said, as an error.

use std::error::Error as StdError;
use std::fmt;

use postgres_protocol::message::backend::ErrorResponseBody;
use tokio_postgres::fallible_iterator::FallibleIterator;

use super::unexpected;
use crate::error::Error;

/// An error message of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerMessage {
    /// `ERROR`, `FATAL` or `PANIC`.
    pub severity: String,
    /// Its SQLSTATE.
    pub code: String,
    /// What went wrong.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

impl ServerMessage {
    /// Reads an ErrorResponse.
    pub(super) fn read(body: &ErrorResponseBody) -> Result<Self, Error> {
        let mut message = Self::default();
        let mut fields = body.fields();
        while let Some(field) = fields.next().map_err(unexpected)? {
            let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                // Servers send the translated word first, and then the other one.
                b'S' | b'V' => message.severity = value,
                b'C' => message.code = value,
                b'M' => message.message = value,
                b'D' => message.detail = Some(value),
                b'H' => message.hint = Some(value),
                _ => {}
            }
        }
        Ok(message)
    }

    /// Whether the session ends with it.
    pub(crate) fn is_last(&self) -> bool {
        matches!(&*self.severity, "FATAL" | "PANIC")
    }
}

impl fmt::Display for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.severity, self.message, self.code)?;
        for more in [&self.detail, &self.hint].into_iter().flatten() {
            write!(f, ", {more}")?;
        }
        Ok(())
    }
}

impl StdError for ServerMessage {}
