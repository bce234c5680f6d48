//! What a session does for its methods, and for its pool.

use arrow_array::RecordBatch;
use arrow_flight::sql::{CommandStatementUpdate, ProstMessageExt};
use bytes::Bytes;
use forebay::BoxError;
use prost::Message;

use crate::error::{Error, Phase, Result};
use crate::fetch::Fetch;
use crate::limits::Limits;
use crate::prepared::AsyncPreparedQuery;
use crate::put;
use crate::query_options::{Progress, QueryOptions};
use crate::result::{QueryResult, UpdateResult};
use crate::server::statement;
use crate::session::AsyncSession;
use crate::sql::Traits;

impl AsyncSession {
    pub(crate) fn limits(&self, options: QueryOptions) -> Limits {
        Limits::new(&self.link.server.runtime, options.timeout.or(self.default_timeout), options.cancel)
    }

    /// Waits for what still goes on from before.
    pub(crate) async fn ready(&mut self, limits: &Limits) -> Result<()> {
        if self.link.is_usable() && self.link.is_at_rest() {
            return Ok(());
        }
        if !self.link.is_usable() {
            return Err(lost("its connection is closed"));
        }
        let link = &self.link;
        let in_order = limits.run(Phase::Execute, async { Ok(link.settled().await || link.recover().await) });
        if in_order.await? {
            Ok(())
        } else {
            Err(lost("the server is still at work on a statement that was cancelled"))
        }
    }

    pub(crate) fn note(&mut self, traits: Traits) {
        self.is_altered |= traits.alters_session;
        if traits.begins {
            self.transaction.begun_by_sql();
        }
    }

    /// A statement has succeeded.
    pub(crate) fn conclude(&mut self, traits: Traits) {
        if traits.ends {
            self.transaction.ended_by_sql();
        }
    }

    pub(crate) async fn fetch(
        &mut self,
        sql: &str,
        traits: Traits,
        limits: Limits,
        progress: Option<&Progress>,
    ) -> Result<Fetch> {
        self.ready(&limits).await?;
        self.note(traits);
        let fetch = Fetch::start(&self.link, statement(sql, self.transaction.id()), limits, progress).await?;
        self.conclude(traits);
        Ok(fetch)
    }

    pub(crate) async fn run_update(&mut self, sql: &str, limits: &Limits) -> Result<UpdateResult> {
        self.ready(limits).await?;
        let traits = Traits::of(sql);
        self.note(traits);
        let command = CommandStatementUpdate { query: sql.to_owned(), transaction_id: self.transaction.id() };
        let command: Bytes = command.as_any().encode_to_vec().into();
        let updated = put::update(&self.link, command, None, limits).await?;
        self.conclude(traits);
        Ok(updated)
    }

    pub(super) async fn prepare_within(&mut self, sql: &str, limits: &Limits) -> Result<AsyncPreparedQuery> {
        self.ready(limits).await?;
        self.note(Traits::of(sql));
        AsyncPreparedQuery::prepare(&self.link, sql, self.transaction.id(), limits, self.default_timeout)
            .await
    }

    pub(crate) async fn read_with_param(
        &mut self,
        sql: &str,
        params: RecordBatch,
        limits: Limits,
    ) -> Result<QueryResult> {
        self.prepare_within(sql, &limits).await?.read(Some(params), limits).await
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
        if self.link.is_doubtful() {
            return Err("the server refused to roll back its transaction".into());
        }
        if self.is_altered {
            return Err("its settings or temporary tables would show to the next borrower".into());
        }
        if self.transaction.is_open() {
            self.rollback().await?;
        }
        Ok(())
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.link.is_at_rest() && !self.link.is_doubtful() && !self.is_altered && !self.transaction.is_open()
    }
}

fn lost(message: &str) -> Error {
    Error::SessionLost { message: message.to_owned(), may_have_run: false }
}
