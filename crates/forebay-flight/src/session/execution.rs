//! How a session runs statements, and how a pool cleans it.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use forebay::{BoxError, rt};

use super::{Alteration, AsyncSession};
use crate::connection::{StatementPermit, query_command};
use crate::error::{Code, Error, Result};
use crate::sql::StatementTraits;
use crate::statement::fetch::Fetch;
use crate::statement::limits::Limits;
use crate::statement::update::{run_update, update_command};
use crate::statement::{AsyncPreparedQuery, QueryOptions, QueryResult, UpdateResult};

/// How long one statement of a reset may take, and all of them at the end of a session.
const RESET_TIMEOUT: Duration = Duration::from_secs(5);

impl AsyncSession {
    pub(crate) fn limits(&self, options: &QueryOptions) -> Limits {
        let timeout = options.timeout.or(self.default_timeout);
        Limits::new(&self.connection.server.runtime, timeout, options.cancel.clone())
    }

    /// Waits for what still goes on from earlier calls.
    pub(crate) async fn permit(&mut self, limits: &Limits) -> Result<StatementPermit> {
        self.connection.permit(None, limits).await
    }

    /// To be called before a statement is sent: if its caller gives up, it may have had all its effects.
    /// Returns how the session was altered before, if the statement may alter it.
    fn statement_sent(&mut self, sql: &str, traits: StatementTraits) -> Option<Alteration> {
        self.connection.transaction.statement_sent(traits);
        let reset = &self.connection.server.reset;
        if !(traits.alters_session || reset.after_ddl && traits.is_ddl) {
            return None;
        }
        let before = self.connection.alteration();
        self.connection.alter(Alteration::of(sql, traits, reset));
        Some(before)
    }

