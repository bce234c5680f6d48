//! What the schema was like after the last run, to compare it with later.

use std::collections::BTreeSet;

use forebay_dsql::Error as DsqlError;
use tokio_postgres::Client;

use crate::bookkeeping::{Bookkeeping, PREFIX, run};
use crate::catalog::{self, Facts};
use crate::definition::{self, Target};
use crate::error::Error;
use crate::files::{MigrationFile, Migrations};
use crate::lock::Lock;
use crate::migrator::Migrator;
use crate::sql::Kind;

/// The object of the row that says that all other rows are there.
const COMPLETE: &str = "";
/// A transaction changes at most 3,000 rows.
const BATCH: usize = 500;

/// The facts of all objects that the files create or change.
pub(crate) async fn live(client: &Client, migrations: &Migrations) -> Result<Facts, DsqlError> {
    let statements = || migrations.files().iter().flat_map(MigrationFile::statements);
    let targets: Vec<Target> = statements().flat_map(definition::targets).collect();
    let names: BTreeSet<String> = targets.iter().map(|target| target.name.clone()).collect();
    let names: Vec<String> = names.into_iter().collect();
    let mut facts = catalog::facts(client, Some(&names), PREFIX).await?;
    // Other applications may have objects of the same name in other schemas.
    let sets_path = statements().any(|statement| {
        statement.kind() == Kind::Set && statement.text().to_lowercase().contains("search_path")
    });
    let path = client.query("SELECT unnest(current_schemas(false))::text", &[]).await?;
    let path: Vec<String> = path.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let is_own = |schema: &String, name: &String| {
        let is_here = |target: &Target| match &target.schema {
            Some(written) => written == schema,
            None => sets_path || path.contains(schema),
        };
        targets.iter().any(|target| target.name == *name && is_here(target))
    };
    facts.retain(|object, _| match definition::parts_of(object) {
        Some((schema, name)) => is_own(&schema, &name),
        // These belong to all applications of a database.
        None => object != "default privileges" && !object.starts_with("role "),
    });
    Ok(facts)
}

/// The facts that were recorded; none if that was not finished.
pub(crate) async fn recorded(
    client: &Client,
    tables: &Bookkeeping,
    name: &str,
) -> Result<Option<Facts>, DsqlError> {
    let mut facts = rows(client, tables, name).await?;
    let is_complete = facts.remove(COMPLETE).is_some();
    Ok(is_complete.then_some(facts))
}

async fn rows(client: &Client, tables: &Bookkeeping, name: &str) -> Result<Facts, DsqlError> {
    let sql = format!("SELECT object, facts FROM {} WHERE name = $1", tables.table("snapshot"));
    let mut facts = Facts::new();
    for row in client.query(&sql, &[&name]).await? {
        let text: String = row.try_get(1)?;
        facts.insert(row.try_get(0)?, text.lines().map(str::to_owned).collect());
    }
    Ok(facts)
}

/// Whether everything was recorded since the last file was applied.
pub(crate) async fn is_complete(migrator: &Migrator) -> Result<bool, Error> {
    let (tables, name) = (&migrator.tables, migrator.migrations.name());
    let found = run(&migrator.dsql, "schema_snapshot", async |tx| recorded(&tx, tables, name).await).await?;
    Ok(found.is_some())
}

/// From now on, what is recorded is out of date.
pub(crate) async fn outdate(client: &Client, tables: &Bookkeeping, name: &str) -> Result<(), DsqlError> {
    let sql = format!("DELETE FROM {} WHERE name = $1 AND object = $2", tables.table("snapshot"));
    client.execute(&sql, &[&name, &COMPLETE]).await?;
    Ok(())
}

/// Records the present state.
pub(crate) async fn record(migrator: &Migrator, lock: &Lock) -> Result<(), Error> {
    let (tables, name) = (&migrator.tables, migrator.migrations.name());
    let (mut live, old) = run(&migrator.dsql, "schema_snapshot", async |tx| {
        Ok((live(&tx, &migrator.migrations).await?, rows(&tx, tables, name).await?))
    })
    .await?;
    for lines in live.values_mut() {
        *lines = lines.join("\n").lines().map(str::to_owned).collect();
    }
    let delete = format!("DELETE FROM {} WHERE name = $1 AND object = $2", tables.table("snapshot"));
    let insert = format!(
        "INSERT INTO {} (name, object, facts) VALUES ($1, $2, $3)
         ON CONFLICT (name, object) DO UPDATE SET facts = excluded.facts",
        tables.table("snapshot")
    );
    let gone = old.keys().filter(|object| !live.contains_key(*object) && *object != COMPLETE);
    let gone: Vec<(&String, Option<String>)> = gone.map(|object| (object, None)).collect();
    let new = live.iter().filter(|(object, lines)| old.get(*object) != Some(lines));
    let changes: Vec<_> =
        gone.into_iter().chain(new.map(|(object, lines)| (object, Some(lines.join("\n"))))).collect();
    for batch in changes.chunks(BATCH) {
        lock.run("schema_snapshot", async |tx| {
            for (object, facts) in batch {
                match facts {
                    Some(facts) => tx.execute(&insert, &[&name, object, facts]).await?,
                    None => tx.execute(&delete, &[&name, object]).await?,
                };
            }
            Ok(())
        })
        .await?;
    }
    lock.run("schema_snapshot", async |tx| {
        tx.execute(&insert, &[&name, &COMPLETE, &"complete"]).await?;
        Ok(())
    })
    .await
}
