//! Migrations: numbered files of SQL.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::sql::{Problem, Statement, split};
use crate::undo;
use crate::version::{Named, Version, read_name};

/// The numbered files of one application, in the order of their versions.
///
/// ```
/// use forebay_schema::Migrations;
///
/// let files = [("1.0_base.sql", "CREATE TABLE t (id bigint PRIMARY KEY);")];
/// let migrations = Migrations::embedded(&files)?.named("orders");
/// assert_eq!(migrations.files()[0].version().to_string(), "1.0");
/// # Ok::<(), forebay_schema::FilesError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Migrations {
    name: String,
    files: Vec<MigrationFile>,
}

/// One file.
#[derive(Clone, Debug)]
pub struct MigrationFile {
    version: Version,
    path: String,
    checksum: String,
    statements: Vec<Statement>,
    problem: Option<Problem>,
}

/// Why there are no migrations.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// A file or directory cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// There is no file with a version.
    #[error(
        "there are no migrations in {0}; they are named 0001_name.sql, V1__name.sql, 1.0_name.sql, 1_name/up.sql or \
         1_name/migration.sql"
    )]
    Empty(String),
    /// A name does not begin with a version.
    #[error("{0} has no version in its name: rename it, for example to 0001_{0}, or move it away")]
    NoVersion(String),
    /// A file that Flyway runs whenever it changes.
    #[error("{0} has no version: a migration runs once; give it a number, and a new one for each change")]
    Repeatable(String),
    /// A directory with a version has files, but none with a name that is known.
    #[error("{0} has .sql files, but neither up.sql nor migration.sql: rename one of them, or move them up")]
    NoFile(String),
    /// Two files have the same version.
    #[error("{0} and {1} have the same version: renumber one of them")]
    Duplicate(String, String),
}

/// The names of applications that do not choose one.
const DEFAULT_NAME: &str = "default";
/// What a migration in a directory of its own is called: by diesel, by Prisma.
const INNER: [&str; 2] = ["up.sql", "migration.sql"];

const NOT_UTF_8: &str = "it is not in UTF-8; save it in this encoding";

/// Whether a file is one of SQL by its name. Some systems write names in capitals.
fn is_sql(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("sql"))
}

/// Whether there is such a file in a directory.
fn has_sql(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        if is_sql(&entry?.path()) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Migrations {
    /// Reads a directory: `0001_name.sql`, `20240101120000_name.sql`, `.up.sql`, `V1__name.sql`, `1.0_name.sql`,
    /// `1_name/up.sql` and `1_name/migration.sql`. Files that undo a migration are left out, and so are others than `.sql`.
    ///
    /// # Errors
    /// If something cannot be read, a name has no version, or two have the same.
    pub fn from_dir(directory: impl AsRef<Path>) -> Result<Self, FilesError> {
        let directory = directory.as_ref();
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |cause| FilesError::Read { path, cause }
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).map_err(unreadable(directory))? {
            let path = entry.map_err(unreadable(directory))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                match INNER.iter().find(|inner| path.join(inner).is_file()) {
                    Some(inner) => found.push((format!("{name}/{inner}"), path.join(inner))),
                    None if matches!(read_name(&name), Named::Migration(_))
                        && has_sql(&path).map_err(unreadable(&path))? =>
                    {
                        return Err(FilesError::NoFile(name));
                    }
                    None => {}
                }
            } else if is_sql(&path) && !name.starts_with('.') {
                found.push((name, path));
            }
        }
        found.sort();
        let read = |(name, path): (String, PathBuf)| {
            let bytes = fs::read(&path).map_err(unreadable(&path))?;
            let text = String::from_utf8(bytes)
                .map_err(|_| unreadable(&path)(io::Error::new(io::ErrorKind::InvalidData, NOT_UTF_8)))?;
            Ok((name, text))
        };
        let files = found.into_iter().map(read).collect::<Result<Vec<_>, FilesError>>()?;
        Self::new(files, &directory.display().to_string())
    }

    /// From names and texts, such as those of `include_str!`.
    ///
    /// # Errors
    /// If a name has no version, or two have the same.
    pub fn embedded(files: &[(&str, &str)]) -> Result<Self, FilesError> {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Self::new(files.collect(), "this program")
    }

    fn new(named: Vec<(String, String)>, place: &str) -> Result<Self, FilesError> {
        let mut files = Vec::new();
        for (path, text) in named {
            let stem = match path.split_once('/') {
                Some((directory, _)) => directory,
                None => match path.rsplit_once('.') {
                    Some((stem, extension)) if extension.eq_ignore_ascii_case("sql") => stem,
                    _ => &path,
                },
            };
            match read_name(stem) {
                Named::Migration(version) => files.push(MigrationFile::new(version, path, &text)),
                Named::Undo => {}
                Named::Repeatable => return Err(FilesError::Repeatable(path)),
                Named::Other => return Err(FilesError::NoVersion(path)),
            }
        }
        files.sort_by(|a, b| a.version.cmp(&b.version));
        if let Some([one, two]) = files.array_windows().find(|[one, two]| one.version == two.version) {
            return Err(FilesError::Duplicate(one.path.clone(), two.path.clone()));
        }
        if files.is_empty() {
            return Err(FilesError::Empty(place.to_owned()));
        }
        Ok(Self { name: DEFAULT_NAME.to_owned(), files })
    }

    /// The name that these migrations are recorded by: applications that share a database have different ones. It is
    /// `default` unless it is given.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Their name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The files, in the order of their versions.
    #[must_use]
    pub fn files(&self) -> &[MigrationFile] {
        &self.files
    }

    /// The last version.
    #[must_use]
    pub fn latest(&self) -> &Version {
        &self.files[self.files.len() - 1].version
    }

    pub(crate) fn find(&self, key: &str) -> Option<&MigrationFile> {
        self.files.iter().find(|file| file.version.key() == key)
    }
}

