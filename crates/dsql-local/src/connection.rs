//! Serves one client after its login: the simple and the extended protocol.

mod copy;
mod extended;
mod portals;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use self::portals::{Portal, Prepared, check_text, deallocated};
use crate::clock::Moment;
use crate::counters::count;
use crate::engine::{Call, Description, Engine, Extent, Rows};
use crate::error::SqlError;
use crate::faults::Failure;
use crate::race::{self, First};
use crate::sessions::{EndPhase, EndSignal};
use crate::shared::Shared;
use crate::statement::{Kind, Statement};
use crate::transaction_state::{Outcome, TransactionState};
use crate::wire::backend::{CLOSE_COMPLETE, EMPTY_QUERY_RESPONSE, Severity};
use crate::wire::frontend::{DescribeTarget, Message};
use crate::wire::stream::{Wire, WireError};

/// The largest number of semicolons in a query. Each may end a statement, which takes more memory than its
/// text.
const SEMICOLONS: usize = 100_000;
/// The smallest duration. A transaction is too old after its limit, not at it.
const TICK: Duration = Duration::from_nanos(1);

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client left, or violated the protocol.
    Left,
    /// The lifetime of the session was over.
    Expired,
    /// A fault closed the socket.
    Dropped,
}

/// A client that has logged in.
pub(crate) struct Connection<E: Engine, S> {
    shared: Arc<Shared>,
    wire: Wire<S>,
    transactions: TransactionState<E>,
    statements: BTreeMap<String, Arc<Prepared>>,
    /// Boxed: a node of the map has room for several, and most sessions have one portal at a time.
    portals: BTreeMap<String, Box<Portal>>,
    /// After an error, messages are skipped until the next Sync.
    skipping: bool,
    /// Whether messages were answered since the last Sync.
    unsynced: bool,
}

impl From<WireError> for Failure {
    fn from(_: WireError) -> Self {
        Self::Gone
    }
}

impl From<WireError> for End {
    fn from(_: WireError) -> Self {
        Self::Left
    }
}

