//! Adds a user to a users file.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay::{ConfigError, Problem};

use super::{Hash, Mode, Network, ScramVerifier, UserDefaults, Users};
use crate::config::text_file;

/// PostgreSQL truncates longer names.
const LONGEST_NAME: usize = 63;

/// A user to be written to a file.
#[derive(Clone, Debug)]
pub struct NewUser {
    /// What clients call themselves.
    pub name: String,
    /// What proves the password; none for users with a certificate.
    pub verifier: Option<ScramVerifier>,
    /// The client certificate that is needed: a common name, or `sha256:` and a fingerprint.
    pub certificate: Option<String>,
    /// The role of the cluster.
    pub role: String,
    /// The database of the cluster, if not the usual one.
    pub database: Option<String>,
    /// The mode, if not the gateway's.
    pub mode: Option<Mode>,
    /// From where, if not from anywhere.
    pub allow: Vec<Network>,
}

impl NewUser {
    /// Whether it can be a user of any file.
    ///
    /// # Errors
    /// Every problem.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let names = [
            ("the name of the user", Some(&self.name)),
            ("the role", Some(&self.role)),
            ("the database", self.database.as_ref()),
        ];
        let problem = |(setting, name): (&'static str, Option<&String>)| {
            let name = name.filter(|name| !is_name(name))?;
            let allowed = format!("a name of 1 to {LONGEST_NAME} bytes");
            Some(Problem { setting: setting.into(), value: format!("{name:?}"), allowed })
        };
        let problems: Vec<Problem> = names.into_iter().filter_map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
    }

    /// The entry for a users file. It has a secret.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut entry = format!("[[user]]\nname = {}\n", quoted(&self.name));
        let mut add = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                entry += &format!("{key} = {value}\n");
            }
        };
        add("password", self.verifier.as_ref().map(|verifier| quoted(&verifier.to_text())));
        add("certificate", self.certificate.as_deref().map(quoted));
        add("role", Some(quoted(&self.role)));
        add("database", self.database.as_deref().map(quoted));
        add("mode", self.mode.map(|mode| quoted(mode.name())));
        let networks: Vec<String> = self.allow.iter().map(|network| quoted(&network.to_string())).collect();
        add("allow", (!networks.is_empty()).then(|| format!("[{}]", networks.join(", "))));
        entry
    }
}

/// Why a user was not added. The file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddUserError {
    /// The name is taken. Edit the file, or choose another name.
    #[error(
        "{path} has the user {name:?} already; to change the password, add --print to the command, put the line that begins with \
         password in the place of the one in the file, and send SIGHUP to the gateway",
        path = .path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The file, or the new entry, has problems. Correct them first.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    /// The file belongs to somebody for whom this process cannot make files. A gateway that runs as that user could not read another one.
    #[error(
        "the owner of {path} is {uid}:{gid}, and this process cannot keep that ({error}); run the command as that user or as root",
        path = .path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// The number of its user.
        uid: u32,
        /// The number of its group.
        gid: u32,
        /// What the operating system says.
        error: io::Error,
    },
    /// The file cannot be read or written.
    #[error("cannot write {path}: {error}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
}

/// Adds a user to the file at `path`, and makes the file if it is missing. Others see the old file or the new one, never a part. Of
/// several processes that do this at the same time, each adds its user. The file keeps its owner, group and mode; only its owner can
/// read a new one. `decoy_key` is random; a new file gets it.
///
/// # Errors
/// If the user exists, if the file has problems, and if it cannot be written.
pub fn add_user(path: &Path, user: &NewUser, decoy_key: &[u8; 32]) -> Result<(), AddUserError> {
    user.validate()?;
    if let Some(kind) = text_file::not_regular(path) {
        let setting = path.display().to_string().into();
        let problem = Problem { setting, value: kind.to_owned(), allowed: "a regular file".to_owned() };
        return Err(ConfigError { problems: vec![problem] }.into());
    }
    let failed = |error| AddUserError::Io { path: path.to_owned(), error };
    loop {
        // A file that another program is replacing by a link is followed once, so that the link stays.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let Some(mut old) = locked(&path).map_err(failed)? else {
            if path.is_symlink() {
                let error =
                    "it is a link to a file that is missing; make that file first, or remove the link";
                return Err(failed(io::Error::other(error)));
            }
            let part = Part::write(&path, &with_user(&path, None, user, decoy_key)?).map_err(failed)?;
            match part.put_if_none(&path) {
                // Another process has made one.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => return made.map_err(failed),
            }
        };
        let mut text = String::new();
        old.read_to_string(&mut text).map_err(failed)?;
        let part = Part::write(&path, &with_user(&path, Some(&text), user, decoy_key)?).map_err(failed)?;
        let kept = old.metadata().map_err(failed)?;
        let (uid, gid) = (kept.uid(), kept.gid());
        part.belong_to(uid, gid).map_err(|error| AddUserError::Owner {
            path: path.clone(),
            uid,
            gid,
            error,
        })?;
        part.file.set_permissions(Permissions::from_mode(kept.mode() & 0o7777)).map_err(failed)?;
        return part.replace(&path).map_err(failed);
    }
}

