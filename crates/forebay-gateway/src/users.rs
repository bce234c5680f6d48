//! The users file: who may log in, and which role of the cluster they get.
//!
//! The mapping from a client to a role is the gateway's security boundary. It comes from this file alone; nothing that a client
//! sends can change it.
//!
//! ```toml
//! [[user]]
//! name = "app"                                          # what the client calls itself
//! password = "SCRAM-SHA-256$4096:salt$StoredKey:ServerKey"
//! role = "app_writer"                                   # the role of the cluster
//! mode = "elastic"
//! allow = ["10.0.0.0/8", "unix"]
//! ```

mod add_user;
mod certificate_rule;
mod network;
mod reader;
mod verifier;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::ConfigError;

use crate::config::text_file;
pub use add_user::{AddUserError, NewUser, add_user};
pub use certificate_rule::{CertificateRule, InvalidCertificateRule};
pub use network::{InvalidNetwork, Network};
pub(crate) use verifier::Hash;
#[cfg(test)]
pub(crate) use verifier::SIGNED;
use verifier::VerifierShape;
pub use verifier::{ITERATIONS, InvalidVerifier, ScramVerifier};

/// How long a client keeps a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// For as long as the client is connected.
    #[default]
    Session,
    /// Until the client has been idle for a while, or another client needs it.
    Elastic,
}

impl Mode {
    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Elastic => "elastic",
        }
    }

    /// The mode with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Session, Self::Elastic].into_iter().find(|mode| mode.name() == name)
    }
}

/// One who may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// What clients call themselves.
    pub name: String,
    /// What proves the password. Without it, a certificate is needed, or `auth = "trust"`.
    pub verifier: Option<ScramVerifier>,
    /// The client certificate that is needed, in addition to the password if there is one.
    pub certificate: Option<CertificateRule>,
    /// The role of the cluster.
    pub role: String,
    /// The database of the cluster.
    pub database: String,
    /// How long a client keeps a backend.
    pub mode: Mode,
    /// In mode `elastic`: how long a client may be idle before its backend is released.
    pub release_after: Duration,
    /// How many clients of this user there may be at once. `None`: as many as the gateway admits.
    pub max_clients: Option<usize>,
    /// From where. Empty: from anywhere.
    pub allow: Vec<Network>,
}

impl User {
    /// Whether a client with this address may be this user. A client of the Unix socket has none.
    #[must_use]
    pub fn is_allowed_from(&self, address: Option<IpAddr>) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|network| network.contains(address))
    }
}

/// What holds for users that do not say it themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserDefaults {
    /// Their mode.
    pub mode: Mode,
    /// How long an elastic client may be idle before its backend is released.
    pub release_after: Duration,
    /// How many clients of each user there may be.
    pub max_clients: Option<usize>,
    /// Whether users need neither a password nor a certificate.
    pub trust: bool,
}

impl Default for UserDefaults {
    fn default() -> Self {
        Self { mode: Mode::Session, release_after: Duration::from_secs(10), max_clients: None, trust: false }
    }
}

/// All who may log in.
#[derive(Clone, PartialEq, Eq)]
pub struct Users {
    users: BTreeMap<String, Arc<User>>,
    /// Makes the salts of users that do not exist. A file that names one keeps them the same in every process and after a
    /// restart, as those of users that exist.
    decoy_key: Option<Hash>,
    /// What shows of each verifier before its password is proved, in order.
    shapes: Vec<VerifierShape>,
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Users").field(&self.users).finish()
    }
}

impl Users {
    /// Reads a users file.
    ///
    /// # Errors
    /// Every problem, each with its line and what is allowed. None of them shows a secret.
    pub fn load(path: &Path, defaults: &UserDefaults) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let remedy = format!("; `forebay gateway add-user NAME --role ROLE --users-file {name}` makes one");
        match text_file::read(path, &remedy) {
            Ok(text) => Self::parse(&name, &text, defaults),
            Err(problem) => Err(ConfigError { problems: vec![problem] }),
        }
    }

    /// Reads the text of a users file called `name`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(name: &str, text: &str, defaults: &UserDefaults) -> Result<Self, ConfigError> {
        reader::read(name, text, defaults).map_err(|problems| ConfigError { problems })
    }

    pub(crate) fn new(users: BTreeMap<String, Arc<User>>, decoy_key: Option<Hash>) -> Self {
        let verifiers = users.values().filter_map(|user| user.verifier.as_ref());
        let mut shapes: Vec<VerifierShape> = verifiers.map(ScramVerifier::shape).collect();
        shapes.sort_unstable();
        Self { users, decoy_key, shapes }
    }

    /// The user with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// All users, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The pools that are needed: each role with its database, once.
    #[must_use]
    pub fn roles(&self) -> Vec<(&str, &str)> {
        let mut roles: Vec<(&str, &str)> =
            self.iter().map(|user| (user.role.as_str(), user.database.as_str())).collect();
        roles.sort_unstable();
        roles.dedup();
        roles
    }

    /// Whether the file has a key for names that do not exist.
    pub(crate) const fn has_decoy_key(&self) -> bool {
        self.decoy_key.is_some()
    }

    /// Whether the file has something that nobody else may know.
    pub(crate) fn has_secrets(&self) -> bool {
        self.has_decoy_key() || self.has_verifiers()
    }

    /// Whether somebody has a password.
    pub(crate) const fn has_verifiers(&self) -> bool {
        !self.shapes.is_empty()
    }

    /// A verifier that looks like that of a real user, and fits no password.
    pub(crate) fn decoy(&self, name: &str, process_key: &Hash) -> ScramVerifier {
        ScramVerifier::decoy(self.decoy_key.as_ref().unwrap_or(process_key), name, &self.shapes)
    }
}