    /// A refused statement has not altered the session: a typo is no reason to close it.
    fn statement_failed(
        &mut self,
        traits: StatementTraits,
        before: Option<Alteration>,
        error: Error,
    ) -> Error {
        // Where settings are restored by their names, a server sets one setting or refuses to.
        let is_atomic = traits.is_all_or_nothing
            || traits.sets_one_setting && self.connection.server.reset.setting.is_some();
        if let Some(before) = before
            && is_atomic
            && error.is_refusal()
        {
            self.connection.set_alteration(before);
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
        if traits.returns_nothing
            && options.params.is_none()
            && let Some(done) = self.fetch_nothing(sql, traits, &limits).await?
        {
            return Ok(done);
        }
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
        let before = self.statement_sent(sql, traits);
        let command = query_command(sql, self.connection.transaction.id());
        let fetch = Fetch::start(permit, command, limits, options.progress.as_ref()).await;
        fetch.map_err(|error| self.statement_failed(traits, before, error))
    }

    /// Runs a statement that returns no rows as an update: some servers run a query twice. None if the server supports no
    /// updates, and has not run it.
    async fn fetch_nothing(
        &mut self,
        sql: &str,
        traits: StatementTraits,
        limits: &Limits,
    ) -> Result<Option<Fetch>> {
        let server = Arc::clone(&self.connection.server);
        if !server.statement_update.may_work() {
            return Ok(None);
        }
        // Boxed, since most queries return rows, and every query's future contains this one.
        match Box::pin(self.run_plain_update(sql, traits, limits)).await {
            Ok(_) => Ok(Some(Fetch::without_rows(&self.connection, limits.clone()))),
            Err(Error::Server { code: Code::Unimplemented, status: Some(status), .. }) => {
                server.statement_update.record_method_refusal(&status);
                Ok(None)
            }
            Err(error) => Err(error),
        }
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
        self.run_plain_update(sql, StatementTraits::of(sql), limits).await
    }

    /// Runs an update without parameters.
    async fn run_plain_update(
        &mut self,
        sql: &str,
        traits: StatementTraits,
        limits: &Limits,
    ) -> Result<UpdateResult> {
        // A transaction that has failed must be ended, and what is left of it must not be committed.
        if traits.commits && self.connection.transaction.check().is_err() {
            return Box::pin(self.commit()).await.map(|()| UpdateResult::new(0));
        }
        let permit = match traits.ends {
            true => self.connection.permit_to_end(None, limits).await?,
            false => self.permit(limits).await?,
        };
        let updated = self.run_update_with(permit, sql, traits, limits).await;
        if traits.ends && updated.is_err() {
            // There may be none any more. The next call waits until that is certain.
            self.connection.abandon_transaction();
        }
        updated
    }

    pub(super) async fn run_update_with(
        &mut self,
        permit: StatementPermit,
        sql: &str,
        traits: StatementTraits,
        limits: &Limits,
    ) -> Result<UpdateResult> {
        let before = self.statement_sent(sql, traits);
        let command = update_command(sql, self.connection.transaction.id());
        let updated = run_update(permit, command, &QueryOptions::new(), limits).await;
        let updated = updated.map_err(|error| self.statement_failed(traits, before, error))?;
        self.connection.transaction.statement_succeeded(traits);
        Ok(updated)
    }

    pub(super) async fn prepare_within(&mut self, sql: &str, limits: &Limits) -> Result<AsyncPreparedQuery> {
        let traits = StatementTraits::of(sql);
        if traits.writes_after_with && self.connection.server.options.plans_by_running {
            return Err(Error::config(
                "the server would run this WITH statement, which writes, to prepare it: write the values into its text \
                 instead of parameters, and run it with update",
            ));
        }
        let permit = self.permit(limits).await?;
        // A transaction begins only when the prepared statement runs.
        let before = self.statement_sent(sql, StatementTraits { begins: false, ..traits });
        if self.connection.server.reset.after_ddl && !traits.is_read_only {
            // The server may change the current schema to find the table.
            self.connection.alter(Alteration::schema());
        }
        let prepared = AsyncPreparedQuery::prepare(permit, sql, traits, limits, self.default_timeout);
        prepared.await.map_err(|error| {
            self.connection.fail_transaction(&error);
            self.statement_failed(traits, before, error)
        })
    }

    /// Makes it ready for another borrower.
    pub(crate) async fn clean(&mut self) -> Result<(), BoxError> {
        if !self.connection.all_done().await {
            return Err("the server did not stop a cancelled statement".into());
        }
        let alteration = self.connection.alteration();
        if !alteration.is_none() && !alteration.can_be_reset(&self.connection.server.reset) {
            return Err("the next borrower would see its settings or temporary tables".into());
        }
        self.connection.transaction.abandon();
        if !Box::pin(self.connection.roll_back_abandoned()).await || self.connection.is_suspect() {
            return Err("the server did not roll back its transaction".into());
        }
        if !alteration.is_none() {
            Box::pin(self.reset(&alteration)).await?;
        }
        Ok(())
    }

    /// Runs the statements that restore the session. Those that return rows return further statements.
    async fn reset(&mut self, alteration: &Alteration) -> Result<()> {
        let options = QueryOptions::new().with_timeout(RESET_TIMEOUT);
        // However long it was idle: if the server has replaced the session, there is nothing to restore.
        self.connection.record_activity(self.connection.moment());
        for sql in alteration.reset_sql(&self.connection.server.reset) {
            let limits = self.limits(&options);
            let fetch = self.fetch(&sql, StatementTraits::of(&sql), limits, &options).await?;
            let result = fetch.collect().await.map_err(|(error, _)| error)?;
            for statement in first_column(&result) {
                let limits = self.limits(&options);
                self.run_update(&statement, &limits, &options).await?;
            }
        }
        self.connection.set_alteration(Alteration::default());
        Ok(())
    }

    /// Restores a session that the server keeps after its end, as far as that is known. The next client with its address and
    /// port may get it.
    pub(super) async fn reset_before_close(&mut self) {
        let (connection, alteration) = (&self.connection, self.connection.alteration());
        let is_possible = connection.is_usable() && connection.is_idle() && !connection.transaction.is_open();
        if !alteration.is_none() && is_possible && alteration.can_be_reset(&connection.server.reset) {
            let runtime = Arc::clone(&connection.server.runtime);
            // The session ends: an error of the server changes nothing.
            let _ = rt::within(&*runtime, RESET_TIMEOUT, Box::pin(self.reset(&alteration))).await;
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.connection.is_idle()
            && !self.connection.is_suspect()
            && !self.connection.is_altered()
            && !self.connection.transaction.is_open()
    }
}

/// The texts in the first column of a result.
fn first_column(result: &QueryResult) -> Vec<String> {
    let texts = |batch: &arrow_array::RecordBatch| {
        let column = batch.columns().first()?;
        let texts: Vec<String> = match column.data_type() {
            DataType::Utf8 => column.as_string::<i32>().iter().flatten().map(str::to_owned).collect(),
            DataType::LargeUtf8 => column.as_string::<i64>().iter().flatten().map(str::to_owned).collect(),
            DataType::Utf8View => column.as_string_view().iter().flatten().map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        Some(texts)
    };
    result.batches().iter().filter_map(texts).flatten().collect()
}
