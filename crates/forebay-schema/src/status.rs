//! Which files are applied.

use crate::bookkeeping::Record;
use crate::error::Error;
use crate::files::MigrationFile;
use crate::lock;
use crate::migrator::Migrator;
use crate::version::Version;

/// What is recorded about the migrations of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The name of the migrations.
    pub name: String,
    /// Whether anything is recorded.
    pub is_set_up: bool,
    /// All files, and those that are gone, in the order of their versions.
    pub files: Vec<FileStatus>,
    /// Who holds the lock, if anybody does. A run that was killed holds it until its lease is over.
    pub holder: Option<String>,
}

/// What is recorded about one file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileStatus {
    /// Its version, as it is written in the name.
    pub version: String,
    /// Its name.
    pub file: String,
    /// How far it is.
    pub state: FileState,
    /// Its text is not that which was applied.
    pub is_changed: bool,
    /// It was applied, and is gone.
    pub is_missing: bool,
}

/// How far a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileState {
    /// Nothing of it is applied.
    Pending,
    /// Some statements of it are applied.
    Partial {
        /// How many.
        done: usize,
        /// How many it has.
        of: usize,
        /// The statement that may have taken effect or not: the next run finds out.
        in_flight: Option<String>,
    },
    /// All of it is applied.
    Applied {
        /// When, by the server's clock.
        at: String,
    },
}

impl Status {
    /// Whether all files are applied as they are.
    #[must_use]
    pub fn is_up_to_date(&self) -> bool {
        let is_fine = |file: &FileStatus| {
            matches!(file.state, FileState::Applied { .. }) && !file.is_changed && !file.is_missing
        };
        self.is_set_up && self.files.iter().all(is_fine)
    }
}

impl Migrator {
    /// What is recorded about the files.
    ///
    /// # Errors
    /// If the database does not answer.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn status(&self) -> Result<Status, Error> {
        let exists = self.tables.exists(&self.dsql).await?;
        let records = if exists { self.records().await? } else { Vec::new() };
        let holder = if exists { lock::holder(&self.dsql, &self.tables).await? } else { None };
        let find =
            |file: &MigrationFile| records.iter().find(|record| record.version == file.version().key());
        let mut files: Vec<FileStatus> =
            self.migrations.files().iter().map(|file| of_file(file, find(file))).collect();
        let gone = records.iter().filter(|record| self.migrations.find(&record.version).is_none());
        files.extend(gone.map(|record| FileStatus {
            version: record.version.clone(),
            file: record.file.clone(),
            state: state(record, record.done),
            is_changed: false,
            is_missing: true,
        }));
        files.sort_by_key(|file| Version::parse(&file.version));
        let name = self.migrations.name().to_owned();
        Ok(Status { name, is_set_up: exists && !records.is_empty(), files, holder })
    }
}

fn of_file(file: &MigrationFile, record: Option<&Record>) -> FileStatus {
    let of = file.statements().len();
    let is_changed = record.is_some_and(|record| match record.applied {
        Some(_) => record.checksum != file.checksum(),
        None => record.prefix != file.prefix_checksum(record.done),
    });
    FileStatus {
        version: file.version().to_string(),
        file: file.path().to_owned(),
        state: record.map_or(FileState::Pending, |record| state(record, of)),
        is_changed,
        is_missing: false,
    }
}

fn state(record: &Record, of: usize) -> FileState {
    match &record.applied {
        Some(at) => FileState::Applied { at: at.clone() },
        None => FileState::Partial {
            done: record.done,
            of,
            in_flight: record.in_flight.as_ref().map(|it| it.statement.clone()),
        },
    }
}
