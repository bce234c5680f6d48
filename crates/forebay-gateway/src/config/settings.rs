//! The settings: their names, defaults and meanings, in one table.

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name in the file.
    pub key: &'static str,
    /// What kind of value it takes.
    pub kind: &'static str,
    /// What holds when it is not given; empty if nothing does.
    pub default: &'static str,
    /// What it sets.
    pub meaning: &'static str,
}

impl Setting {
    /// Its name as a flag, without the hyphens in front.
    #[must_use]
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// Its name in the environment.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.to_ascii_uppercase())
    }

    /// Whether it takes several values: an array in the file, with commas in between elsewhere.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.kind.ends_with(",...")
    }
}

/// Every variable begins with this.
pub(super) const PREFIX: &str = "FOREBAY_GATEWAY_";

/// Every setting, in the order of the manual.
pub const SETTINGS: &[Setting] = &[
    setting("listen", "ADDRESS,...", "127.0.0.1:6432", "where to listen for TCP connections; empty: nowhere"),
    setting(
        "unix_socket_dir",
        "DIRECTORY",
        "/tmp",
        "where the Unix socket is; its name has the first port of `listen`; empty: none",
    ),
    setting(
        "unix_socket_mode",
        "MODE",
        "0777, and 0700 with trust",
        "who may connect to the Unix socket, as an octal file mode",
    ),
    setting(
        "so_reuseport",
        "BOOLEAN",
        "false",
        "whether other processes may listen on the same port, such as a successor",
    ),
    setting("peer_id", "NUMBER", "", "the number of this process among its peers, from 1 to 255"),
    setting("peer_listen", "ADDRESS", "", "where to listen for cancel requests that peers pass on"),
    setting("peers", "ID=HOST:PORT,...", "", "the `peer_listen` of each peer"),
    setting(
        "auth",
        "METHOD",
        "scram",
        "how clients prove who they are: scram; or trust, for this machine only",
    ),
    setting("users_file", "FILE", "users.toml", "who may log in, and as which role"),
    setting("tls_cert_file", "FILE", "", "the certificate for clients, with its chain, in PEM"),
    setting("tls_key_file", "FILE", "", "the key of the certificate, in PEM"),
    setting("tls_client_ca_file", "FILE", "", "the authorities of client certificates, in PEM"),
    setting("tls_required", "BOOLEAN", "true", "whether clients of other machines must use TLS"),
    setting("mode", "MODE", "session", "how long a client keeps a backend: session or elastic"),
    setting(
        "release_after",
        "DURATION",
        "10s",
        "elastic: how long a client may be idle before its backend is released",
    ),
    setting("max_clients", "NUMBER", "10000", "clients"),
    setting(
        "max_clients_per_user",
        "NUMBER",
        "",
        "clients of one user, unless the users file says otherwise",
    ),
    setting("max_clients_per_address", "NUMBER", "", "clients of one address that is not of this machine"),
    setting("max_logins", "NUMBER", "5000", "clients that are logging in"),
    setting(
        "max_logins_per_address",
        "NUMBER",
        "1000",
        "of them, those of one address that is not of this machine",
    ),
    setting("max_message_size", "SIZE", "16MiB", "a message that is read as a whole, such as a statement"),
    setting("max_statements", "NUMBER", "5000", "prepared statements of a session"),
    setting("max_statements_size", "SIZE", "16MiB", "all prepared statements and portals of a session"),
    setting("backend_timeout", "DURATION", "30s", "how long a client waits for a backend"),
    setting("query_timeout", "DURATION", "0s", "how long a statement may take; 0s: no limit"),
    setting(
        "transaction_timeout",
        "DURATION",
        "0s",
        "how long a transaction may take; 0s: no limit but the cluster's",
    ),
    setting(
        "idle_in_transaction_timeout",
        "DURATION",
        "0s",
        "how long a client may be idle in a transaction; 0s: no limit",
    ),
    setting("idle_timeout", "DURATION", "0s", "how long a client may be idle; 0s: no limit"),
    setting("login_timeout", "DURATION", "30s", "how long a login may take"),
    setting("write_timeout", "DURATION", "2m", "how long a client may not read what is sent to it"),
    setting(
        "drain_grace",
        "DURATION",
        "30s",
        "how long clients may finish their transactions when the gateway ends",
    ),
    setting("metrics_listen", "ADDRESS", "", "where to serve /metrics, /healthz and /readyz"),
    setting("worker_threads", "NUMBER", "one for each processor", "threads that serve clients"),
    setting(
        "ignore_startup_parameters",
        "NAME,...",
        "",
        "start-up parameters that are dropped without an error",
    ),
];

const fn setting(
    key: &'static str,
    kind: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting { key, kind, default, meaning }
}

/// The manual's table of settings, in Markdown.
#[must_use]
pub fn manual() -> String {
    let rows = SETTINGS.iter().map(|setting| {
        let default = if setting.default.is_empty() { "none" } else { setting.default };
        format!("| `{}` | {} | {default} | {} |\n", setting.key, setting.kind.to_lowercase(), setting.meaning)
    });
    format!("| setting | value | default | meaning |\n|---|---|---|---|\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_one_name_in_three_spellings() {
        let setting = SETTINGS.iter().find(|setting| setting.key == "max_clients").unwrap();
        assert_eq!(setting.flag(), "max-clients");
        assert_eq!(setting.variable(), "FOREBAY_GATEWAY_MAX_CLIENTS");
        let keys: std::collections::BTreeSet<_> = SETTINGS.iter().map(|setting| setting.key).collect();
        assert_eq!(keys.len(), SETTINGS.len());
    }
}
