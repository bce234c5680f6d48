//! What is said between login and goodbye: the simple and the extended protocol.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::clock::Moment;
use crate::engine::{Call, Description, Engine, Rows};
use crate::error::SqlError;
use crate::faults::Blow;
use crate::race::{self, First};
use crate::sessions::{Ending, Phase};
use crate::shared::Shared;
use crate::statement::{Kind, Statement};
use crate::transaction::{Outcome, Transactions};
use crate::wire::Format;
use crate::wire::backend::Severity;
use crate::wire::frontend::{Message, Named};
use crate::wire::stream::{Broken, Wire};

/// How many prepared statements a session may have.
const STATEMENTS: usize = 10_000;
/// How many portals.
const PORTALS: usize = 100;
/// How many bytes of either.
const HELD: usize = 64 << 20;

/// How a conversation ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client left, or broke the protocol.
    Left,
    /// The session's time was up.
    Expired,
    /// A fault closed the socket.
    Dropped,
}

/// One session.
pub(crate) struct Conversation<E: Engine, S> {
    shared: Arc<Shared>,
    wire: Wire<S>,
    transactions: Transactions<E>,
    statements: BTreeMap<String, Arc<Prepared>>,
    portals: BTreeMap<String, Portal>,
    /// After an error, messages are skipped until the next Sync.
    skipping: bool,
    /// Whether a Sync is owed for messages that were answered.
    unsynced: bool,
}

#[derive(Debug)]
struct Prepared {
    statement: Statement,
    description: Arc<Description>,
}

struct Portal {
    prepared: Arc<Prepared>,
    values: Vec<Option<Bytes>>,
    formats: Vec<Format>,
    results: Vec<Format>,
    /// What it gave and the client has not yet fetched, and the tag for the end.
    pending: Option<(Rows, Outcome)>,
}

impl Portal {
    /// How many bytes it keeps.
    fn held(&self) -> usize {
        let values: usize = self.values.iter().flatten().map(Bytes::len).sum();
        values + self.pending.as_ref().map_or(0, |(rows, _)| rows.size())
    }
}

/// What ends a conversation from within.
enum Stop {
    Broken,
    Hangup,
    Terminate,
}

impl From<Broken> for Stop {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

impl<E: Engine, S: AsyncRead + AsyncWrite + Unpin> Conversation<E, S> {
    pub(crate) fn new(shared: Arc<Shared>, wire: Wire<S>, transactions: Transactions<E>) -> Self {
        Self {
            shared,
            wire,
            transactions,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            skipping: false,
            unsynced: false,
        }
    }

    /// Serves until one side has enough. Cancelled, it leaves nothing open.
    pub(crate) async fn run(&mut self, ending: &Ending) -> End {
        loop {
            match self.next(ending).await {
                Ok(Some(message)) => match self.answer(message).await {
                    Ok(()) => {}
                    Err(Stop::Hangup) => return End::Dropped,
                    Err(Stop::Broken | Stop::Terminate) => return End::Left,
                },
                Ok(None) => return End::Expired,
                Err(_) => return End::Left,
            }
        }
    }

    /// The next message; none if the session's time is up.
    async fn next(&mut self, ending: &Ending) -> Result<Option<(u8, Bytes)>, Broken> {
        loop {
            let open = self.transactions.began();
            if self.unsynced
                && let Some(message) = self.wire.buffered()?
            {
                // Whoever commits in a pipeline is also told that the pipeline is done.
                return Ok(Some(message));
            }
            if ending.has_reached(Phase::Expired) && open.is_none() {
                // What was answered is still delivered: the client saw it happen before the end.
                self.wire.flush().await?;
                return Ok(None);
            }
            if let Some(message) = self.wire.buffered()? {
                return Ok(Some(message));
            }
            self.wire.flush().await?;
            let over = async {
                match open {
                    None => ending.reached(Phase::Expired).await,
                    // A transaction begun before the end may finish, but not outlive its own limit.
                    Some(began) => {
                        ending.reached(Phase::Expired).await;
                        let limit = self.shared.sessions.limits().transaction_life;
                        self.shared.clock.sleep_until(began.saturating_add(limit)).await;
                    }
                }
            };
            match race::first(self.wire.more(), over).await {
                First::Left(more) => more?,
                First::Right(()) => return Ok(None),
            }
        }
    }

