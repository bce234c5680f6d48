//! Statements that a pool runs for callers without a session of their own.

use arrow_array::RecordBatch;
use forebay::BoxError;
use futures_util::Stream;
use tracing::Instrument;

use super::AsyncFlightSQLPool;
use super::retries::Retries;
use crate::error::{Error, Result};
use crate::sql::StatementTraits;
use crate::statement::{Ingest, QueryOptions, QueryResult, QueryStream, UpdateResult};

impl AsyncFlightSQLPool {
    /// Runs a query on a connection of the pool, and reads its whole result.
    ///
    /// A read-only statement runs a second time, on another connection, if the connection of the first fails.
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement on the server, in the background, and loses no capacity.
    pub async fn query(&self, sql: &str) -> Result<QueryResult> {
        self.query_with_options(sql, QueryOptions::new()).await
    }

    /// Runs a query with a timeout, parameters or other options.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_options(&self, sql: &str, options: QueryOptions) -> Result<QueryResult> {
        let (limits, traits) = (self.limits(&options), StatementTraits::of(sql));
        let mut retries = self.retries(traits, &options);
        loop {
            let mut connection = self.borrow(&limits).await?;
            let query = async {
                let fetch = connection.fetch(sql, traits, limits.clone(), &options).await;
                fetch.map_err(|error| (error, false))?.collect().await
            };
            let (error, is_begun) = match query.instrument(self.span("query")).await {
                Ok(result) => return Ok(result),
                Err(failed) => failed,
            };
            drop(connection);
            retries.allow(error.without_session(), is_begun)?;
        }
    }

    /// Runs a statement that changes something and returns rows, such as `INSERT ... RETURNING`. It never
    /// runs twice.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query). It may have been executed.
    pub async fn execute(&self, sql: &str) -> Result<QueryResult> {
        self.query_with_options(sql, QueryOptions::new().with_retry(false)).await
    }

    /// Runs a query, and returns its result as the server sends it. The stream holds its connection until its
    /// end.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_stream(&self, sql: &str) -> Result<QueryStream<'static>> {
        self.query_stream_with_options(sql, QueryOptions::new()).await
    }

    /// As [`query_stream`](Self::query_stream), with a timeout, parameters or other options.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_stream_with_options(
        &self,
        sql: &str,
        options: QueryOptions,
    ) -> Result<QueryStream<'static>> {
        let (limits, traits) = (self.limits(&options), StatementTraits::of(sql));
        let mut retries = self.retries(traits, &options);
        loop {
            let mut connection = self.borrow(&limits).await?.into_owned();
            let started = connection.fetch(sql, traits, limits.clone(), &options);
            match started.instrument(self.span("query")).await {
                Ok(fetch) => return Ok(QueryStream::new(fetch, Some(connection))),
                Err(error) => {
                    drop(connection);
                    retries.allow(error.without_session(), false)?;
                }
            }
        }
    }

    /// Runs a statement that changes something. It never runs twice.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query). It may have been executed.
    pub async fn update(&self, sql: &str) -> Result<UpdateResult> {
        self.update_with_options(sql, QueryOptions::new()).await
    }

    /// As [`update`](Self::update), with a timeout, parameters or other options.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_options(&self, sql: &str, options: QueryOptions) -> Result<UpdateResult> {
        let limits = self.limits(&options);
        let mut retries = Retries::new(false, self.config().max_size);
        loop {
            let mut connection = self.borrow(&limits).await?;
            match connection.run_update(sql, &limits, &options).instrument(self.span("update")).await {
                Ok(updated) => return Ok(updated),
                Err(error) => {
                    drop(connection);
                    retries.allow(error.without_session(), true)?;
                }
            }
        }
    }

    /// Runs a query with parameters: the columns of `params`, in order.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_param(&self, sql: &str, params: RecordBatch) -> Result<QueryResult> {
        self.query_with_options(sql, QueryOptions::new().with_params(params)).await
    }

    /// Runs a statement once for each row of `batch`, with its columns as parameters.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_record_batch(&self, sql: &str, batch: RecordBatch) -> Result<UpdateResult> {
        self.update_with_options(sql, QueryOptions::new().with_params(batch)).await
    }

    /// Loads batches into a table, as fast as the server takes them. All batches must have the schema of the
    /// first.
    ///
    /// # Errors
    /// See [`Error`](crate::Error). [`Error::Input`] if the batches themselves end in an error. What was sent
    /// before may be stored.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn ingest<S, E>(&self, ingest: Ingest, batches: S) -> Result<UpdateResult>
    where
        S: Stream<Item = Result<RecordBatch, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let limits = self.limits(ingest.query_options());
        let mut connection = self.borrow(&limits).await?;
        let loaded = connection.load(ingest, batches, &limits).instrument(self.span("ingest")).await;
        loaded.map_err(Error::without_session)
    }

    fn retries(&self, traits: StatementTraits, options: &QueryOptions) -> Retries {
        let retry = options.retry.unwrap_or(self.config().retry_on_failure);
        Retries::new(retry && traits.is_read_only, self.config().max_size)
    }
}
