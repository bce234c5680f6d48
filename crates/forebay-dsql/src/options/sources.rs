//! Options from a URL and from the environment.

use std::collections::BTreeMap;

use forebay::{ConfigError, Problem};
use percent_encoding::percent_decode_str;

use super::builder::{Given, Parsed, Roots, Variables};
use super::{Options, OptionsBuilder};
use crate::settings::{Origin, closest, process_variables};
use crate::variables::{self, Variable};

impl Options {
    /// Reads `dsql://user@host:port/database?key=value&...`. All but the host may be left out. Keys are `region`,
    /// `address`, `root_file`, `direct_tls`, `application_name`, `pool`, and the [variables](crate::variables) in lower
    /// case without `DSQL_`: `max_conns`, `reservoir_enabled`, `token_duration` and so on.
    ///
    /// `postgres://` and `postgresql://` mean the same, and PostgreSQL's own keys `sslmode`, `sslrootcert`,
    /// `sslnegotiation` and `hostaddr` are understood. TLS is always used and the server's certificate always checked, as
    /// with `sslmode=verify-full`. A password is an error: a token takes its place.
    ///
    /// # Errors
    /// Every problem, each with what is allowed.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        OptionsBuilder::from_url(url).build()
    }

    /// Reads the environment of this process: `CLUSTER_ENDPOINT`, `REGION`, `DSQL_*` and those listed at
    /// [`from_variables`](Self::from_variables).
    ///
    /// # Errors
    /// Every problem, each with its variable and what is allowed.
    pub fn from_env() -> Result<Self, ConfigError> {
        OptionsBuilder::from_env().build()
    }

    /// Reads these variables as an environment: the [`DSQL_` ones](crate::variables), and `CLUSTER_USER` or `PGUSER`, `PGPORT`, `PGDATABASE`,
    /// `PGHOSTADDR` (the address), `PGSSLROOTCERT` (the root file), `PGSSLNEGOTIATION` (`direct` or `postgres`) and
    /// `PGAPPNAME`.
    ///
    /// # Errors
    /// Every problem, each with its variable and what is allowed.
    pub fn from_variables<N: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, ConfigError> {
        OptionsBuilder::from_variables(variables).build()
    }
}