    async fn answer(&mut self, (tag, body): (u8, Bytes)) -> Result<(), Stop> {
        let message = match Message::parse(tag, body) {
            Ok(message) => message,
            Err(error) => {
                self.wire.replies.error(Severity::Fatal, &error);
                self.wire.flush().await?;
                return Err(Stop::Terminate);
            }
        };
        self.unsynced = !matches!(message, Message::Query(_) | Message::Sync);
        if self.skipping && !matches!(message, Message::Sync | Message::Terminate) {
            return Ok(());
        }
        let result = match message {
            Message::Query(sql) => return self.query(&sql).await,
            Message::Sync => return self.sync().await,
            Message::Terminate => return Err(Stop::Terminate),
            Message::Flush => {
                self.wire.flush().await?;
                Ok(())
            }
            Message::Copy => Ok(()),
            Message::Parse { name, sql, types } => self.parse(name, &sql, types).await,
            Message::Bind { portal, statement, formats, values, results } => {
                self.bind(portal, &statement, formats, values, results)
            }
            Message::Describe { kind: Named::Statement, name } => self.describe_statement(&name),
            Message::Describe { kind: Named::Portal, name } => self.describe_portal(&name),
            Message::Execute { portal, limit } => self.execute(&portal, limit).await,
            Message::Close { kind, name } => {
                match kind {
                    Named::Statement => drop(self.statements.remove(&name)),
                    Named::Portal => drop(self.portals.remove(&name)),
                }
                self.wire.replies.closed();
                Ok(())
            }
            Message::FunctionCall => Err(SqlError::unsupported("function calls are not supported").into()),
            Message::Password(_) => Err(SqlError::protocol("a password was not asked for").into()),
        };
        self.wire.flush_if_full().await?;
        self.skipping = result.is_err();
        self.report(result).await
    }

    /// Tells the client of an error, which also fails the transaction.
    async fn report(&mut self, result: Result<(), Blow>) -> Result<(), Stop> {
        if let Err(blow) = &result {
            self.transactions.fail(blow).await;
        }
        match result {
            Ok(()) => Ok(()),
            Err(Blow::Hangup) => Err(Stop::Hangup),
            Err(Blow::Error(error)) => {
                self.wire.replies.error(Severity::Error, &error);
                Ok(())
            }
        }
    }

    /// The simple protocol: several statements, one transaction for all that are not in one of their own.
    async fn query(&mut self, sql: &str) -> Result<(), Stop> {
        self.portals.clear();
        let statements = Statement::split(sql);
        let mut result = Ok(());
        for (index, statement) in statements.iter().enumerate() {
            result = self.simple(statement, index + 1 == statements.len()).await;
            self.wire.flush_if_full().await?;
            if result.is_err() {
                break;
            }
        }
        self.report(result).await?;
        self.wire.replies.ready(self.transactions.readiness());
        Ok(())
    }

    async fn simple(&mut self, statement: &Statement, last: bool) -> Result<(), Blow> {
        if statement.kind() == Kind::Empty {
            self.wire.replies.empty_query();
            return Ok(());
        }
        let description = self.transactions.describe(statement, &[]).await?;
        if !description.parameters.is_empty() {
            return Err(SqlError::new("42P02", "there is no parameter $1").into());
        }
        let call = Call {
            statement,
            description: &description,
            values: &[],
            formats: &[],
            results: &[],
            deadline: Moment::MAX,
        };
        let mut rows = Rows::default();
        let outcome = self.transactions.run(call, &mut rows).await?;
        if last {
            // Before its answer: nobody shall read UPDATE 1 of what was not committed.
            self.transactions.finish().await?;
        }
        if let Some(columns) = &description.columns {
            self.wire.replies.columns(columns, &[]);
        }
        self.deliver(&mut rows, 0);
        self.conclude(statement, &outcome);
        Ok(())
    }

    fn deliver(&mut self, rows: &mut Rows, limit: usize) {
        let (data, _) = rows.take(limit);
        if self.wire.replies.0.is_empty() {
            self.wire.replies.0 = data;
        } else {
            self.wire.replies.0.extend_from_slice(&data);
        }
    }

    fn conclude(&mut self, statement: &Statement, outcome: &Outcome) {
        if statement.begins(&["DEALLOCATE", "ALL"]) {
            self.statements.clear();
        }
        let replies = &mut self.wire.replies;
        if let Some(warning) = &outcome.warning {
            replies.error(Severity::Warning, warning);
        }
        replies.complete(&outcome.tag);
        if let Some((name, value)) = &outcome.changed {
            replies.parameter(name, value);
        }
    }

