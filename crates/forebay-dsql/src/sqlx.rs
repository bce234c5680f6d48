//! Connections of sqlx.
//!
//! sqlx hides its wire, so it is not known whether a connection comes back clean. In the background, before it is lent again, an
//! open transaction is rolled back and its settings are reset; if that fails, it is closed. After a transaction that began and ended through
//! [`Session`], as in `run`, only the settings may have changed, and only they are reset.
//!
//! sqlx can lose track of which answer belongs to which statement: a dropped COPY future leaves an answer behind, which the
//! next statement takes for its own, and so on. So before a COMMIT, after a ROLLBACK and at the end of a reset we send
//! `SELECT '<nonce>'`. A different reply means that the stream is out of sync, and the connection is closed.
//!
//! sqlx caches prepared statements by their text for as long as the connection lives. After a change of the schema or a
//! DEALLOCATE they fail for ever. So when a transaction meets such an error, the cache is cleared, and the statements are
//! prepared again with the next attempt.

use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use forebay::{BoxError, ConfigError, Connect, ConnectionMonitor, Instant, OpenError, Problem};
use sqlx::postgres::{
    PgConnectOptions, PgConnection, PgDatabaseError, PgSeverity, PgSslMode, PgTransactionManager,
};
use sqlx::{Connection, Executor, Row, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;

use crate::driver::given_up::GivenUp;
use crate::driver::timer::Timer;
use crate::driver::{self, ConnectorParts};
use crate::error::{Conflict, Error, ErrorKind, is_failed_transaction, is_unprepared};
use crate::options::RootCertificates;
use crate::token::Token;
use crate::transaction::Session;

mod executor;

use executor::Statements;

/// Opens connections of sqlx to a cluster, with tokens from a cache.
pub struct Sqlx {
    parts: ConnectorParts,
    options: PgConnectOptions,
}

impl Sqlx {
    async fn dial(&self, token: Token) -> Result<SqlxConnection, Error> {
        let options = self.options.clone().password(token.expose_secret());
        let connection = PgConnection::connect_with(&options).await?;
        Ok(SqlxConnection {
            connection,
            statements: Statements::new(
                Timer::new(Arc::clone(&self.parts.runtime)),
                self.parts.options.deadline(),
            ),
            state: State::Clean,
            before: State::Clean,
            in_hand: false,
            broken: false,
            commit_was_sent: true,
            refused: false,
            stale: false,
            words: 0,
        })
    }
}

impl driver::Driver for Sqlx {
    const CHECK_AFTER: Option<Duration> = Some(Duration::from_secs(30));

    fn new(parts: ConnectorParts) -> Result<Self, ConfigError> {
        let options = &parts.options;
        if options.address() != options.host() {
            let allowed =
                "the host itself: sqlx cannot check a certificate for one name at the address of another";
            let problem = Problem {
                setting: "address".into(),
                value: options.address().to_owned(),
                allowed: allowed.into(),
            };
            return Err(ConfigError { problems: vec![problem] });
        }
        let problems: Vec<Problem> = UNASKED.iter().filter_map(|name| read_unasked(name)).collect();
        if !problems.is_empty() {
            return Err(ConfigError { problems });
        }
        let mut connect = PgConnectOptions::new_without_pgpass()
            .host(options.host())
            .port(options.port())
            .username(options.user())
            .database(options.database())
            .application_name(options.application_name())
            .ssl_mode(PgSslMode::VerifyFull);
        // Also if there are none to add: otherwise sqlx adds those that PGSSLROOTCERT names.
        let roots = match options.roots() {
            RootCertificates::Pem(pem) => pem.to_vec(),
            RootCertificates::Public => Vec::new(),
        };
        connect = connect.ssl_root_cert_from_pem(roots);
        Ok(Self { options: connect, parts })
    }

    async fn settle(&self, connection: &mut SqlxConnection) -> Result<(), BoxError> {
        if connection.state != State::Clean {
            if connection.is_in_transaction().await? {
                return Err("it left a transaction open".into());
            }
            connection.keep_step().await?;
            connection.state = State::Clean;
        }
        Ok(())
    }
}

/// Variables that sqlx reads by itself, and that code cannot override.
const UNASKED: [&str; 3] = ["PGOPTIONS", "PGSSLCERT", "PGSSLKEY"];

fn read_unasked(name: &'static str) -> Option<Problem> {
    std::env::var_os(name)?;
    let allowed = "unset: sqlx would take it from the environment, whatever the options say";
    Some(Problem { setting: name.into(), value: "set".to_owned(), allowed: allowed.into() })
}

impl Connect for Sqlx {
    type Connection = SqlxConnection;

    async fn prepare(&self) -> Result<(), OpenError> {
        self.parts.prepare().await
    }

    async fn open(&self, _monitor: ConnectionMonitor) -> Result<SqlxConnection, OpenError> {
        self.parts.open(|token| self.dial(token)).await
    }

    fn is_usable(&self, connection: &SqlxConnection) -> bool {
        !connection.broken
    }

    fn is_clean(&self, connection: &SqlxConnection) -> bool {
        connection.state == State::Clean && connection.statements.are_as_lent()
    }

    fn unanswered_timeout(&self, connection: &SqlxConnection) -> Duration {
        if connection.statements.is_unanswered() { driver::SET_ASIDE } else { driver::SLOW_SPELL }
    }

    async fn reset(&self, connection: &mut SqlxConnection) -> Result<(), BoxError> {
        connection.statements.restore();
        let mut cleaned = connection.make_clean().await;
        // The schema has changed, which every open connection is told once.
        if matches!(&cleaned, Err(error) if matches!(error.kind(), ErrorKind::Conflict(_))) {
            connection.stale = true;
            cleaned = connection.make_clean().await;
        }
        // The pool then checks the other connections.
        connection.broken |= matches!(&cleaned, Err(error) if error.kind() == ErrorKind::Disconnected);
        Ok(cleaned?)
    }

    async fn check(&self, connection: &mut SqlxConnection) -> Result<(), BoxError> {
        Ok(connection.connection.ping().await?)
    }

    async fn close(&self, connection: SqlxConnection) {
        // If the good-bye fails, the socket is closed without.
        drop(connection.connection.close().await);
    }
}

impl fmt::Debug for Sqlx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sqlx").field(&self.parts.options.host()).finish()
    }
}

