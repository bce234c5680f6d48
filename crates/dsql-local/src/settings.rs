//! The settings of a session, for SET and SHOW.

mod options;
mod time_zone;

use std::collections::BTreeMap;

use crate::error::SqlError;
use crate::statement::{Statement, tokens};

/// A setting: its name as shown, its default, whether a session may change it, and what it is.
type Known = (&'static str, &'static str, bool, &'static str);

/// The first ten are reported to clients in `ParameterStatus` messages.
const KNOWN: &[Known] = &[
    ("application_name", "", true, "Name of the client's program."),
    ("client_encoding", "UTF8", true, "Character set of the client."),
    ("DateStyle", "ISO, MDY", true, "Format of dates, and the order of day, month and year in input."),
    ("in_hot_standby", "off", false, "Whether the server is a standby."),
    ("integer_datetimes", "on", false, "Whether times are integers in the binary format."),
    ("IntervalStyle", "postgres", true, "Format of intervals."),
    ("server_encoding", "UTF8", false, "Character set of the database."),
    ("server_version", "16.15", false, "Version of the server."),
    ("standard_conforming_strings", "on", true, "Whether a backslash in a literal is an ordinary character."),
    ("TimeZone", "UTC", true, "Time zone of times that are shown or read."),
    ("bytea_output", "hex", true, "Format of bytea values."),
    ("client_min_messages", "notice", false, "Least severity of messages to the client."),
    ("default_transaction_isolation", "repeatable read", false, "Isolation level of new transactions."),
    (DEFAULT_READ_ONLY, "off", false, "Whether new transactions are read-only."),
    ("extra_float_digits", "1", true, "Digits of floating-point values beyond the usual number."),
    // The service shows this value, though it has no effect.
    ("max_connections", "20", false, "Largest number of connections."),
    ("max_identifier_length", "63", false, "Longest name, in bytes."),
    ("search_path", "\"$user\", public", true, "Schemas that are searched for names without one."),
    ("server_version_num", "160015", false, "Version of the server as a number."),
    (SESSION_AUTHORIZATION, "", false, "Role that the session began with."),
    ("transaction_isolation", "repeatable read", false, "Isolation level of the transaction."),
    ("transaction_read_only", "off", false, "Whether the transaction is read-only."),
];

/// SET SESSION CHARACTERISTICS changes it.
const DEFAULT_READ_ONLY: &str = "default_transaction_read_only";
/// Its value is the user of the start-up packet.
const SESSION_AUTHORIZATION: &str = "session_authorization";

/// The settings that clients get when they connect, and when one changes.
pub(crate) fn reported() -> impl Iterator<Item = &'static str> {
    KNOWN[..10].iter().map(|(name, ..)| *name)
}

/// All other settings of PostgreSQL 16, and words that may follow SET. They cannot be set.
const NAMES: &str = include_str!("settings/names.txt");
/// Parameters of a start-up packet that are not settings.
const NO_SETTINGS: &[&str] = &["user", "database", "replication"];
/// A parameter that contains several settings.
const OPTIONS: &str = "options";

/// The settings that the engine needs: they change the meaning of statements or the format of values, or are looked up in `pg_settings`.
const ENGINE_SETTINGS: &[&str] = &[
    "application_name",
    "bytea_output",
    "DateStyle",
    DEFAULT_READ_ONLY,
    "extra_float_digits",
    "IntervalStyle",
    "search_path",
    "TimeZone",
];

fn known(name: &str) -> Option<&'static Known> {
    // SQL has its own syntax for these.
    let own = [
        ("time zone", "TimeZone"),
        ("names", "client_encoding"),
        ("transaction isolation level", "transaction_isolation"),
        ("session authorization", SESSION_AUTHORIZATION),
    ];
    let name = own.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map_or(name, |(_, name)| name);
    KNOWN.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name))
}

pub(crate) fn default_value(name: &str) -> Option<&'static str> {
    known(name).map(|(_, value, ..)| *value)
}

/// Only values that differ from the defaults are stored.
type Values = BTreeMap<&'static str, String>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// From the start-up packet. RESET restores these.
    initial: Values,
    current: Values,
}

