//! A file that only the gateway's operating-system user should have.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// A file that nobody but the gateway's operating-system user should be able to change. Most are secrets, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateFile {
    /// The setting that names it.
    pub setting: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// Whether others should not read it, either. Its group may: it is how a file of root's is given to a service.
    pub is_secret: bool,
}

impl PrivateFile {
    /// What others can do with it now, and the remedy. None if it is as it should be, or not there.
    pub(super) fn warning(&self) -> Option<String> {
        let mode = fs::metadata(&self.path).ok()?.permissions().mode() & 0o777;
        let can = match (mode & 0o022 != 0, self.is_secret && mode & 0o004 != 0) {
            (true, true) => "read and change",
            (true, false) => "change",
            (false, true) => "read",
            (false, false) => return None,
        };
        let (setting, path) = (self.setting, self.path.display());
        Some(format!(
            "other users of this machine can {can} {path}, the {setting} (mode {mode:04o}): chmod 600 {path}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_may_not_have_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        let warning = |mode: u32, is_secret: bool| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            PrivateFile { setting: "users_file", path: path.clone(), is_secret }.warning()
        };
        assert_eq!(PrivateFile { setting: "x", path: path.clone(), is_secret: true }.warning(), None);
        fs::write(&path, "").unwrap();
        for mode in [0o600, 0o400, 0o640, 0o440, 0o700] {
            assert_eq!(warning(mode, true), None, "{mode:o}");
        }
        let shown = path.display();
        for (mode, can) in [
            (0o644, "read"),
            (0o604, "read"),
            (0o660, "change"),
            (0o602, "change"),
            (0o666, "read and change"),
        ] {
            let expected = format!(
                "other users of this machine can {can} {shown}, the users_file (mode {mode:04o}): chmod 600 {shown}"
            );
            assert_eq!(warning(mode, true), Some(expected));
        }
        // Without a secret in it, it may be read.
        assert_eq!(warning(0o644, false), None);
        assert!(warning(0o646, false).unwrap().contains("can change"));
    }
}
