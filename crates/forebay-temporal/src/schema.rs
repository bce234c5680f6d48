//! The schema, as files of SQL that [`forebay_schema`] applies.
//!
//! ```no_run
//! # async fn start(dsql: forebay_dsql::Dsql) -> Result<(), forebay_schema::Error> {
//! use forebay_schema::Migrator;
//! use forebay_temporal::schema;
//!
//! // When a server starts: applies what is missing, and nothing if nothing is.
//! Migrator::new(dsql, schema::migrations()).hook(schema::hook("temporal")).setup().await?;
//! # Ok(())
//! # }
//! ```

use forebay_schema::{Hook, HookFuture, MigrationFile, Migrations, Version};
use tokio_postgres::Client;

use crate::schema_version::{LOG, UPDATE};

/// The newest version of Temporal's own tables, which the stores are written for.
pub const VERSION: &str = "1.1";

/// The oldest version of the schema that a program for this one works with.
pub const MIN_COMPATIBLE_VERSION: &str = "1.0";

/// All versions, in their order. Those with a third number add tables of this crate.
const FILES: [(&str, &str); 3] = [
    ("1.0_base.sql", include_str!("../schema/1.0_base.sql")),
    ("1.1_current_chasm_executions.sql", include_str!("../schema/1.1_current_chasm_executions.sql")),
    ("1.1.1_shard_takeovers.sql", include_str!("../schema/1.1.1_shard_takeovers.sql")),
];

/// The files of the schema, named `temporal`.
///
/// # Panics
/// Never: the files belong to this crate, and a test reads them.
#[must_use]
pub fn migrations() -> Migrations {
    Migrations::embedded(&FILES).expect("the files of this crate are in order").named("temporal")
}

/// Keeps the tables by which Temporal's servers and tools know the version: `schema_version`, with the row of the database
/// `db_name`, and `schema_update_history`. Each is written in the transaction that records a file as applied. Files that add tables of
/// this crate leave both as they are: servers and tools must find the version that Temporal has given its own tables.
pub fn hook(db_name: impl Into<String>) -> VersionHook {
    VersionHook { db_name: db_name.into() }
}

/// See [`hook`].
#[derive(Clone, Debug)]
pub struct VersionHook {
    db_name: String,
}

impl Hook for VersionHook {
    fn applied<'a>(
        &'a self,
        client: &'a Client,
        file: &'a MigrationFile,
        previous: Option<&'a Version>,
    ) -> HookFuture<'a> {
        Box::pin(async move {
            let version = file.version().to_string();
            if version != temporals(&version) {
                return Ok(());
            }
            let previous = previous.map(ToString::to_string).unwrap_or_default();
            let previous = temporals(&previous);
            client.execute(UPDATE, &[&self.db_name, &version, &MIN_COMPATIBLE_VERSION]).await?;
            client.execute(LOG, &[&previous, &version, &file.checksum(), &file.path()]).await?;
            Ok(())
        })
    }
}

/// The version of Temporal's tables in a version of this crate: its first two numbers.
fn temporals(version: &str) -> &str {
    version.match_indices('.').nth(1).map_or(version, |(end, _)| &version[..end])
}

#[cfg(test)]
mod tests {
    use forebay_schema::{Migrator, Rules};

    use super::*;

    #[test]
    fn the_files_are_in_order_and_end_with_the_version_of_the_stores() {
        let migrations = migrations();
        let versions: Vec<String> =
            migrations.files().iter().map(|file| file.version().to_string()).collect();
        assert_eq!(versions, [MIN_COMPATIBLE_VERSION, VERSION, "1.1.1"]);
        assert_eq!(migrations.name(), "temporal");
    }

    #[test]
    fn the_first_two_numbers_are_temporals() {
        assert_eq!(
            ["", "1", "1.0", "1.10", "1.1.1", "1.1.1.7"].map(temporals),
            ["", "1", "1.0", "1.10", "1.1", "1.1"]
        );
    }

    /// What Aurora DSQL did not have when the specification was written, and older clusters still do not have.
    #[test]
    fn only_what_every_cluster_accepts_is_used() {
        for rules in [Rules::Today, Rules::Spec] {
            assert!(Migrator::check(&migrations(), rules).is_empty());
        }
        let sql = FILES.map(|(_, sql)| sql).concat().to_uppercase();
        let lines = || sql.lines().filter(|line| !line.starts_with("--"));
        assert_eq!(lines().filter(|line| line.starts_with("CREATE TABLE ")).count(), 40);
        for line in lines() {
            for word in ["SERIAL", "CHECK", "REFERENCES", "IDENTITY"] {
                assert!(!line.contains(word), "{word} in {line}");
            }
            assert_eq!(line.contains("INDEX"), line.contains("INDEX ASYNC"), "{line}");
            assert!(!line.contains("UNIQUE") || line.starts_with("CREATE UNIQUE INDEX ASYNC "), "{line}");
            let default = line.split_once("DEFAULT ").map_or("0", |(_, default)| default);
            assert!(default.starts_with('0') || default.starts_with("''"), "{line}");
            let identifiers = ["NAMESPACE_ID", "RUN_ID", "TREE_ID", "BRANCH_ID", "TASK_QUEUE_ID", "HOST_ID"];
            let column = line.split_whitespace().next().unwrap_or_default();
            assert!(!identifiers.contains(&column) || line.contains(" UUID NOT NULL"), "{line}");
        }
    }
}
