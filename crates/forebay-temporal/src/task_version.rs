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
    use super::{V1, V2, task, task_queue};

    pub trait Sealed: 'static {
        const TASK_QUEUES: task_queue::Sql;
        const TASKS: task::Sql;
    }

    impl Sealed for V1 {
        const TASK_QUEUES: task_queue::Sql = task_queue::V1_SQL;
        const TASKS: task::Sql = task::V1_SQL;
    }

    impl Sealed for V2 {
        const TASK_QUEUES: task_queue::Sql = task_queue::V2_SQL;
        const TASKS: task::Sql = task::V2_SQL;
    }
}
