//! What names a task in its queue.

use std::fmt;

use forebay_dsql::Timestamp;

/// The key of a task that has a time at which it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduledKey {
    /// When it is due. The beginning of the year 1, which is Go's zero time, is kept as the beginning of the year 1000, as the plugin does.
    pub visibility_timestamp: Timestamp,
    /// Its number, for tasks of the same time.
    pub task_id: i64,
}

/// The first key of a time: a bound of a range of times.
impl From<Timestamp> for ScheduledKey {
    fn from(visibility_timestamp: Timestamp) -> Self {
        Self { visibility_timestamp, task_id: i64::MIN }
    }
}

/// What names a task in its queue: a number, or a time and a number.
pub trait TaskKey: sealed::Sealed + fmt::Debug + Copy + Ord + Sync + Send {}

impl TaskKey for i64 {}
impl TaskKey for ScheduledKey {}

pub(super) mod sealed {
    use forebay_dsql::Timestamp;
    use tokio_postgres::Row;
    use tokio_postgres::types::ToSql;

    use super::super::zero_time::{loaded, stored};
    use super::ScheduledKey;
    use crate::connection::Value;
    use crate::error::Result;
    use crate::page::PageKey;

    pub trait Sealed: Sized {
        /// Names and types of its columns.
        const COLUMNS: &'static [(&'static str, &'static str)];
        /// What a page token carries.
        type Token: PageKey;
        /// The key as its columns have it.
        fn stored(self) -> Self;
        /// Of a stored key, what stands in its columns.
        fn values(&self) -> Vec<Value<'_>>;
        /// One array for each column.
        fn arrays(keys: impl Iterator<Item = Self> + Clone) -> Vec<Box<dyn ToSql + Sync + Send>>;
        fn read(row: &Row) -> Result<Self>;
        fn token(self) -> Self::Token;
        fn of_token(token: Self::Token) -> Self;
    }

    impl Sealed for i64 {
        const COLUMNS: &'static [(&'static str, &'static str)] = &[("task_id", "bigint")];
        type Token = i64;

        fn stored(self) -> Self {
            self
        }

        fn values(&self) -> Vec<Value<'_>> {
            vec![self]
        }

        fn arrays(keys: impl Iterator<Item = Self> + Clone) -> Vec<Box<dyn ToSql + Sync + Send>> {
            vec![Box::new(keys.collect::<Vec<i64>>())]
        }

        fn read(row: &Row) -> Result<Self> {
            Ok(row.try_get(0)?)
        }

        fn token(self) -> i64 {
            self
        }

        fn of_token(token: i64) -> Self {
            token
        }
    }

    impl Sealed for ScheduledKey {
        const COLUMNS: &'static [(&'static str, &'static str)] =
            &[("visibility_timestamp", "timestamp"), ("task_id", "bigint")];
        type Token = (Timestamp, i64);

        fn stored(self) -> Self {
            Self { visibility_timestamp: stored(self.visibility_timestamp), ..self }
        }

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.visibility_timestamp, &self.task_id]
        }

        fn arrays(keys: impl Iterator<Item = Self> + Clone) -> Vec<Box<dyn ToSql + Sync + Send>> {
            let times: Vec<Timestamp> = keys.clone().map(|key| stored(key.visibility_timestamp)).collect();
            let ids: Vec<i64> = keys.map(|key| key.task_id).collect();
            vec![Box::new(times), Box::new(ids)]
        }

        fn read(row: &Row) -> Result<Self> {
            Ok(Self { visibility_timestamp: loaded(row.try_get(0)?), task_id: row.try_get(1)? })
        }

        fn token(self) -> (Timestamp, i64) {
            (self.visibility_timestamp, self.task_id)
        }

        fn of_token((visibility_timestamp, task_id): (Timestamp, i64)) -> Self {
            Self { visibility_timestamp, task_id }
        }
    }
}
