//! Reads a users file, and finds every problem in it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay::Problem;
use toml::de::{DeTable, DeValue};

use super::{CertificateRule, Hash, Mode, Network, User, UserDefaults, Users};
use crate::document::{Document, scalar, shown};

const KEYS: [&str; 9] =
    ["name", "password", "certificate", "role", "database", "mode", "release_after", "max_clients", "allow"];

/// PostgreSQL truncates longer names.
const LONGEST_NAME: usize = 63;

pub(super) fn read(name: &str, text: &str, defaults: &UserDefaults) -> Result<Users, Vec<Problem>> {
    let document = Document::parse(name, text)?;
    let mut problems = Vec::new();
    let mut users = BTreeMap::new();
    let mut decoy_key = None;
    for (key, value) in document.root() {
        let key_name: &str = key.get_ref();
        match (key_name, value.get_ref()) {
            ("user", DeValue::Array(entries)) => {
                for entry in entries.iter() {
                    let DeValue::Table(table) = entry.get_ref() else {
                        problems.push(document.problem(
                            &entry.span(),
                            "user",
                            "not a table",
                            "written as [[user]]",
                        ));
                        continue;
                    };
                    let at = entry.span();
                    let Some(user) =
                        Entry { document: &document, table, at: at.clone() }.read(defaults, &mut problems)
                    else {
                        continue;
                    };
                    if users.contains_key(&user.name) {
                        let what = format!("the user {:?}", user.name);
                        problems.push(document.problem(&at, &what, "there twice", "there once"));
                        continue;
                    }
                    users.insert(user.name.clone(), Arc::new(user));
                }
            }
            ("user", _) => {
                problems.push(document.problem(
                    &value.span(),
                    "user",
                    "not a list of tables",
                    "written as [[user]]",
                ));
            }
            ("decoy_key", DeValue::String(text)) => {
                let key: Option<Hash> =
                    STANDARD.decode(text.as_bytes()).ok().and_then(|key| key.try_into().ok());
                if key.is_none() {
                    let allowed = "32 random bytes in base64";
                    problems.push(document.problem(&value.span(), "decoy_key", "something else", allowed));
                }
                decoy_key = key;
            }
            _ => problems.push(document.unknown_key(key, &["user", "decoy_key"])),
        }
    }
    if users.is_empty() && problems.is_empty() {
        let allowed = "those who may log in; `forebay gateway add-user` adds one";
        problems.push(document.problem(&(0..0), "the list of users", "empty", allowed));
    }
    if problems.is_empty() {
        return Ok(Users::new(users, decoy_key));
    }
    let found = problems.len();
    document.limit(&mut problems, found);
    Err(problems)
}

/// One `[[user]]`.
struct Entry<'a, 'i> {
    document: &'a Document<'i>,
    table: &'a DeTable<'i>,
    at: Range<usize>,
}

