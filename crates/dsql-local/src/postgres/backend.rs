//! One connection to the server.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::request::Request;
use super::roles::Role;
use super::server::SOCKET;
use crate::engine::{Column, Oid};
use crate::error::SqlError;
use crate::wire::frontend;

/// No message of the server is longer; PostgreSQL itself makes none beyond it.
const LONGEST: usize = 1 << 30;

/// A setting and its value.
pub(super) type Setting = (&'static str, String);

/// A connection. It answers one request after the other.
#[derive(Debug)]
pub(super) struct Backend {
    /// Whom it acts for.
    pub(super) role: Role,
    stream: UnixStream,
    input: BytesMut,
    /// What it goes by beside the defaults; none if that is not known.
    applied: Option<Vec<Setting>>,
    /// A request was begun whose answer has not been read to its end: nobody can know what comes next.
    asking: bool,
}

impl Backend {
    pub(super) async fn connect(directory: &Path, role: Role) -> Result<Self, SqlError> {
        let stream = UnixStream::connect(directory.join(SOCKET)).await.map_err(lost)?;
        let (input, applied) = (BytesMut::new(), Some(Vec::new()));
        let mut backend = Self { role, stream, input, applied, asking: false };
        let user = backend.role.name.clone();
        let parameters = [("user", &*user), ("database", "postgres"), ("client_encoding", "UTF8")];
        backend.ask(Request::startup(&parameters), |_, _| Ok(())).await?;
        Ok(backend)
    }

    /// Whether it cannot be used any more.
    pub(super) fn is_lost(&self) -> bool {
        self.asking
    }

    /// Whether the server has neither closed it nor said anything unasked, which is always a goodbye.
    pub(super) fn is_alive(&self) -> bool {
        let quiet = self.stream.try_read(&mut [0]);
        matches!(quiet, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Goes by these settings, and by the defaults of all others.
    pub(super) async fn settle(&mut self, settings: &[Setting]) -> Result<(), SqlError> {
        if self.applied.as_deref() == Some(settings) {
            return Ok(());
        }
        // One query is one transaction: all of it or nothing.
        let mut sql = "RESET ALL".to_owned();
        for (name, value) in settings {
            sql += &format!("; SELECT set_config('{name}', '{}', false)", value.replace('\'', "''"));
        }
        self.ask(Request::query(&sql), |_, _| Ok(())).await?;
        self.applied = Some(settings.to_vec());
        Ok(())
    }

    /// Says that what it goes by may change when its transaction ends.
    pub(super) fn unsettle(&mut self) {
        self.applied = None;
    }

    /// Sends messages and gives each answer to `take`, up to the server's readiness for more. The first error that the
    /// server reports is returned at that end; one of `take` at once, which leaves the connection lost.
    ///
    /// # Cancel safety
    /// If dropped, the connection is lost.
    pub(super) async fn ask(
        &mut self,
        request: Request,
        mut take: impl FnMut(u8, Bytes) -> Result<(), SqlError> + Send,
    ) -> Result<(), SqlError> {
        self.asking = true;
        self.stream.write_all(&request.into_bytes()).await.map_err(lost)?;
        let mut failure = Ok(());
        loop {
            match self.message().await? {
                (b'E', body) => failure = failure.and(Err(Body(body).error()?)),
                (b'Z', _) => break,
                (b'G' | b'H' | b'W', _) => return Err(SqlError::unsupported("COPY is not supported")),
                (tag, body) => take(tag, body)?,
            }
        }
        self.asking = false;
        failure
    }

    async fn message(&mut self) -> Result<(u8, Bytes), SqlError> {
        loop {
            if let Some(message) = frontend::frame(&mut self.input, LONGEST).map_err(lost)? {
                return Ok(message);
            }
            if self.stream.read_buf(&mut self.input).await.map_err(lost)? == 0 {
                return Err(SqlError::unavailable());
            }
        }
    }
}

/// What the service says when it has lost a part of itself.
pub(super) fn lost(error: impl std::error::Error) -> SqlError {
    SqlError::unavailable().detail(error.to_string())
}

/// What follows a message's tag and length.
pub(super) struct Body(pub(super) Bytes);

impl Body {
    pub(super) fn parameters(mut self) -> Result<Vec<Oid>, SqlError> {
        let count = self.0.try_get_u16().map_err(lost)?;
        (0..count).map(|_| self.0.try_get_u32().map_err(lost)).collect()
    }

    pub(super) fn columns(mut self) -> Result<Vec<Column>, SqlError> {
        let count = self.0.try_get_u16().map_err(lost)?;
        let column = |_| {
            let name = self.string();
            // Which column of which table: the service tells nobody.
            let (_, _) = (self.0.try_get_u32().map_err(lost)?, self.0.try_get_u16().map_err(lost)?);
            let oid = self.0.try_get_u32().map_err(lost)?;
            let size = self.0.try_get_i16().map_err(lost)?;
            let (_, _) = (self.0.try_get_u32().map_err(lost)?, self.0.try_get_u16().map_err(lost)?);
            Ok(Column { name, oid, size })
        };
        (0..count).map(column).collect()
    }

    fn error(mut self) -> Result<SqlError, SqlError> {
        let mut error = SqlError::new("XX000", "");
        loop {
            let field = self.0.try_get_u8().map_err(lost)?;
            if field == 0 {
                return Ok(error);
            }
            let text = self.string();
            match field {
                b'C' => error.code = for_ever(&text),
                b'M' => error.message = text,
                b'D' => error.detail = Some(text),
                b'H' => error.hint = Some(text),
                _ => {}
            }
        }
    }

    /// A value of a row, as text; none is empty.
    pub(super) fn value(&mut self) -> Result<String, SqlError> {
        let length = usize::try_from(self.0.try_get_i32().map_err(lost)?).unwrap_or(0);
        let text = self.0.split_to(length.min(self.0.len()));
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn string(&mut self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let text = String::from_utf8_lossy(&self.0.split_to(end)).into_owned();
        self.0.advance(1.min(self.0.len()));
        text
    }
}

/// A SQLSTATE as errors keep it. PostgreSQL has a few hundred of them: each is kept once.
pub(super) fn for_ever(code: &str) -> &'static str {
    static CODES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut codes = CODES.lock();
    if let Some(known) = codes.get(code) {
        return known;
    }
    let code: &'static str = Box::leak(code.into());
    codes.insert(code);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_what_clients_look_at() {
        let body = Bytes::from_static(b"SERROR\0C23505\0Mduplicate\0DKey (a)=(1)\0Htry\0P5\0\0");
        let expected = SqlError::new("23505", "duplicate").detail("Key (a)=(1)").hint("try");
        assert_eq!(Body(body).error(), Ok(expected));
        assert!(Body(Bytes::from_static(b"C23505\0")).error().is_err());
    }

    #[test]
    fn columns_and_parameters_are_read() {
        let body = Bytes::from_static(b"\0\x01n\0\0\0\0\x09\0\x02\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0");
        assert_eq!(Body(body).columns(), Ok(vec![Column { name: "n".to_owned(), oid: 23, size: 4 }]));
        assert_eq!(Body(Bytes::from_static(b"\0\x01\0\0\0\x19")).parameters(), Ok(vec![25]));
        assert!(Body(Bytes::from_static(b"\0\x02\0\0\0\x19")).parameters().is_err());
    }
}
