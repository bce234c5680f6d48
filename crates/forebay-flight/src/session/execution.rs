//! How a session runs statements, and how a pool cleans it.

use forebay::BoxError;

use super::AsyncSession;
use crate::connection::{StatementPermit, query_command};
use crate::error::{Error, Result};
use crate::sql::StatementTraits;
use crate::statement::fetch::Fetch;
use crate::statement::limits::Limits;
use crate::statement::update::{run_update, update_command};
use crate::statement::{AsyncPreparedQuery, QueryOptions, UpdateResult};

impl AsyncSession {
    pub(crate) fn limits(&self, options: &QueryOptions) -> Limits {
        let timeout = options.timeout.or(self.default_timeout);
        Limits::new(&self.connection.server.runtime, timeout, options.cancel.clone())
    }

    /// Waits for what still goes on from earlier calls.
    pub(crate) async fn permit(&mut self, limits: &Limits) -> Result<StatementPermit> {
        self.connection.permit(self.connection.checkout_generation(), limits).await
    }

    /// To be called before a statement is sent: if its caller gives up, it may have had all its effects.
    /// Returns whether the session was altered before.
    fn statement_sent(&mut self, traits: StatementTraits) -> bool {
        self.connection.transaction.statement_sent(traits);
        let was_altered = self.is_altered;
        self.is_altered |= traits.alters_session;
        was_altered
    }

    /// A refused statement has not altered the session: a typo is no reason to close it.
    fn statement_failed(&mut self, traits: StatementTraits, was_altered: bool, error: Error) -> Error {
        if traits.is_all_or_nothing && error.is_refusal() {
            self.is_altered = was_altered;
        }
        error
    }

    /// Runs a query. If it ends a transaction, that has ended only once the result is read: the reader must
    /// report it.
    pub(crate) async fn fetch(
        &mut self,
        sql: &str,
        traits: StatementTraits,
        limits: Limits,
        options: &QueryOptions,
    ) -> Result<Fetch> {
        if options.params.is_some() {
            // Boxed, since most statements have no parameters, and every query's future contains this one.
            return Box::pin(async {
                let mut prepared = self.prepare_within(sql, &limits).await?;
                let fetch = prepared.fetch(options, limits).await?;
                Ok(fetch.with_prepared(prepared))
            })
            .await;
        }
        let permit = self.permit(&limits).await?;
        let was_altered = self.statement_sent(traits);
        let command = query_command(sql, self.connection.transaction.id());
        let fetch = Fetch::start(permit, command, limits, options.progress.as_ref()).await;
        fetch.map_err(|error| self.statement_failed(traits, was_altered, error))
    }

    pub(crate) async fn run_update(
        &mut self,
        sql: &str,
        limits: &Limits,
        options: &QueryOptions,
    ) -> Result<UpdateResult> {
        if options.params.is_some() {
            let prepared = Box::pin(self.prepare_within(sql, limits)).await?;
            return Box::pin(prepared.run_update(options, limits)).await;
        }
        let permit = self.permit(limits).await?;
        self.run_update_with(permit, sql, limits).await
    }

    pub(super) async fn run_update_with(
        &mut self,
        permit: StatementPermit,
        sql: &str,
        limits: &Limits,
    ) -> Result<UpdateResult> {
        let traits = StatementTraits::of(sql);
        let was_altered = self.statement_sent(traits);
        let command = update_command(sql, self.connection.transaction.id());
        let updated = run_update(permit, command, &QueryOptions::new(), limits).await;
        let updated = updated.map_err(|error| self.statement_failed(traits, was_altered, error))?;
        self.connection.transaction.statement_succeeded(traits);
        Ok(updated)
    }

    pub(super) async fn prepare_within(&mut self, sql: &str, limits: &Limits) -> Result<AsyncPreparedQuery> {
        let permit = self.permit(limits).await?;
        let traits = StatementTraits::of(sql);
        // A transaction begins only when the prepared statement runs.
        let was_altered = self.statement_sent(StatementTraits { begins: false, ..traits });
        let prepared = AsyncPreparedQuery::prepare(permit, sql, traits, limits, self.default_timeout);
        prepared.await.map_err(|error| self.statement_failed(traits, was_altered, error))
    }

    /// Makes it ready for another borrower.
    pub(crate) async fn clean(&mut self) -> Result<(), BoxError> {
        if !self.connection.all_done().await {
            return Err("the server did not stop a cancelled statement".into());
        }
        if self.is_altered {
            return Err("the next borrower would see its settings or temporary tables".into());
        }
        self.connection.transaction.abandon();
        if !Box::pin(self.connection.roll_back_abandoned()).await || self.connection.is_suspect() {
            return Err("the server did not roll back its transaction".into());
        }
        Ok(())
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.connection.is_idle()
            && !self.connection.is_suspect()
            && !self.is_altered
            && !self.connection.transaction.is_open()
    }
}
