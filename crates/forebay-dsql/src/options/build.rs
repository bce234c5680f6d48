//! Checks options as a whole.

use std::time::Duration;

use forebay::{ConfigError, Problem};

use super::builder::{Given, OptionsBuilder, Parsed, Roots};
use super::{Options, RootCertificates, endpoint};
use crate::settings::{Origin, Reading};

/// Aurora DSQL ends a session after this time.
const SESSION_LIMIT: Duration = Duration::from_secs(60 * 60);
const NOT_SET: &str = "not set";

impl OptionsBuilder {
    /// Checks everything together.
    ///
    /// # Errors
    /// Every problem, each with what is allowed.
    pub fn build(self) -> Result<Options, ConfigError> {
        let mut problems = Problems(self.problems);
        if self.unread {
            return Err(ConfigError { problems: problems.0 });
        }
        let (host, port_of_host) = problems.host(self.origin, self.host);
        let port = problems.port(self.port.or(port_of_host));
        let address = self.address.map(|address| problems.address(&address));
        let user = problems.role(self.user.unwrap_or(Given::new("user", "admin".to_owned())));
        let database = problems.role(self.database.unwrap_or(Given::new("database", "postgres".to_owned())));
        let application_name = self.application_name.map(|name| problems.label(name));
        let pool = self.pool.map_or_else(|| "default".to_owned(), |pool| problems.label(pool));
        let direct_tls = self.direct_tls.is_some_and(|direct| problems.direct_tls(direct));
        let roots = problems.roots(self.roots);

        let mut reading = Reading::new("DSQL", self.origin);
        (reading.variables, reading.typed) = (self.variables.0, self.typed);
        let mut settings = reading.settings(Some(SESSION_LIMIT));
        if settings.service.contains('\0') {
            problems.zero_byte(reading.name_of("service"), &settings.service);
        }
        let region = problems.region(&reading, settings.region.as_deref(), &host);
        problems.0.extend(reading.problems);
        if !problems.0.is_empty() {
            return Err(ConfigError { problems: problems.0 });
        }
        settings.endpoint = Some(host.name.clone());
        Ok(Options {
            port,
            address,
            region,
            user,
            database,
            application_name: application_name.unwrap_or_else(|| settings.service.clone()),
            pool,
            roots,
            direct_tls,
            settings,
            host: host.name,
        })
    }
}

/// The name of a cluster, and how it was given.
struct Host {
    name: String,
    kind: HostKind,
}

enum HostKind {
    Name,
    /// Part of a URL.
    Url,
    /// It is not the name of a host, which is a problem of its own.
    Invalid,
}