impl MigrationFile {
    fn new(version: Version, path: String, text: &str) -> Self {
        // The same file has other line ends in other places.
        let text = text.replace("\r\n", "\n");
        let checksum = hex::encode(Sha256::digest(text.as_bytes()));
        let (statements, problem) = split(&undo::leave_out(&text));
        Self { version, path, checksum, statements, problem }
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Its name in the directory.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// SHA-256 of its text with `\n` as line ends, in hexadecimal.
    #[must_use]
    pub fn checksum(&self) -> &str {
        &self.checksum
    }

    /// The statements without their semicolons, each with its first line.
    pub fn statements_with_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.statements.iter().map(|statement| (statement.line(), statement.text()))
    }

    pub(crate) fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// Why the rest of it cannot be read.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// A checksum of its first statements, without spaces and comments: it tells whether what was applied is still there.
    pub(crate) fn prefix_checksum(&self, statements: usize) -> String {
        let mut hash = Sha256::new();
        for statement in self.statements.iter().take(statements) {
            hash.update(statement.canonical().as_bytes());
            hash.update(b"\n");
        }
        hex::encode(hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let migrations = Migrations::embedded(files).map_err(|error| error.to_string())?;
        Ok(migrations.files.into_iter().map(|file| file.path).collect())
    }

    #[test]
    fn a_directory_of_any_layout_is_read_in_the_order_of_versions() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        for (path, text) in [
            ("10_c.sql", "SELECT 10;"),
            ("2_b/up.sql", "SELECT 2;"),
            ("2_b/down.sql", "SELECT -2;"),
            ("3_p/migration.sql", "SELECT 3;"),
            ("V1__a.sql", "SELECT 1;"),
            ("4_d.up.sql", "SELECT 4;"),
            ("4_d.down.sql", "SELECT -4;"),
            ("migration_lock.toml", "x"),
            ("notes/readme.sql", "x"),
            ("11_E.SQL", "SELECT 11;"),
            ("12_empty/notes.txt", "x"),
        ] {
            let path = place.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let migrations = Migrations::from_dir(place).unwrap();
        let found: Vec<&str> = migrations.files().iter().map(MigrationFile::path).collect();
        assert_eq!(
            found,
            ["V1__a.sql", "2_b/up.sql", "3_p/migration.sql", "4_d.up.sql", "10_c.sql", "11_E.SQL"]
        );
        fs::write(place.join("12_empty/forward.sql"), "SELECT 12;").unwrap();
        let unknown = Migrations::from_dir(place).unwrap_err().to_string();
        assert!(unknown.starts_with("12_empty has .sql files, but neither up.sql nor"), "{unknown}");
        fs::remove_dir_all(place.join("12_empty")).unwrap();
        fs::write(place.join("13_latin.sql"), b"SELECT '\xe4'").unwrap();
        let encoding = Migrations::from_dir(place).unwrap_err().to_string();
        assert!(
            encoding.ends_with("13_latin.sql: it is not in UTF-8; save it in this encoding"),
            "{encoding}"
        );
        let nowhere = Migrations::from_dir(place.join("absent")).unwrap_err().to_string();
        assert!(nowhere.starts_with("cannot read ") && nowhere.contains("absent"), "{nowhere}");
        assert!(
            Migrations::from_dir(place.join("notes"))
                .unwrap_err()
                .to_string()
                .contains("readme.sql has no version")
        );
    }

    #[test]
    fn names_that_cannot_be_ordered_are_refused_with_a_remedy() {
        assert_eq!(paths(&[("2.sql", ""), ("1.sql", "")]).unwrap(), ["1.sql", "2.sql"]);
        for (files, remedy) in [
            (
                &[("1_a.sql", ""), ("01_b.sql", "")][..],
                "1_a.sql and 01_b.sql have the same version: renumber",
            ),
            (&[("schema.sql", "")], "schema.sql has no version in its name: rename it"),
            (&[("R__views.sql", "")], "give it a number"),
            (&[("1_a.down.sql", "")], "there are no migrations in this program"),
        ] {
            let error = paths(files).unwrap_err();
            assert!(error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn what_undoes_a_file_is_left_out_but_counts_for_its_checksum() {
        let file = |text: &str| Migrations::embedded(&[("1.sql", text)]).unwrap().files.remove(0);
        let both = file("-- migrate:up\nSELECT 1;\n-- migrate:down\nSELECT 2;\n");
        assert_eq!(both.statements_with_lines().collect::<Vec<_>>(), [(2, "SELECT 1")]);
        assert_ne!(
            both.checksum(),
            file("-- migrate:up\nSELECT 1;\n-- migrate:down\nSELECT 3;\n").checksum()
        );
    }

    #[test]
    fn line_ends_do_not_change_a_checksum_and_comments_do_not_change_a_prefix() {
        let file = |text: &str| Migrations::embedded(&[("1.sql", text)]).unwrap().files.remove(0);
        let (unix, windows) = (file("SELECT 1;\nSELECT 2;\n"), file("SELECT 1;\r\nSELECT 2;\r\n"));
        assert_eq!(unix.checksum(), windows.checksum());
        let commented = file("-- one\nSELECT  1;\nSELECT 3;\n");
        assert_ne!(unix.checksum(), commented.checksum());
        assert_eq!(unix.prefix_checksum(1), commented.prefix_checksum(1));
        assert_ne!(unix.prefix_checksum(2), commented.prefix_checksum(2));
    }
}
