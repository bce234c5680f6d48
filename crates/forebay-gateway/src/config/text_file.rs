//! A file of text that somebody has written, such as a configuration.

use std::path::Path;
use std::{fs, io};

use forebay::Problem;

/// Reads it. Only a regular file has an end: another one could keep a start waiting forever.
pub(crate) fn read(path: &Path, remedy: &str) -> Result<String, Problem> {
    let problem = |value: String, allowed: String| Problem {
        setting: path.display().to_string().into(),
        value,
        allowed,
    };
    let unreadable = |error: io::Error| {
        let remedy = if error.kind() == io::ErrorKind::NotFound { remedy } else { "" };
        problem(format!("not readable ({error})"), format!("a file that this process can read{remedy}"))
    };
    if let Some(kind) = not_regular(path) {
        return Err(problem(kind.to_owned(), "a regular file".to_owned()));
    }
    let bytes = fs::read(path).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        problem(format!("not UTF-8 in line {line}"), "text in UTF-8: save it in this encoding".to_owned())
    })
}

/// What it is, if it is there and no regular file.
pub(crate) fn not_regular(path: &Path) -> Option<&'static str> {
    let found = fs::metadata(path).ok()?.file_type();
    match () {
        () if found.is_file() => None,
        () if found.is_dir() => Some("a directory"),
        () => Some("a pipe, a device or a socket"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_with_text_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.toml");
        let said = |path: &Path| read(path, "; make one").unwrap_err().to_string();
        assert!(said(&path).ends_with("but must be a file that this process can read; make one"));
        assert!(said(directory.path()).ends_with(" is a directory, but must be a regular file"));
        let socket = directory.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(said(&socket).contains("is a pipe, a device or a socket"), "{}", said(&socket));
        fs::write(&path, b"a = 1\nb = 'caf\xe9'\n").unwrap();
        assert!(said(&path).contains("f.toml is not UTF-8 in line 2, but must be text in UTF-8"));
        fs::write(&path, "a = 1\n").unwrap();
        assert_eq!(read(&path, "").unwrap(), "a = 1\n");
    }
}
