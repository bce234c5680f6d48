//! One connection to the server.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::catalog;
use super::change_log::RowReport;
use super::quoting::literal;
use super::request::Request;
use super::rewrite;
use super::roles::Role;
use super::server::SOCKET;
use crate::engine::{Column, Description, Oid};
use crate::error::SqlError;
use crate::statement::Statement;
use crate::wire::frontend;

/// No message of the server is longer; PostgreSQL itself makes none beyond it.
const LONGEST: usize = 1 << 30;

/// The code of what the trigger tells: `dsql_local_report` in `template.sql`.
pub(super) const REPORT: &str = "DSQL1";

/// How many statements are kept on a connection.
const KEPT: usize = 100;

/// Statements that the server keeps, by text and types: the numbers in their names.
#[derive(Debug, Default)]
struct PreparedCache {
    numbers: BTreeMap<(Arc<str>, Vec<Oid>), u32>,
    /// Those that are not wanted any more, which the server does not know yet.
    forgotten: Vec<u32>,
    last: u32,
}

impl PreparedCache {
    fn forget(&mut self) {
        self.forgotten.extend(std::mem::take(&mut self.numbers).into_values());
    }
}

/// A setting and its value.
pub(super) type Setting = (&'static str, String);

/// A connection. It answers one request after the other.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) role: Role,
    stream: UnixStream,
    input: BytesMut,
    /// What it goes by beside the defaults.
    applied: Vec<Setting>,
    /// By which the server knows it.
    pid: i32,
    /// The statements that the server keeps for it.
    kept: PreparedCache,
    /// A request was begun whose answer has not been read to its end: nobody can know what comes next.
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
            // Nobody waits for a lock, but whoever says so; see the transaction.
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

    /// By which the server knows it.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// The name of a statement that may come again; the server is asked to keep it, if it does not yet.
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

    /// Runs statements whose rows nobody wants.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), SqlError> {
        self.request(Request::query(sql), |_, _| Ok(())).await
    }

    /// Whether it cannot be used any more.
    pub(super) fn is_lost(&self) -> bool {
        self.in_request
    }

    /// Whether the server has neither closed it nor said anything unasked, which is always a goodbye.
    pub(super) fn is_alive(&self) -> bool {
        let quiet = self.stream.try_read(&mut [0]);
        matches!(quiet, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Goes by these settings, and by the defaults of all others.
    pub(super) async fn apply_settings(&mut self, settings: &[Setting]) -> Result<(), SqlError> {
        if self.applied == settings {
            return Ok(());
        }
        // One query is one transaction: all of it or nothing.
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

    /// Says that it goes by these settings again, since what came after them was undone.
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

    /// What a statement takes and gives.
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

    /// Sends messages and gives each answer to `take`, up to the server's readiness for more. The first error that the
    /// server reports is returned at that end; one of `take` at once, which leaves the connection lost.
    ///
    /// # Cancel safety
    /// If dropped, the connection is lost.
    pub(super) async fn request(
        &mut self,
        request: Request,
        mut take: impl FnMut(u8, Body) -> Result<(), SqlError> + Send,
    ) -> Result<(), SqlError> {
        self.in_request = true;
        self.stream.write_all(&request.into_bytes()).await.map_err(lost)?;
        let mut failure = Ok(());
        loop {
            match self.message().await? {
                (b'E', body) => failure = failure.and(Err(Body(body).error()?)),
                (b'Z', _) => break,
                (b'G' | b'H' | b'W', _) => return Err(SqlError::unsupported("COPY is not supported")),
                (tag, body) => take(tag, Body(body))?,
            }
        }
        self.in_request = false;
        if failure.is_err() {
            // Whether it had come to what it was to keep is not known. No name is used twice.
            self.kept.forget();
        }
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
                b'C' => error.code = intern(&text),
                b'M' => error.message = text,
                b'D' => error.detail = Some(text),
                b'H' => error.hint = Some(text),
                _ => {}
            }
        }
    }

    /// What the trigger tells of a row; none if it is somebody else's notice.
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

    /// All values of a row, as text.
    pub(super) fn all(mut self) -> Result<Vec<String>, SqlError> {
        let count = self.0.try_get_u16().map_err(lost)?;
        (0..count).map(|_| self.value()).collect()
    }

    /// A row of values as text; none is empty.
    pub(super) fn texts<const N: usize>(mut self) -> Result<[String; N], SqlError> {
        self.0.try_get_u16().map_err(lost)?;
        let mut texts = [const { String::new() }; N];
        for text in &mut texts {
            *text = self.value()?;
        }
        Ok(texts)
    }

    /// A value of a row, as text; none is empty.
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

/// A SQLSTATE as errors keep it. PostgreSQL has a few hundred of them: each is kept once.
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
