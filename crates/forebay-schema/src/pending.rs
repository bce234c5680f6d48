//! Compares the files with what is recorded: what is left to apply, and what stands in the way.

use crate::bookkeeping::Record;
use crate::error::Error;
use crate::files::{MigrationFile, Migrations};
use crate::version::Version;

/// A file that is not applied as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Pending<'a> {
    pub(crate) file: &'a MigrationFile,
    pub(crate) record: Record,
    /// The file before it.
    pub(crate) previous: Option<&'a MigrationFile>,
}

/// What is accepted that is usually a mistake.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tolerance {
    pub(crate) changed: bool,
    pub(crate) out_of_order: bool,
    /// No later version than this one.
    pub(crate) to: Option<Version>,
}

/// The files that are left to apply, in their order.
pub(crate) fn pending<'a>(
    migrations: &'a Migrations,
    records: &[Record],
    tolerance: &Tolerance,
) -> Result<Vec<Pending<'a>>, Error> {
    if let Some(to) = &tolerance.to {
        exists(migrations, to)?;
    }
    let missing: Vec<String> = records
        .iter()
        .filter(|record| migrations.find(&record.version).is_none())
        .map(|record| record.file.clone())
        .collect();
    if !missing.is_empty() {
        return Err(Error::Missing { files: missing });
    }
    let changed = changed(migrations, records);
    if !changed.is_empty() && !tolerance.changed {
        return Err(Error::Changed { files: changed.iter().map(|file| file.path().to_owned()).collect() });
    }
    let record = |file: &MigrationFile| records.iter().find(|record| record.version == file.version().key());
    // Also one of which some statements are applied.
    let is_begun =
        |record: &Record| record.applied.is_some() || record.done > 0 || record.in_flight.is_some();
    let latest = migrations.files().iter().rfind(|file| record(file).is_some_and(is_begun));
    let mut pending = Vec::new();
    let mut previous = None;
    for file in migrations.files() {
        if tolerance.to.as_ref().is_some_and(|to| file.version() > to) {
            break;
        }
        match record(file) {
            Some(record) if record.applied.is_some() => {}
            Some(record) => {
                if record.done > file.statements().len() || record.prefix != file.prefix_checksum(record.done)
                {
                    return Err(Error::ChangedPart { file: file.path().to_owned(), done: record.done });
                }
                pending.push(Pending { file, record: record.clone(), previous });
            }
            None => {
                if let Some(latest) = latest.filter(|latest| latest.version() > file.version())
                    && !tolerance.out_of_order
                {
                    let (file, applied) = (file.path().to_owned(), latest.version().to_string());
                    return Err(Error::OutOfOrder { file, applied });
                }
                pending.push(Pending { file, record: Record::new(file), previous });
            }
        }
        previous = Some(file);
    }
    Ok(pending)
}

/// The files whose text is not that which was applied.
pub(crate) fn changed<'a>(migrations: &'a Migrations, records: &[Record]) -> Vec<&'a MigrationFile> {
    let is_changed = |file: &&MigrationFile| {
        let same = |record: &&Record| record.version == file.version().key() && record.applied.is_some();
        records.iter().find(same).is_some_and(|record| record.checksum != file.checksum())
    };
    migrations.files().iter().filter(is_changed).collect()
}