/// A connection of sqlx. It derefs to its [`PgConnection`].
pub struct SqlxConnection {
    connection: PgConnection,
    statements: Statements,
    state: State,
    /// Its state when its transaction began.
    before: State,
    /// A caller has used it since its transaction began.
    in_hand: bool,
    /// It is useless.
    broken: bool,
    /// Of the last COMMIT.
    commit_was_sent: bool,
    /// The last COMMIT was refused, and no other transaction has begun since.
    refused: bool,
    /// The statements that sqlx has prepared are useless.
    stale: bool,
    /// How many nonces were sent.
    words: u64,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is as good as new.
    Clean,
    /// Nothing is open or unanswered, but settings may have changed.
    Settings,
    /// A caller has used it, and its state is not known.
    Unknown,
}

impl SqlxConnection {
    /// The executor for sqlx, through any number of guards: `query.execute(tx.pg())`. Its statements end at their
    /// [deadline](crate::Options::deadline). Those of the [`PgConnection`] that it derefs to do not: sqlx lets nobody in between.
    pub fn pg(&mut self) -> &mut Self {
        self
    }

    /// How long each statement may take from now on, from its request to the end of its answer; `None` for no limit. Until this connection
    /// goes back to its pool, it replaces [`Options::deadline`](crate::Options::deadline), such as for a long report.
    ///
    /// A statement that takes longer is given up: it fails with SQLSTATE 57014, or with 08007 if it may have been carried out and
    /// committed, as one outside of a transaction. Later statements on this connection fail without being sent. The pool gets the
    /// connection back as soon as the server has answered.
    pub fn set_statement_deadline(&mut self, limit: Option<Duration>) {
        self.statements.set_each(limit);
    }