impl Entry<'_, '_> {
    /// The user, if it has a name and a role. Everything wrong with it is added to `problems`.
    fn read(&self, defaults: &UserDefaults, problems: &mut Vec<Problem>) -> Option<User> {
        for (key, _) in self.table {
            let known: &str = key.get_ref();
            if !KEYS.contains(&known) {
                problems.push(self.document.unknown_key(key, &KEYS));
            }
        }
        let named = |text: &str| {
            (!text.is_empty() && text.len() <= LONGEST_NAME && !text.contains('\0')).then(|| text.to_owned())
        };
        let a_name = "a name of 1 to 63 bytes";
        let name = self.value("name", named, a_name, problems);
        if name.is_none() && !self.table.contains_key("name") {
            problems.push(self.problem("the name of a user", "missing", a_name));
        }
        let of = |what: &str| match &name {
            Some(name) => format!("the {what} of user {name:?}"),
            None => format!("the {what} of a user"),
        };
        let role = self.value("role", named, "the name of a role of the cluster", problems);
        if role.is_none() && !self.table.contains_key("role") {
            let allowed = "the name of a role of the cluster: role = \"...\"";
            problems.push(self.problem(&of("role"), "missing", allowed));
        }
        // What is wrong with it is not shown: it may be the password itself.
        let password = "a SCRAM verifier, SCRAM-SHA-256$4096:salt$StoredKey:ServerKey; `forebay gateway add-user` makes one";
        let verifier = self.secret("password", password, problems);
        let rule = "the common name of a certificate, or sha256: with 64 hexadecimal digits";
        let certificate =
            self.value("certificate", |text| text.parse::<CertificateRule>().ok(), rule, problems);
        let has_proof = self.table.contains_key("password") || self.table.contains_key("certificate");
        if !has_proof && !defaults.trust {
            let allowed = "given, unless there is a certificate: password = \"SCRAM-SHA-256$...\"; `forebay gateway add-user` makes one";
            problems.push(self.problem(&of("password"), "missing", allowed));
        }
        let database = self.value("database", named, "the name of a database of the cluster", problems);
        let mode = self.value("mode", Mode::from_name, "session or elastic", problems);
        let positive = |text: &str| forebay::duration::parse(text);
        let release_after = self.value("release_after", positive, "a duration, such as 10s", problems);
        let count = |text: &str| text.parse::<usize>().ok().filter(|count| *count > 0);
        let max_clients = self.value("max_clients", count, "a number above zero", problems);
        let allow = self.networks(problems);
        Some(User {
            name: name?,
            verifier,
            certificate,
            role: role?,
            database: database.unwrap_or_else(|| "postgres".to_owned()),
            mode: mode.unwrap_or(defaults.mode),
            release_after: release_after.unwrap_or(defaults.release_after),
            max_clients: max_clients.or(defaults.max_clients),
            allow,
        })
    }

