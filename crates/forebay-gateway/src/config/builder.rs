//! Collects settings from their sources, and checks them as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay::{ConfigError, Problem};

use super::settings::PREFIX;
use super::value::{Count, FileMode, Peer, PeerId, Size, Threads, Value};
use super::{
    Authentication, Draft, GatewayConfig, Limits, Peers, SETTINGS, Setting, Timeouts, TlsFiles, UnixSocket,
    place, text_file,
};
use crate::document::{Document, closest, scalar};

/// Collects the settings of a gateway. What is added later overrides what was added before. [`build`](Self::build) reports all
/// problems at once.
#[derive(Clone, Debug, Default)]
#[must_use = "call `build`"]
pub struct ConfigBuilder {
    values: BTreeMap<&'static str, Given>,
    problems: Vec<Problem>,
    /// The settings that have problems.
    wrong: BTreeSet<&'static str>,
    /// A file could not be read.
    is_partial: bool,
}

/// What a source says about a setting.
#[derive(Clone, Debug)]
struct Given {
    /// How the source names the setting.
    name: String,
    texts: Vec<String>,
    /// Relative paths begin here.
    directory: PathBuf,
}

impl ConfigBuilder {
    /// Reads a TOML file. Relative paths in it begin at its directory.
    pub fn file(mut self, path: &Path) -> Self {
        match text_file::read(path, "") {
            Ok(text) => self.toml(path, &text),
            Err(problem) => {
                self.problems.push(problem);
                self.is_partial = true;
                self
            }
        }
    }

    /// Reads the text of the TOML file at `path`.
    pub fn toml(mut self, path: &Path, text: &str) -> Self {
        let name = path.display().to_string();
        let document = match Document::parse(&name, text) {
            Ok(document) => document,
            Err(problems) => {
                self.problems.extend(problems);
                self.is_partial = true;
                return self;
            }
        };
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        let keys: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
        for (key, value) in document.root() {
            let own: &str = key.get_ref();
            let Some(setting) = SETTINGS.iter().find(|setting| setting.key == own) else {
                self.problems.push(document.unknown_key(key, &keys));
                continue;
            };
            let is_number = value.get_ref().as_integer().is_some();
            let texts = match value.get_ref().as_array() {
                // 511, the decimal, would be read as 0511.
                _ if is_number && setting.key == "unix_socket_mode" => None,
                Some(list) if setting.is_list() => list.iter().map(|entry| scalar(entry.get_ref())).collect(),
                _ => scalar(value.get_ref()).map(|text| split(setting, &text)),
            };
            // Its place is all that is needed of a problem.
            let place = document.problem(&key.span(), own, "", "").setting.into_owned();
            match texts {
                Some(texts) => {
                    let given = Given { name: place, texts, directory: directory.clone() };
                    self.values.insert(setting.key, given);
                }
                None => {
                    self.wrong.insert(setting.key);
                    self.problems.push(Problem {
                        setting: place.into(),
                        value: format!("of the type {}", value.get_ref().type_str()),
                        allowed: match (setting.key, setting.kind) {
                            ("unix_socket_mode", _) => "a string of octal digits, such as \"0770\"",
                            _ if setting.is_list() => "an array of strings",
                            (_, "NUMBER") => "a whole number, such as 1000",
                            (_, "BOOLEAN") => "true or false",
                            _ => "a string",
                        }
                        .to_owned(),
                    });
                }
            }
        }
        self
    }

