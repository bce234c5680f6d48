//! Which migrations.

use std::path::PathBuf;

use clap::Args;
use forebay_schema::{Hook, Migrations};

use super::named;

/// A directory, or a schema that is part of this program.
#[derive(Debug, Args)]
pub(super) struct Source {
    /// The directory with the files: 0001_name.sql, V1__name.sql, 1.0_name.sql, 1_name/up.sql, 1_name/migration.sql
    #[arg(value_name = "DIRECTORY", default_value = "migrations")]
    directory: PathBuf,
    /// A schema that is part of this program, instead of a directory: temporal
    #[arg(long, value_name = "NAME", conflicts_with = "directory")]
    schema: Option<String>,
    /// The name that these migrations are recorded by; applications that share a database have different ones
    #[arg(long, conflicts_with = "schema")]
    name: Option<String>,
    /// The name of the database in Temporal's own table of versions, with --schema temporal
    #[arg(long, value_name = "NAME", default_value = "temporal")]
    db_name: String,
}

/// Files, and what to call when one is applied.
pub(super) struct Found {
    pub(super) migrations: Migrations,
    pub(super) hook: Option<Box<dyn Hook>>,
}

impl Source {
    pub(super) fn find(&self) -> anyhow::Result<Found> {
        if let Some(schema) = &self.schema {
            return named::find(schema, &self.db_name);
        }
        let migrations = Migrations::from_dir(&self.directory)?;
        Ok(Found {
            migrations: match &self.name {
                Some(name) => migrations.named(name.as_str()),
                None => migrations,
            },
            hook: None,
        })
    }
}