    fn value<T>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Option<T>,
        allowed: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        let value = self.table.get(key)?;
        let text = scalar(value.get_ref());
        let read = text.as_deref().and_then(read);
        if read.is_none() {
            let shown = text.map_or_else(|| value.get_ref().type_str().to_owned(), |text| shown(&text));
            problems.push(self.document.problem(&value.span(), key, &shown, allowed));
        }
        read
    }

    fn secret<T: std::str::FromStr>(
        &self,
        key: &str,
        allowed: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        let value = self.table.get(key)?;
        let read = value.get_ref().as_str().and_then(|text| text.parse().ok());
        if read.is_none() {
            problems.push(self.document.problem(&value.span(), key, "something else (not shown)", allowed));
        }
        read
    }

    fn networks(&self, problems: &mut Vec<Problem>) -> Vec<Network> {
        const ALLOWED: &str = "a list of networks, such as [\"10.0.0.0/8\", \"unix\"]";
        let Some(value) = self.table.get("allow") else { return Vec::new() };
        let Some(list) = value.get_ref().as_array() else {
            problems.push(self.document.problem(&value.span(), "allow", value.get_ref().type_str(), ALLOWED));
            return Vec::new();
        };
        if list.is_empty() {
            problems.push(self.document.problem(
                &value.span(),
                "allow",
                "empty",
                "absent, or a list of networks",
            ));
        }
        let mut networks = Vec::new();
        for entry in list.iter() {
            match entry.get_ref().as_str().and_then(|text| text.parse().ok()) {
                Some(network) => networks.push(network),
                None => {
                    let text = scalar(entry.get_ref()).unwrap_or_default();
                    problems.push(self.document.problem(&entry.span(), "allow", &shown(&text), ALLOWED));
                }
            }
        }
        networks
    }

    fn problem(&self, what: &str, value: &str, allowed: &str) -> Problem {
        self.document.problem(&self.at, what, value, allowed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::ScramVerifier;
    use super::*;

    fn read(text: &str) -> Result<Users, String> {
        let defaults = UserDefaults::default();
        super::read("users.toml", text, &defaults)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    fn verifier() -> String {
        ScramVerifier::derive("secret", b"salt", 2).to_text()
    }

    #[test]
    fn a_user_has_defaults() {
        let text = format!(
            "[[user]]\nname = 'app'\npassword = '{}'\nrole = 'writer'\n\n[[user]]\nname = 'bi'\ncertificate = 'bi'\n\
             role = 'reader'\ndatabase = 'other'\nmode = 'elastic'\nrelease_after = '1m'\nmax_clients = 5\n\
             allow = ['10.0.0.0/8', 'unix']\n",
            verifier()
        );
        let users = read(&text).unwrap();
        let app = users.find("app").unwrap();
        assert_eq!(
            (app.role.as_str(), app.database.as_str(), app.mode),
            ("writer", "postgres", Mode::Session)
        );
        assert_eq!(app.verifier.as_ref().unwrap().to_text(), verifier());
        assert!(app.is_allowed_from(None) && app.max_clients.is_none());
        let bi = users.find("bi").unwrap();
        assert_eq!(
            (bi.mode, bi.release_after, bi.max_clients),
            (Mode::Elastic, Duration::from_secs(60), Some(5))
        );
        assert!(bi.is_allowed_from(None) && bi.is_allowed_from("10.1.1.1".parse().ok()));
        assert!(!bi.is_allowed_from("127.0.0.1".parse().ok()));
        assert_eq!(users.roles(), [("reader", "other"), ("writer", "postgres")]);
        assert!(users.find("APP").is_none());
    }

    #[test]
    fn every_problem_is_reported_at_once_with_its_line() {
        let text = "decoykey = 'x'\n[[user]]\nname = ''\nrol = 'x'\n[[user]]\nname = 'a'\nrole = 'r'\npassword = 'hunter2'\n\
                    [[user]]\nname = 'b'\nrole = 'r'\nmode = 'transaction'\nallow = ['10.1.1.1/8']\nrelease_after = 'soon'\n\
                    max_clients = 0\ncertificate = ''\n";
        let said = read(text).unwrap_err();
        for expected in [
            "users.toml:1: the key \"decoykey\" is unknown, but must be a known one; did you mean decoy_key?",
            "users.toml:3: name is \"\", but must be a name of 1 to 63 bytes",
            "users.toml:4: the key \"rol\" is unknown, but must be a known one; did you mean role?",
            "users.toml:2: the role of a user is missing",
            "users.toml:2: the password of a user is missing",
            "users.toml:8: password is something else (not shown), but must be a SCRAM verifier",
            "users.toml:12: mode is \"transaction\", but must be session or elastic",
            "users.toml:13: allow is \"10.1.1.1/8\"",
            "users.toml:14: release_after is \"soon\"",
            "users.toml:15: max_clients is \"0\"",
            "users.toml:16: certificate is \"\"",
        ] {
            assert!(said.contains(expected), "{expected}\n---\n{said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    }

    /// With a count of lines for each problem, this took 10 s.
    #[test]
    fn many_problems_are_found_at_once_and_the_first_are_listed() {
        let text = "# a comment that makes each entry longer\n[[user]]\nname = ''\nrol = 'x'\nmode = 'y'\n"
            .repeat(20_000);
        let said = read(&text).unwrap_err();
        assert_eq!(said.lines().count(), 51);
        assert!(said.contains("users.toml:4: the key \"rol\" is unknown"), "{said}");
        assert!(said.contains("users.toml: the rest is wrong in 99950 more places"), "{said}");
    }

    #[test]
    fn a_verifier_in_the_wrong_place_is_not_shown() {
        let verifier = verifier();
        let text = format!(
            "'{verifier}' = 1\n[[user]]\n'{verifier}' = 1\nname = '{verifier}'\nrole = '{verifier}'\nmode = '{verifier}'\n\
             certificate = 'sha256:{verifier}'\nallow = ['{verifier}']\n"
        );
        let said = read(&text).unwrap_err();
        assert!(!said.contains(&verifier[20..40]), "{said}");
        assert!(said.contains("users.toml:4: name is a text of"), "{said}");
    }

    #[test]
    fn a_name_is_there_once_and_a_file_is_not_empty() {
        let user = format!("[[user]]\nname = 'a'\nrole = 'r'\npassword = '{}'\n", verifier());
        assert!(read(&user.repeat(2)).unwrap_err().contains("the user \"a\" is there twice"));
        assert!(read("").unwrap_err().contains("the list of users is empty"));
        assert!(read("user = 1").unwrap_err().contains("written as [[user]]"));
    }

    #[test]
    fn trust_needs_no_password() {
        let text = "[[user]]\nname = 'a'\nrole = 'r'\n";
        assert!(read(text).unwrap_err().contains("the password of user \"a\" is missing"));
        let defaults = UserDefaults { trust: true, ..UserDefaults::default() };
        assert!(super::super::Users::parse("users.toml", text, &defaults).is_ok());
    }
}