impl<E: Engine, S: AsyncRead + AsyncWrite + Unpin> Connection<E, S> {
    pub(crate) fn new(shared: Arc<Shared>, wire: Wire<S>, transactions: TransactionState<E>) -> Self {
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

    /// Serves the client until one side ends. If cancelled, it leaves nothing open.
    pub(crate) async fn run(&mut self, ending: &EndSignal) -> End {
        loop {
            let answered = match self.next(ending).await {
                Ok(Some(message)) => self.answer(message, ending).await,
                Ok(None) => Err(End::Expired),
                Err(error) => Err(error.into()),
            };
            if let Err(end) = answered {
                return end;
            }
        }
    }

    /// The next message; none if the session has expired.
    async fn next(&mut self, ending: &EndSignal) -> Result<Option<(u8, Bytes)>, WireError> {
        loop {
            let open = self.transactions.began();
            if self.unsynced
                && let Some(message) = self.wire.buffered()?
            {
                // A client that commits in a pipeline also gets the answers to the rest of it.
                return Ok(Some(message));
            }
            if ending.has_reached(EndPhase::Expired) && open.is_none() {
                // Replies are delivered: the statements ran before the end.
                self.wire.flush().await?;
                return Ok(None);
            }
            if let Some(message) = self.wire.buffered()? {
                return Ok(Some(message));
            }
            self.wire.flush().await?;
            let limit = self.shared.sessions.limits().transaction_life;
            let clock = &self.shared.clock;
            let over = async {
                ending.reached(EndPhase::Expired).await;
                // A transaction that began before the end may finish within its own limit.
                if let Some(began) = open {
                    clock.sleep_until(began.saturating_add(limit)).await;
                }
            };
            // A transaction of an idle client must not hold its locks until the client's next message.
            let open_since = open.filter(|_| self.transactions.is_open());
            let too_old = async {
                match open_since {
                    Some(began) => clock.sleep_until(began.saturating_add(limit).saturating_add(TICK)).await,
                    None => std::future::pending().await,
                }
            };
            match race::first(self.wire.more(), race::first(over, too_old)).await {
                First::Left(more) => more?,
                First::Right(First::Left(())) => return Ok(None),
                First::Right(First::Right(())) => self.transactions.time_out().await,
            }
        }
    }

    async fn answer(&mut self, (tag, body): (u8, Bytes), ending: &EndSignal) -> Result<(), End> {
        // The last byte ends the text; a NUL before it is part of the text.
        let text = body.strip_suffix(&[0]).filter(|_| tag == b'Q').map_or(Ok(()), check_text);
        let message = match text.and_then(|()| Message::parse(tag, body)) {
            Ok(message) => message,
            // The message is complete, but its text is invalid. The connection goes on.
            Err(error) if error.code == "22021" => return self.invalid_text(tag, error).await,
            Err(error) => {
                self.wire.replies.error_response(Severity::Fatal, &error);
                self.wire.flush().await?;
                return Err(End::Left);
            }
        };
        self.unsynced = !matches!(message, Message::Query(_) | Message::Sync);
        if self.skipping && !matches!(message, Message::Sync | Message::Terminate) {
            return Ok(());
        }
        let result = match message {
            Message::Query(sql) => return self.query(&sql, ending).await,
            Message::Sync => return self.sync().await,
            Message::Terminate => return Err(End::Left),
            Message::Flush => {
                self.wire.flush().await?;
                Ok(())
            }
            Message::Copy => Ok(()),
            Message::Parse { name, sql, types } => self.parse(name, &sql, types).await,
            Message::Bind { portal, statement, formats, values, results } => {
                self.bind(portal, &statement, formats, &values, results)
            }
            Message::Describe { kind: DescribeTarget::Statement, name } => self.describe_statement(&name),
            Message::Describe { kind: DescribeTarget::Portal, name } => self.describe_portal(&name),
            Message::Execute { portal, limit } => self.execute(&portal, limit).await,
            Message::Close { kind, name } => {
                match kind {
                    DescribeTarget::Statement => drop(self.statements.remove(&name)),
                    DescribeTarget::Portal => drop(self.portals.remove(&name)),
                }
                self.wire.replies.empty(CLOSE_COMPLETE);
                Ok(())
            }
            Message::FunctionCall => Err(SqlError::unsupported("function calls are not supported").into()),
            Message::Password(_) => Err(SqlError::protocol("a password was not asked for").into()),
        };
        self.wire.flush_if_full().await?;
        self.skipping = result.is_err();
        self.report(result).await
    }

    /// Answers a message whose text is not valid UTF-8.
    async fn invalid_text(&mut self, tag: u8, error: SqlError) -> Result<(), End> {
        if self.skipping {
            return Ok(());
        }
        self.report(Err(error.into())).await?;
        if tag == b'Q' {
            self.wire.replies.ready_for_query(self.transactions.status());
        } else {
            self.skipping = true;
        }
        Ok(())
    }

    /// Sends an error to the client and fails the transaction.
    async fn report(&mut self, result: Result<(), Failure>) -> Result<(), End> {
        match &result {
            Ok(()) | Err(Failure::Gone) => {}
            Err(failure) => self.transactions.fail(failure).await,
        }
        match result {
            Ok(()) => Ok(()),
            Err(Failure::Gone) => Err(End::Left),
            Err(Failure::Hangup) => Err(End::Dropped),
            Err(Failure::Error(error)) => {
                self.wire.replies.error_response(Severity::Error, &error);
                Ok(())
            }
        }
    }

    /// The simple protocol. The statements share one transaction, unless they begin their own.
    async fn query(&mut self, sql: &str, ending: &EndSignal) -> Result<(), End> {
        self.portals.remove("");
        let mut result = Ok(());
        match split(sql) {
            Ok(statements) => {
                for (index, statement) in statements.iter().enumerate() {
                    let over = ending.is_due(self.shared.clock.now());
                    if index > 0 && over && self.transactions.began().is_none() {
                        // The session has expired and its last transaction is over.
                        self.wire.flush().await?;
                        return Err(End::Expired);
                    }
                    let last = index + 1 == statements.len();
                    let extent = if statements.len() == 1 { Extent::Alone } else { Extent::Query };
                    result = self.simple(statement, extent, last).await;
                    self.wire.flush_if_full().await?;
                    if result.is_err() {
                        break;
                    }
                }
            }
            Err(error) => result = Err(error.into()),
        }
        self.report(result).await?;
        self.end_portals();
        self.wire.replies.ready_for_query(self.transactions.status());
        Ok(())
    }

    fn end_portals(&mut self) {
        if self.transactions.began().is_none() {
            self.portals.clear();
        }
    }

    async fn simple(&mut self, statement: &Statement, extent: Extent, last: bool) -> Result<(), Failure> {
        if statement.kind() == Kind::Empty {
            self.wire.replies.empty(EMPTY_QUERY_RESPONSE);
            return Ok(());
        }
        // Only a statement with parameters must be described first; others describe themselves when they run.
        let asked = statement.text().contains('$');
        let described = if asked { Some(self.describe(statement, &[]).await?) } else { None };
        if described.as_ref().is_some_and(|described| !described.parameters.is_empty()) {
            return Err(SqlError::new("42P02", "there is no parameter $1").into());
        }
        let call = Call {
            statement,
            description: described.as_ref(),
            values: &[],
            formats: &[],
            results: &[],
            input: None,
            extent,
            deadline: Moment::MAX,
        };
        let mut rows = Rows::default();
        let outcome = self.run_one(call, &mut rows).await?;
        if last {
            // Commit before the answer: a client must not read UPDATE 1 for a change that was not committed.
            self.transactions.finish().await?;
        }
        if let Some(columns) = &outcome.description.columns {
            self.wire.replies.row_description(columns, &[]);
        }
        self.deliver(&mut rows, 0);
        self.conclude(&outcome);
        Ok(())
    }

    async fn describe(&mut self, statement: &Statement, types: &[u32]) -> Result<Arc<Description>, SqlError> {
        if statement.begins(&["DEALLOCATE"]) && !self.transactions.failed() {
            return Ok(Arc::default());
        }
        self.transactions.describe(statement, types).await
    }

    async fn run_one(&mut self, call: Call<'_>, rows: &mut Rows) -> Result<Outcome, Failure> {
        // The engine does not know the prepared statements.
        if call.statement.begins(&["DEALLOCATE"]) && !self.transactions.failed() {
            count(&self.shared.tally.statements);
            return Ok(self.deallocate(call.statement)?);
        }
        if call.statement.copies_in() {
            return self.copy_in(call, rows).await;
        }
        let outcome = self.transactions.run(call, rows).await?;
        if matches!(call.statement.kind(), Kind::Commit | Kind::Rollback) {
            self.end_portals();
        }
        Ok(outcome)
    }

    fn deallocate(&mut self, statement: &Statement) -> Result<Outcome, SqlError> {
        self.shared.rules.check(statement)?;
        let tag = match deallocated(statement) {
            Some(name) => {
                // The unnamed statement cannot be deallocated.
                let known = !name.is_empty() && self.statements.remove(&name).is_some();
                if !known {
                    return Err(unknown_statement(&name));
                }
                "DEALLOCATE"
            }
            None => {
                self.statements.retain(|name, _| name.is_empty());
                "DEALLOCATE ALL"
            }
        };
        Ok(Outcome { tag: tag.to_owned(), ..Outcome::default() })
    }

    /// Appends the first rows to the replies and returns their number.
    fn deliver(&mut self, rows: &mut Rows, limit: usize) -> u64 {
        let (data, count) = rows.take(limit);
        if self.wire.replies.0.is_empty() {
            self.wire.replies.0 = data;
        } else {
            self.wire.replies.0.extend_from_slice(&data);
        }
        count
    }

    fn conclude(&mut self, outcome: &Outcome) {
        let replies = &mut self.wire.replies;
        if let Some(warning) = &outcome.warning {
            replies.error_response(Severity::Warning, warning);
        }
        replies.command_complete(&outcome.tag);
        for (name, value) in &outcome.changed {
            replies.parameter_status(name, value);
        }
    }

    async fn sync(&mut self) -> Result<(), End> {
        self.skipping = false;
        let finished = self.transactions.finish().await;
        self.report(finished).await?;
        self.end_portals();
        self.wire.replies.ready_for_query(self.transactions.status());
        Ok(())
    }
}

fn split(sql: &str) -> Result<Vec<Statement>, SqlError> {
    if sql.bytes().filter(|byte| *byte == b';').count() > SEMICOLONS {
        return Err(SqlError::new("54000", format!("a query has at most {SEMICOLONS} semicolons")));
    }
    Ok(Statement::split(sql))
}

fn unknown_statement(name: &str) -> SqlError {
    SqlError::new("26000", format!("prepared statement \"{name}\" does not exist"))
}