    /// Reads the variables that begin with `FOREBAY_GATEWAY_`. Empty ones count as not set, unless that is what turns the setting off.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        for (name, value) in variables {
            if !name.starts_with(PREFIX) || name == "FOREBAY_GATEWAY_CONFIG" {
                continue;
            }
            let setting = SETTINGS.iter().find(|setting| setting.variable() == name);
            // That is how an unset variable arrives through most deployment tools.
            if value.is_empty() && setting.is_none_or(|setting| !CAN_BE_EMPTY.contains(&setting.key)) {
                continue;
            }
            match setting {
                Some(setting) => self.give(setting, name, &value),
                None => {
                    let known: Vec<String> = SETTINGS.iter().map(Setting::variable).collect();
                    let known: Vec<&str> = known.iter().map(String::as_str).collect();
                    let allowed = match closest(&name, &known) {
                        Some(close) => format!("a known one; did you mean {close}?"),
                        None => "one of the gateway's, such as FOREBAY_GATEWAY_LISTEN".to_owned(),
                    };
                    let setting = format!("the variable {name}").into();
                    self.problems.push(Problem { setting, value: "unknown".to_owned(), allowed });
                }
            }
        }
        self
    }

    /// Sets the setting with this key, as a flag does.
    pub fn flag(mut self, key: &str, value: &str) -> Self {
        match SETTINGS.iter().find(|setting| setting.key == key) {
            Some(setting) => self.give(setting, format!("--{}", setting.flag()), value),
            None => self.problems.push(Problem {
                setting: key.to_owned().into(),
                value: "unknown".to_owned(),
                allowed: "the key of a setting".to_owned(),
            }),
        }
        self
    }

    fn give(&mut self, setting: &Setting, name: String, value: &str) {
        let given = Given { name, texts: split(setting, value), directory: PathBuf::new() };
        self.values.insert(setting.key, given);
    }

    /// Checks everything together.
    ///
    /// # Errors
    /// Every problem, each with what is allowed.
    pub fn build(self) -> Result<GatewayConfig, ConfigError> {
        let Draft { config, problems, .. } = self.draft();
        if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }) }
    }

    /// Checks everything together, and keeps what is right.
    #[must_use]
    pub fn draft(mut self) -> Draft {
        let config = self.read();
        self.check(&config);
        let Self { values, problems, wrong, is_partial } = self;
        let names = values.into_iter().map(|(key, given)| (key, given.name)).collect();
        Draft { config, problems, is_partial, names, wrong }
    }

    /// Reads each setting. A wrong one gets its default, so that the others are checked, too.
    fn read(&mut self) -> GatewayConfig {
        let auth = self.one("auth").unwrap_or_default();
        let listen = self.list::<SocketAddr>("listen");
        let listen = listen.unwrap_or_else(|| vec![SocketAddr::from(([127, 0, 0, 1], PORT))]);
        let mode = if auth == Authentication::Trust { 0o700 } else { 0o777 };
        let mode = self.one::<FileMode>("unix_socket_mode").map_or(mode, |given| given.0);
        let port = listen.first().map_or(PORT, SocketAddr::port);
        let directory = self.path("unix_socket_dir");
        // A port that the system chooses is not known here, so the name would be that of no port.
        let directory = if self.values.contains_key("unix_socket_dir") {
            directory
        } else {
            (port != 0).then(|| PathBuf::from("/tmp"))
        };
        GatewayConfig {
            unix_socket: directory.map(|directory| UnixSocket { directory, port, mode }),
            so_reuseport: self.one("so_reuseport").unwrap_or(false),
            peers: self.peers(&listen),
            listen,
            auth,
            users_file: self.path("users_file").unwrap_or_else(|| "users.toml".into()),
            tls: self.tls(),
            mode: self.one("mode").unwrap_or_default(),
            release_after: self.time("release_after", 10),
            limits: Limits {
                clients: self.count("max_clients").unwrap_or(10_000),
                clients_per_user: self.count("max_clients_per_user"),
                clients_per_address: self.count("max_clients_per_address"),
                logins: self.count("max_logins").unwrap_or(5_000),
                logins_per_address: Some(self.count("max_logins_per_address").unwrap_or(1_000)),
                message_size: self.size("max_message_size"),
                statements: self.count("max_statements").unwrap_or(5_000),
                statements_size: self.size("max_statements_size"),
            },
            timeouts: Timeouts {
                backend: self.time("backend_timeout", 30),
                query: self.limit("query_timeout"),
                transaction: self.limit("transaction_timeout"),
                idle_in_transaction: self.limit("idle_in_transaction_timeout"),
                idle: self.limit("idle_timeout"),
                login: self.time("login_timeout", 30),
                write: self.time("write_timeout", 120),
            },
            drain_grace: self.time("drain_grace", 30),
            metrics_listen: self.one("metrics_listen"),
            worker_threads: self
                .one::<Threads>("worker_threads")
                .map(|threads| threads.0)
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
            ignore_startup_parameters: self.list("ignore_startup_parameters").unwrap_or_default(),
        }
    }

    fn tls(&mut self) -> Option<TlsFiles> {
        let required = self.one("tls_required").unwrap_or(true);
        let [cert, key, client_ca] =
            ["tls_cert_file", "tls_key_file", "tls_client_ca_file"].map(|key| self.path(key));
        let given = [("tls_cert_file", &cert), ("tls_key_file", &key), ("tls_client_ca_file", &client_ca)];
        let mut are_files = true;
        for (key, path) in given {
            // Another one could keep a start waiting forever.
            if let Some((path, kind)) =
                path.as_ref().and_then(|path| Some((path, text_file::not_regular(path)?)))
            {
                are_files = false;
                self.problem(key, &format!("{} ({kind})", path.display()), "a regular file");
            }
        }
        if !are_files {
            return None;
        }
        match (cert, key) {
            (Some(cert), Some(key)) => Some(TlsFiles { cert, key, client_ca, required }),
            (None, None) => {
                if client_ca.is_some() {
                    self.problem("tls_cert_file", "not set", "set, as tls_client_ca_file is");
                }
                None
            }
            (Some(_), None) => {
                self.problem("tls_key_file", "not set", "set, as tls_cert_file is");
                None
            }
            (None, Some(_)) => {
                self.problem("tls_cert_file", "not set", "set, as tls_key_file is");
                None
            }
        }
    }

    /// Everything about peers, or nothing.
    fn peers(&mut self, listens_on: &[SocketAddr]) -> Option<Peers> {
        let id = self.one::<PeerId>("peer_id").map(|id| id.0);
        let listen = self.one::<SocketAddr>("peer_listen");
        let others = self.list::<Peer>("peers").unwrap_or_default();
        let is_given = |key| self.values.contains_key(key);
        let (has_id, has_listen, has_peers) =
            (is_given("peer_id"), is_given("peer_listen"), is_given("peers"));
        if (has_listen || has_peers) && !has_id {
            let other = if has_peers { "peers" } else { "peer_listen" };
            self.problem("peer_id", "not set", &format!("set, as {other} is"));
        }
        if (has_id || has_peers) && !has_listen {
            let other = if has_peers { "peers" } else { "peer_id" };
            self.problem("peer_listen", "not set", &format!("set, as {other} is"));
        }
        if let Some(listen) = listen.filter(|listen| place::in_the_way(*listen, listens_on).is_some()) {
            self.problem("peer_listen", &listen.to_string(), "another address than those of listen");
        }
        let mut addresses = BTreeMap::new();
        for Peer { id, address } in others {
            if addresses.insert(id, address).is_some() {
                self.problem("peers", &format!("{id} twice"), "a list that has each number once");
            }
        }
        let (id, listen) = (id?, listen?);
        // All processes may have the same list.
        addresses.remove(&id);
        Some(Peers { id, listen, addresses })
    }

    /// What makes no sense together.
    fn check(&mut self, config: &GatewayConfig) {
        if config.listen.is_empty() && config.unix_socket.is_none() {
            self.problem("listen", "empty", "an address, unless unix_socket_dir is set");
        }
        let foreign: Vec<String> = config
            .listen
            .iter()
            .filter(|address| !address.ip().to_canonical().is_loopback())
            .map(ToString::to_string)
            .collect();
        let foreign = foreign.join(", ");
        if config.auth == Authentication::Trust && !foreign.is_empty() {
            let allowed =
                "of loopback addresses only, as auth is trust: everybody who can connect would be let in";
            self.problem("listen", &foreign, allowed);
        }
        let wants_tls = self.one("tls_required").unwrap_or(true);
        if config.tls.is_none() && wants_tls && !foreign.is_empty() && config.auth == Authentication::Scram {
            let allowed = "set, as listen has an address that other machines can reach; or allow connections without encryption: \
                           tls_required = false";
            self.problem("tls_cert_file", "not set", allowed);
        }
        for (at, address) in config.listen.iter().enumerate() {
            if let Some(other) = place::before(at, &config.listen) {
                let allowed = if other == *address {
                    "there once".to_owned()
                } else {
                    format!("left out, as clients of {other} come there, too; or on another port")
                };
                self.problem("listen", &address.to_string(), &allowed);
            }
        }
        if let Some(page) = config.metrics_listen.filter(|page| config.in_the_way_of(*page).is_some()) {
            let allowed = "another address than those of listen and peer_listen";
            self.problem("metrics_listen", &page.to_string(), allowed);
        }
        let zero = [
            ("login_timeout", config.timeouts.login),
            ("backend_timeout", config.timeouts.backend),
            ("write_timeout", config.timeouts.write),
        ];
        for (key, _) in zero.into_iter().filter(|(_, time)| time.is_zero()) {
            self.problem(key, "0s", "above zero");
        }
        let directory = config.unix_socket.as_ref().map(|socket| &socket.directory);
        // The kernel's limit for the address of a socket is 107, and it has a longer name while it is made.
        if directory.is_some_and(|directory| directory.as_os_str().len() > 90) {
            self.problem("unix_socket_dir", "too long", "a path of at most 90 bytes");
        }
    }

    /// Adds a problem with a setting, under the name that its source has for it.
    fn problem(&mut self, key: &'static str, value: &str, allowed: &str) {
        let setting = self.values.get(key).map_or(key.to_owned(), |given| given.name.clone()).into();
        let problem = Problem { setting, value: value.to_owned(), allowed: allowed.to_owned() };
        self.wrong.insert(key);
        // A setting may be read twice.
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// All values of a setting. None if it is not given, or if one of them is wrong.
    fn list<T: Value>(&mut self, key: &'static str) -> Option<Vec<T>> {
        let Given { texts, .. } = self.values.get(key)?.clone();
        let mut values = Vec::new();
        let mut is_right = true;
        for text in &texts {
            match T::read(text.trim()) {
                Some(value) => values.push(value),
                None => {
                    is_right = false;
                    self.problem(key, &format!("{text:?}"), T::ALLOWED);
                }
            }
        }
        is_right.then_some(values)
    }

    fn one<T: Value>(&mut self, key: &'static str) -> Option<T> {
        self.list(key)?.pop()
    }

    /// A path. None if it is not given, or empty.
    fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let given = self.values.get(key)?;
        let text = given.texts.last().filter(|text| !text.is_empty())?;
        Some(given.directory.join(text))
    }

    fn count(&mut self, key: &'static str) -> Option<usize> {
        self.one::<Count>(key).map(|count| count.0)
    }

    fn size(&mut self, key: &'static str) -> usize {
        self.one::<Size>(key).map_or(16 << 20, |size| size.0)
    }

    fn time(&mut self, key: &'static str, seconds: u64) -> Duration {
        self.one(key).unwrap_or(Duration::from_secs(seconds))
    }

    /// A duration whose zero means: no limit.
    fn limit(&mut self, key: &'static str) -> Option<Duration> {
        self.one::<Duration>(key).filter(|limit| !limit.is_zero())
    }
}

/// Settings that mean something when they are empty: nowhere, and none.
const CAN_BE_EMPTY: [&str; 2] = ["listen", "unix_socket_dir"];

/// The port of PgBouncer.
const PORT: u16 = 6432;

/// The values in one text.
fn split(setting: &Setting, text: &str) -> Vec<String> {
    match (setting.is_list(), text.trim()) {
        (true, "") => Vec::new(),
        (true, text) => text.split(',').map(|part| part.trim().to_owned()).collect(),
        (false, text) => vec![text.to_owned()],
    }
}

#[cfg(test)]
mod tests;
