//! Schemas that are part of this program.

use super::source::Found;

/// Finds one by its name. `db_name` is what Temporal calls its database.
pub(super) fn find(name: &str, db_name: &str) -> anyhow::Result<Found> {
    match name {
        "temporal" => Ok(Found {
            migrations: forebay_temporal::schema::migrations(),
            hook: Some(Box::new(forebay_temporal::schema::hook(db_name))),
        }),
        _ => anyhow::bail!("there is no schema '{name}'; --schema knows: temporal"),
    }
}
