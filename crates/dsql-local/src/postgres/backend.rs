//! One connection to the private PostgreSQL.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::catalog;
use super::change_log::RowReport;
use super::quoting::literal;
use super::request::Request;
use super::rewrite;
use super::roles::Role;
use super::server::SOCKET;
use crate::engine::{Column, CopyFormat, Description, Oid};
use crate::error::SqlError;
use crate::statement::Statement;
use crate::wire::{Format, frontend};

/// The largest message that PostgreSQL sends.
const LONGEST: usize = 1 << 30;

/// The SQLSTATE of the trigger's reports: `dsql_local_report` in `template.sql`.
pub(super) const REPORT: &str = "DSQL1";

/// The largest number of prepared statements on a connection.
const KEPT: usize = 100;

/// The prepared statements on a connection, by text and types. Their names are `s` and a number.
#[derive(Debug, Default)]
struct PreparedCache {
    numbers: BTreeMap<(Arc<str>, Vec<Oid>), u32>,
    /// Statements that are dropped here, but not yet closed on the server.
    forgotten: Vec<u32>,
    last: u32,
}

impl PreparedCache {
    fn forget(&mut self) {
        self.forgotten.extend(std::mem::take(&mut self.numbers).into_values());
    }
}

pub(super) type Setting = (&'static str, String);

/// A connection, which answers one request after another.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) role: Role,
    stream: UnixStream,
    input: BytesMut,
    /// The settings in effect, beyond the defaults.
    applied: Vec<Setting>,
    /// The process id of its server process.
    pub(super) pid: i32,
    kept: PreparedCache,
    /// Whether an answer has not been read to its end. Then the state of the connection is unknown.
    in_request: bool,
}

impl Backend {
    pub(super) async fn connect(directory: &Path, role: Role) -> Result<Self, SqlError> {
        let stream = UnixStream::connect(directory.join(SOCKET)).await.map_err(lost)?;
        let (input, applied, kept) = (BytesMut::new(), Vec::new(), PreparedCache::default());
        let user = role.name.clone();
        let mut backend = Self { role, stream, input, applied, pid: 0, kept, in_request: false };
        let parameters = [
            ("user", &*user),
            ("database", "postgres"),
            ("client_encoding", "UTF8"),
            // By default a statement does not wait for a lock; see `occ_transaction.rs`.
            ("lock_timeout", "2ms"),
        ];
        let mut pid = 0;
        let take = |tag: u8, mut body: Body| {
            if tag == b'K' {
                pid = body.0.try_get_i32().map_err(lost)?;
            }
            Ok(())
        };
        backend.request(Request::startup(&parameters), take).await?;
        backend.pid = pid;
        Ok(backend)
    }

    /// The name of a prepared statement. Adds a Parse message if the server does not have it yet.
    pub(super) fn prepared(&mut self, request: &mut Request, sql: &Arc<str>, types: &[Oid]) -> String {
        let name = |number: u32| format!("s{number}");
        if let Some(number) = self.kept.numbers.get(&(sql.clone(), types.to_vec())) {
            return name(*number);
        }
        if self.kept.numbers.len() >= KEPT {
            self.kept.forget();
        }
        for number in self.kept.forgotten.drain(..) {
            request.close(&name(number));
        }
        self.kept.last += 1;
        let name = name(self.kept.last);
        request.prepare(&name, sql, types);
        self.kept.numbers.insert((sql.clone(), types.to_vec()), self.kept.last);
        name
    }

