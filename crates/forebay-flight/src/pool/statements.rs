//! What a pool does for callers who need no session of their own.

use arrow_array::RecordBatch;
use forebay::BoxError;
use futures_util::Stream;
use tracing::Instrument;

use crate::error::{Error, Result};
use crate::ingest::Ingest;
use crate::limits::Limits;
use crate::patience::Patience;
use crate::pool::AsyncFlightSQLPool;
use crate::query_options::{Progress, QueryOptions};
use crate::result::{QueryResult, UpdateResult};
use crate::session::AsyncSession;
use crate::sql::Traits;
use crate::stream::QueryStream;

impl AsyncFlightSQLPool {
    /// Runs a query on a connection of the pool, and reads its whole result.
    ///
    /// A statement that is known to read only is run once more, on another connection, if the first fails on the way.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement on the server, in the background, and loses no capacity.
    pub async fn query(&self, sql: &str) -> Result<QueryResult> {
        self.query_with_options(sql, QueryOptions::new()).await
    }

    /// As [`query`](Self::query), with options.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_options(&self, sql: &str, options: QueryOptions) -> Result<QueryResult> {
        let (limits, traits) = (self.limits(&options), Traits::of(sql));
        let mut patience = self.patience(traits, &options);
        loop {
            let mut connection = self.borrow(&limits).await?;
            let outcome = read(&mut connection, sql, traits, limits.clone(), options.progress.as_ref());
            let (error, is_begun) = match outcome.instrument(self.span("query")).await {
                Ok(result) => return Ok(result),
                Err(failed) => failed,
            };
            drop(connection);
            patience.bear(error.stateless(), is_begun)?;
        }
    }

    /// Runs a statement that changes something and gives rows, as `INSERT ... RETURNING` does. It is never run twice.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query); it may have been carried out.
    pub async fn execute(&self, sql: &str) -> Result<QueryResult> {
        self.query_with_options(sql, QueryOptions::new().with_retry(false)).await
    }

    /// Runs a query, and gives its result as the server sends it. The stream holds its connection until its end.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_stream(&self, sql: &str) -> Result<QueryStream<'static>> {
        self.query_stream_with_options(sql, QueryOptions::new()).await
    }

    /// As [`query_stream`](Self::query_stream), with options.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_stream_with_options(
        &self,
        sql: &str,
        options: QueryOptions,
    ) -> Result<QueryStream<'static>> {
        let (limits, traits) = (self.limits(&options), Traits::of(sql));
        let mut patience = self.patience(traits, &options);
        loop {
            let mut connection = self.borrow(&limits).await?.into_owned();
            let started = connection.fetch(sql, traits, limits.clone(), options.progress.as_ref());
            match started.instrument(self.span("query")).await {
                Ok(fetch) => return Ok(QueryStream::of_pool(fetch, connection)),
                Err(error) => {
                    drop(connection);
                    patience.bear(error.stateless(), false)?;
                }
            }
        }
    }

    /// Runs a statement that changes something. It is never run twice.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query); it may have been carried out.
    pub async fn update(&self, sql: &str) -> Result<UpdateResult> {
        self.update_with_options(sql, QueryOptions::new()).await
    }

    /// As [`update`](Self::update), with options.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_options(&self, sql: &str, options: QueryOptions) -> Result<UpdateResult> {
        let limits = self.limits(&options);
        let mut patience = Patience::new(false, self.config().max_size);
        loop {
            let mut connection = self.borrow(&limits).await?;
            match connection.run_update(sql, &limits).instrument(self.span("update")).await {
                Ok(updated) => return Ok(updated),
                Err(error) => {
                    drop(connection);
                    patience.bear(error.stateless(), true)?;
                }
            }
        }
    }

    /// Runs a query with parameters, one row of them for each time it is to be run. One that is known to read only may be run once more,
    /// as with [`query`](Self::query).
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_with_param(&self, sql: &str, params: RecordBatch) -> Result<QueryResult> {
        let options = QueryOptions::new();
        let limits = self.limits(&options);
        let mut patience = self.patience(Traits::of(sql), &options);
        loop {
            let mut connection = self.borrow(&limits).await?;
            let outcome = read_with_param(&mut connection, sql, params.clone(), limits.clone());
            let (error, is_begun) = match outcome.instrument(self.span("query")).await {
                Ok(result) => return Ok(result),
                Err(failed) => failed,
            };
            drop(connection);
            patience.bear(error.stateless(), is_begun)?;
        }
    }

    /// Runs a statement once for each row of `batch`, with its columns as parameters.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn update_with_record_batch(&self, sql: &str, batch: RecordBatch) -> Result<UpdateResult> {
        let limits = self.limits(&QueryOptions::new());
        let mut patience = Patience::new(false, self.config().max_size);
        loop {
            let mut connection = self.borrow(&limits).await?;
            let updated = connection.update_with_param(sql, batch.clone(), limits.clone());
            match updated.instrument(self.span("update")).await {
                Ok(updated) => return Ok(updated),
                Err(error) => {
                    drop(connection);
                    patience.bear(error.stateless(), true)?;
                }
            }
        }
    }

    /// Loads batches into a table, as fast as the server takes them. All batches must have the first one's schema.
    ///
    /// # Errors
    /// See [`Error`](crate::Error); [`Error::Input`] if the batches themselves end in an error. What was sent before may have
    /// been stored.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    pub async fn ingest<S, E>(&self, ingest: Ingest, batches: S) -> Result<UpdateResult>
    where
        S: Stream<Item = Result<RecordBatch, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let limits = self.limits(&ingest.query_options());
        let mut connection = self.borrow(&limits).await?;
        let loaded = connection.load(ingest, batches, &limits).instrument(self.span("ingest")).await;
        loaded.map_err(Error::stateless)
    }

    fn patience(&self, traits: Traits, options: &QueryOptions) -> Patience {
        let retry = options.retry.unwrap_or(self.config().retry_on_failure);
        Patience::new(retry && traits.is_read_only, self.config().max_size)
    }
}

/// Runs a query to its end. An error comes with whether a batch had been read before it.
async fn read(
    session: &mut AsyncSession,
    sql: &str,
    traits: Traits,
    limits: Limits,
    progress: Option<&Progress>,
) -> Result<QueryResult, (Error, bool)> {
    let fetch = session.fetch(sql, traits, limits, progress).await.map_err(|error| (error, false))?;
    fetch.collect().await
}

/// The same, with parameters.
async fn read_with_param(
    session: &mut AsyncSession,
    sql: &str,
    params: RecordBatch,
    limits: Limits,
) -> Result<QueryResult, (Error, bool)> {
    let prepared = session.prepare_within(sql, &limits).await;
    let mut prepared = prepared.map_err(|error| (error, false))?;
    let fetch = prepared.fetch_with_param(params, limits).await.map_err(|error| (error, false))?;
    fetch.collect().await
}
