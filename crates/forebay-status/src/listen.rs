//! Where a page is served, and to whom.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use crate::token::Token;

/// An address to serve a page at, and the token that it requires.
///
/// It can be parsed: `127.0.0.1:9464`, `[::1]:9464`, `localhost:9464`, or `9464` and `:9464`, which mean
/// loopback.
///
/// ```
/// use forebay_status::{Listen, Token};
///
/// let local: Listen = "localhost:9464".parse()?;
/// let open = Listen::new(([0, 0, 0, 0], 9464).into()).token(Token::new("91c6f01a7e4b4d0f")?);
/// # assert_eq!(local, Listen::new(([127, 0, 0, 1], 9464).into()));
/// # assert!(format!("{open:?}").contains("redacted"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    address: SocketAddr,
    token: Option<Token>,
}

/// A text that is no address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not an address to listen on: write an IP address and a port, such as 127.0.0.1:9464 for this \
     machine only or 0.0.0.0:9464 for all"
)]
pub struct InvalidListen {
    text: String,
}

impl Listen {
    /// The address, without a token. Port 0 means a free port.
    #[must_use]
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, token: None }
    }

    /// Requires `token`. Addresses other than loopback need one.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// The address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether only this machine can reach it.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    pub(crate) fn into_token(self) -> Option<Token> {
        self.token
    }

    pub(crate) const fn has_token(&self) -> bool {
        self.token.is_some()
    }
}

impl FromStr for Listen {
    type Err = InvalidListen;

    fn from_str(text: &str) -> Result<Self, InvalidListen> {
        let trimmed = text.trim();
        if let Ok(address) = trimmed.parse() {
            return Ok(Self::new(address));
        }
        // Without a host, only this machine: a port that is open to all must be asked for.
        let port = trimmed
            .strip_prefix("localhost:")
            .or_else(|| trimmed.strip_prefix(':'))
            .unwrap_or(trimmed)
            .parse::<u16>();
        match port {
            Ok(port) => Ok(Self::new((IpAddr::from(Ipv4Addr::LOCALHOST), port).into())),
            Err(_) => Err(InvalidListen { text: text.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |text: &str| text.parse::<Listen>().map(|listen| listen.address().to_string());
        assert_eq!(read("127.0.0.1:9464").unwrap(), "127.0.0.1:9464");
        assert_eq!(read(" 0.0.0.0:80 ").unwrap(), "0.0.0.0:80");
        assert_eq!(read("[::1]:9464").unwrap(), "[::1]:9464");
        for text in ["localhost:9464", ":9464", "9464"] {
            assert_eq!(read(text).unwrap(), "127.0.0.1:9464", "{text}");
        }
        for text in ["", ":", "localhost", "example.org:80", "127.0.0.1", "70000", ":+1:2", "::1:9464x"] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().starts_with(&format!("'{text}' is not an address")), "{error}");
        }
    }

    #[test]
    fn loopback_is_recognised() {
        for text in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(text.parse::<Listen>().unwrap().is_loopback(), "{text}");
        }
        for text in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            assert!(!text.parse::<Listen>().unwrap().is_loopback(), "{text}");
        }
    }
}
