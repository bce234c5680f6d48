//! The two generations of tables of the matching service.

use crate::task::{self, TaskKey, TaskLevel};
use crate::task_queue;

/// A generation of the tables of task queues and their tasks: [`V1`] or [`V2`].
pub trait TaskVersion: version::Sealed {
    /// What names a task in its queue, and orders them.
    type Key: TaskKey;
}

/// `task_queues` and `tasks`: tasks are numbered.
#[derive(Clone, Copy, Debug)]
pub enum V1 {}

/// `task_queues_v2` and `tasks_v2`: tasks are numbered within passes, so that a server can serve several keys of a queue fairly.
#[derive(Clone, Copy, Debug)]
pub enum V2 {}

impl TaskVersion for V1 {
    type Key = i64;
}

impl TaskVersion for V2 {
    type Key = TaskLevel;
}

mod version {
    use std::sync::LazyLock;

    use super::{V1, V2, task, task_queue};

    pub trait Sealed: 'static {
        fn task_queues() -> &'static task_queue::Sql;
        fn tasks() -> &'static task::Sql;
    }

    impl Sealed for V1 {
        fn task_queues() -> &'static task_queue::Sql {
            static SQL: LazyLock<task_queue::Sql> = LazyLock::new(|| task_queue::Sql::new("task_queues"));
            &SQL
        }

        fn tasks() -> &'static task::Sql {
            static SQL: LazyLock<task::Sql> = LazyLock::new(|| task::Sql::new("tasks", &["task_id"]));
            &SQL
        }
    }

    impl Sealed for V2 {
        fn task_queues() -> &'static task_queue::Sql {
            static SQL: LazyLock<task_queue::Sql> = LazyLock::new(|| task_queue::Sql::new("task_queues_v2"));
            &SQL
        }

        fn tasks() -> &'static task::Sql {
            static SQL: LazyLock<task::Sql> =
                LazyLock::new(|| task::Sql::new("tasks_v2", &["pass", "task_id"]));
            &SQL
        }
    }
}
