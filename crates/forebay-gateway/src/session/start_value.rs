//! Values of start-up settings, as a server reads and reports them.

/// What a server makes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartValue {
    /// It reports this.
    Known(String),
    /// Only the server knows.
    Unknown,
    /// It refuses it.
    Invalid,
}

impl StartValue {
    /// Of the setting `name`, whose default is reported as `default`.
    pub(crate) fn read(name: &str, value: &str, default: Option<&str>) -> Self {
        let one_of = |known: &[&str]| match known.iter().find(|known| known.eq_ignore_ascii_case(value)) {
            Some(known) => Self::Known((*known).to_owned()),
            None => Self::Invalid,
        };
        match &*name.to_ascii_lowercase() {
            "application_name" => Self::Known(value.to_owned()),
            "bytea_output" => one_of(&["escape", "hex"]),
            // The service has no other.
            "client_encoding" => {
                match &*value.trim_matches('\'').to_ascii_lowercase().replace(['-', '_'], "") {
                    "utf8" | "unicode" => Self::Known("UTF8".to_owned()),
                    _ => Self::Invalid,
                }
            }
            "datestyle" => date_style(value, default),
            "extra_float_digits" => match value.trim().parse::<i32>() {
                Ok(digits @ -15..=3) => Self::Known(digits.to_string()),
                _ => Self::Invalid,
            },
            "intervalstyle" => one_of(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]),
            "standard_conforming_strings" => match boolean(value) {
                Some(true) => Self::Known("on".to_owned()),
                Some(false) => Self::Known("off".to_owned()),
                None => Self::Invalid,
            },
            _ => Self::Unknown,
        }
    }
}

/// A boolean, or the beginning of one that is no other's.
fn boolean(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    if value == "1" || begins("true", 1) || begins("yes", 1) || begins("on", 2) {
        Some(true)
    } else if value == "0" || begins("false", 1) || begins("no", 1) || begins("off", 2) {
        Some(false)
    } else {
        None
    }
}

/// A format, an order of day, month and year, or both. What is not said is as in the default.
fn date_style(value: &str, default: Option<&str>) -> StartValue {
    let (mut format, mut order) = (None, None);
    // Twice is once, and two that differ are none.
    let says = |place: &mut Option<&'static str>, word| *place.get_or_insert(word) == word;
    let mut is_german = false;
    for word in value.split(',') {
        let word = word.trim().to_ascii_lowercase();
        let fits = match &*word {
            "iso" => says(&mut format, "ISO"),
            "sql" => says(&mut format, "SQL"),
            word if word.starts_with("postgres") => says(&mut format, "Postgres"),
            word if word.starts_with("german") => {
                is_german = true;
                says(&mut format, "German")
            }
            "ymd" => says(&mut order, "YMD"),
            "dmy" => says(&mut order, "DMY"),
            word if word.starts_with("euro") => says(&mut order, "DMY"),
            "mdy" | "us" => says(&mut order, "MDY"),
            word if word.starts_with("noneuro") => says(&mut order, "MDY"),
            "default" => return StartValue::Unknown,
            _ => false,
        };
        if !fits {
            return StartValue::Invalid;
        }
    }
    let order = order.or(is_german.then_some("DMY"));
    let default = default.and_then(|default| default.split_once(", "));
    match (format.or(default.map(|(format, _)| format)), order.or(default.map(|(_, order)| order))) {
        (Some(format), Some(order)) => StartValue::Known(format!("{format}, {order}")),
        _ => StartValue::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_a_server_reads_them() {
        for (name, value, reported) in [
            ("application_name", "a b", Some("a b")),
            ("bytea_output", "HEX", Some("hex")),
            ("bytea_output", "base64", None),
            ("client_encoding", "'utf-8'", Some("UTF8")),
            ("client_encoding", "UNICODE", Some("UTF8")),
            ("client_encoding", "LATIN1", None),
            ("extra_float_digits", " 3", Some("3")),
            ("extra_float_digits", "4", None),
            ("extra_float_digits", "x", None),
            ("IntervalStyle", "ISO_8601", Some("iso_8601")),
            ("IntervalStyle", "iso", None),
            ("standard_conforming_strings", "F", Some("off")),
            ("standard_conforming_strings", "oN", Some("on")),
            ("standard_conforming_strings", "o", None),
            ("standard_conforming_strings", "", None),
            ("DateStyle", "iso", Some("ISO, MDY")),
            ("datestyle", "dmy", Some("ISO, DMY")),
            ("datestyle", "ISO,DMY", Some("ISO, DMY")),
            ("datestyle", "German", Some("German, DMY")),
            ("datestyle", "german, us", Some("German, MDY")),
            ("datestyle", "PostgreSQL, European", Some("Postgres, DMY")),
            ("datestyle", "iso, sql", None),
            ("datestyle", "nope", None),
            ("datestyle", "", None),
        ] {
            let expected = reported.map_or(StartValue::Invalid, |value| StartValue::Known(value.to_owned()));
            assert_eq!(StartValue::read(name, value, Some("ISO, MDY")), expected, "{name} {value:?}");
        }
        assert_eq!(StartValue::read("TimeZone", "Nowhere", None), StartValue::Unknown);
        assert_eq!(StartValue::read("DateStyle", "dmy", None), StartValue::Unknown);
    }
}
