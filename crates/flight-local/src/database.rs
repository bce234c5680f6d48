//! The database that all sessions share.

use std::path::PathBuf;

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use crate::error::StartError;
use crate::execution::{on_busy, on_progress};
use crate::functions;

/// How many virtual-machine steps SQLite runs between two checks for cancellation.
const STEPS: u16 = 100;

#[derive(Debug)]
pub(crate) struct Database {
    path: PathBuf,
    /// An open connection: without it, SQLite would remove the write-ahead log with the last session.
    _anchor: Mutex<Connection>,
    /// The directory of a private database. It is removed after the connection above is closed.
    private: Option<TempDir>,
}

impl Database {
    pub(crate) fn open(path: Option<PathBuf>) -> Result<Self, StartError> {
        let (path, private) = match path {
            Some(path) => (path, None),
            None => {
                let directory = private_directory();
                let directory = directory.map_err(|error| StartError::Database {
                    path: std::env::temp_dir(),
                    reason: error.to_string(),
                })?;
                (directory.path().join("flight-local.db"), Some(directory))
            }
        };
        let problem =
            |error: rusqlite::Error| StartError::Database { path: path.clone(), reason: error.to_string() };
        let anchor = Connection::open(&path).map_err(problem)?;
        anchor.pragma_update(None, "journal_mode", "wal").map_err(problem)?;
        Ok(Self { path, _anchor: Mutex::new(anchor), private })
    }

    pub(crate) fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_handler(Some(on_busy))?;
        // A private database need not survive a power failure.
        let synchronous = if self.private.is_some() { "off" } else { "normal" };
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.progress_handler(i32::from(STEPS), Some(|| on_progress(u64::from(STEPS))));
        functions::register(&connection)?;
        Ok(connection)
    }
}

/// Only its owner may read the directory: the server may require a password.
fn private_directory() -> std::io::Result<TempDir> {
    let mut directory = tempfile::Builder::new();
    directory.prefix("flight-local-");
    #[cfg(unix)]
    directory.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    directory.tempdir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_database_is_shared_by_its_connections_and_goes_with_them() {
        let database = Database::open(None).unwrap();
        let (one, two) = (database.connect().unwrap(), database.connect().unwrap());
        one.execute_batch("CREATE TABLE t (n INT); INSERT INTO t VALUES (7); CREATE TEMP TABLE mine (n INT)")
            .unwrap();
        assert_eq!(two.query_row("SELECT n FROM t", [], |row| row.get::<_, i64>(0)), Ok(7));
        assert!(two.prepare("SELECT * FROM mine").is_err());
        let directory = database.private.as_ref().unwrap().path().to_owned();
        assert!(directory.exists());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
        drop((one, two, database));
        assert!(!directory.exists());
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let error = Database::open(Some(PathBuf::from("/nowhere/at/all.db"))).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all.db"), "{error}");
    }
}
