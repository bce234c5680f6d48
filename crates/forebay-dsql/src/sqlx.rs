//! Connections of sqlx.
//!
//! sqlx hides its wire, so a connection that callers had in hand is not known to be clean: it is rolled back and its
//! settings are reset in the background before anybody gets it again; if they cannot be, it is closed. After a transaction that was begun and ended
//! through [`Session`], as `run` does, it is known to be clean, and goes straight back.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use forebay::{BoxError, ConfigError, Connect, Lifeline, OpenError, Problem};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{Connection, Executor};

use crate::client::{self, ConnectorParts};
use crate::error::Error;
use crate::options::Roots;
use crate::session::Session;
use crate::token::Token;

/// Opens connections of sqlx to a cluster, with tokens from a cache.
pub struct Sqlx {
    parts: ConnectorParts,
    options: PgConnectOptions,
}

impl Sqlx {
    async fn dial(&self, token: Token) -> Result<SqlxConnection, Error> {
        let options = self.options.clone().password(token.expose_secret());
        let connection = PgConnection::connect_with(&options).await?;
        Ok(SqlxConnection { connection, touched: false, touched_before: false, commit_was_sent: true })
    }
}

impl client::Client for Sqlx {
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
        let mut connect = PgConnectOptions::new_without_pgpass()
            .host(options.host())
            .port(options.port())
            .username(options.user())
            .database(options.database())
            .application_name(options.application_name())
            .ssl_mode(PgSslMode::VerifyFull);
        if let Roots::Pem(pem) = options.roots() {
            connect = connect.ssl_root_cert_from_pem(pem.to_vec());
        }
        Ok(Self { options: connect, parts })
    }
}

impl Connect for Sqlx {
    type Connection = SqlxConnection;

    async fn prepare(&self) -> Result<(), OpenError> {
        self.parts.prepare().await
    }

    async fn open(&self, _lifeline: Lifeline) -> Result<SqlxConnection, OpenError> {
        self.parts.open(|token| self.dial(token)).await
    }

    fn is_clean(&self, connection: &SqlxConnection) -> bool {
        !connection.touched
    }

    async fn reset(&self, connection: &mut SqlxConnection) -> Result<(), BoxError> {
        // The first of them waits for what is still unanswered.
        connection.connection.execute("ROLLBACK").await?;
        // Where a cluster knows no RESET ALL, as older ones, this fails, and the connection is closed: it may know SET, and
        // nobody shall find what another has set.
        connection.connection.execute("RESET ALL").await?;
        connection.touched = false;
        Ok(())
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
    /// A caller had it in hand, and who knows what it did.
    touched: bool,
    /// Whether it was touched already when its transaction began.
    touched_before: bool,
    /// Of the last COMMIT.
    commit_was_sent: bool,
}

impl SqlxConnection {
    /// What sqlx takes for an executor, through however many guards: `query.execute(tx.pg())`.
    pub fn pg(&mut self) -> &mut PgConnection {
        self
    }

    /// Runs `statement`. Until that is done, and if it fails, the connection counts as touched.
    async fn run(&mut self, statement: &'static str) -> Result<(), Error> {
        self.touched = true;
        self.connection.execute(statement).await?;
        Ok(())
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
        self.touched = true;
        &mut self.connection
    }
}

impl fmt::Debug for SqlxConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlxConnection").field("touched", &self.touched).finish_non_exhaustive()
    }
}

impl Session for SqlxConnection {
    async fn begin(&mut self) -> Result<(), Error> {
        self.touched_before = self.touched;
        self.run("BEGIN").await
    }

    async fn commit(&mut self) -> Result<(), Error> {
        // A server answers COMMIT of a failed transaction with success and rolls back, and sqlx does not tell. In a
        // failed transaction this statement fails; it is what sqlx's silence costs.
        self.commit_was_sent = false;
        if let Err(error) = self.run("SELECT 1").await {
            // As COMMIT would have. If that fails as well, the connection is gone; what counts is why the first did.
            drop(self.rollback().await);
            return Err(if is_failed_transaction(&error) { client::rolled_back() } else { error });
        }
        self.commit_was_sent = true;
        self.run("COMMIT").await?;
        self.touched = self.touched_before;
        Ok(())
    }

    fn commit_was_sent(&self) -> bool {
        self.commit_was_sent
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        self.run("ROLLBACK").await?;
        self.touched = self.touched_before;
        Ok(())
    }
}

/// Whether it says that an earlier statement of the transaction had failed.
fn is_failed_transaction(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<sqlx::Error>());
    let code = source.and_then(|source| source.as_database_error()).and_then(|error| error.code());
    code.as_deref() == Some("25P02")
}
