//! Visibility: searching for workflows by what they are about. It is not on Aurora DSQL.
//!
//! It needs indexes on attributes that users define, and lists in any order. Every operation says so, with the error
//! [`Error::Unsupported`], before it asks the database for anything. Visibility tasks, which feed a visibility store, are
//! in [`history_task`](crate::history_task).

use std::convert::Infallible;

use crate::error::{Error, Result};

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// Always [`Error::Unsupported`].
            pub const fn $name() -> Result<Infallible> {
                Err(Error::Unsupported {
                    operation: concat!("visibility: ", stringify!($name)),
                    instead: "configure Elasticsearch or OpenSearch as the visibility store",
                })
            }
        )*
    };
}

operations! {
    /// Inserts an execution.
    insert;
    /// Inserts or replaces an execution.
    replace;
    /// Deletes an execution.
    delete;
    /// Reads executions that fit a query.
    select;
    /// Reads an execution.
    get;
    /// Counts executions that fit a query.
    count;
    /// Counts executions that fit a query, by groups.
    count_group_by;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_says_what_to_use_instead() {
        for (operation, name) in [
            (insert as fn() -> Result<Infallible>, "insert"),
            (replace, "replace"),
            (delete, "delete"),
            (select, "select"),
            (get, "get"),
            (count, "count"),
            (count_group_by, "count_group_by"),
        ] {
            let Err(error) = operation();
            assert!(matches!(error, Error::Unsupported { .. }));
            assert_eq!(
                error.to_string(),
                format!(
                    "visibility: {name} is not supported on Aurora DSQL: configure Elasticsearch or OpenSearch as the visibility store"
                )
            );
        }
    }
}
