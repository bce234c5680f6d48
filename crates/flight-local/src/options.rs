//! Session options.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::Connection;

use crate::error::Failure;
use crate::messages::{OptionProblem, OptionValue, SessionOptionValue};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The client's name for itself.
    pub(crate) application_name: String,
    pub(crate) busy_timeout: Duration,
    pub(crate) foreign_keys: bool,
    pub(crate) query_only: bool,
    default_busy_timeout: Duration,
}

impl Options {
    pub(crate) fn new(busy_timeout: Duration) -> Self {
        Self {
            application_name: String::new(),
            busy_timeout,
            foreign_keys: true,
            query_only: false,
            default_busy_timeout: busy_timeout,
        }
    }

    /// Sets an option, or resets it to its default.
    pub(crate) fn set(&mut self, name: &str, value: Option<OptionValue>) -> Result<(), OptionProblem> {
        let default = Self::new(self.default_busy_timeout);
        match (name, value) {
            ("application_name", None) => self.application_name = default.application_name,
            ("application_name", Some(OptionValue::Text(name))) => self.application_name = name,
            ("busy_timeout_ms", None) => self.busy_timeout = default.busy_timeout,
            ("busy_timeout_ms", Some(OptionValue::Integer(time))) => {
                let time = u64::try_from(time).map_err(|_| OptionProblem::InvalidValue)?;
                self.busy_timeout = Duration::from_millis(time);
            }
            ("foreign_keys", None) => self.foreign_keys = default.foreign_keys,
            ("foreign_keys", Some(OptionValue::Bool(on))) => self.foreign_keys = on,
            ("query_only", None) => self.query_only = default.query_only,
            ("query_only", Some(OptionValue::Bool(on))) => self.query_only = on,
            ("session_id", _) => return Err(OptionProblem::Error),
            ("application_name" | "busy_timeout_ms" | "foreign_keys" | "query_only", _) => {
                return Err(OptionProblem::InvalidValue);
            }
            _ => return Err(OptionProblem::InvalidName),
        }
        Ok(())
    }

    pub(crate) fn read(&self, session: &str) -> BTreeMap<String, SessionOptionValue> {
        let busy_timeout = i64::try_from(self.busy_timeout.as_millis()).unwrap_or(i64::MAX);
        [
            ("application_name", OptionValue::Text(self.application_name.clone())),
            ("busy_timeout_ms", OptionValue::Integer(busy_timeout)),
            ("foreign_keys", OptionValue::Bool(self.foreign_keys)),
            ("query_only", OptionValue::Bool(self.query_only)),
            ("session_id", OptionValue::Text(session.to_owned())),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), SessionOptionValue { value: Some(value) }))
        .collect()
    }

    /// Applies the options to SQLite.
    pub(crate) fn apply(&self, connection: &Connection) -> Result<(), Failure> {
        connection.pragma_update(None, "foreign_keys", self.foreign_keys)?;
        connection.pragma_update(None, "query_only", self.query_only)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_takes_only_its_own_kind_of_value() {
        let mut options = Options::new(Duration::from_secs(5));
        assert_eq!(options.set("query_only", Some(OptionValue::Bool(true))), Ok(()));
        assert_eq!(options.set("busy_timeout_ms", Some(OptionValue::Integer(7))), Ok(()));
        assert_eq!(options.read("s")["busy_timeout_ms"].value, Some(OptionValue::Integer(7)));
        assert_eq!(
            options.set("query_only", Some(OptionValue::Integer(1))),
            Err(OptionProblem::InvalidValue)
        );
        assert_eq!(
            options.set("busy_timeout_ms", Some(OptionValue::Integer(-1))),
            Err(OptionProblem::InvalidValue)
        );
        assert_eq!(options.set("colour", None), Err(OptionProblem::InvalidName));
        assert_eq!(options.set("session_id", None), Err(OptionProblem::Error));
        for name in options.read("s").into_keys().filter(|name| name != "session_id") {
            assert_eq!(options.set(&name, None), Ok(()), "{name}");
        }
        assert_eq!(options, Options::new(Duration::from_secs(5)));
    }

    #[test]
    fn sqlite_begins_with_the_defaults() {
        let connection = Connection::open_in_memory().unwrap();
        let keys: bool = connection.query_row("PRAGMA foreign_keys", [], |row| row.get(0)).unwrap();
        assert_eq!(keys, Options::new(Duration::ZERO).foreign_keys);
    }
}
