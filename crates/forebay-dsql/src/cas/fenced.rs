//! Fenced updates, whichever client runs them.

use std::fmt;

#[cfg(feature = "sqlx")]
use super::client::Bind;
use super::client::Client;
use super::{ConditionFailed, Fence};
use crate::error::{Error, ErrorKind};

impl Fence {
    async fn swap<'a, C: Client>(
        &self,
        mut client: C,
        key: &[&'a C::Value<'a>],
        expected: &'a i64,
        set: &[(&str, &'a C::Value<'a>)],
    ) -> Result<(), Error> {
        self.check_key(key.len())?;
        if set.is_empty() {
            let told =
                format!("an update of {} must set a column at least, such as {}", self.table, self.token);
            return Err(Error::new(ErrorKind::Permanent, told));
        }
        let columns: Vec<&str> = set.iter().map(|(column, _)| *column).collect();
        let mut values: Vec<&'a C::Value<'a>> = set.iter().map(|(_, value)| *value).collect();
        values.extend(key);
        values.push(C::number(expected));
        match client.execute(&self.update_sql(&columns), &values).await? {
            1 => return Ok(()),
            0 => {}
            many => return Err(self.not_one_row(many)),
        }
        // One more round trip, and only for a loser: what it lost against is worth knowing.
        let found = client.numbers_of(&self.token_sql(), key).await?;
        let found = match found[..] {
            [] => "no such row".to_owned(),
            [Some(token)] => token.to_string(),
            [None] => "no token (NULL)".to_owned(),
            _ => return Err(self.not_one_row(found.len())),
        };
        Err(self.failed(key, expected, found).into())
    }

    async fn token<'a, C: Client>(&self, client: &mut C, key: &[&'a C::Value<'a>]) -> Result<i64, Error> {
        self.check_key(key.len())?;
        let found = client.numbers_of(&self.token_sql(), key).await?;
        match found[..] {
            [Some(token)] => Ok(token),
            [None] => Err(self.failed(key, "a token", "no token (NULL)".to_owned()).into()),
            [] => Err(self.failed(key, "a row", "no such row".to_owned()).into()),
            _ => Err(self.not_one_row(found.len())),
        }
    }

    fn failed<V: fmt::Debug + ?Sized>(
        &self,
        key: &[&V],
        expected: impl fmt::Display,
        found: String,
    ) -> ConditionFailed {
        let named: Vec<_> =
            self.key.iter().zip(key).map(|(column, value)| format!("{column} {value:?}")).collect();
        ConditionFailed {
            entity: format!("{} of {}, {}", self.token, self.table, named.join(", ")),
            expected: expected.to_string(),
            found: Some(found),
        }
    }

    /// A key that is none: fencing one row says nothing about the other.
    fn not_one_row(&self, rows: impl fmt::Display) -> Error {
        let Self { table, key, .. } = self;
        let told = format!(
            "{} is no key of {table}: {rows} rows have the same; roll back, and name all columns of the key",
            key.join(", ")
        );
        Error::new(ErrorKind::Permanent, told)
    }

    fn check_key(&self, given: usize) -> Result<(), Error> {
        if given == self.key.len() {
            return Ok(());
        }
        let Self { table, key, .. } = self;
        let told = format!("the key of {table} is {}, but {given} values are given", key.join(", "));
        Err(Error::new(ErrorKind::Permanent, told))
    }
}

#[cfg(feature = "tokio-postgres")]
impl Fence {
    /// Updates the row `key` if its token is `expected`. What changes the owner sets the token too.
    ///
    /// # Errors
    /// [`ConditionFailed`], with the token found, if it is not; never to be retried as it is. If `key` names several rows,
    /// all of them have been updated: roll back.
    ///
    /// # Cancel safety
    /// None: the update may have happened.
    pub async fn update(
        &self,
        client: &tokio_postgres::Client,
        key: &[&(dyn tokio_postgres::types::ToSql + Sync)],
        expected: i64,
        set: &[(&str, &(dyn tokio_postgres::types::ToSql + Sync))],
    ) -> Result<(), Error> {
        self.swap(client, key, &expected, set).await
    }

    /// Reads the token of the row `key` and updates the row if it is still the same then: for a caller who holds none
    /// and must only not overtake another.
    ///
    /// # Errors
    /// [`ConditionFailed`] if it changed in between, or there is no such row.
    ///
    /// # Cancel safety
    /// None: the update may have happened.
    pub async fn auto_update(
        &self,
        client: &tokio_postgres::Client,
        key: &[&(dyn tokio_postgres::types::ToSql + Sync)],
        set: &[(&str, &(dyn tokio_postgres::types::ToSql + Sync))],
    ) -> Result<(), Error> {
        let mut client = client;
        let expected = self.token(&mut client, key).await?;
        self.swap(client, key, &expected, set).await
    }
}

#[cfg(feature = "sqlx")]
impl Fence {
    /// As `update`, on a connection of sqlx.
    ///
    /// # Errors
    /// [`ConditionFailed`], with the token found, if it is not as expected; never to be retried as it is. If `key` names
    /// several rows, all of them have been updated: roll back.
    ///
    /// # Cancel safety
    /// None: the update may have happened.
    pub async fn update_sqlx(
        &self,
        connection: &mut sqlx::PgConnection,
        key: &[&dyn Bind],
        expected: i64,
        set: &[(&str, &dyn Bind)],
    ) -> Result<(), Error> {
        self.swap(connection, key, &expected, set).await
    }

    /// As `auto_update`, on a connection of sqlx.
    ///
    /// # Errors
    /// [`ConditionFailed`] if it changed in between, or there is no such row.
    ///
    /// # Cancel safety
    /// None: the update may have happened.
    pub async fn auto_update_sqlx(
        &self,
        mut connection: &mut sqlx::PgConnection,
        key: &[&dyn Bind],
        set: &[(&str, &dyn Bind)],
    ) -> Result<(), Error> {
        let expected = self.token(&mut connection, key).await?;
        self.swap(connection, key, &expected, set).await
    }
}
