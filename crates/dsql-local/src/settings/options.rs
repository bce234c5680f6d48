//! Parses the `options` of a start-up packet, which are written like a command line.

use crate::error::SqlError;

/// Parses `-c NAME=VALUE`, `-cNAME=VALUE` and `--NAME=VALUE`. Other switches are refused.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, SqlError> {
    let mut words = split(text).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match (word.strip_prefix("--"), word.strip_prefix("-c")) {
            (Some(setting), _) => setting.to_owned(),
            (None, Some("")) => words.next().ok_or_else(|| no_value("-c"))?,
            (None, Some(setting)) => setting.to_owned(),
            (None, None) => {
                let refusal = SqlError::unsupported(format!("option \"{word}\" at start-up not supported"));
                return Err(refusal.hint("Write settings as -c NAME=VALUE."));
            }
        };
        let (name, value) = setting.split_once('=').ok_or_else(|| no_value(&setting))?;
        // Names may have hyphens on a command line.
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

fn no_value(setting: &str) -> SqlError {
    SqlError::new("42601", format!("option \"{setting}\" at start-up requires a value"))
        .hint("Write settings as -c NAME=VALUE.")
}

/// Splits at spaces; a backslash escapes the next character.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter.is_ascii_whitespace() {
            words.extend(word.take());
            continue;
        }
        let letter = if letter == '\\' { letters.next() } else { Some(letter) };
        word.get_or_insert_default().extend(letter);
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read() {
        let pairs = |text: &str| parse(text).map_err(|error| error.to_string());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            pairs(r" -c a=1  -cb=x\ y\\ --time-zone=UTC "),
            Ok(vec![pair("a", "1"), pair("b", r"x y\"), pair("time_zone", "UTC")])
        );
        assert_eq!(pairs(""), Ok(vec![]));
        for (bad, problem) in [
            ("-c", "42601: option \"-c\" at start-up requires a value"),
            ("-c a", "42601: option \"a\" at start-up requires a value"),
            ("-B 5", "0A000: option \"-B\" at start-up not supported"),
            ("geqo", "0A000: option \"geqo\" at start-up not supported"),
        ] {
            assert_eq!(pairs(bad), Err(problem.to_owned()), "{bad}");
        }
    }
}
