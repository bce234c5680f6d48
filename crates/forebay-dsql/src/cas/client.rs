//! The little that a compare-and-swap asks of a client.

use std::fmt;
use std::future::Future;

use crate::error::Error;

pub(super) trait Client: Send {
    /// A parameter of a statement.
    type Value<'a>: fmt::Debug + Sync + ?Sized + 'a;

    fn number<'a>(number: &'a i64) -> &'a Self::Value<'a>;

    /// Runs a statement; how many rows it changed.
    fn execute<'a>(
        &mut self,
        sql: &str,
        values: &[&'a Self::Value<'a>],
    ) -> impl Future<Output = Result<u64, Error>> + Send;

    /// The number in each row, if it has one.
    fn numbers_of<'a>(
        &mut self,
        sql: &str,
        values: &[&'a Self::Value<'a>],
    ) -> impl Future<Output = Result<Vec<Option<i64>>, Error>> + Send;
}

#[cfg(feature = "tokio-postgres")]
impl Client for &tokio_postgres::Client {
    type Value<'a> = dyn tokio_postgres::types::ToSql + Sync + 'a;

    fn number<'a>(number: &'a i64) -> &'a Self::Value<'a> {
        number
    }

    async fn execute<'a>(&mut self, sql: &str, values: &[&'a Self::Value<'a>]) -> Result<u64, Error> {
        Ok(tokio_postgres::Client::execute(self, sql, values).await?)
    }

    async fn numbers_of<'a>(
        &mut self,
        sql: &str,
        values: &[&'a Self::Value<'a>],
    ) -> Result<Vec<Option<i64>>, Error> {
        let rows = self.query(sql, values).await?;
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(Error::of)
    }
}

/// A value that sqlx can bind. Whatever it can encode is one.
#[cfg(feature = "sqlx")]
pub trait Bind: fmt::Debug + Send + Sync {
    /// Adds it to the parameters of a statement.
    ///
    /// # Errors
    /// If it cannot be encoded.
    fn bind(&self, arguments: &mut sqlx::postgres::PgArguments) -> Result<(), sqlx::error::BoxDynError>;
}

#[cfg(feature = "sqlx")]
impl<T> Bind for T
where
    T: fmt::Debug + Send + Sync + for<'q> sqlx::Encode<'q, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    fn bind(&self, arguments: &mut sqlx::postgres::PgArguments) -> Result<(), sqlx::error::BoxDynError> {
        sqlx::Arguments::add(arguments, self)
    }
}

#[cfg(feature = "sqlx")]
fn bound<'a>(values: &[&'a (dyn Bind + 'a)]) -> Result<sqlx::postgres::PgArguments, Error> {
    let mut arguments = sqlx::postgres::PgArguments::default();
    for value in values {
        value.bind(&mut arguments).map_err(Error::of)?;
    }
    Ok(arguments)
}

#[cfg(feature = "sqlx")]
impl Client for &mut sqlx::PgConnection {
    type Value<'a> = dyn Bind + 'a;

    fn number<'a>(number: &'a i64) -> &'a Self::Value<'a> {
        number
    }

    async fn execute<'a>(&mut self, sql: &str, values: &[&'a Self::Value<'a>]) -> Result<u64, Error> {
        let query = sqlx::query_with(sqlx::AssertSqlSafe(sql.to_owned()), bound(values)?);
        Ok(query.execute(&mut **self).await?.rows_affected())
    }

    async fn numbers_of<'a>(
        &mut self,
        sql: &str,
        values: &[&'a Self::Value<'a>],
    ) -> Result<Vec<Option<i64>>, Error> {
        let query = sqlx::query_scalar_with(sqlx::AssertSqlSafe(sql.to_owned()), bound(values)?);
        Ok(query.fetch_all(&mut **self).await?)
    }
}
