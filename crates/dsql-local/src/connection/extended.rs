//! The extended protocol: Parse, Bind, Describe and Execute.

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use super::portals::{Portal, Prepared, Progress};
use super::{Connection, split, unknown_statement};
use crate::clock::Moment;
use crate::engine::{Call, Engine, Extent, Rows};
use crate::error::SqlError;
use crate::faults::Failure;
use crate::statement::Kind;
use crate::transaction_state::Outcome;
use crate::wire::Format;
use crate::wire::backend::{BIND_COMPLETE, EMPTY_QUERY_RESPONSE, NO_DATA, PARSE_COMPLETE, PORTAL_SUSPENDED};

/// The largest number of prepared statements in a session.
const STATEMENTS: usize = 10_000;
/// The largest number of portals in a session.
const PORTALS: usize = 100;
/// The largest size of each, in bytes.
const MAX_BYTES: usize = 64 << 20;

impl<E: Engine, S: AsyncRead + AsyncWrite + Unpin> Connection<E, S> {
    pub(super) async fn parse(&mut self, name: String, sql: &str, types: Vec<u32>) -> Result<(), Failure> {
        let mut statements = split(sql)?;
        let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
            return Err(
                SqlError::new("42601", "cannot insert multiple commands into a prepared statement").into()
            );
        };
        if !name.is_empty() && self.statements.contains_key(&name) {
            return Err(
                SqlError::new("42P05", format!("prepared statement \"{name}\" already exists")).into()
            );
        }
        let description = self.describe(&statement, &types).await?;
        let prepared = Prepared { statement, description };
        // It replaces a statement with the same name.
        drop(self.statements.remove(&name));
        let size: usize = self.statements.iter().map(|(name, prepared)| name.len() + prepared.size()).sum();
        if self.statements.len() >= STATEMENTS || size + name.len() + prepared.size() > MAX_BYTES {
            return Err(SqlError::new("54000", "too many prepared statements in one session").into());
        }
        self.statements.insert(name, Arc::new(prepared));
        self.wire.replies.empty(PARSE_COMPLETE);
        Ok(())
    }

    pub(super) fn bind(
        &mut self,
        portal: String,
        statement: &str,
        formats: Vec<Format>,
        values: &[Option<Bytes>],
        results: Vec<Format>,
    ) -> Result<(), Failure> {
        let prepared = self.statement(statement)?;
        let wanted = prepared.description.parameters.len();
        if values.len() != wanted {
            return Err(SqlError::protocol(format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {wanted}",
                values.len()
            ))
            .into());
        }
        let bound = Portal::new(prepared, values, formats, results)?;
        drop(self.portals.remove(&portal));
        if self.portals.len() >= PORTALS {
            return Err(full());
        }
        self.make_room(portal.len() + bound.size())?;
        self.portals.insert(portal, Box::new(bound));
        self.wire.replies.empty(BIND_COMPLETE);
        Ok(())
    }

    /// Checks that this many more bytes fit into the portals.
    fn make_room(&self, more: usize) -> Result<(), Failure> {
        let size: usize = self.portals.iter().map(|(name, portal)| name.len() + portal.size()).sum();
        if size + more > MAX_BYTES { Err(full()) } else { Ok(()) }
    }

    fn statement(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        self.statements.get(name).cloned().ok_or_else(|| unknown_statement(name))
    }

    pub(super) fn describe_statement(&mut self, name: &str) -> Result<(), Failure> {
        let prepared = self.statement(name)?;
        self.wire.replies.parameter_description(&prepared.description.parameters);
        match &prepared.description.columns {
            Some(columns) => self.wire.replies.row_description(columns, &[]),
            None => self.wire.replies.empty(NO_DATA),
        }
        Ok(())
    }

    pub(super) fn describe_portal(&mut self, name: &str) -> Result<(), Failure> {
        let portal = self.portals.get(name).ok_or_else(|| unknown_portal(name))?;
        match &portal.prepared.description.columns {
            Some(columns) => self.wire.replies.row_description(columns, &portal.results),
            None => self.wire.replies.empty(NO_DATA),
        }
        Ok(())
    }

    pub(super) async fn execute(&mut self, name: &str, limit: usize) -> Result<(), Failure> {
        let portal = self.portals.get_mut(name).ok_or_else(|| unknown_portal(name))?;
        let prepared = portal.prepared.clone();
        if prepared.statement.kind() == Kind::Empty {
            self.wire.replies.empty(EMPTY_QUERY_RESPONSE);
            return Ok(());
        }
        let call = Call {
            statement: &prepared.statement,
            description: Some(&prepared.description),
            values: &std::mem::take(&mut portal.values),
            formats: &std::mem::take(&mut portal.formats),
            results: &portal.results.clone(),
            input: None,
            extent: if self.wire.awaits(b'S') { Extent::Alone } else { Extent::Query },
            deadline: Moment::MAX,
        };
        let progress = std::mem::take(&mut portal.progress);
        let resumed = !matches!(progress, Progress::New);
        if resumed {
            self.transactions.check_alive()?;
        }
        let (mut rows, mut outcome) = match progress {
            Progress::New => {
                let mut rows = Rows::default();
                let outcome = self.run_one(call, &mut rows).await?;
                (rows, outcome)
            }
            Progress::Suspended(pending) => *pending,
            // As in PostgreSQL: a portal with rows has none left, and one without rows does not run twice.
            Progress::Done if prepared.description.columns.is_some() => {
                let outcome = Outcome { tag: prepared.statement.tag(0), ..Outcome::default() };
                (Rows::default(), outcome)
            }
            Progress::Done => {
                return Err(SqlError::new("55000", format!("portal \"{name}\" cannot be run")).into());
            }
        };
        if limit > 0 && rows.count() >= u64::try_from(limit).unwrap_or(u64::MAX) {
            self.make_room(rows.size())?;
            self.deliver(&mut rows, limit);
            // Even if no row is left: the client finds that out with its next Execute.
            self.wire.replies.empty(PORTAL_SUSPENDED);
            if let Some(portal) = self.portals.get_mut(name) {
                portal.progress = Progress::Suspended(Box::new((rows, outcome)));
            }
            return Ok(());
        }
        let count = self.deliver(&mut rows, limit);
        if resumed && prepared.statement.kind() == Kind::Select {
            // The number of rows since the last Execute, not of all rows.
            outcome.tag = prepared.statement.tag(count);
        }
        self.conclude(&outcome);
        Ok(())
    }
}

fn full() -> Failure {
    SqlError::new("54000", "too much is kept in portals of one session").into()
}

fn unknown_portal(name: &str) -> SqlError {
    SqlError::new("34000", format!("portal \"{name}\" does not exist"))
}