/// The file, while no other process adds a user to it. None if there is no file.
///
/// The lock is that of the file itself: only those who may open it can hold it, and nothing is left of it.
fn locked(path: &Path) -> io::Result<Option<File>> {
    loop {
        // Where the file is in a network, only those who may write to it can lock it.
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let opened = match opened {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(path),
            opened => opened,
        };
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        file.lock()?;
        // Whoever had the lock has put another file in its place.
        let own = file.metadata()?;
        if fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino())) {
            return Ok(Some(file));
        }
    }
}

/// The text of the file with the user.
fn with_user(
    path: &Path,
    old: Option<&str>,
    user: &NewUser,
    decoy_key: &Hash,
) -> Result<String, AddUserError> {
    let name = path.display().to_string();
    // Whether a user needs a password is the gateway's decision, not this file's.
    let defaults = UserDefaults { trust: true, ..UserDefaults::default() };
    if let Some(old) = old.filter(|old| !old.trim().is_empty()) {
        let has_entry = old.lines().any(|line| line.trim_start().starts_with("[[user]]"));
        let users = if has_entry { Some(Users::parse(&name, old, &defaults)?) } else { None };
        if users.is_some_and(|users| users.find(&user.name).is_some()) {
            return Err(AddUserError::Exists { path: path.to_owned(), name: user.name.clone() });
        }
    }
    let new = match old {
        Some(old) if !old.trim().is_empty() => format!("{}\n\n{}", old.trim_end(), user.to_toml()),
        _ => format!(
            "# Users of the gateway. This file has secrets: only its owner may read it.\n# Names that do not exist are answered like \
             others, with salts made from this key. Give all gateways the same file.\ndecoy_key = {}\n\n{}",
            quoted(&STANDARD.encode(decoy_key)),
            user.to_toml()
        ),
    };
    // What is written can be read.
    Users::parse(&name, &new, &defaults)?;
    Ok(new)
}

/// A file beside the users file, until it takes its place. Only its owner can read it.
struct Part {
    path: PathBuf,
    file: File,
    has_moved: bool,
}

impl Part {
    fn write(beside: &Path, text: &str) -> io::Result<Self> {
        let mut path = beside.as_os_str().to_owned();
        path.push(format!(".{}.part", std::process::id()));
        let path = PathBuf::from(path);
        // A file of this name is of a process that has ended, or it is a trap: it is not written to.
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = opened.map_err(|error| {
            let remedy = format!("{}: {error}; remove it, unless another process uses it", path.display());
            if error.kind() == io::ErrorKind::AlreadyExists { io::Error::other(remedy) } else { error }
        })?;
        let mut part = Self { path, file, has_moved: false };
        part.file.write_all(text.as_bytes())?;
        Ok(part)
    }

