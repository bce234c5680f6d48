//! The keys that may sign tokens.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use crate::error::Error;

/// An AWS access key.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The access key id.
    pub access_key_id: String,
    /// The secret access key.
    pub secret_access_key: String,
    /// The session token of temporary credentials. Tokens must carry it.
    pub session_token: Option<String>,
}

impl Credentials {
    /// Long-lived credentials.
    pub fn new(access_key_id: impl Into<String>, secret_access_key: impl Into<String>) -> Self {
        Self {
            access_key_id: access_key_id.into(),
            secret_access_key: secret_access_key.into(),
            session_token: None,
        }
    }

    /// Temporary credentials.
    #[must_use]
    pub fn with_session_token(self, session_token: impl Into<String>) -> Self {
        Self { session_token: Some(session_token.into()), ..self }
    }

    /// Reads all profiles of a credentials file in the format of the AWS CLI, sorted by name.
    ///
    /// # Errors
    /// If the file cannot be read, or a profile lacks a part of its key.
    pub fn read(path: &Path) -> Result<Vec<(String, Self)>, Error> {
        let text =
            fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        parse(&text).map_err(|problem| Error::Setting(format!("{}: {problem}", path.display())))
    }
}

/// Without the secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

fn parse(text: &str) -> Result<Vec<(String, Credentials)>, String> {
    let mut profiles: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut profile = "default".to_owned();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.trim().clone_into(&mut profile);
        } else if let Some((key, value)) = line.split_once('=') {
            let fields = profiles.entry(profile.clone()).or_default();
            fields.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        } else {
            // The line may be a secret, so the error has its number only.
            return Err(format!("line {} is neither [profile] nor key = value", number + 1));
        }
    }
    let credentials = profiles.into_iter().map(|(profile, mut fields)| {
        let mut field = |name: &str| fields.remove(name).filter(|value| !value.is_empty());
        let missing = |name: &str| format!("profile [{profile}] has no {name}");
        let access_key_id = field("aws_access_key_id").ok_or_else(|| missing("aws_access_key_id"))?;
        let secret_access_key =
            field("aws_secret_access_key").ok_or_else(|| missing("aws_secret_access_key"))?;
        let session_token = field("aws_session_token");
        Ok((profile, Credentials { access_key_id, secret_access_key, session_token }))
    });
    let credentials = credentials.collect::<Result<Vec<_>, String>>()?;
    if credentials.is_empty() {
        return Err(
            "no profile in it; write [default], aws_access_key_id = ... and aws_secret_access_key = ..."
                .to_owned(),
        );
    }
    Ok(credentials)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_read() {
        let text = "# test keys\n[default]\naws_access_key_id = AKIDA\naws_secret_access_key=s=1\n\n\
                    [other]\nAWS_ACCESS_KEY_ID = AKIDB\naws_secret_access_key = b\naws_session_token = t\n";
        let profiles = parse(text).unwrap();
        assert_eq!(profiles[0], ("default".to_owned(), Credentials::new("AKIDA", "s=1")));
        assert_eq!(profiles[1], ("other".to_owned(), Credentials::new("AKIDB", "b").with_session_token("t")));
    }

    #[test]
    fn problems_are_named_and_secrets_are_not() {
        assert!(parse("").unwrap_err().contains("[default]"));
        assert!(
            parse("[a]\naws_access_key_id = x").unwrap_err().contains("[a] has no aws_secret_access_key")
        );
        assert_eq!(parse("hunter2").unwrap_err(), "line 1 is neither [profile] nor key = value");
        let shown = format!("{:?}", Credentials::new("AKID", "hunter2").with_session_token("hunter3"));
        assert!(shown.contains("AKID") && !shown.contains("hunter"), "{shown}");
    }
}
