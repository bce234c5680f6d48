//! The settings that a client asks for in its start-up message: a fixed list, and nothing else.

use super::refusal::{Refusal, shown};
use super::startup::Start;
use crate::session::{StartValue, is_message_level};

/// What a session of Aurora DSQL can set. Everything else, `role` among it, is refused here: no client gets another role by its
/// start-up message.
const ALLOWED: [&str; 10] = [
    "application_name",
    "bytea_output",
    "client_encoding",
    "client_min_messages",
    "DateStyle",
    "extra_float_digits",
    "IntervalStyle",
    "search_path",
    "standard_conforming_strings",
    "TimeZone",
];

/// The allowed settings of a start-up message, each once, in the order in which they were first named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartParameters(Vec<(String, String)>);

impl StartParameters {
    /// Names, as the server writes them, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn set(&mut self, name: &'static str, value: &str) {
        match self.0.iter_mut().find(|(own, _)| own == name) {
            Some((_, own)) => value.clone_into(own),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }
}

impl From<Vec<(String, String)>> for StartParameters {
    fn from(settings: Vec<(String, String)>) -> Self {
        Self(settings)
    }
}

/// The settings of this message. Those named in `ignored` are dropped without an error.
pub(super) fn settings(start: &Start, ignored: &[String]) -> Result<StartParameters, Refusal> {
    let mut settings = StartParameters::default();
    let mut set = |name: &str, value: &str| {
        if ignored.iter().any(|ignored| ignored.eq_ignore_ascii_case(name)) {
            return Ok(());
        }
        match ALLOWED.iter().find(|allowed| allowed.eq_ignore_ascii_case(name)) {
            Some(&"client_min_messages") if !is_message_level(value) => {
                let value = shown(value);
                let message = format!("invalid value for parameter \"client_min_messages\": \"{value}\"");
                let hint =
                    "Available values: debug5, debug4, debug3, debug2, debug1, log, notice, warning, error.";
                Err(Refusal::new("22023", message).hint(hint))
            }
            // Otherwise the first statement would fail, and not the login.
            Some(allowed) if StartValue::read(allowed, value, None) == StartValue::Invalid => {
                let refusal =
                    Refusal::new("22023", format!("invalid value for parameter \"{allowed}\": \"{value}\""));
                let is_encoding = *allowed == "client_encoding";
                Err(if is_encoding { refusal.hint("Aurora DSQL has UTF8 only.") } else { refusal })
            }
            Some(allowed) => {
                settings.set(allowed, value);
                Ok(())
            }
            None => {
                let message = format!("setting configuration parameter \"{}\" not supported", shown(name));
                let hint = "Remove it from the connection settings, or add it to ignore_startup_parameters of the gateway.";
                Err(Refusal::new("0A000", message).hint(hint))
            }
        }
    };
    // As in PostgreSQL, a parameter of its own overrides the same setting in `options`.
    for (name, value) in options(start.parameter("options").unwrap_or_default())? {
        set(&name, &value)?;
    }
    for (name, value) in &start.parameters {
        match name.as_str() {
            "user" | "database" | "options" => {}
            "replication" if matches!(value.as_str(), "false" | "off" | "no" | "0") => {}
            "replication" => return Err(Refusal::new("0A000", "replication connections are not supported")),
            name if name.starts_with("_pq_.") => {}
            name => set(name, value)?,
        }
    }
    Ok(settings)
}