    fn belong_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        let own = self.file.metadata()?;
        // Also those may do this who may not give files away.
        if (own.uid(), own.gid()) == (uid, gid) { Ok(()) } else { fchown(&self.file, Some(uid), Some(gid)) }
    }

    fn replace(mut self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, path)?;
        self.has_moved = true;
        Ok(())
    }

    /// Unlike a renamed file, a link replaces nothing.
    fn put_if_none(self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::hard_link(&self.path, path)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Another process may use the name by now.
        if !self.has_moved {
            // If it cannot be removed, its name says that it is a part.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_name(text: &str) -> bool {
    (1..=LONGEST_NAME).contains(&text.len()) && !text.contains('\0')
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted += &format!("\\u{:04X}", u32::from(letter)),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> NewUser {
        NewUser {
            name: name.to_owned(),
            verifier: Some(ScramVerifier::derive("secret", b"salt", 2)),
            certificate: None,
            role: "r\"\\\u{7}".to_owned(),
            database: Some("postgres".to_owned()),
            mode: Some(Mode::Elastic),
            allow: vec![Network::Unix],
        }
    }

    fn add(old: Option<&str>, name: &str) -> Result<String, AddUserError> {
        with_user(Path::new("users.toml"), old, &user(name), &[7; 32])
    }

    #[test]
    fn what_is_written_can_be_read() {
        let first = add(None, "a").unwrap();
        let second = add(Some(&format!("{first}# kept\n")), "b").unwrap();
        assert!(second.contains("# kept"));
        let users = Users::parse("users.toml", &second, &UserDefaults::default()).unwrap();
        let read = users.find("b").unwrap();
        assert_eq!((read.role.as_str(), read.mode), ("r\"\\\u{7}", Mode::Elastic));
        assert_eq!(read.allow, [Network::Unix]);
        assert_eq!(users.len(), 2);
        assert_eq!(users.decoy_key, Some([7; 32]));
    }

    #[test]
    fn a_name_is_not_taken_twice_and_a_broken_file_is_not_touched() {
        let first = add(None, "a").unwrap();
        assert!(matches!(add(Some(&first), "a"), Err(AddUserError::Exists { .. })));
        assert!(matches!(add(Some("[[user]]\nrol = 1\n"), "a"), Err(AddUserError::Invalid(_))));
        assert!(matches!(add(Some("nonsense"), "a"), Err(AddUserError::Invalid(_))));
        assert!(matches!(add(None, ""), Err(AddUserError::Invalid(_))));
        assert!(add(Some("# only a comment\n"), "a").unwrap().starts_with("# only a comment\n"));
    }

    #[test]
    fn a_user_that_cannot_be_is_no_problem_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        let wrong = NewUser { role: String::new(), database: Some("x".repeat(64)), ..user("") };
        let said = add_user(&path, &wrong, &[7; 32]).unwrap_err().to_string();
        for expected in [
            "the name of the user is \"\", but must be a name of 1 to 63 bytes",
            "the role is \"\", but must be",
            "the database is \"xxx",
        ] {
            assert!(said.contains(expected) && !said.contains("users.toml"), "{said}");
        }
        let said = add_user(directory.path(), &user("a"), &[7; 32]).unwrap_err();
        assert!(said.to_string().ends_with("is a directory, but must be a regular file"), "{said}");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("missing", &link).unwrap();
        let said = add_user(&link, &user("a"), &[7; 32]).unwrap_err().to_string();
        assert!(said.contains("it is a link to a file that is missing"), "{said}");
        let said = add_user(&directory.path().join("x/users.toml"), &user("a"), &[7; 32]).unwrap_err();
        assert!(std::error::Error::source(&said).is_none(), "it would be said twice: {said}");
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn only_the_owner_can_read_a_new_file_and_an_old_one_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        add_user(&path, &user("a"), &[7; 32]).unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        add_user(&path, &user("b"), &[8; 32]).unwrap();
        assert_eq!(mode(&path), 0o640, "those of its group can still read it");
        assert!(matches!(add_user(&path, &user("b"), &[8; 32]), Err(AddUserError::Exists { .. })));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn what_a_process_has_left_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        let part = directory.path().join(format!("users.toml.{}.part", std::process::id()));
        fs::write(&part, "mine").unwrap();
        let said = add_user(&path, &user("a"), &[7; 32]).unwrap_err().to_string();
        assert!(said.contains(".part: File exists") && said.contains("remove it, unless"), "{said}");
        assert_eq!(fs::read(&part).unwrap(), b"mine");
    }

    /// A gateway that is not root's reads it.
    #[test]
    fn the_file_keeps_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        add_user(&path, &user("a"), &[7; 32]).unwrap();
        // Only root may give a file away; others keep what is theirs.
        let owner = match std::os::unix::fs::chown(&path, Some(65_534), Some(65_533)) {
            Ok(()) => (65_534, 65_533),
            Err(_) => (fs::metadata(&path).unwrap().uid(), fs::metadata(&path).unwrap().gid()),
        };
        add_user(&path, &user("b"), &[7; 32]).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid()), owner);
        assert_eq!(mode(&path), 0o600);
    }

    /// Threads stand for processes: each opens the file itself. Only the names of their parts are the same, so some are refused.
    #[test]
    fn nobody_who_is_told_of_success_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        let added = std::thread::scope(|scope| {
            let tasks: Vec<_> = (0..20)
                .map(|number| {
                    let path = &path;
                    let name = format!("u{number}");
                    scope.spawn(move || add_user(path, &user(&name), &[7; 32]).is_ok().then_some(name))
                })
                .collect();
            tasks.into_iter().filter_map(|task| task.join().unwrap()).collect::<Vec<_>>()
        });
        let users = Users::load(&path, &UserDefaults::default()).unwrap();
        assert_eq!(users.len(), added.len());
        assert!(!added.is_empty() && added.iter().all(|name| users.find(name).is_some()));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left");
    }
}