impl Settings {
    /// Reads the settings in a start-up packet.
    pub(crate) fn from_startup(parameters: &[(String, String)]) -> Result<Self, SqlError> {
        let mut initial = Values::new();
        let mut initial_user = None;
        let mut begin = |name: &str, value: String| {
            let (name, default, ..) = settable(name)?;
            if value == *default {
                initial.remove(name);
            } else {
                initial.insert(name, value);
            }
            Ok::<_, SqlError>(())
        };
        // A parameter of its own overrides the same setting in `options`.
        for (_, text) in parameters.iter().filter(|(name, _)| name == OPTIONS) {
            for (name, value) in options::parse(text)? {
                begin(&name, value)?;
            }
        }
        for (name, value) in parameters {
            if name == "user" {
                initial_user = Some(value.clone());
            }
            if name != OPTIONS && !NO_SETTINGS.contains(&name.as_str()) && !name.starts_with("_pq_.") {
                begin(name, value.clone())?;
            }
        }
        initial.extend(initial_user.map(|user| (SESSION_AUTHORIZATION, user)));
        Ok(Self { current: initial.clone(), initial })
    }

    pub(crate) fn engine_settings(&self) -> Vec<(&'static str, String)> {
        let changed = self.current.iter().filter(|(name, value)| default_value(name) != Some(value));
        let bearing = changed.filter(|(name, _)| ENGINE_SETTINGS.contains(name));
        bearing.map(|(name, value)| (*name, value.clone())).collect()
    }

    /// The name and value of a setting.
    pub(crate) fn show(&self, name: &str) -> Result<(&'static str, &str), SqlError> {
        let (name, default, ..) = known(name).ok_or_else(|| unrecognized(name))?;
        Ok((name, self.current.get(name).map_or(*default, String::as_str)))
    }

    /// The settings that clients are told, and that are different in `other`, as they are here.
    pub(crate) fn reported_unlike(&self, other: &Self) -> Vec<(&'static str, String)> {
        let value =
            |settings: &Self, name: &'static str| settings.show(name).ok().map(|(_, value)| value.to_owned());
        let differs = |name: &&'static str| value(self, name) != value(other, name);
        reported().filter(differs).filter_map(|name| Some((name, value(self, name)?))).collect()
    }

    /// Whether new transactions are read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.current.get(DEFAULT_READ_ONLY).is_some_and(|value| value == "on")
    }

    /// Name, value and meaning of all settings, in the order of their names.
    pub(crate) fn all(&self) -> Vec<[&str; 3]> {
        let value = |name, default| self.current.get(name).map_or(default, String::as_str);
        let mut all: Vec<_> = KNOWN
            .iter()
            .map(|(name, default, _, meaning)| [*name, value(*name, *default), *meaning])
            .collect();
        all.sort_by_key(|[name, ..]| name.to_ascii_lowercase());
        all
    }

    /// Runs a SET or RESET. Returns the changes that clients get.
    pub(crate) fn set(&mut self, statement: &Statement) -> Result<Vec<(&'static str, String)>, SqlError> {
        if statement.begins(&["SET", "SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"]) {
            let known =
                ["ISOLATION", "LEVEL", "REPEATABLE", "READ", "ONLY", "WRITE", "NOT", "DEFERRABLE", ","];
            let modes = tokens(statement.text());
            let unknown = modes[5..].iter().find(|mode| !known.contains(&mode.as_str()));
            if unknown.is_some() || modes.len() == 5 {
                let at = unknown.map_or("end of input".to_owned(), |word| format!("or near \"{word}\""));
                return Err(SqlError::new("42601", format!("syntax error at {at}")));
            }
            let value = statement.is_read_only().map(|read_only| if read_only { "on" } else { "off" });
            self.current.extend(value.map(|value| (DEFAULT_READ_ONLY, value.to_owned())));
            return Ok(Vec::new());
        }
        let mut text = statement.text().trim();
        for word in ["SET", "RESET", "SESSION", "LOCAL"] {
            text = strip(text, word).unwrap_or(text);
        }
        let reset = statement.word(0) == "RESET";
        if reset && text.eq_ignore_ascii_case("all") {
            return self.reset();
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim(), value.trim()),
            None => assignment(text),
        };
        // Unquoted names are folded to lower case.
        let name = if name.starts_with('"') { name.to_owned() } else { name.to_ascii_lowercase() };
        let name = name.trim_matches('"');
        let value = value.trim().trim_matches('\'');
        let (name, default, ..) = settable(name)?;
        let default = self.initial.get(name).map_or(*default, String::as_str);
        let is_default = value.eq_ignore_ascii_case("default")
            || *name == "TimeZone" && value.eq_ignore_ascii_case("local");
        let offset = if *name == "TimeZone" { time_zone::canonical(value) } else { None };
        let value = if reset || is_default { default } else { offset.as_deref().unwrap_or(value) };
        if *name == "client_encoding"
            && !matches!(value.to_ascii_uppercase().as_str(), "UTF8" | "UTF-8" | "UNICODE")
        {
            return Err(SqlError::unsupported(format!("client_encoding must be UTF8, not \"{value}\"")));
        }
        let value = if *name == "client_encoding" { default } else { value }.to_owned();
        self.current.insert(name, value.clone());
        Ok(reported().any(|known| known == *name).then_some((*name, value)).into_iter().collect())
    }

    /// Restores the initial settings.
    fn reset(&mut self) -> Result<Vec<(&'static str, String)>, SqlError> {
        let before =
            std::mem::replace(self, Self { current: self.initial.clone(), initial: self.initial.clone() });
        let mut told = Vec::new();
        for name in reported() {
            let (name, value) = self.show(name)?;
            if before.show(name)?.1 != value {
                told.push((name, value.to_owned()));
            }
        }
        Ok(told)
    }
}