    /// Fails if a statement was given up, or cannot be answered in time.
    fn may_send(&mut self) -> Result<(), Error> {
        if self.statements.may_send() { Ok(()) } else { Err(GivenUp::NotSent.into()) }
    }

    /// Sends a nonce and compares the reply, which proves that the stream is in sync.
    async fn keep_step(&mut self) -> Result<(), Error> {
        self.words += 1;
        let word = format!("forebay {}", self.words);
        let asked = sqlx::AssertSqlSafe(format!("SELECT '{word}'"));
        let row = sqlx::raw_sql(asked).fetch_optional(&mut self.connection).await?;
        let heard = row.as_ref().and_then(|row| row.try_get_raw(0).ok()?.as_str().ok());
        if heard == Some(word.as_str()) {
            return Ok(());
        }
        self.broken = true;
        Err(OutOfStep.into())
    }

    /// Clears sqlx's cache of prepared statements, if they are useless.
    async fn refresh(&mut self) -> Result<(), Error> {
        if self.stale {
            self.connection.clear_cached_statements().await?;
            self.stale = false;
        }
        Ok(())
    }

    async fn make_clean(&mut self) -> Result<(), Error> {
        let unknown = self.state == State::Unknown;
        if unknown {
            // The first statement waits for what is still unanswered.
            self.roll_back().await?;
        }
        match self.connection.execute("RESET ALL").await {
            Ok(_) => {}
            // An older cluster has no RESET ALL. After a transaction of `run` the connection is kept all the same, or each
            // transaction would cost one. Otherwise it is closed, since a caller may have changed settings.
            Err(error) if !unknown && ErrorKind::of(&error) == ErrorKind::Unsupported => {}
            Err(error) => return Err(error.into()),
        }
        if unknown {
            self.keep_step().await?;
        }
        self.refresh().await?;
        self.state = State::Clean;
        Ok(())
    }

    /// Ends any open transaction.
    async fn roll_back(&mut self) -> Result<(), sqlx::Error> {
        for _ in 1..STEPS {
            match self.roll_back_once().await {
                // The answer to a statement that was given up, and came to nothing. Ours is answered next.
                Err(error) if said(&error) == Some(PgSeverity::Error) && !is_conflict(&error) => {}
                done => return done,
            }
        }
        self.roll_back_once().await
    }

    /// Sends ROLLBACK only in a transaction: outside of one the server answers with a warning, which sqlx logs.
    async fn roll_back_once(&mut self) -> Result<(), sqlx::Error> {
        let is_counted = PgTransactionManager::get_transaction_depth(&self.connection) > 0;
        if !is_counted && !self.is_in_transaction().await? {
            return Ok(());
        }
        let connection = &mut self.connection;
        if PgTransactionManager::get_transaction_depth(connection) == 0 {
            // It has failed.
            return connection.execute("ROLLBACK").await.map(drop);
        } else if is_counted && self.refused {
            // sqlx still counts the transaction whose COMMIT was refused. Only the ROLLBACK of another one ends that.
            connection.execute("BEGIN").await?;
        }
        PgTransactionManager::rollback(connection).await?;
        self.refused = false;
        Ok(())
    }

    /// Whether a transaction is open, failed or not. One that has not failed is counted by sqlx from then on.
    async fn is_in_transaction(&mut self) -> Result<bool, sqlx::Error> {
        let connection = &mut self.connection;
        // sqlx counts only what went through its own transactions.
        if PgTransactionManager::get_transaction_depth(connection) > 0 {
            return Ok(true);
        }
        // sqlx hides what the server says of its transaction. But its own `begin` fails if there is none after the statement
        // that it is given.
        match PgTransactionManager::begin(connection, Some("SELECT 1".into_sql_str())).await {
            Err(sqlx::Error::BeginFailed) => Ok(false),
            Err(error) if is_failed_transaction(&error) => Ok(true),
            opened => opened.map(|()| true),
        }
    }

    /// The transaction has ended, and it is known how.
    fn ended(&mut self) {
        self.state = match self.before {
            State::Unknown => State::Unknown,
            _ if self.in_hand => State::Settings,
            before => before,
        };
    }
}