    /// Runs statements and ignores their rows.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), SqlError> {
        self.request(Request::query(sql), |_, _| Ok(())).await
    }

    /// Whether the connection can no longer be used.
    pub(super) fn is_lost(&self) -> bool {
        self.in_request
    }

    /// Whether the connection is open and quiet. An idle server speaks only to say goodbye.
    pub(super) fn is_alive(&self) -> bool {
        let quiet = self.stream.try_read(&mut [0]);
        matches!(quiet, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Applies these settings, and the defaults of all others.
    pub(super) async fn apply_settings(&mut self, settings: &[Setting]) -> Result<(), SqlError> {
        if self.applied == settings {
            return Ok(());
        }
        // One query is one transaction: all settings or none.
        let mut sql = "RESET ALL".to_owned();
        if !settings.is_empty() {
            sql += "; SET dsql_local.settings = changed";
        }
        for (name, value) in settings {
            sql += &format!("; SELECT set_config('{name}', {}, false)", literal(value));
        }
        self.run(&sql).await?;
        self.applied = settings.to_vec();
        Ok(())
    }

    /// Records that a rollback has restored these settings.
    pub(super) fn settings_restored(&mut self, settings: &[Setting]) {
        self.applied = settings.to_vec();
    }

    /// Runs a query and returns its rows of `N` columns as text; NULL is empty.
    pub(super) async fn rows<const N: usize>(&mut self, sql: &str) -> Result<Vec<[String; N]>, SqlError> {
        let mut rows = Vec::new();
        let take = |tag: u8, row: Body| {
            if tag == b'D' {
                rows.push(row.texts()?);
            }
            Ok(())
        };
        self.request(Request::query(sql), take).await?;
        Ok(rows)
    }

    /// Runs a query of one column and returns its values.
    pub(super) async fn values(&mut self, sql: &str) -> Result<Vec<String>, SqlError> {
        Ok(self.rows::<1>(sql).await?.into_iter().flatten().collect())
    }

    /// Describes the parameters and columns of a statement.
    pub(super) async fn describe(
        &mut self,
        statement: &Statement,
        types: &[Oid],
    ) -> Result<Description, SqlError> {
        let mut request = Request::default();
        request.parse(&rewrite::text(statement, ""), types);
        request.describe();
        request.sync();
        let mut description = Description { writes: super::writes(statement), ..Description::default() };
        let take = |tag: u8, body: Body| {
            match tag {
                b't' => description.parameters = body.parameters()?,
                b'T' => description.columns = Some(body.columns()?),
                _ => {}
            }
            Ok(())
        };
        self.request(request, take).await?;
        catalog::check_results(&description)?;
        Ok(description)
    }

    /// The format of the data of a COPY FROM STDIN. The statement fails on purpose, so that it needs no data.
    pub(super) async fn copy_format(&mut self, sql: &str) -> Result<CopyFormat, SqlError> {
        // By the extended protocol, which runs one statement, whatever the text is.
        let mut request = Request::default();
        request.whole(sql);
        request.copy_fail("only the format is needed");
        request.sync();
        let mut format = None;
        let take = |tag: u8, body: Body| {
            if tag == b'G' {
                format = Some(body.copy_format()?);
            }
            Ok(())
        };
        let failed = self.request(request, take).await;
        format.ok_or_else(|| failed.err().unwrap_or_else(SqlError::unavailable))
    }

    /// Sends messages and passes each answer to `take`, until ReadyForQuery. An error of the server is
    /// returned then. An error of `take` is returned at once, and the connection is lost.
    ///
    /// # Cancel safety
    /// If dropped, the connection is lost.
    pub(super) async fn request(
        &mut self,
        request: Request,
        mut take: impl FnMut(u8, Body) -> Result<(), SqlError> + Send,
    ) -> Result<(), SqlError> {
        self.in_request = true;
        let copies = request.copies();
        let mut unsent = request.into_bytes();
        let mut failure = Ok(());
        loop {
            match self.message(&mut unsent).await? {
                (b'E', body) => failure = failure.and(Err(Body(body).error()?)),
                (b'Z', _) => break,
                // Without the data, the server would wait forever.
                (b'G', _) if !copies => return Err(SqlError::unsupported("COPY is not supported here")),
                (tag, body) => take(tag, Body(body))?,
            }
        }
        self.in_request = false;
        if failure.is_err() {
            // It is unknown which statements the server has prepared. No name is used twice.
            self.kept.forget();
        }
        failure
    }

    /// The next message of the server. Meanwhile it sends what is unsent: during a COPY, the server sends reports
    /// before it has read all data.
    async fn message(&mut self, unsent: &mut BytesMut) -> Result<(u8, Bytes), SqlError> {
        loop {
            if let Some(message) = frontend::frame(&mut self.input, LONGEST).map_err(lost)? {
                return Ok(message);
            }
            let interest = match unsent.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            let ready = self.stream.ready(interest).await.map_err(lost)?;
            if ready.is_writable() && !unsent.is_empty() {
                let written = done(self.stream.try_write(unsent))?;
                unsent.advance(written.unwrap_or(0));
            }
            if ready.is_readable() && done(self.stream.try_read_buf(&mut self.input))? == Some(0) {
                return Err(SqlError::unavailable());
            }
        }
    }
}

/// The number of bytes; none if the socket was not ready after all.
fn done(transferred: io::Result<usize>) -> Result<Option<usize>, SqlError> {
    match transferred {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(lost(error)),
    }
}

/// The error of the service when it loses a part of itself.
pub(super) fn lost(error: impl std::error::Error) -> SqlError {
    SqlError::unavailable().detail(error.to_string())
}

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
            // The table and column number: the service does not send them either.
            let (_, _) = (self.0.try_get_u32().map_err(lost)?, self.0.try_get_u16().map_err(lost)?);
            let oid = self.0.try_get_u32().map_err(lost)?;
            let size = self.0.try_get_i16().map_err(lost)?;
            let (_, _) = (self.0.try_get_u32().map_err(lost)?, self.0.try_get_u16().map_err(lost)?);
            Ok(Column { name, oid, size })
        };
        (0..count).map(column).collect()
    }

    fn copy_format(mut self) -> Result<CopyFormat, SqlError> {
        let binary = self.0.try_get_u8().map_err(lost)? == 1;
        let format = if binary { Format::Binary } else { Format::Text };
        Ok(CopyFormat { format, columns: self.0.try_get_u16().map_err(lost)? })
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
                b'C' => error.code = intern(&text),
                b'M' => error.message = text,
                b'D' => error.detail = Some(text),
                b'H' => error.hint = Some(text),
                _ => {}
            }
        }
    }

    /// Parses a report of the trigger; none for any other notice.
    pub(super) fn report(mut self) -> Option<RowReport> {
        let (mut code, mut table, mut before, mut after) = (None, 0, None, None);
        let (mut values, mut old) = (Bytes::new(), Bytes::new());
        loop {
            let field = self.0.try_get_u8().ok()?;
            if field == 0 {
                break;
            }
            let end = self.0.iter().position(|byte| *byte == 0)?;
            let bytes = self.0.split_to(end);
            self.0.advance(1);
            let text = || std::str::from_utf8(&bytes).unwrap_or_default();
            match field {
                b'C' => code = Some(text() == REPORT),
                b't' => table = text().parse().ok()?,
                b'c' => before = text().parse().ok(),
                b'n' => after = text().parse().ok(),
                b'M' => values = bytes,
                b'D' => old = bytes,
                _ => {}
            }
        }
        (code == Some(true)).then_some(RowReport { table, before, after, values, old })
    }

    pub(super) fn all(mut self) -> Result<Vec<String>, SqlError> {
        let count = self.0.try_get_u16().map_err(lost)?;
        (0..count).map(|_| self.value()).collect()
    }

    /// The values of a row as text; NULL is empty.
    pub(super) fn texts<const N: usize>(mut self) -> Result<[String; N], SqlError> {
        self.0.try_get_u16().map_err(lost)?;
        let mut texts = [const { String::new() }; N];
        for text in &mut texts {
            *text = self.value()?;
        }
        Ok(texts)
    }

    fn value(&mut self) -> Result<String, SqlError> {
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

/// Makes a SQLSTATE static. PostgreSQL has a few hundred; each is leaked once.
pub(super) fn intern(code: &str) -> &'static str {
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
