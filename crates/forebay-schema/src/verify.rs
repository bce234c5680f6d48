//! Compares the database with what the files have made of it.

use crate::bookkeeping::{PREFIX, run};
use crate::catalog::{self, Facts, Unvalidated};
use crate::error::Error;
use crate::files::MigrationFile;
use crate::jobs;
use crate::migrator::Migrator;
use crate::pending::changed;
use crate::snapshot;

/// What differs between the database and the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// Files that are not applied, or not as a whole.
    pub pending: Vec<String>,
    /// Files whose text is not that which was applied.
    pub changed: Vec<String>,
    /// Files that were applied and are gone.
    pub missing: Vec<String>,
    /// Objects that are not as the last run has left them.
    pub differences: Vec<Difference>,
    /// Indexes that are not usable.
    pub invalid_indexes: Vec<String>,
    /// Constraints that hold for new rows only, though they are not declared so.
    pub unvalidated_constraints: Vec<String>,
    /// The last run has ended before it could record the schema: `update` does that.
    pub unrecorded: bool,
    /// Tables that no file of these migrations, or of others in the same database, has made. They are no difference.
    pub other_tables: Vec<String>,
}

/// An object that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The table, view, sequence, function, domain or schema.
    pub object: String,
    /// What it had, and has no longer.
    pub missing: Vec<String>,
    /// What it has, and had not.
    pub extra: Vec<String>,
}

impl Verification {
    /// Whether there is no difference.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let Self {
            pending,
            changed,
            missing,
            differences,
            invalid_indexes,
            unvalidated_constraints,
            unrecorded,
            ..
        } = self;
        !unrecorded
            && differences.is_empty()
            && [pending, changed, missing, invalid_indexes, unvalidated_constraints]
                .iter()
                .all(|list| list.is_empty())
    }
}

impl Migrator {
    /// Compares the database with the files, and with what it was like after the last run.
    ///
    /// It finds every later change of the tables, columns, types, defaults, keys, constraints, indexes, views, sequences,
    /// functions and domains that the files name, and of their owners, grants and comments. It does not compare rows, and does not
    /// find what was changed before or during that run.
    ///
    /// # Errors
    /// [`Error::NotSetUp`] if nothing is recorded about these migrations.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn verify(&self) -> Result<Verification, Error> {
        let name = self.migrations.name();
        let records = self.known_records().await?;
        let paths = |files: Vec<&MigrationFile>| files.iter().map(|file| file.path().to_owned()).collect();
        let is_applied = |file: &&MigrationFile| {
            records.iter().any(|record| record.applied.is_some() && record.version == file.version().key())
        };
        let pending = self.migrations.files().iter().filter(|file| !is_applied(file)).collect();
        let gone = records.iter().filter(|record| self.migrations.find(&record.version).is_none());
        let (live, recorded, invalid, unvalidated, other_tables) =
            run(&self.dsql, "schema_verify", async |tx| {
                Ok((
                    snapshot::live(&tx, &self.migrations).await?,
                    snapshot::recorded(&tx, &self.tables, name).await?,
                    jobs::invalid_indexes(&tx, None).await?,
                    catalog::unvalidated_constraints(&tx).await?,
                    self.other_tables(&tx).await?,
                ))
            })
            .await?;
        let mut live = live;
        // A table of another application is none of these migrations' business.
        let is_own = |table: &String| live.contains_key(table);
        let invalid_indexes =
            invalid.into_iter().filter(|index| is_own(&index.table)).map(|index| index.name).collect();
        let is_declared = |one: &Unvalidated| {
            let facts = recorded.as_ref().and_then(|recorded| recorded.get(&one.table));
            facts.is_some_and(|facts| facts.contains(&one.fact)) && !self.validates(&one.name)
        };
        let unvalidated_constraints = unvalidated
            .into_iter()
            .filter(|one| is_own(&one.table) && !is_declared(one))
            .map(|one| one.full_name)
            .collect();
        for lines in live.values_mut() {
            *lines = lines.join("\n").lines().map(str::to_owned).collect();
        }
        Ok(Verification {
            pending: paths(pending),
            changed: paths(changed(&self.migrations, &records)),
            missing: gone.map(|record| record.file.clone()).collect(),
            unrecorded: recorded.is_none(),
            differences: recorded.map_or_else(Vec::new, |recorded| differences(&recorded, &live)),
            invalid_indexes,
            unvalidated_constraints,
            other_tables,
        })
    }

    /// Whether a file validates a constraint of this name.
    fn validates(&self, name: &str) -> bool {
        let mut statements = self.migrations.files().iter().flat_map(MigrationFile::statements);
        statements.any(|statement| {
            statement.words().windows(3).any(|words| {
                let [validate, constraint, named] = words else { return false };
                validate.is("VALIDATE")
                    && constraint.is("CONSTRAINT")
                    && statement.name(named).as_deref() == Some(name)
            })
        })
    }

    /// Tables that are in nobody's record.
    async fn other_tables(
        &self,
        client: &tokio_postgres::Client,
    ) -> Result<Vec<String>, forebay_dsql::Error> {
        let sql = format!("SELECT object FROM {}", self.tables.table("snapshot"));
        let rows = client.query(&sql, &[]).await?;
        let known: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        let tables = catalog::tables(client, PREFIX).await?;
        Ok(tables.into_iter().map(|table| table.full_name).filter(|table| !known.contains(table)).collect())
    }
}

fn differences(before: &Facts, now: &Facts) -> Vec<Difference> {
    let none = Vec::new();
    let mut objects: Vec<&String> = before.keys().chain(now.keys()).collect();
    objects.sort();
    objects.dedup();
    let differ = |object: &&String| before.get(*object) != now.get(*object);
    let difference = |object: &String| {
        let (old, new) = (before.get(object).unwrap_or(&none), now.get(object).unwrap_or(&none));
        let only = |these: &[String], those: &[String]| {
            these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
        };
        Difference { object: object.clone(), missing: only(old, new), extra: only(new, old) }
    };
    objects.into_iter().filter(differ).map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_shown() {
        let facts = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let before = Facts::from([("t".to_owned(), facts(&["a", "b"])), ("u".to_owned(), facts(&["x"]))]);
        let now = Facts::from([("t".to_owned(), facts(&["a", "c"])), ("v".to_owned(), facts(&["y"]))]);
        let shown: Vec<String> = differences(&before, &now)
            .into_iter()
            .map(|one| format!("{} -{:?} +{:?}", one.object, one.missing, one.extra))
            .collect();
        assert_eq!(shown, ["t -[\"b\"] +[\"c\"]", "u -[\"x\"] +[]", "v -[] +[\"y\"]"]);
        assert_eq!(differences(&before, &before), []);
    }
}