impl OptionsBuilder {
    /// As [`Options::from_url`], for a program that sets more in code.
    pub fn from_url(url: &str) -> Self {
        let mut builder = Self { origin: Origin::Url, ..Self::default() };
        let schemes = ["dsql://", "postgres://", "postgresql://"];
        let Some(rest) = schemes.iter().find_map(|scheme| url.strip_prefix(scheme)) else {
            // The rest of it is not read: it may hold a password.
            builder.unread = true;
            return builder.refuse_scheme(url);
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        if is_torn_by_password(authority, database, query) {
            builder.unread = true;
            return builder.refuse_password();
        }
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let user = match user.and_then(|user| user.split_once(':')) {
            Some((user, _password)) => {
                builder = builder.refuse_password();
                Some(user)
            }
            None => user,
        };
        if database.contains('/') {
            builder = builder.with_problem("the path of the URL", database, "the name of a database");
        }
        builder.host = builder.part("host", host);
        builder.user = user.filter(|user| !user.is_empty()).and_then(|user| builder.part("user", user));
        let database = Some(database).filter(|name| !name.is_empty());
        builder.database = database.and_then(|database| builder.part("database", database));
        let mut keys = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value)));
            let Some(key) = builder.decoded(key).map(|key| key.to_ascii_lowercase()) else { continue };
            builder = match value {
                _ if keys.contains(&key) => builder.with_problem(A_KEY, &key, "given once"),
                None => builder.with_problem(A_KEY, &key, "followed by = and a value"),
                Some(value) => match builder.decoded(value) {
                    Some(value) => builder.key(&key, value),
                    None => builder,
                },
            };
            keys.push(key);
        }
        builder
    }

    fn key(mut self, key: &str, value: String) -> Self {
        match key {
            "region" => return self.region(value),
            "address" => self.address = Some(Given::new("address", value)),
            "hostaddr" => self.address = Some(Given::new("hostaddr", value)),
            // PostgreSQL's word for the authorities that are trusted anyway.
            "sslrootcert" if value == "system" => {}
            "root_file" => self.roots = Some(Roots::File(Given::new("root_file", value.into()))),
            "sslrootcert" => self.roots = Some(Roots::File(Given::new("sslrootcert", value.into()))),
            "direct_tls" => self.direct_tls = Some(Given::new("direct_tls", direct_tls(value))),
            "sslnegotiation" => self.direct_tls = Some(Given::new("sslnegotiation", direct_tls(value))),
            "sslmode" if ["prefer", "require", "verify-ca", "verify-full"].contains(&value.as_str()) => {}
            "sslmode" => {
                return self.with_problem("sslmode", &value, "require or verify-full: TLS is always used");
            }
            "application_name" => self.application_name = Some(Given::new("application_name", value)),
            "pool" => self.pool = Some(Given::new("pool", value)),
            _ => {
                let known = prefixed().find(|variable| variable.name.eq_ignore_ascii_case(key));
                return match known {
                    Some(variable) => self.variable(variable.full_name("DSQL"), value),
                    None => self.with_problem(A_KEY, key, &keys_like(key)),
                };
            }
        }
        self
    }

    /// As [`Options::from_env`], for a program that sets more in code.
    ///
    /// ```no_run
    /// use forebay_dsql::OptionsBuilder;
    ///
    /// let options = OptionsBuilder::from_env().pool("reports").max_connections(5).build()?;
    /// # Ok::<(), forebay_dsql::Error>(())
    /// ```
    pub fn from_env() -> Self {
        Self::from_variables(process_variables())
    }

    /// As [`Options::from_variables`], for a program that sets more in code.
    pub fn from_variables<N: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let variables: BTreeMap<String, String> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let get = |name: &str| {
            // Set to nothing is not set: that is how an unset variable arrives through most deployment tools.
            variables.get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let given = |name: &'static str| get(name).map(|value| Given::new(name, value));
        let builder = Self {
            origin: Origin::Environment,
            host: given("CLUSTER_ENDPOINT"),
            // What AWS's own examples use.
            user: given("CLUSTER_USER").or_else(|| given("PGUSER")),
            port: given("PGPORT").map(|port| port.map(|port| port.parse().map_err(|_| port))),
            database: given("PGDATABASE"),
            address: given("PGHOSTADDR"),
            roots: given("PGSSLROOTCERT").map(|path| Roots::File(path.map(Into::into))),
            direct_tls: given("PGSSLNEGOTIATION").map(|direct| direct.map(direct_tls)),
            application_name: given("PGAPPNAME"),
            ..Self::default()
        };
        Self { variables: Variables(variables), ..builder }
    }

    /// A part of a URL.
    fn part(&mut self, name: &'static str, text: &str) -> Option<Given<String>> {
        Some(Given::new(name, self.decoded(text)?))
    }

    /// Decodes percent signs. Bytes that are not UTF-8 are a problem.
    fn decoded(&mut self, text: &str) -> Option<String> {
        let decoded = percent_decode_str(text).decode_utf8().ok();
        if decoded.is_none() {
            let allowed = "text in UTF-8, each byte of it behind a percent sign or by itself".to_owned();
            self.problems.push(Problem { setting: "URL".into(), value: format!("{text:?}"), allowed });
        }
        decoded.map(Into::into)
    }

    fn with_problem(self, setting: &'static str, value: &str, allowed: &str) -> Self {
        self.with_described_problem(setting, format!("{value:?}"), allowed)
    }

    /// For a value that is described, not repeated.
    fn with_described_problem(mut self, setting: &'static str, value: String, allowed: &str) -> Self {
        self.problems.push(Problem { setting: setting.into(), value, allowed: allowed.to_owned() });
        self
    }

    fn refuse_password(self) -> Self {
        let allowed = "left out: a token takes its place";
        self.with_described_problem("the password of the URL", "set".into(), allowed)
    }

    /// A scheme is repeated. What comes before `://` without being one may hold a password.
    fn refuse_scheme(self, url: &str) -> Self {
        let is_scheme = |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+');
        let scheme = url.split_once("://").map(|(scheme, _)| scheme).filter(is_scheme);
        let value = scheme.map_or("missing".to_owned(), |scheme| format!("{scheme:?}"));
        self.with_described_problem("the scheme of the URL", value, "dsql:// or postgres://")
    }
}

/// Whether TLS begins at once: our own words, and those of libpq.
fn direct_tls(text: String) -> Parsed<bool> {
    match text.as_str() {
        "true" | "1" | "direct" => Ok(true),
        "false" | "0" | "postgres" => Ok(false),
        _ => Err(text),
    }
}

const A_KEY: &str = "a key of the URL";

/// The keys beside the variables.
const KEYS: [&str; 6] = ["region", "address", "root_file", "direct_tls", "application_name", "pool"];

fn prefixed() -> impl Iterator<Item = &'static Variable> {
    variables::all().filter(|variable| variable.prefixed)
}

/// What is allowed instead of an unknown `key`.
fn keys_like(key: &str) -> String {
    let variables = prefixed().map(|variable| variable.name.to_ascii_lowercase());
    let known: Vec<String> = KEYS.iter().map(|key| (*key).to_owned()).chain(variables).collect();
    match closest(key, &known) {
        Some(known) => format!("a known one; did you mean {known}?"),
        None => format!(
            "{}, or one of forebay's variables in lower case without DSQL_, such as max_conns",
            KEYS.join(", ")
        ),
    }
}

/// Whether a password in the URL contains separators, so that its pieces look like a port, a database or a key. Nothing
/// of such a URL is repeated.
fn is_torn_by_password(authority: &str, path: &str, query: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = authority.split_once(':').map(|(_, port)| port);
    // The name of a key has no such sign in it.
    let key = query.split(['=', '&']).next().unwrap_or_default();
    let of_query = |port| key.contains('@') || (!is_port(port) && query.contains('@'));
    !authority.contains('@') && (path.contains('@') || port.is_some_and(of_query))
}
