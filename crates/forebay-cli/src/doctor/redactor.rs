//! Removes secrets from what is printed, wherever they come from.

use std::collections::BTreeMap;

use super::finding::Finding;

/// What stands for a secret.
const MASK: &str = "***";
/// A shorter value protects nothing, and may be part of any word.
const SHORTEST: usize = 6;

/// Knows the secrets of the environment.
#[derive(Debug)]
pub(super) struct Redactor {
    /// Longest first: one may be part of another.
    secrets: Vec<String>,
}

impl Redactor {
    pub(super) fn new(variables: &BTreeMap<String, String>) -> Self {
        let is_secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            name.contains("SECRET") || name.contains("PASSWORD") || name.ends_with("TOKEN")
        };
        let secrets = variables.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.trim());
        let mut secrets: Vec<String> =
            secrets.filter(|value| value.len() >= SHORTEST).map(str::to_owned).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets }
    }

    pub(super) fn redact(&self, finding: &mut Finding) {
        for text in std::iter::once(&mut finding.what).chain(&mut finding.details) {
            *text = self.redacted(text);
        }
    }

    fn redacted(&self, text: &str) -> String {
        let text = self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, MASK));
        without_logins(&text)
    }
}

/// The text, with a mask for everything before the `@` of a word that has a colon there: the login of a URL. The name of a
/// session in an ARN may be an address of mail.
fn without_logins(text: &str) -> String {
    let word = |word: &str| match word.rsplit_once('@') {
        Some((login, host)) if login.contains(':') && !login.contains("arn:aws") => format!("{MASK}@{host}"),
        _ => word.to_owned(),
    };
    text.split_inclusive([' ', '\n']).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Check;

    #[test]
    fn secrets_of_the_environment_and_logins_are_masked() {
        let variables = [
            ("AWS_SECRET_ACCESS_KEY", "hunter2"),
            ("AWS_SESSION_TOKEN", "hunter2hunter3"),
            ("PGPASSWORD", "hunter4"),
            ("DSQL_TOKEN_DURATION", "15m0s0ms"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/token"),
            ("MY_TOKEN", "is"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let redactor = Redactor::new(&variables);
        let mut finding = Finding::ok(Check::Connect, "this is hunter2hunter3 of 15m0s0ms in /var/token")
            .detail("x://admin:pass@host a@b hunter4 arn:aws:sts::1:assumed-role/x/a@b");
        redactor.redact(&mut finding);
        assert_eq!(finding.what, "this is *** of 15m0s0ms in /var/token");
        assert_eq!(finding.details, ["***@host a@b *** arn:aws:sts::1:assumed-role/x/a@b"]);
    }
}
