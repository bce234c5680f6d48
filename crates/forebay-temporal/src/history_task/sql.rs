//! The statements for one table of tasks.

use super::{TaskKey, TaskQueue};

/// The statements for one table.
#[derive(Debug)]
pub struct Sql {
    pub(super) insert: String,
    pub(super) select_first: String,
    pub(super) select_next: String,
    pub(super) delete: String,
    pub(super) range_delete: String,
}

impl Sql {
    pub(super) fn new<Q: TaskQueue, K: TaskKey>(table: &str) -> Self {
        let names = |columns: &[(&'static str, &'static str)]| -> Vec<&'static str> {
            columns.iter().map(|(column, _)| *column).collect()
        };
        let (queue, key) = (names(Q::COLUMNS), names(K::COLUMNS));
        let (queues, keys) = (queue.join(", "), key.join(", "));
        let places = |first: usize, count: usize| -> String {
            (first..first + count).map(|at| format!("${at}")).collect::<Vec<_>>().join(", ")
        };
        let typed = Q::COLUMNS.iter().enumerate().map(|(at, (_, of))| format!("${}::{of}", at + 1));
        let arrays = K::COLUMNS.iter().map(|(_, of)| *of).chain(["bytea", "varchar"]);
        let arrays = arrays.enumerate().map(|(at, of)| format!("${}::{of}[]", queue.len() + at + 1));
        let in_queue: Vec<String> =
            queue.iter().enumerate().map(|(at, column)| format!("{column} = ${}", at + 1)).collect();
        let in_queue = in_queue.join(" AND ");
        // The first value after those of the queue.
        let (at, count) = (queue.len() + 1, key.len());
        let limit = format!("${}", at + 2 * count);
        let range = |begin: &str| {
            format!(
                "{in_queue} AND ({keys}) {begin} ({}) AND ({keys}) < ({}) ORDER BY {keys} LIMIT {limit}",
                places(at, count),
                places(at + count, count)
            )
        };
        let select =
            |begin: &str| format!("SELECT {keys}, data, data_encoding FROM {table} WHERE {}", range(begin));
        Self {
            insert: format!(
                "INSERT INTO {table} ({queues}, {keys}, data, data_encoding) SELECT {}, {keys}, data, data_encoding \
                 FROM unnest({}) AS task ({keys}, data, data_encoding)",
                typed.collect::<Vec<_>>().join(", "),
                arrays.collect::<Vec<_>>().join(", ")
            ),
            select_first: select(">="),
            select_next: select(">"),
            delete: format!("DELETE FROM {table} WHERE {in_queue} AND ({keys}) = ({})", places(at, count)),
            range_delete: format!(
                "DELETE FROM {table} WHERE {in_queue} AND ({keys}) IN (SELECT {keys} FROM {table} WHERE {})",
                range(">=")
            ),
        }
    }
}
