//! Adds a user to a users file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay::ConfigError;

use super::{Hash, Mode, Network, ScramVerifier, UserDefaults, Users};

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
    #[error("{path} has the user {name:?} already; edit the file to change it", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The file, or the new entry, has problems. Correct them first.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    /// The file cannot be read or written.
    #[error("cannot write {path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

/// Adds a user to the file at `path`, and makes the file if it is missing. Others see the old file or the new one, never a part.
/// Only its owner can read it. `decoy_key` is random; a new file gets it.
///
/// # Errors
/// If the user exists, if the file has problems, and if it cannot be written.
pub fn add_user(path: &Path, user: &NewUser, decoy_key: &[u8; 32]) -> Result<(), AddUserError> {
    let failed = |source| AddUserError::Io { path: path.to_owned(), source };
    // A file that another program is replacing by a link is followed once, so that the link stays.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = match fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let new = with_user(&path, old.as_deref(), user, decoy_key)?;
    replace(&path, &new).map_err(failed)
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

/// Replaces the file as a whole, with mode 0600.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(name);
    let write = || {
        let mut options = OpenOptions::new();
        // A file of this name is of a process that has ended, or it is a trap: it is not written to.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().inspect_err(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            // If it cannot be removed, its name says that it is a part.
            let _ = fs::remove_file(&part);
        }
    })
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
    #[cfg(unix)]
    fn only_the_owner_can_read_the_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = std::env::temp_dir().join(format!("forebay-gateway-users-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("users.toml");
        add_user(&path, &user("a"), &[7; 32]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        add_user(&path, &user("b"), &[8; 32]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(add_user(&path, &user("b"), &[8; 32]), Err(AddUserError::Exists { .. })));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}
