//! What a session does for its methods, and for its pool.

use arrow_array::RecordBatch;
use arrow_flight::sql::{CommandStatementUpdate, ProstMessageExt};
use bytes::Bytes;
use forebay::BoxError;
use prost::Message;

use crate::error::{Error, Result};
use crate::fetch::Fetch;
use crate::limits::Limits;
use crate::link::Turn;
use crate::prepared::AsyncPreparedQuery;
use crate::put;
use crate::query_options::{Progress, QueryOptions};
use crate::result::UpdateResult;
use crate::server::statement;
use crate::session::AsyncSession;
use crate::sql::Traits;

impl AsyncSession {
    pub(crate) fn limits(&self, options: QueryOptions) -> Limits {
        Limits::new(&self.link.server.runtime, options.timeout.or(self.default_timeout), options.cancel)
    }

    /// Waits for what still goes on from before.
    pub(crate) async fn ready(&mut self, limits: &Limits) -> Result<Turn> {
        self.link.ready(self.link.tenancy(), limits).await
    }

    /// A statement is about to be sent: if nobody hears how it ends, it may have done all it could. Whether the session was
    /// altered before.
    fn note(&mut self, traits: Traits) -> bool {
        self.link.transaction.note(traits);
        let was_altered = self.is_altered;
        self.is_altered |= traits.alters_session;
        was_altered
    }

    /// The server did not carry it out. A mistyped word is no reason to give up the session.
    fn refused(&mut self, traits: Traits, was_altered: bool, error: Error) -> Error {
        if traits.is_all_or_nothing && error.is_refusal() {
            self.is_altered = was_altered;
        }
        error
    }

    /// Runs a query. A transaction that it ends has not ended before its result has: its reader has to tell.
    pub(crate) async fn fetch(
        &mut self,
        sql: &str,
        traits: Traits,
        limits: Limits,
        progress: Option<&Progress>,
    ) -> Result<Fetch> {
        let turn = self.ready(&limits).await?;
        let was_altered = self.note(traits);
        let command = statement(sql, self.link.transaction.id());
        let fetch = Fetch::start(turn, command, limits, progress).await;
        fetch.map_err(|error| self.refused(traits, was_altered, error))
    }

    pub(crate) async fn run_update(&mut self, sql: &str, limits: &Limits) -> Result<UpdateResult> {
        let turn = self.ready(limits).await?;
        self.run_update_in(turn, sql, limits).await
    }

    pub(crate) async fn run_update_in(
        &mut self,
        turn: Turn,
        sql: &str,
        limits: &Limits,
    ) -> Result<UpdateResult> {
        let traits = Traits::of(sql);
        let was_altered = self.note(traits);
        let transaction_id = self.link.transaction.id();
        let command = CommandStatementUpdate { query: sql.to_owned(), transaction_id };
        let command: Bytes = command.as_any().encode_to_vec().into();
        let updated = put::update(turn, command, None, limits).await;
        let updated = updated.map_err(|error| self.refused(traits, was_altered, error))?;
        self.link.transaction.conclude(traits);
        Ok(updated)
    }

    pub(crate) async fn prepare_within(&mut self, sql: &str, limits: &Limits) -> Result<AsyncPreparedQuery> {
        let turn = self.ready(limits).await?;
        let traits = Traits::of(sql);
        // The transaction is noted whenever it is run.
        let was_altered = self.note(Traits { begins: false, ..traits });
        let prepared = AsyncPreparedQuery::prepare(turn, sql, traits, limits, self.default_timeout);
        prepared.await.map_err(|error| self.refused(traits, was_altered, error))
    }

    pub(crate) async fn update_with_param(
        &mut self,
        sql: &str,
        params: RecordBatch,
        limits: Limits,
    ) -> Result<UpdateResult> {
        self.prepare_within(sql, &limits).await?.write(Some(params), &limits).await
    }

    /// Makes it fit for another borrower, by the server's means.
    pub(crate) async fn clean(&mut self) -> Result<(), BoxError> {
        if !self.link.deserted().await {
            return Err("the server did not stop a statement that was cancelled".into());
        }
        if self.is_altered {
            return Err("its settings or temporary tables would show to the next borrower".into());
        }
        self.link.transaction.abandon();
        if !Box::pin(self.link.undone()).await || self.link.is_doubtful() {
            return Err("the server did not roll back its transaction".into());
        }
        Ok(())
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.link.is_at_rest()
            && !self.link.is_doubtful()
            && !self.is_altered
            && !self.link.transaction.is_open()
    }
}
