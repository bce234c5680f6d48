//! A file that is there when it is whole, and not before: what it replaces stays until then.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A file being written, under another name. Dropped, it is gone.
pub(super) struct Draft {
    path: PathBuf,
    part: PathBuf,
    writer: BufWriter<File>,
    kept: bool,
}

impl Draft {
    /// Begins to write what shall be at `path`.
    pub(super) fn of(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        if path.is_dir() {
            bail!("{}: it is a folder", cannot());
        }
        let mut name = OsString::from(path);
        name.push(".part");
        let part = PathBuf::from(name);
        let writer = BufWriter::new(File::create(&part).with_context(cannot)?);
        Ok(Self { path: path.to_owned(), part, writer, kept: false })
    }

    /// It is whole: from now on it is at its place.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let cannot = || format!("cannot write {}", self.path.display());
        self.writer.flush().with_context(cannot)?;
        fs::rename(&self.part, &self.path).with_context(cannot)?;
        self.kept = true;
        Ok(())
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept {
            // If it cannot be removed, its name says what it is.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Refuses to write over the scenario, or two things to one place.
pub(super) fn keep_apart(scenario: &str, files: &[Option<&Path>]) -> anyhow::Result<()> {
    let place = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut taken = vec![place(Path::new(scenario))];
    for file in files.iter().flatten() {
        let place = place(file);
        if taken.contains(&place) {
            bail!("{} is given twice: it cannot be both", file.display());
        }
        taken.push(place);
    }
    Ok(())
}
