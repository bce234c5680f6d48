//! The address of a server: `grpc://host:port`, `grpc+tcp://host:port` or `grpc+tls://host:port`.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use http::uri::Authority;

use crate::error::Error;

/// The address of a Flight SQL server.
///
/// ```
/// use forebay_flight::Endpoint;
///
/// let endpoint: Endpoint = "grpc+tls://lake.example.com:4214".parse()?;
/// assert_eq!((endpoint.host(), endpoint.port(), endpoint.is_tls()), ("lake.example.com", 4214, true));
/// # Ok::<_, forebay_flight::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    host: String,
    port: u16,
    tls: bool,
}

impl Endpoint {
    /// The host, without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// `host:port`, as HTTP writes it.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.contains('@') {
            // The message does not repeat the text: it may contain a password.
            return Err(Error::config(
                "an endpoint must not contain a user or a password: pass them to ConnectOptions::basic",
            ));
        }
        // What follows these characters may be a secret.
        let shown = &text[..text.find(['?', '#']).unwrap_or(text.len())];
        let wrong = |what: &str| {
            Error::config(format!(
                "the endpoint is {shown:?}, but {what}; write it as grpc://host:port or grpc+tls://host:port"
            ))
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("has no scheme"))?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "grpc" | "grpc+tcp" | "http" => false,
            "grpc+tls" | "https" => true,
            _ => return Err(wrong("its scheme is unknown")),
        };
        let authority = rest.trim_end_matches('/');
        if authority.contains(['/', '?', '#']) {
            return Err(wrong("has more than a host and a port"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("its bracket is not closed"))?;
                (host, rest.strip_prefix(':').ok_or_else(|| wrong("has no port"))?)
            }
            None => authority.rsplit_once(':').ok_or_else(|| wrong("has no port"))?,
        };
        if host.is_empty() {
            return Err(wrong("has no host"));
        }
        if authority.starts_with('[') {
            if host.parse::<Ipv6Addr>().is_err() {
                return Err(wrong("has no IPv6 address in its brackets"));
            }
        } else if host.contains(':') {
            return Err(wrong("an IPv6 address needs brackets"));
        }
        // `parse` would accept a sign.
        let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
        let port = port.and_then(|port| port.parse().ok()).filter(|port| *port != 0);
        let port = port.ok_or_else(|| wrong("its port is invalid"))?;
        if Authority::try_from(authority).is_err() {
            return Err(wrong("its host is invalid"));
        }
        Ok(Self { host: host.to_owned(), port, tls })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "grpc+tls" } else { "grpc" }, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_is_accepted() {
        for (text, shown) in [
            ("grpc://localhost:4214", "grpc://localhost:4214"),
            ("grpc+tcp://localhost:4214/", "grpc://localhost:4214"),
            ("GRPC+TLS://lake:443", "grpc+tls://lake:443"),
            ("grpc://[::1]:80", "grpc://[::1]:80"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn an_invalid_endpoint_is_a_clear_error() {
        for (text, said) in [
            ("localhost:4214", "has no scheme"),
            ("ftp://localhost:4214", "scheme is unknown"),
            ("grpc://localhost", "has no port"),
            ("grpc://:4214", "has no host"),
            ("grpc://localhost:0", "port is invalid"),
            ("grpc://localhost:99999", "port is invalid"),
            ("grpc://::1:80", "needs brackets"),
            ("grpc://[::1:80", "bracket is not closed"),
            ("grpc://a b:80", "host is invalid"),
            ("grpc://[not ip]:80", "no IPv6 address"),
            ("grpc://[]:80", "has no host"),
            ("grpc://localhost:+80", "port is invalid"),
            ("grpc://localhost: 80", "port is invalid"),
            ("grpc://localhost:80/db", "more than a host and a port"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(said) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn no_secret_is_repeated() {
        for text in [
            "grpc://me:hush@localhost:80",
            "grpc://me:hush@localhost:80/db",
            "ftp://me:hush@localhost:80",
            "me:hush@localhost:80",
            "grpc://me:hu?sh@localhost:80",
            "grpc://localhost:80?token=hush",
            "grpc://localhost:80/db#hush",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(!error.contains("hush") && !error.contains("sh@"), "{error}");
        }
    }
}
