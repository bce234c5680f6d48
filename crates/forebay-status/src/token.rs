//! The secret that a page can require.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The least characters of a token.
const SHORTEST: usize = 16;

/// A secret that requests must present. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a text cannot be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidToken {
    /// It is too short to be a secret.
    #[error(
        "the token has fewer than {SHORTEST} characters: use a random one, such as from `openssl rand -hex 16`"
    )]
    TooShort,
    /// It does not fit in a header.
    #[error(
        "the token has a character other than visible ASCII: use a random one, such as from `openssl rand -hex 16`"
    )]
    Character,
}

impl Token {
    /// At least 16 characters of visible ASCII.
    ///
    /// # Errors
    /// Returns an error if it is shorter, or has another character.
    pub fn new(token: impl Into<String>) -> Result<Self, InvalidToken> {
        let token = token.into();
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidToken::Character);
        }
        if token.len() < SHORTEST {
            return Err(InvalidToken::TooShort);
        }
        Ok(Self(token))
    }

    /// Whether the value of an `Authorization` header presents this token: as `Bearer`, or as the password of
    /// `Basic` with any user name.
    pub(crate) fn admits(&self, authorization: &str) -> bool {
        let Some((scheme, credentials)) = authorization.split_once(' ') else { return false };
        let credentials = credentials.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.equals(credentials.as_bytes());
        }
        if scheme.eq_ignore_ascii_case("basic") {
            let Ok(decoded) = STANDARD.decode(credentials) else { return false };
            let colon = decoded.iter().position(|byte| *byte == b':');
            return colon.is_some_and(|colon| self.equals(&decoded[colon + 1..]));
        }
        false
    }

    /// Compares in a time that does not depend on how much of it is right.
    fn equals(&self, other: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let mut difference = u8::from(own.len() != other.len());
        for (index, byte) in other.iter().enumerate() {
            difference |= byte ^ own[index % own.len()];
        }
        std::hint::black_box(difference) == 0
    }
}

impl FromStr for Token {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        Self::new(text)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "correct-horse-battery:staple";

    #[test]
    fn both_schemes_admit_and_nothing_else_does() {
        let token = Token::new(SECRET).unwrap();
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        let admitted = [
            format!("Bearer {SECRET}"),
            format!("bearer   {SECRET} "),
            basic(&format!("anyone:{SECRET}")),
            basic(&format!(":{SECRET}")),
        ];
        for header in &admitted {
            assert!(token.admits(header), "{header}");
        }
        let refused = [
            String::new(),
            "Bearer".into(),
            "Bearer ".into(),
            SECRET.into(),
            format!("Bearer {SECRET}x"),
            format!("Bearer {}", &SECRET[1..]),
            format!("Bearer {SECRET}{SECRET}"),
            format!("Bearer {}", "x".repeat(SECRET.len())),
            format!("Digest {SECRET}"),
            format!("Basic {SECRET}"),
            basic(SECRET),
            basic(&format!("{SECRET}:")),
            basic("anyone:"),
            "Basic %%%".into(),
        ];
        for header in &refused {
            assert!(!token.admits(header), "{header}");
        }
    }

    #[test]
    fn weak_tokens_are_refused() {
        assert_eq!(Token::new("").unwrap_err(), InvalidToken::TooShort);
        assert_eq!(Token::new("fifteen-letters").unwrap_err(), InvalidToken::TooShort);
        for text in ["sixteen or more of them", "sixteen-or-more-of-thém", "sixteen-or-more-of-them\n"] {
            assert_eq!(text.parse::<Token>().unwrap_err(), InvalidToken::Character);
        }
    }

    #[test]
    fn a_token_is_not_printed() {
        let token = Token::new(SECRET).unwrap();
        assert!(!format!("{token:?}").contains("horse"));
    }
}
