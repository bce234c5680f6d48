//! Removes secrets from what is printed, wherever they come from.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::page_token::PageToken;

/// What stands for a secret.
const MASK: &str = "***";
/// A shorter value protects nothing, and may be part of any word.
const SHORTEST: usize = 6;
/// Nobody reads more of one line, in characters.
const LONGEST: usize = 1_000;

/// Knows the secrets of the environment.
#[derive(Debug)]
pub(super) struct Redactor {
    /// Longest first: one may be part of another.
    secrets: Vec<String>,
}

impl Redactor {
    pub(super) fn new(variables: &BTreeMap<String, String>, page_token: Option<&PageToken>) -> Self {
        let is_secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            name.contains("SECRET") || name.contains("PASSWORD") || name.ends_with("TOKEN")
        };
        let secrets = variables.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.trim());
        let mut secrets: Vec<String> = secrets
            .chain(page_token.map(PageToken::expose_secret))
            .filter(|value| value.len() >= SHORTEST)
            .map(str::to_owned)
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets }
    }

    /// Masks secrets, and removes what a terminal would obey. Servers may say anything, at any length.
    pub(super) fn redact(&self, finding: &mut Finding) {
        for text in std::iter::once(&mut finding.what).chain(&mut finding.details) {
            // What is cut off first is far behind what is shown, so no secret is cut in two.
            let enough = shortened(text, 10 * LONGEST);
            *text = shortened(&plain(&self.redacted(&enough)), LONGEST);
        }
    }

    fn redacted(&self, text: &str) -> String {
        let text = self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, MASK));
        text.split_inclusive([' ', '\n']).map(without_login).collect()
    }
}

/// The word, with a mask for everything before its `@` if there is a colon: the login of a URL. The name of a session in an
/// ARN may be an address of mail. What follows a question mark in a URL or a token is masked, too.
fn without_login(word: &str) -> String {
    let (text, space) = word.split_at(word.trim_end_matches([' ', '\n']).len());
    let text = match text.rsplit_once('@') {
        Some((login, host)) if login.contains(':') && !login.contains("arn:aws") => format!("{MASK}@{host}"),
        _ => text.to_owned(),
    };
    match text.split_once('?') {
        Some((address, query)) if text.contains("://") || query.contains("X-Amz-") => {
            format!("{address}?{MASK}{space}")
        }
        _ => text + space,
    }
}

/// In one line, without control characters, and without those that change the direction of text or have no width.
fn plain(text: &str) -> String {
    let is_invisible = |one: char| matches!(one, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    let is_space = |one: char| one.is_whitespace() || matches!(one, '\u{2028}' | '\u{2029}');
    // The SDK lists what it has tried in lines, with an indent.
    let words = text.split(is_space).filter(|word| !word.is_empty());
    let words =
        words.map(|word| word.chars().filter(|one| !one.is_control() && !is_invisible(*one)).collect());
    words.collect::<Vec<String>>().join(" ")
}

fn shortened(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
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
        let redactor = Redactor::new(&variables, None);
        let mut finding = Finding::ok(Check::Connect, "this is hunter2hunter3 of 15m0s0ms in /var/token")
            .detail("x://admin:pass@host a@b hunter4 arn:aws:sts::1:assumed-role/x/a@b");
        redactor.redact(&mut finding);
        assert_eq!(finding.what, "this is *** of 15m0s0ms in /var/token");
        assert_eq!(finding.details, ["***@host a@b *** arn:aws:sts::1:assumed-role/x/a@b"]);
    }
    #[test]
    fn queries_of_urls_and_tokens_are_masked() {
        let redactor = Redactor::new(&BTreeMap::new(), None);
        for (text, expected) in [
            ("at http://127.0.0.1:1/creds?token=hunter2 now", "at http://127.0.0.1:1/creds?*** now"),
            ("got abc.on.aws/?Action=DbConnect&X-Amz-Signature=hunter2", "got abc.on.aws/?***"),
            ("why? because", "why? because"),
            ("did you mean a?b", "did you mean a?b"),
        ] {
            assert_eq!(redactor.redacted(text), expected);
        }
    }

    #[test]
    fn a_terminal_is_not_told_what_to_do() {
        let mut finding = Finding::ok(Check::Connect, "a\u{1b}[31mb\r\nc\td\u{202e}e\u{9b}2J".to_owned());
        finding.details.push("é".repeat(LONGEST + 1));
        Redactor::new(&BTreeMap::new(), None).redact(&mut finding);
        assert_eq!(finding.what, "a[31mb c de2J");
        assert_eq!(finding.details[0].chars().count(), LONGEST + 3);
    }

    #[test]
    fn the_token_of_a_page_is_masked() {
        let variables: BTreeMap<String, String> =
            [("DSQL_DESK_TOKEN".to_owned(), "0123456789abcdef".to_owned())].into();
        let token = PageToken::find(None, &variables).unwrap();
        let redactor = Redactor::new(&BTreeMap::new(), token.as_ref());
        assert_eq!(redactor.redacted("it was 0123456789abcdef"), "it was ***");
    }
}
