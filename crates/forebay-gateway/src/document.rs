//! A TOML document, read without deserialising: every problem is found, with its line.

use std::ops::Range;

use forebay::Problem;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Nobody reads more at once.
const MOST_PROBLEMS: usize = 50;

/// No known key is longer, and a key of 32 bytes in base64 is.
const LONGEST_KEY: usize = 40;

/// Names are not longer, and verifiers are.
const LONGEST_SHOWN: usize = 63;

/// A parsed document, and where it comes from.
pub(crate) struct Document<'i> {
    name: &'i str,
    /// Where each line ends, in order.
    line_ends: Vec<usize>,
    root: DeTable<'i>,
}

impl<'i> Document<'i> {
    /// Parses `text`, whose file is called `name`.
    ///
    /// # Errors
    /// Every syntax error. The offending text is not repeated, as it may be a part of a secret.
    pub(crate) fn parse(name: &'i str, text: &'i str) -> Result<Self, Vec<Problem>> {
        let (root, errors) = DeTable::parse_recoverable(text);
        let line_ends =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        let document = Self { name, line_ends, root: root.into_inner() };
        if errors.is_empty() {
            return Ok(document);
        }
        let found = errors.len();
        let problems = errors.iter().take(MOST_PROBLEMS + 1).map(|error| {
            let at = error.span().unwrap_or_default();
            document.problem(&at, "the syntax", "wrong", &format!("TOML: {}", error.message()))
        });
        let mut problems = problems.collect();
        document.limit(&mut problems, found);
        Err(problems)
    }

    pub(crate) fn root(&self) -> &DeTable<'i> {
        &self.root
    }

    /// A problem at this place: "file:line: setting is value, but must be allowed".
    pub(crate) fn problem(&self, at: &Range<usize>, setting: &str, value: &str, allowed: &str) -> Problem {
        let line = self.line_ends.partition_point(|end| *end < at.start) + 1;
        Problem {
            setting: format!("{}:{line}: {setting}", self.name).into(),
            value: value.to_owned(),
            allowed: allowed.to_owned(),
        }
    }

    /// Leaves the first of `found` problems, and says how many more there are.
    pub(crate) fn limit(&self, problems: &mut Vec<Problem>, found: usize) {
        if found > MOST_PROBLEMS {
            problems.truncate(MOST_PROBLEMS);
            problems.push(Problem {
                setting: format!("{}: the rest", self.name).into(),
                value: format!("wrong in {} more places", found - MOST_PROBLEMS),
                allowed: "right; they are shown when those above are put right".to_owned(),
            });
        }
    }

    /// A problem with a key that nothing reads.
    pub(crate) fn unknown_key(&self, key: &Spanned<DeString<'_>>, known: &[&str]) -> Problem {
        let name: &str = key.get_ref();
        let allowed = match closest(name, known) {
            Some(close) => format!("a known one; did you mean {close}?"),
            None => format!("one of {}", known.join(", ")),
        };
        // A secret that is in the place of a key, such as a verifier.
        let is_secret = name.len() > LONGEST_KEY || !name.bytes().all(is_of_a_key);
        let shown =
            if is_secret { "a key that is not shown".to_owned() } else { format!("the key {name:?}") };
        self.problem(&key.span(), &shown, "unknown", &allowed)
    }
}

/// A value of the file, for a problem with it. One that may be a secret in the wrong place, such as a verifier, is not shown.
pub(crate) fn shown(text: &str) -> String {
    if text.len() > LONGEST_SHOWN {
        return format!("a text of {} bytes that is not shown", text.len());
    }
    format!("{text:?}")
}

fn is_of_a_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// The known name that a typo most probably meant.
pub(crate) fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |known: &str| distance(name, known);
    known.iter().copied().min_by_key(|known| distance(known)).filter(|known| distance(known) <= 2)
}

/// The number of letters to insert, delete or replace.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.chars().count()).collect();
    for (line, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in right.chars().enumerate() {
            let cost = (diagonal + usize::from(a != b)).min(row[column] + 1).min(row[column + 1] + 1);
            diagonal = std::mem::replace(&mut row[column + 1], cost);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// A scalar as the text that a flag or a variable would have. None for tables and arrays.
pub(crate) fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syntax_error_has_a_line_and_no_text() {
        let problems = Document::parse("f.toml", "a = 1\nb = hunter2\nc = 'x\n").err().unwrap();
        let said = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(said.contains("f.toml:2: the syntax is wrong"), "{said}");
        assert!(said.contains("f.toml:3:"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }

    #[test]
    fn each_place_is_in_its_line_and_only_the_first_are_listed() {
        let document = Document::parse("f.toml", "a = 1\n\nb = 2\n").ok().unwrap();
        let line = |at: usize| document.problem(&(at..at), "x", "", "").setting.into_owned();
        assert_eq!(
            [0, 5, 6, 7, 12, 13, 99].map(line),
            [1, 1, 2, 3, 3, 4, 4].map(|line| format!("f.toml:{line}: x"))
        );
        let problems = |count: usize| {
            let text = (0..count).map(|line| format!("a{line} = \n")).collect::<String>();
            Document::parse("f.toml", &text).err().unwrap()
        };
        assert_eq!(problems(50).len(), 50);
        let many = problems(70);
        assert!(many[49].to_string().starts_with("f.toml:50: the syntax"), "{}", many[49]);
        assert!(
            many[50].to_string().starts_with("f.toml: the rest is wrong in 20 more places"),
            "{}",
            many[50]
        );
        assert_eq!(many.len(), 51);
    }

    #[test]
    fn a_secret_in_the_place_of_a_key_is_not_shown() {
        let text = "'SCRAM-SHA-256$4096:c2FsdA==$aHVudGVy:aHVudGVy' = 1\n'aHVudGVy/1' = 1\ndecoykey = 1\n\
                    aHVudGVyaHVudGVyaHVudGVyaHVudGVyaHVudGVyaHV = 1\n";
        let document = Document::parse("f.toml", text).ok().unwrap();
        let keys =
            document.root().iter().map(|(key, _)| document.unknown_key(key, &["decoy_key"]).to_string());
        let said = keys.collect::<Vec<_>>().join("\n");
        assert!(!said.contains("SCRAM") && !said.contains("HVudGVy"), "{said}");
        assert!(
            said.contains("f.toml:1: a key that is not shown is unknown, but must be one of decoy_key"),
            "{said}"
        );
        assert!(said.contains("f.toml:3: the key \"decoykey\" is unknown"), "{said}");
    }

    #[test]
    fn a_typo_is_recognised() {
        assert_eq!(closest("rol", &["name", "role"]), Some("role"));
        assert_eq!(closest("frobnicate", &["name", "role"]), None);
        assert_eq!((distance("kitten", "sitting"), distance("", "ab"), distance("ab", "")), (3, 2, 2));
    }
}
