//! A file that replaces the old one only when it is complete.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A file being written, under another name. Dropping it removes it.
pub(crate) struct AtomicFile {
    path: PathBuf,
    part: PathBuf,
    writer: BufWriter<File>,
    kept: bool,
}

impl AtomicFile {
    /// Begins to write the file at `path`.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        if path.is_dir() {
            bail!("{}: it is a directory", cannot());
        }
        let mut name = OsString::from(path);
        name.push(".part");
        let part = PathBuf::from(name);
        let writer = BufWriter::new(File::create(&part).with_context(cannot)?);
        Ok(Self { path: path.to_owned(), part, writer, kept: false })
    }

    /// Moves the complete file to its path.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let cannot = || format!("cannot write {}", self.path.display());
        self.writer.flush().with_context(cannot)?;
        fs::rename(&self.part, &self.path).with_context(cannot)?;
        self.kept = true;
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.kept {
            // If it cannot be removed, its name says that it is a part.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Refuses to overwrite the scenario, or to write two files to one path.
pub(super) fn check_distinct(scenario: &str, files: &[Option<&Path>]) -> anyhow::Result<()> {
    let canonical = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut seen = vec![canonical(Path::new(scenario))];
    for file in files.iter().flatten() {
        let path = canonical(file);
        if seen.contains(&path) {
            bail!("{} is given twice", file.display());
        }
        seen.push(path);
    }
    Ok(())
}