impl Deref for SqlxConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for SqlxConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.state = State::Unknown;
        self.in_hand = true;
        &mut self.connection
    }
}

impl fmt::Debug for SqlxConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlxConnection").field(&self.state).finish()
    }
}

impl Session for SqlxConnection {
    async fn begin(&mut self) -> Result<(), Error> {
        self.may_send()?;
        self.statements.sent();
        self.before = std::mem::replace(&mut self.state, State::Unknown);
        self.in_hand = false;
        self.refresh().await?;
        // Through sqlx's own book-keeping: a transaction that a body begins inside becomes a SAVEPOINT, which a cluster
        // refuses, and not a BEGIN whose COMMIT ends this one.
        match PgTransactionManager::get_transaction_depth(&self.connection) {
            0 => PgTransactionManager::begin(&mut self.connection, None).await?,
            // Its COMMIT was refused, and sqlx still counts a transaction that is over.
            _ => {
                self.connection.execute("BEGIN").await?;
                self.refused = false;
            }
        }
        self.statements.answered();
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), Error> {
        self.commit_was_sent = false;
        self.may_send()?;
        self.state = State::Unknown;
        self.statements.sent();
        if PgTransactionManager::get_transaction_depth(&self.connection) != 1 {
            return Err(driver::ended_by_body());
        }
        // A server answers COMMIT of a failed transaction with success and rolls back, and sqlx hides that. In a failed
        // transaction this statement fails.
        if let Err(error) = self.keep_step().await {
            if !is_failed_transaction(&error) {
                return Err(error);
            }
            // As COMMIT would have. If that fails as well, the connection is gone; what counts is why the first did.
            drop(self.rollback().await);
            return Err(driver::rolled_back(None));
        }
        self.commit_was_sent = true;
        match PgTransactionManager::commit(&mut self.connection).await {
            Ok(()) => {
                self.ended();
                self.statements.answered();
                Ok(())
            }
            // The server refused, and the session goes on.
            Err(error) if said(&error) == Some(PgSeverity::Error) => {
                self.refused = true;
                self.statements.answered();
                let error = Error::from(error);
                self.stale |= error.kind() == SCHEMA;
                Err(error)
            }
            Err(error) => {
                self.broken = true;
                Err(Error::new(ErrorKind::CommitUnknown, error))
            }
        }
    }

    fn commit_was_sent(&self) -> bool {
        self.commit_was_sent
    }

    fn classify(&mut self, error: &(dyn StdError + 'static)) -> ErrorKind {
        // The names of statements are sqlx's own: it is the cache that is wrong, and not the body.
        let kind = if is_unprepared(error) { SCHEMA } else { ErrorKind::of(error) };
        self.stale |= kind == SCHEMA;
        kind
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        self.state = State::Unknown;
        if self.broken {
            return Err(OutOfStep.into());
        }
        self.may_send()?;
        self.statements.sent();
        self.roll_back().await?;
        // Only now it is known that the answer was this statement's.
        self.keep_step().await?;
        self.ended();
        self.statements.answered();
        Ok(())
    }

    fn set_deadline(&mut self, at: Option<Instant>) {
        self.statements.set_until(at);
    }
}

/// How many answers to statements that were given up a rollback gets past.
const STEPS: usize = 4;

const SCHEMA: ErrorKind = ErrorKind::Conflict(Conflict::Schema);

fn is_conflict(error: &sqlx::Error) -> bool {
    matches!(ErrorKind::of(error), ErrorKind::Conflict(_))
}

/// How bad it is, if the server said it.
fn said(error: &sqlx::Error) -> Option<PgSeverity> {
    error.as_database_error()?.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity)
}

/// The stream is out of sync.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the answers of the connection are those of other statements, as after a COPY that was given up: it is closed"
)]
struct OutOfStep;

impl From<OutOfStep> for Error {
    fn from(out: OutOfStep) -> Self {
        // Nothing was committed, and another connection is in sync.
        Self::new(ErrorKind::Disconnected, out)
    }
}