/// `-c NAME=VALUE`, `-cNAME=VALUE` and `--NAME=VALUE`, as on a command line.
fn options(text: &str) -> Result<Vec<(String, String)>, Refusal> {
    let invalid = |word: &str| {
        let message = format!("invalid command-line argument for server process: {}", shown(word));
        Refusal::new("42601", message).hint("Write settings as -c NAME=VALUE.")
    };
    let mut words = split(text).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match (word.strip_prefix("--"), word.strip_prefix("-c")) {
            (Some(setting), _) => setting.to_owned(),
            (None, Some("")) => words.next().ok_or_else(|| invalid("-c"))?,
            (None, Some(setting)) => setting.to_owned(),
            (None, None) => return Err(invalid(&word)),
        };
        let (name, value) = setting.split_once('=').ok_or_else(|| invalid(&setting))?;
        // Names may have hyphens on a command line.
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

/// Splits at white space; a backslash makes the next character an ordinary one.
fn split(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut letters = text.chars();
    let mut is_inside = false;
    while let Some(letter) = letters.next() {
        if letter.is_ascii_whitespace() {
            is_inside = false;
            continue;
        }
        if !is_inside {
            words.push(String::new());
            is_inside = true;
        }
        let letter = if letter == '\\' { letters.next() } else { Some(letter) };
        if let Some(word) = words.last_mut() {
            word.extend(letter);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::startup::{First, read};
    use super::*;

    fn of(parameters: &[(&str, &str)]) -> Result<Vec<(String, String)>, Refusal> {
        let mut body = vec![0, 0, 0, 0, 0, 3, 0, 0];
        for (name, value) in parameters {
            body.extend(format!("{name}\0{value}\0").into_bytes());
        }
        body.push(0);
        let Ok(First::Start(start)) = read(&body) else { panic!("a start-up message") };
        settings(&start, &["search_PATH".to_owned()]).map(|settings| settings.0)
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn only_the_list_is_allowed_whatever_the_spelling() {
        let settings = of(&[
            ("user", "a"),
            ("database", "b"),
            ("datestyle", "ISO"),
            ("TIMEZONE", "UTC"),
            ("_pq_.x", "y"),
        ]);
        assert_eq!(settings.unwrap(), [pair("DateStyle", "ISO"), pair("TimeZone", "UTC")]);
        for forbidden in
            ["role", "session_authorization", "ROLE", "statement_timeout", "no_such", "a.b", "", " role"]
        {
            if forbidden.is_empty() {
                continue;
            }
            assert_eq!(of(&[("user", "a"), (forbidden, "admin")]).unwrap_err().code, "0A000", "{forbidden}");
            let options = format!("-c {forbidden}=admin");
            let refused = of(&[("user", "a"), ("options", &options)]);
            assert!(refused.is_err(), "{options}");
        }
        for (name, value) in
            [("client_min_messages", "panic"), ("datestyle", "x"), ("client_encoding", "LATIN1")]
        {
            assert_eq!(of(&[(name, value)]).unwrap_err().code, "22023", "{name}");
        }
        assert_eq!(
            of(&[("options", "-c client_min_messages=Warning")]).unwrap(),
            [pair("client_min_messages", "Warning")]
        );
        assert_eq!(of(&[("search_path", "x"), ("options", "-c Search_Path=y")]).unwrap(), []);
    }

    #[test]
    fn a_parameter_overrides_the_same_setting_in_options() {
        let settings = of(&[
            ("TimeZone", "Asia/Tokyo"),
            ("options", r"-c timezone=UTC --application-name=a\ b -cDateStyle=ISO"),
        ]);
        assert_eq!(
            settings.unwrap(),
            [pair("TimeZone", "Asia/Tokyo"), pair("application_name", "a b"), pair("DateStyle", "ISO")]
        );
        assert_eq!(of(&[("TimeZone", "a"), ("timezone", "b")]).unwrap(), [pair("TimeZone", "b")]);
    }

    #[test]
    fn replication_and_other_switches_are_refused() {
        assert_eq!(of(&[("replication", "false")]).unwrap(), []);
        assert_eq!(of(&[("replication", "database")]).unwrap_err().code, "0A000");
        for bad in ["-c", "-c a", "-B 5", "geqo", "--role", r"\"] {
            assert_eq!(of(&[("options", bad)]).unwrap_err().code, "42601", "{bad}");
        }
    }
}
