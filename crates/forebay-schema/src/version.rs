//! The version of a migration, in the name of its file.

use std::cmp::Ordering;
use std::fmt;

/// A version: numbers with dots between them, such as `0001`, `20240101120000` or `1.10`. Versions are compared by
/// their numbers: `1.9` comes before `1.10`, and `1.0` is the same as `1`.
#[derive(Clone, Debug)]
pub struct Version {
    /// As it is written.
    text: String,
    /// Without zeros at the end.
    numbers: Vec<u64>,
}

impl Version {
    /// Reads numbers with dots between them.
    ///
    /// ```
    /// use forebay_schema::Version;
    ///
    /// let versions = ["1.0", "1.1", "1.10"].map(|text| Version::parse(text).unwrap());
    /// assert!(versions.is_sorted());
    /// assert!(Version::parse("1.x").is_none());
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(number).collect::<Option<Vec<u64>>>()?;
        while numbers.len() > 1 && numbers.last() == Some(&0) {
            numbers.pop();
        }
        Some(Self { text: text.to_owned(), numbers })
    }

    /// The same for all ways to write a version: what it is stored as.
    pub(crate) fn key(&self) -> String {
        let numbers: Vec<String> = self.numbers.iter().map(u64::to_string).collect();
        numbers.join(".")
    }
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.numbers == other.numbers
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers)
    }
}

/// What the name of a file or a directory says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Migration(Version),
    /// It undoes a migration, so it is left out.
    Undo,
    /// Flyway runs these whenever they change.
    Repeatable,
    /// It has no version.
    Other,
}

/// Reads the name of a file without `.sql`, or that of a directory.
pub(crate) fn read_name(stem: &str) -> Named {
    let stem = match stem.strip_suffix(".up") {
        Some(stem) => stem,
        None if stem.ends_with(".down") || stem.ends_with(".undo") => return Named::Undo,
        None => stem,
    };
    if let Some((prefix, _)) = stem.split_once("__") {
        let version = |letter: char| {
            let rest =
                prefix.strip_prefix(letter).or_else(|| prefix.strip_prefix(letter.to_ascii_lowercase()))?;
            Version::parse(&rest.replace('_', "."))
        };
        if let Some(version) = version('V') {
            return Named::Migration(version);
        }
        if version('U').is_some() {
            return Named::Undo;
        }
        if prefix == "R" {
            return Named::Repeatable;
        }
    }
    let stem = stem.strip_prefix(['v', 'V']).unwrap_or(stem);
    let digits = stem.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(stem.len());
    let version = match date(stem) {
        Some(version) => Version::parse(&version),
        None => Version::parse(stem[..digits].trim_end_matches('.')),
    };
    version.map_or(Named::Other, Named::Migration)
}

/// The date in names such as `2024-01-01_create`, with the time in those of diesel (`2024-01-01-120000_create`), or the number of a
/// file of that day.
fn date(stem: &str) -> Option<String> {
    let (time, _) = stem.split_once('_').unwrap_or((stem, ""));
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = time.split('-').take_while(is_number).collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    match lengths[..] {
        [4, 2, 2, 6, ..] => Some(parts[..4].concat()),
        [4, 2, 2] => Some(parts.concat()),
        [4, 2, 2, ..] => Some(format!("{}.{}", parts[..3].concat(), parts[3])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(stem: &str) -> Option<String> {
        match read_name(stem) {
            Named::Migration(version) => Some(version.to_string()),
            _ => None,
        }
    }

    #[test]
    fn the_layouts_of_the_field_are_read() {
        for (stem, expected) in [
            ("0001_create", "0001"),
            ("20240101120000_create", "20240101120000"),
            ("20240101120000_create.up", "20240101120000"),
            ("V1__create", "1"),
            ("V1_2__create", "1.2"),
            ("V1.2__create", "1.2"),
            ("v3__x", "3"),
            ("1.0_base", "1.0"),
            ("1.10_y", "1.10"),
            ("v1.1", "1.1"),
            ("001-2fa", "001"),
            ("2024-01-01-120000_create_users", "20240101120000"),
            ("00000000000000_diesel_initial_setup", "00000000000000"),
            ("2024-01-02_create", "20240102"),
            ("2024-01-02-create", "20240102"),
            ("2024-01-02-3-create", "20240102.3"),
            ("2024-5_x", "2024"),
            ("7", "7"),
            ("0002.name", "0002"),
        ] {
            assert_eq!(version(stem).as_deref(), Some(expected), "{stem}");
        }
    }

    #[test]
    fn other_names_have_no_version() {
        assert_eq!(read_name("0001_create.down"), Named::Undo);
        assert_eq!(read_name("U1__create"), Named::Undo);
        assert_eq!(read_name("R__views"), Named::Repeatable);
        for stem in ["schema", "", "create_1", "_1", "99999999999999999999999_x"] {
            assert_eq!(read_name(stem), Named::Other, "{stem}");
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let parse = |text| Version::parse(text).unwrap();
        assert!(parse("1.9") < parse("1.10") && parse("2") < parse("10") && parse("1") < parse("1.0.1"));
        assert_eq!(parse("1.0"), parse("1"));
        assert_eq!((parse("0001.00").key(), parse("0").key()), ("1".to_owned(), "0".to_owned()));
    }
}