/// A setting that can be changed. Others may be known, but are refused.
fn settable(name: &str) -> Result<&'static Known, SqlError> {
    match known(name) {
        Some(setting @ (_, _, true, _)) => Ok(setting),
        None if !NAMES.split_whitespace().any(|known| known.eq_ignore_ascii_case(name))
            && !name.contains('.') =>
        {
            Err(unrecognized(name))
        }
        _ => Err(SqlError::unsupported(format!("setting configuration parameter \"{name}\" not supported"))),
    }
}

fn unrecognized(name: &str) -> SqlError {
    SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\""))
}

/// `a TO b`, `TIME ZONE b`, `NAMES b`, or only a name.
fn assignment(text: &str) -> (&str, &str) {
    if strip(text, "TIME").and_then(|rest| strip(rest, "ZONE")).is_some() {
        let end = text.len() - strip(text, "TIME").and_then(|rest| strip(rest, "ZONE")).map_or(0, str::len);
        return ("time zone", &text[end..]);
    }
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (name, strip(rest.trim_start(), "TO").unwrap_or(rest))
}

/// The text after a keyword and its space.
fn strip<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let head = text.get(..word.len())?;
    let rest = &text[word.len()..];
    (head.eq_ignore_ascii_case(word) && rest.starts_with(char::is_whitespace)).then(|| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &mut Settings, sql: &str) -> Result<Vec<(&'static str, String)>, String> {
        settings.set(&Statement::split(sql)[0]).map_err(|error| error.to_string())
    }

    fn startup(parameters: &[(&str, &str)]) -> Result<Settings, SqlError> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Settings::from_startup(&parameters.iter().map(owned).collect::<Vec<_>>())
    }

    #[test]
    fn every_spelling_of_set() {
        let mut settings = Settings::default();
        for sql in [
            "SET application_name = 'a'",
            "set session application_name to 'a'",
            "SET LOCAL application_name TO a",
        ] {
            assert_eq!(set(&mut settings, sql), Ok(vec![("application_name", "a".to_owned())]), "{sql}");
        }
        assert_eq!(set(&mut settings, "SET TIME ZONE 'UTC'"), Ok(vec![("TimeZone", "UTC".to_owned())]));
        for (sql, zone) in [
            ("SET TIME ZONE INTERVAL '+05:30' HOUR TO MINUTE", "<+05:30>-05:30"),
            ("SET TimeZone = -7", "<-07>+07"),
            ("SET TIME ZONE LOCAL", "UTC"),
        ] {
            assert_eq!(set(&mut settings, sql), Ok(vec![("TimeZone", zone.to_owned())]), "{sql}");
        }
        assert_eq!(settings.show("APPLICATION_NAME").unwrap(), ("application_name", "a"));
        assert_eq!(set(&mut settings, "RESET ALL"), Ok(vec![("application_name", String::new())]));
        assert_eq!(settings.show("application_name").unwrap(), ("application_name", ""));
    }

    #[test]
    fn session_characteristics_are_the_modes_of_new_transactions() {
        let mut settings = Settings::default();
        set(&mut settings, "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            .unwrap();
        assert!(!settings.is_read_only());
        for wrong in ["bogus", ""] {
            let sql = format!("SET SESSION CHARACTERISTICS AS TRANSACTION {wrong}");
            assert!(set(&mut settings, &sql).unwrap_err().starts_with("42601"), "{sql}");
        }
        set(&mut settings, "set session characteristics as transaction read only").unwrap();
        assert!(settings.is_read_only());
        assert_eq!(settings.show("default_transaction_read_only").unwrap().1, "on");
        set(&mut settings, "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE").unwrap();
        assert!(!settings.is_read_only());
    }

    #[test]
    fn clients_can_show_what_they_ask_for_at_connect() {
        let settings = startup(&[("user", "admin"), ("application_name", "mine")]).unwrap();
        for (name, shown) in [
            ("TRANSACTION ISOLATION LEVEL", ("transaction_isolation", "repeatable read")),
            ("session authorization", ("session_authorization", "admin")),
            ("max_identifier_length", ("max_identifier_length", "63")),
        ] {
            assert_eq!(settings.show(name).unwrap(), shown);
        }
        let all = settings.all();
        assert_eq!(all.len(), KNOWN.len());
        assert_eq!(&all[0][..2], ["application_name", "mine"]);
        assert!(all.is_sorted_by_key(|[name, ..]| name.to_ascii_lowercase()));
    }

    #[test]
    fn a_start_up_message_sets_what_may_be_set_and_nothing_else() {
        let settings =
            startup(&[("user", "x"), ("_pq_.y", "1"), ("timezone", "Asia/Tokyo"), ("DateStyle", "ISO, MDY")]);
        assert_eq!(settings.unwrap().engine_settings(), [("TimeZone", "Asia/Tokyo".to_owned())]);
        assert_eq!(startup(&[("lc_numeric", "C")]).unwrap_err().code, "0A000");
        assert_eq!(startup(&[("no_such", "C")]).unwrap_err().code, "42704");
    }

    #[test]
    fn a_parameter_overrides_the_same_setting_in_options() {
        let settings = startup(&[
            ("TimeZone", "Asia/Tokyo"),
            ("options", "-c search_path=zzz -c TimeZone=UTC --application-name=a"),
        ]);
        let settings = settings.unwrap();
        let bearing = [("TimeZone", "Asia/Tokyo"), ("application_name", "a"), ("search_path", "zzz")]
            .map(|(name, value)| (name, value.to_owned()));
        assert_eq!(settings.engine_settings(), bearing);
        assert_eq!(settings.show("application_name").unwrap().1, "a");
        let refused = startup(&[("options", "-c statement_timeout=5s")]).unwrap_err();
        assert_eq!(refused.message, "setting configuration parameter \"statement_timeout\" not supported");
        // A parameter of its own sets the default again.
        let settings = startup(&[("options", "-c TimeZone=Asia/Tokyo"), ("timezone", "UTC")]).unwrap();
        assert_eq!(settings.engine_settings(), []);
    }

    #[test]
    fn a_reset_goes_back_to_how_the_session_began() {
        let mut settings = startup(&[("application_name", "mine"), ("TimeZone", "Asia/Tokyo")]).unwrap();
        let mine = ("application_name", "mine".to_owned());
        for back in ["RESET application_name", "SET application_name TO DEFAULT", "RESET ALL"] {
            set(&mut settings, "SET application_name = 'other'").unwrap();
            assert_eq!(set(&mut settings, back), Ok(vec![mine.clone()]), "{back}");
            assert_eq!(settings.show("application_name").unwrap().1, "mine", "{back}");
        }
        assert_eq!(settings.show("TimeZone").unwrap().1, "Asia/Tokyo");
    }

    #[test]
    fn most_settings_cannot_be_set() {
        let mut settings = Settings::default();
        let refusal = set(&mut settings, "SET statement_timeout = 5").unwrap_err();
        assert_eq!(refusal, "0A000: setting configuration parameter \"statement_timeout\" not supported");
        assert!(set(&mut settings, "SET client_encoding TO 'LATIN1'").is_err());
        let unknown = set(&mut settings, "SET no_such_parameter = 1").unwrap_err();
        assert_eq!(unknown, "42704: unrecognized configuration parameter \"no_such_parameter\"");
        let unknown = settings.show("lc_collate").unwrap_err().to_string();
        assert_eq!(unknown, "42704: unrecognized configuration parameter \"lc_collate\"");
    }
}
