//! Reads values from a tree, with defaults, and collects all problems.

use std::time::Duration;

use forebay::duration;

use super::error::{Origin, Problem, ScenarioError};
use super::tree::{Entry, Node, Value};

/// One map of the file. Keys that were read are known; [`finish`](Self::finish) reports all others.
pub(super) struct Section<'a> {
    path: String,
    origin: Origin,
    entries: &'a [Entry],
    known: Vec<&'static str>,
    problems: Vec<Problem>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(super) fn top(node: &'a Node) -> Self {
        Self::new(String::new(), node)
    }

    /// Reads the defaults.
    pub(super) fn nothing<T>(read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let origin = Origin::Set("nothing".into());
        read(&mut Section::empty(String::new(), origin))
    }

    fn new(path: String, node: &'a Node) -> Self {
        let mut section = Self::empty(path, node.origin.clone());
        match &node.value {
            Value::Map(entries) => section.entries = entries,
            Value::Nothing => {}
            Value::Scalar(_) | Value::List(_) => {
                let what = if section.path.is_empty() {
                    "a scenario must be a map of keys"
                } else {
                    "expected a map of keys"
                };
                section.problems.push(Problem {
                    origin: node.origin.clone(),
                    key: section.path.clone(),
                    text: what.to_owned(),
                });
            }
        }
        section
    }

    fn empty(path: String, origin: Origin) -> Self {
        Self { path, origin, entries: &[], known: Vec::new(), problems: Vec::new() }
    }

    fn path_to(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn entry(&mut self, key: &'static str) -> Option<&'a Entry> {
        self.known.push(key);
        self.entries
            .iter()
            .find(|entry| entry.key == key)
            .filter(|entry| !matches!(entry.node.value, Value::Nothing))
    }

    /// Whether the key is given.
    pub(super) fn has(&mut self, key: &'static str) -> bool {
        self.entry(key).is_some()
    }

    /// Whether the key is given on the command line.
    pub(super) fn is_overridden(&mut self, key: &'static str) -> bool {
        self.entry(key).is_some_and(|entry| matches!(entry.origin, Origin::Set(_)))
    }

    /// Whether the key has a plain value.
    pub(super) fn is_scalar(&mut self, key: &'static str) -> bool {
        self.entry(key).is_some_and(|entry| matches!(entry.node.value, Value::Scalar(_)))
    }

    /// Reports a problem with the value of `key`, or with the section if the key is not given.
    pub(super) fn complain(&mut self, key: &str, text: impl Into<String>) {
        let entry = self.entries.iter().find(|entry| entry.key == key);
        let origin = entry.map_or(&self.origin, |entry| &entry.origin).clone();
        self.problems.push(Problem { origin, key: self.path_to(key), text: text.into() });
    }

    /// Reports a problem unless `holds`.
    pub(super) fn demand(&mut self, holds: bool, key: &str, text: impl FnOnce() -> String) {
        if !holds {
            self.complain(key, text());
        }
    }

    /// The value that `read` makes from the text, or the default. `expected` describes a valid value.
    pub(super) fn value<T>(
        &mut self,
        key: &'static str,
        default: T,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> T {
        let Some(entry) = self.entry(key) else { return default };
        let Value::Scalar(text) = &entry.node.value else {
            self.complain(key, format!("expected {expected}, not a list or a map"));
            return default;
        };
        match read(text.trim()) {
            Some(value) => value,
            None => {
                self.complain(key, format!("'{text}' is not {expected}"));
                default
            }
        }
    }

    pub(super) fn duration(&mut self, key: &'static str, default: Duration) -> Duration {
        self.value(
            key,
            default,
            "a duration such as 100ms, 45s or 1h30m (units ns, us, ms, s, m, h)",
            duration::parse,
        )
    }

    /// A duration above zero.
    pub(super) fn span(&mut self, key: &'static str, default: Duration) -> Duration {
        self.value(
            key,
            default,
            "a duration above zero, such as 100ms, 45s or 1h30m (units ns, us, ms, s, m, h)",
            |text| duration::parse(text).filter(|span| !span.is_zero()),
        )
    }

    /// A whole number from `least` to `most`.
    pub(super) fn whole(&mut self, key: &'static str, default: u64, least: u64, most: u64) -> u64 {
        let expected = match (least, most) {
            (least, u64::MAX) => format!("a whole number, at least {least}"),
            (least, most) => format!("a whole number from {least} to {most}"),
        };
        self.value(key, default, &expected, |text| {
            text.replace('_', "").parse().ok().filter(|number| (least..=most).contains(number))
        })
    }

    pub(super) fn count(&mut self, key: &'static str, default: usize, least: usize, most: usize) -> usize {
        let number = self.whole(key, default as u64, least as u64, most as u64);
        usize::try_from(number).unwrap_or(most)
    }

    /// A number from `least` to `most`.
    pub(super) fn number(&mut self, key: &'static str, default: f64, least: f64, most: f64) -> f64 {
        let expected = format!("a number from {least} to {most}");
        self.value(key, default, &expected, |text| {
            text.parse().ok().filter(|number| (least..=most).contains(number))
        })
    }

    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        self.value(key, default, "true or false", |text| match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        })
    }

    pub(super) fn text(&mut self, key: &'static str, default: &str) -> String {
        self.value(key, default.to_owned(), "text", |text| Some(text.to_owned()))
    }

    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, default: T, choices: &[(&str, T)]) -> T {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let expected = format!("one of {}", words.join(", "));
        self.value(key, default, &expected, |text| {
            choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice)
        })
    }

    /// Reads a map below this one; an empty one if the key is not given.
    pub(super) fn section<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'a>) -> T) -> T {
        let path = self.path_to(key);
        let section = match self.entry(key) {
            Some(entry) => Section::new(path, &entry.node),
            None => Section::empty(path, self.origin.clone()),
        };
        let (value, problems) = section.read(read);
        self.problems.extend(problems);
        value
    }

    /// Reads each map of a list.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Section<'a>) -> T,
    ) -> Vec<T> {
        let path = self.path_to(key);
        let Some(entry) = self.entry(key) else { return Vec::new() };
        let Value::List(items) = &entry.node.value else {
            self.complain(key, "expected a list");
            return Vec::new();
        };
        let mut read_items = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let (value, problems) = Section::new(format!("{path}[{index}]"), item).read(&mut read);
            self.problems.extend(problems);
            read_items.push(value);
        }
        read_items
    }

    fn read<T>(mut self, read: impl FnOnce(&mut Section<'a>) -> T) -> (T, Vec<Problem>) {
        let value = read(&mut self);
        (value, self.close())
    }

    fn close(mut self) -> Vec<Problem> {
        for entry in self.entries {
            if self.known.contains(&entry.key.as_str()) {
                continue;
            }
            let nearest = self
                .known
                .iter()
                .map(|known| (strsim::damerau_levenshtein(known, &entry.key), known))
                .min()
                .filter(|(distance, known)| *distance <= known.len().div_ceil(3));
            let text = match nearest {
                Some((_, known)) => format!("unknown key; did you mean {known}?"),
                None => format!("unknown key; known here: {}", self.known_keys()),
            };
            self.problems.push(Problem { origin: entry.origin.clone(), key: self.path_to(&entry.key), text });
        }
        self.problems
    }

    fn known_keys(&self) -> String {
        let mut known = self.known.clone();
        known.sort_unstable();
        known.dedup();
        known.join(", ")
    }

    /// Returns the value, or all problems.
    pub(super) fn finish<T>(self, value: T) -> Result<T, ScenarioError> {
        let mut problems = self.close();
        problems.sort_by_key(|problem| match &problem.origin {
            Origin::File { line, .. } => *line,
            Origin::Set(_) => usize::MAX,
        });
        if problems.is_empty() { Ok(value) } else { Err(ScenarioError { problems }) }
    }
}
