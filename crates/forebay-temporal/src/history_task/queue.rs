//! What names a queue of tasks.

use std::fmt;

use crate::connection::Value;

/// The queues of one shard and one category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CategoryQueue {
    /// The shard.
    pub shard_id: i32,
    /// The category, as the server numbers them.
    pub category_id: i32,
}

/// The queue of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardQueue {
    /// The shard.
    pub shard_id: i32,
}

/// The queue of one shard with tasks of another cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceQueue {
    /// The cluster that the tasks are from.
    pub source_cluster_name: String,
    /// The shard.
    pub shard_id: i32,
}

/// What names a queue of tasks.
pub trait TaskQueue: sealed::Sealed + fmt::Debug + Sync + Send {}

impl TaskQueue for CategoryQueue {}
impl TaskQueue for ShardQueue {}
impl TaskQueue for SourceQueue {}

pub(super) mod sealed {
    use super::{CategoryQueue, ShardQueue, SourceQueue, Value};

    pub trait Sealed {
        /// Names and types of its columns.
        const COLUMNS: &'static [(&'static str, &'static str)];
        fn values(&self) -> Vec<Value<'_>>;
    }

    impl Sealed for CategoryQueue {
        const COLUMNS: &'static [(&'static str, &'static str)] =
            &[("shard_id", "integer"), ("category_id", "integer")];

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.shard_id, &self.category_id]
        }
    }

    impl Sealed for ShardQueue {
        const COLUMNS: &'static [(&'static str, &'static str)] = &[("shard_id", "integer")];

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.shard_id]
        }
    }

    impl Sealed for SourceQueue {
        const COLUMNS: &'static [(&'static str, &'static str)] =
            &[("source_cluster_name", "varchar"), ("shard_id", "integer")];

        fn values(&self) -> Vec<Value<'_>> {
            vec![&self.source_cluster_name, &self.shard_id]
        }
    }
}