/// The problems that were found so far.
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, setting: impl Into<String>, value: &str, allowed: &str) {
        self.describe(setting, format!("{value:?}"), allowed);
    }

    /// For a value that is described, not repeated.
    fn describe(&mut self, setting: impl Into<String>, value: String, allowed: &str) {
        let setting = setting.into().into();
        self.0.push(Problem { setting, value, allowed: allowed.to_owned() });
    }

    /// The host, and the port if it carries one.
    fn host(&mut self, origin: Origin, given: Option<Given<String>>) -> (Host, Option<Given<Parsed<u16>>>) {
        let in_environment = origin == Origin::Environment;
        let name = if in_environment { "CLUSTER_ENDPOINT" } else { "host" };
        let given = given.map(|given| given.value).unwrap_or_default();
        let (host, port) = endpoint::split(&given);
        // A URL with a user may have a password, too: it is not repeated.
        let has_user = given.contains('@');
        if has_user || !endpoint::is_name(&host) {
            let value = match given.as_str() {
                _ if has_user => "one with a user".to_owned(),
                "" => NOT_SET.to_owned(),
                given => format!("{given:?}"),
            };
            self.describe(name, value, "the name of a cluster, such as abc.dsql.us-east-1.on.aws");
        }
        let kind = match () {
            () if has_user || !endpoint::is_name(&host) => HostKind::Invalid,
            () if given.contains("://") => HostKind::Url,
            () => HostKind::Name,
        };
        // Behind a host may be anything, such as the password of a URL that was cut off.
        let port = port.filter(|_| !has_user).map(|port| {
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            let name = if in_environment { "the port of CLUSTER_ENDPOINT" } else { "port" };
            Given::new(name, port.parse().map_err(|_| if is_number { port } else { "no number".to_owned() }))
        });
        (Host { name: host, kind }, port)
    }

    fn port(&mut self, given: Option<Given<Parsed<u16>>>) -> u16 {
        let Some(Given { name, value }) = given else { return 5432 };
        match value.map_or_else(Err, |port| if port == 0 { Err("0".to_owned()) } else { Ok(port) }) {
            Ok(port) => port,
            Err(text) => {
                self.add(name, &text, "a number from 1 to 65535");
                0
            }
        }
    }

    fn address(&mut self, given: &Given<String>) -> String {
        let address = given.value.trim_matches(['[', ']']);
        if !endpoint::is_name(address) && address.parse::<std::net::IpAddr>().is_err() {
            self.add(given.name, address, "a host name or an IP address, without a port");
        }
        address.to_owned()
    }

    fn role(&mut self, given: Given<String>) -> String {
        if given.value.is_empty() || given.value.contains('\0') {
            self.add(given.name, &given.value, "a name, and not empty");
        }
        given.value
    }

    fn label(&mut self, given: Given<String>) -> String {
        if given.value.contains('\0') {
            self.zero_byte(given.name, &given.value);
        }
        given.value
    }

    fn zero_byte(&mut self, setting: impl Into<String>, value: &str) {
        self.add(setting, value, "a text without a zero byte");
    }

    fn direct_tls(&mut self, given: Given<Parsed<bool>>) -> bool {
        given.value.unwrap_or_else(|text| {
            let is_negotiation = ["PGSSLNEGOTIATION", "sslnegotiation"].contains(&given.name);
            self.add(given.name, &text, if is_negotiation { "direct or postgres" } else { "true or false" });
            false
        })
    }

    fn roots(&mut self, given: Option<Roots>) -> RootCertificates {
        let (name, roots) = match given {
            None => return RootCertificates::default(),
            Some(Roots::Given(roots)) => ("roots", roots),
            Some(Roots::File(Given { name, value })) => match std::fs::read(&value) {
                Ok(pem) => (name, RootCertificates::Pem(pem.into())),
                Err(error) => {
                    let allowed = format!("a PEM file that can be read ({error})");
                    self.add(name, &value.display().to_string(), &allowed);
                    return RootCertificates::default();
                }
            },
        };
        if let RootCertificates::Pem(pem) = &roots
            && !endpoint::holds_certificates(pem)
        {
            self.add(name, "no certificate", "PEM with one certificate at least");
        }
        roots
    }

    /// The region that was named, or that of the host.
    fn region(&mut self, reading: &Reading<'_>, named: Option<&str>, host: &Host) -> String {
        let Some(region) = named.or_else(|| endpoint::region(&host.name)) else {
            let in_environment = reading.origin == Origin::Environment;
            match host.kind {
                HostKind::Url => self.describe(
                    if in_environment { "CLUSTER_ENDPOINT" } else { "host" },
                    "a URL".to_owned(),
                    "the name of a cluster alone, such as abc.dsql.us-east-1.on.aws",
                ),
                _ if host.name.is_empty() => {}
                HostKind::Name | HostKind::Invalid => self.describe(
                    if in_environment { "REGION" } else { "region" },
                    NOT_SET.to_owned(),
                    "given: the name of this cluster does not tell it, as {id}.dsql.{region}.on.aws does",
                ),
            }
            return String::new();
        };
        // It becomes part of what is signed.
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !region.bytes().all(is_allowed) {
            self.add(reading.name_of_region(), region, "a name such as us-east-1");
        }
        region.to_owned()
    }
}
