//! What is said between login and goodbye: the simple and the extended protocol.

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
use crate::wire::backend::Severity;
use crate::wire::frontend::{DescribeTarget, Message};
use crate::wire::stream::{Wire, WireError};

/// How many semicolons a query may have: each may be the end of a statement, which takes more room than its text.
const SEMICOLONS: usize = 100_000;
/// The least time there is: what is as old as it may be is not yet too old.
const TICK: Duration = Duration::from_nanos(1);

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
pub(crate) struct Connection<E: Engine, S> {
    shared: Arc<Shared>,
    wire: Wire<S>,
    transactions: TransactionState<E>,
    statements: BTreeMap<String, Arc<Prepared>>,
    /// Boxed: a map has room for several, and most sessions have one at a time.
    portals: BTreeMap<String, Box<Portal>>,
    /// After an error, messages are skipped until the next Sync.
    skipping: bool,
    /// Whether a Sync is owed for messages that were answered.
    unsynced: bool,
}

/// What ends a conversation from within.
enum Stop {
    Broken,
    Hangup,
    Terminate,
    Expired,
}

impl From<WireError> for Stop {
    fn from(_: WireError) -> Self {
        Self::Broken
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

    /// Serves until one side has enough. Cancelled, it leaves nothing open.
    pub(crate) async fn run(&mut self, ending: &EndSignal) -> End {
        loop {
            match self.next(ending).await {
                Ok(Some(message)) => match self.answer(message, ending).await {
                    Ok(()) => {}
                    Err(Stop::Hangup) => return End::Dropped,
                    Err(Stop::Expired) => return End::Expired,
                    Err(Stop::Broken | Stop::Terminate) => return End::Left,
                },
                Ok(None) => return End::Expired,
                Err(_) => return End::Left,
            }
        }
    }

    /// The next message; none if the session's time is up.
    async fn next(&mut self, ending: &EndSignal) -> Result<Option<(u8, Bytes)>, WireError> {
        loop {
            let open = self.transactions.began();
            if self.unsynced
                && let Some(message) = self.wire.buffered()?
            {
                // Whoever commits in a pipeline is also told that the pipeline is done.
                return Ok(Some(message));
            }
            if ending.has_reached(EndPhase::Expired) && open.is_none() {
                // What was answered is still delivered: the client saw it happen before the end.
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
                // A transaction begun before the end may finish, but not outlive its own limit.
                if let Some(began) = open {
                    clock.sleep_until(began.saturating_add(limit)).await;
                }
            };
            // What a transaction open_since must not wait for an idle client to be told that it is too old.
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

    async fn answer(&mut self, (tag, body): (u8, Bytes), ending: &EndSignal) -> Result<(), Stop> {
        // The end of the text is where the message ends: a NUL before that is in the text.
        let text = body.strip_suffix(&[0]).filter(|_| tag == b'Q').map_or(Ok(()), check_text);
        let message = match text.and_then(|()| Message::parse(tag, body)) {
            Ok(message) => message,
            // The message was whole, only its text was none.
            Err(error) if error.code == "22021" => return self.invalid_text(tag, error).await,
            Err(error) => {
                self.wire.replies.error_response(Severity::Fatal, &error);
                self.wire.flush().await?;
                return Err(Stop::Terminate);
            }
        };
        self.unsynced = !matches!(message, Message::Query(_) | Message::Sync);
        if self.skipping && !matches!(message, Message::Sync | Message::Terminate) {
            return Ok(());
        }
        let result = match message {
            Message::Query(sql) => return self.query(&sql, ending).await,
            Message::Sync => return self.sync().await,
            Message::Terminate => return Err(Stop::Terminate),
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
                self.wire.replies.close_complete();
                Ok(())
            }
            Message::FunctionCall => Err(SqlError::unsupported("function calls are not supported").into()),
            Message::Password(_) => Err(SqlError::protocol("a password was not asked for").into()),
        };
        self.wire.flush_if_full().await?;
        self.skipping = result.is_err();
        self.report(result).await
    }

    /// Answers a message with bytes in it that are no text.
    async fn invalid_text(&mut self, tag: u8, error: SqlError) -> Result<(), Stop> {
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

    /// Tells the client of an error, which also fails the transaction.
    async fn report(&mut self, result: Result<(), Failure>) -> Result<(), Stop> {
        if let Err(failure) = &result {
            self.transactions.fail(failure).await;
        }
        match result {
            Ok(()) => Ok(()),
            Err(Failure::Hangup) => Err(Stop::Hangup),
            Err(Failure::Error(error)) => {
                self.wire.replies.error_response(Severity::Error, &error);
                Ok(())
            }
        }
    }

    /// The simple protocol: several statements, one transaction for all that are not in one of their own.
    async fn query(&mut self, sql: &str, ending: &EndSignal) -> Result<(), Stop> {
        self.portals.remove("");
        let mut result = Ok(());
        match split(sql) {
            Ok(statements) => {
                for (index, statement) in statements.iter().enumerate() {
                    let over = ending.is_due(self.shared.clock.now());
                    if index > 0 && over && self.transactions.began().is_none() {
                        // The transaction that was open at the end is over: there is no next one.
                        self.wire.flush().await?;
                        return Err(Stop::Expired);
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

    /// Portals end with their transaction.
    fn end_portals(&mut self) {
        if self.transactions.began().is_none() {
            self.portals.clear();
        }
    }

    async fn simple(&mut self, statement: &Statement, extent: Extent, last: bool) -> Result<(), Failure> {
        if statement.kind() == Kind::Empty {
            self.wire.replies.empty_query_response();
            return Ok(());
        }
        // What may take parameters must be asked; the rest says what it gives when it has run.
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
            extent,
            deadline: Moment::MAX,
        };
        let mut rows = Rows::default();
        let outcome = self.run_one(call, &mut rows).await?;
        if last {
            // Before its answer: nobody shall read UPDATE 1 of what was not committed.
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
        // Prepared statements are known here only.
        if call.statement.begins(&["DEALLOCATE"]) && !self.transactions.failed() {
            count(&self.shared.tally.statements);
            return Ok(self.deallocate(call.statement)?);
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
                // The one without a name cannot be named.
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

    /// Sends the first rows, and says how many.
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

    async fn sync(&mut self) -> Result<(), Stop> {
        self.skipping = false;
        let finished = self.transactions.finish().await;
        self.report(finished).await?;
        self.end_portals();
        self.wire.replies.ready_for_query(self.transactions.status());
        Ok(())
    }
}

/// Every statement of a query.
fn split(sql: &str) -> Result<Vec<Statement>, SqlError> {
    if sql.bytes().filter(|byte| *byte == b';').count() > SEMICOLONS {
        return Err(SqlError::new("54000", format!("a query has at most {SEMICOLONS} semicolons")));
    }
    Ok(Statement::split(sql))
}

fn unknown_statement(name: &str) -> SqlError {
    SqlError::new("26000", format!("prepared statement \"{name}\" does not exist"))
}