    async fn sync(&mut self) -> Result<(), Stop> {
        self.skipping = false;
        let finished = self.transactions.finish().await;
        self.report(finished).await?;
        if self.transactions.began().is_none() {
            self.portals.clear();
        }
        self.wire.replies.ready(self.transactions.readiness());
        Ok(())
    }

    async fn parse(&mut self, name: String, sql: &str, types: Vec<u32>) -> Result<(), Blow> {
        let mut statements = Statement::split(sql);
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
        let held: usize = self.statements.values().map(|prepared| prepared.statement.text().len()).sum();
        if self.statements.len() >= STATEMENTS || held + sql.len() > HELD {
            return Err(SqlError::new("54000", "too many prepared statements in one session").into());
        }
        let description = self.transactions.describe(&statement, &types).await?;
        self.statements.insert(name, Arc::new(Prepared { statement, description }));
        self.wire.replies.parsed();
        Ok(())
    }

    fn bind(
        &mut self,
        portal: String,
        statement: &str,
        formats: Vec<Format>,
        values: Vec<Option<Bytes>>,
        results: Vec<Format>,
    ) -> Result<(), Blow> {
        let prepared = self.statement(statement)?;
        let wanted = prepared.description.parameters.len();
        if values.len() != wanted {
            return Err(SqlError::protocol(format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {wanted}",
                values.len()
            ))
            .into());
        }
        let portal_held = values.iter().flatten().map(Bytes::len).sum();
        self.portals.remove(&portal);
        self.make_room(portal_held)?;
        self.portals.insert(portal, Portal { prepared, values, formats, results, pending: None });
        self.wire.replies.bound();
        Ok(())
    }

    /// Whether so many bytes more may be kept in portals.
    fn make_room(&self, more: usize) -> Result<(), SqlError> {
        let held: usize = self.portals.values().map(Portal::held).sum();
        let full = self.portals.len() >= PORTALS || held + more > HELD;
        if full { Err(SqlError::new("54000", "too much is kept in portals of one session")) } else { Ok(()) }
    }

    fn statement(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        let unknown = || SqlError::new("26000", format!("prepared statement \"{name}\" does not exist"));
        self.statements.get(name).cloned().ok_or_else(unknown)
    }

    fn describe_statement(&mut self, name: &str) -> Result<(), Blow> {
        let prepared = self.statement(name)?;
        self.wire.replies.parameter_types(&prepared.description.parameters);
        match &prepared.description.columns {
            Some(columns) => self.wire.replies.columns(columns, &[]),
            None => self.wire.replies.no_columns(),
        }
        Ok(())
    }

    fn describe_portal(&mut self, name: &str) -> Result<(), Blow> {
        let portal = self.portals.get(name).ok_or_else(|| unknown_portal(name))?;
        match &portal.prepared.description.columns {
            Some(columns) => self.wire.replies.columns(columns, &portal.results),
            None => self.wire.replies.no_columns(),
        }
        Ok(())
    }

    async fn execute(&mut self, name: &str, limit: usize) -> Result<(), Blow> {
        let portal = self.portals.get_mut(name).ok_or_else(|| unknown_portal(name))?;
        let prepared = portal.prepared.clone();
        if prepared.statement.kind() == Kind::Empty {
            self.wire.replies.empty_query();
            return Ok(());
        }
        let (mut rows, outcome) = match portal.pending.take() {
            Some(pending) => pending,
            None => {
                let call = Call {
                    statement: &prepared.statement,
                    description: &prepared.description,
                    values: &portal.values,
                    formats: &portal.formats,
                    results: &portal.results,
                    deadline: Moment::MAX,
                };
                let mut rows = Rows::default();
                let outcome = self.transactions.run(call, &mut rows).await?;
                (rows, outcome)
            }
        };
        self.deliver(&mut rows, limit);
        if rows.count() > 0 {
            self.make_room(rows.size())?;
            self.wire.replies.suspended();
            if let Some(portal) = self.portals.get_mut(name) {
                portal.pending = Some((rows, outcome));
            }
        } else {
            self.conclude(&prepared.statement, &outcome);
        }
        Ok(())
    }
}

fn unknown_portal(name: &str) -> SqlError {
    SqlError::new("34000", format!("portal \"{name}\" does not exist"))
}