/// Fails if there is no such version.
pub(crate) fn exists(migrations: &Migrations, version: &Version) -> Result<(), Error> {
    if migrations.find(&version.key()).is_some() {
        return Ok(());
    }
    let known = migrations.files().iter().map(|file| file.version().to_string()).collect();
    Err(Error::NoVersion { version: version.to_string(), known })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migrations(files: &[(&str, &str)]) -> Migrations {
        Migrations::embedded(files).unwrap()
    }

    fn applied(file: &MigrationFile) -> Record {
        let done = file.statements().len();
        let prefix = file.prefix_checksum(done);
        Record { done, prefix, applied: Some(String::new()), ..Record::new(file) }
    }

    fn left(
        migrations: &Migrations,
        records: &[Record],
        tolerance: &Tolerance,
    ) -> Result<Vec<String>, String> {
        let pending = pending(migrations, records, tolerance).map_err(|error| error.to_string())?;
        Ok(pending.iter().map(|one| format!("{} from {}", one.file.path(), one.record.done)).collect())
    }

    #[test]
    fn what_is_recorded_is_not_applied_again() {
        let all =
            migrations(&[("1.sql", "SELECT 1;"), ("2.sql", "SELECT 2; SELECT 3;"), ("3.sql", "SELECT 4;")]);
        let files = all.files();
        let strict = Tolerance::default();
        assert_eq!(left(&all, &[], &strict).unwrap().len(), 3);
        let half = Record { done: 1, prefix: files[1].prefix_checksum(1), ..Record::new(&files[1]) };
        let records = [applied(&files[0]), half];
        assert_eq!(left(&all, &records, &strict).unwrap(), ["2.sql from 1", "3.sql from 0"]);
        let to = Tolerance { to: Version::parse("2"), ..Tolerance::default() };
        assert_eq!(left(&all, &records, &to).unwrap(), ["2.sql from 1"]);
        let unknown = Tolerance { to: Version::parse("7"), ..Tolerance::default() };
        assert_eq!(
            left(&all, &records, &unknown).unwrap_err(),
            "there is no version 7; the files have 1, 2, 3"
        );
    }

    #[test]
    fn files_that_do_not_fit_the_record_are_named() {
        let old =
            migrations(&[("1.sql", "SELECT 1;"), ("2.sql", "SELECT 2;"), ("3.sql", "SELECT 3; SELECT 4;")]);
        let new =
            migrations(&[("1.sql", "SELECT 9;"), ("2.sql", "SELECT 2;"), ("3.sql", "SELECT 9; SELECT 4;")]);
        let strict = Tolerance::default();
        let one = applied(&old.files()[0]);
        let error = left(&new, std::slice::from_ref(&one), &strict).unwrap_err();
        assert!(error.starts_with("a file was changed after being applied: 1.sql;"), "{error}");
        let tolerant = Tolerance { changed: true, ..Tolerance::default() };
        assert_eq!(left(&new, std::slice::from_ref(&one), &tolerant).unwrap().len(), 2);
        let half =
            Record { done: 1, prefix: old.files()[2].prefix_checksum(1), ..Record::new(&old.files()[2]) };
        let begun = [applied(&new.files()[0]), applied(&new.files()[1]), half.clone()];
        let error = left(&new, &begun, &strict).unwrap_err();
        assert!(error.starts_with("3.sql: its first 1 statements are applied, and were changed"), "{error}");
        // What follows may be changed.
        let later = migrations(&[("3.sql", "SELECT 3; SELECT 5;")]);
        assert_eq!(left(&later, &[half], &strict).unwrap(), ["3.sql from 1"]);
        let gone = migrations(&[("2.sql", "SELECT 2;")]);
        let error = left(&gone, &[one], &strict).unwrap_err();
        assert!(error.starts_with("applied versions have no file: 1.sql"), "{error}");
        let two = applied(&old.files()[1]);
        let error = left(&old, std::slice::from_ref(&two), &strict).unwrap_err();
        assert!(error.starts_with("1.sql is not applied, but the later version 2 is"), "{error}");
        let half =
            Record { done: 1, prefix: old.files()[2].prefix_checksum(1), ..Record::new(&old.files()[2]) };
        let error = left(&old, std::slice::from_ref(&half), &strict).unwrap_err();
        assert!(error.starts_with("1.sql is not applied, but the later version 3 is"), "{error}");
        let tolerant = Tolerance { out_of_order: true, ..Tolerance::default() };
        assert_eq!(left(&old, &[two], &tolerant).unwrap(), ["1.sql from 0", "3.sql from 0"]);
    }
}
