//! Statements of sqlx that end at their deadline.
//!
//! A connection of sqlx owns its socket and takes none from us, so nothing can stand between it and the server. What can be ended is
//! the future of a statement: sqlx drops its answer when that comes. So this implements sqlx's own `Executor`, which all
//! queries run on.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay::Instant;
use futures_util::Stream;
use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::postgres::{
    PgConnection, PgQueryResult, PgRow, PgStatement, PgTransactionManager, PgTypeInfo, Postgres,
};
use sqlx::{Either, Error, Execute, Executor, SqlStr};
use sqlx_core::describe::Describe;
use sqlx_core::transaction::TransactionManager;

use super::{SqlxConnection, State};
use crate::driver::given_up::GivenUp;
use crate::driver::timer::Timer;

/// The statements of one connection, and when they end.
#[derive(Debug)]
pub(super) struct Statements {
    timer: Timer,
    /// How long each may take, unless the caller says otherwise.
    default: Option<Duration>,
    each: Option<Duration>,
    /// When all of them end.
    until: Option<Instant>,
    /// One has begun, and has not been answered completely.
    unanswered: bool,
    /// One was given up.
    given_up: bool,
}

impl Statements {
    pub(super) fn new(timer: Timer, default: Option<Duration>) -> Self {
        Self { timer, default, each: default, until: None, unanswered: false, given_up: false }
    }

    pub(super) fn set_each(&mut self, limit: Option<Duration>) {
        (self.each, self.until) = (limit, None);
    }

    /// All statements end at this time; without one, as when the connection was lent.
    pub(super) fn set_until(&mut self, at: Option<Instant>) {
        (self.each, self.until) = (if at.is_some() { None } else { self.default }, at);
    }

    /// Whether the caller has left them as they were.
    pub(super) fn are_as_lent(&self) -> bool {
        self.each == self.default && self.until.is_none() && !self.given_up
    }

    /// The caller that has given one up has returned the connection.
    pub(super) fn restore(&mut self) {
        self.set_each(self.default);
        (self.unanswered, self.given_up) = (false, false);
    }

    pub(super) fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// Whether a statement may be sent now.
    pub(super) fn may_send(&self) -> bool {
        !self.given_up && self.until.is_none_or(|until| self.timer.now() < until)
    }

    pub(super) fn sent(&mut self) {
        self.unanswered = true;
    }

    pub(super) fn answered(&mut self) {
        self.unanswered = false;
    }

    /// Begins a statement. Returns when it ends.
    fn begin(&mut self) -> Option<Instant> {
        self.sent();
        self.until.or_else(|| self.each.map(|each| self.timer.now() + each))
    }

    /// Whether this time has come. If not, the task is woken then.
    fn is_due(&mut self, at: Option<Instant>, context: &mut Context<'_>) -> bool {
        let Some(at) = at else { return false };
        let now = self.timer.now();
        if now < at {
            self.timer.wake_at(at, now, context);
            return false;
        }
        self.given_up = true;
        true
    }
}

impl SqlxConnection {
    /// What the next statement runs on, and its outcome if it is given up.
    fn next(&mut self) -> (&mut PgConnection, &mut Statements, GivenUp) {
        self.state = State::Unknown;
        self.in_hand = true;
        let Self { connection, statements, .. } = self;
        let in_transaction = PgTransactionManager::get_transaction_depth(connection) > 0;
        (connection, statements, if in_transaction { GivenUp::Failed } else { GivenUp::Unknown })
    }
}

/// Runs one statement until its deadline.
async fn bounded<T>(
    statements: &mut Statements,
    then: GivenUp,
    statement: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    if !statements.may_send() {
        return Err(GivenUp::NotSent.into());
    }
    let at = statements.begin();
    let mut statement = std::pin::pin!(statement);
    let outcome = poll_fn(|context| match statement.as_mut().poll(context) {
        Poll::Pending if statements.is_due(at, context) => Poll::Ready(Err(then)),
        polled => polled.map(Ok),
    });
    match outcome.await {
        Ok(outcome) => {
            statements.answered();
            outcome
        }
        Err(then) => Err(then.into()),
    }
}

type Step = Result<Either<PgQueryResult, PgRow>, Error>;

/// The results of one statement, until its deadline.
struct Bounded<'e> {
    /// None at its end.
    results: Option<Pin<Box<dyn Stream<Item = Step> + Send + 'e>>>,
    statements: &'e mut Statements,
    at: Option<Instant>,
    then: GivenUp,
}

impl Stream for Bounded<'_> {
    type Item = Step;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Step>> {
        let this = self.get_mut();
        let Some(results) = &mut this.results else { return Poll::Ready(None) };
        let step = match results.as_mut().poll_next(context) {
            Poll::Pending if this.statements.is_due(this.at, context) => Some(Err(this.then.into())),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(step) => {
                if !matches!(step, Some(Ok(_))) {
                    this.statements.answered();
                }
                step
            }
        };
        if !matches!(step, Some(Ok(_))) {
            this.results = None;
        }
        Poll::Ready(step)
    }
}

/// Each statement ends at the [deadline](crate::Options::deadline) of the connection.
impl<'c> Executor<'c> for &'c mut SqlxConnection {
    type Database = Postgres;

    fn fetch_many<'e, 'q, E>(self, query: E) -> Pin<Box<dyn Stream<Item = Step> + Send + 'e>>
    where
        'c: 'e,
        E: Execute<'q, Postgres>,
        'q: 'e,
        E: 'q,
    {
        let (connection, statements, then) = self.next();
        if !statements.may_send() {
            let refused = futures_util::stream::once(std::future::ready(Err(GivenUp::NotSent.into())));
            return Box::pin(refused);
        }
        let at = statements.begin();
        let results = Some(connection.fetch_many(query));
        Box::pin(Bounded { results, statements, at, then })
    }

    fn fetch_optional<'e, 'q, E>(
        self,
        query: E,
    ) -> Pin<Box<dyn Future<Output = Result<Option<PgRow>, Error>> + Send + 'e>>
    where
        'c: 'e,
        E: Execute<'q, Postgres>,
        'q: 'e,
        E: 'q,
    {
        let (connection, statements, then) = self.next();
        Box::pin(bounded(statements, then, connection.fetch_optional(query)))
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> Pin<Box<dyn Future<Output = Result<PgStatement, Error>> + Send + 'e>>
    where
        'c: 'e,
    {
        let (connection, statements, _) = self.next();
        Box::pin(bounded(statements, GivenUp::Failed, connection.prepare_with(sql, parameters)))
    }

    fn describe<'e>(
        self,
        sql: SqlStr,
    ) -> Pin<Box<dyn Future<Output = Result<Describe<Postgres>, Error>> + Send + 'e>>
    where
        'c: 'e,
    {
        let (connection, statements, _) = self.next();
        Box::pin(bounded(statements, GivenUp::Failed, connection.describe(sql)))
    }
}

/// What a server would have said.
impl DatabaseError for GivenUp {
    fn message(&self) -> &str {
        self.text()
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(GivenUp::code(*self).into())
    }

    fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn StdError + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}
