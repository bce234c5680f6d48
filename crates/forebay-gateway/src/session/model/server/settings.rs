//! Settings: the session's, those of the transaction, and what the client was told of them.

use std::collections::BTreeMap;

use super::error::{Outcome, error, unknown};
use crate::protocol::write;

pub(crate) const REPORTED: [(&str, &str); 5] = [
    ("application_name", ""),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("standard_conforming_strings", "on"),
    ("TimeZone", "UTC"),
];

const OTHERS: [(&str, &str); 3] =
    [("search_path", "public"), ("extra_float_digits", "1"), ("client_min_messages", "notice")];

const LEVELS: [&str; 3] = ["notice", "warning", "error"];

pub(in crate::session::model) type Values = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    defaults: Values,
    session: Values,
    /// Those of SET LOCAL.
    local: Values,
    /// `session` as the transaction found it.
    committed: Values,
    reported: Values,
}

/// Settings at a savepoint: the session's, and those of SET LOCAL.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Saved(Values, Values);

impl Settings {
    pub(super) fn new(start: &[(&str, &str)]) -> Self {
        let pairs = REPORTED
            .iter()
            .chain(&OTHERS)
            .map(|&(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        let mut defaults: Values = pairs.collect();
        defaults.extend(start.iter().map(|&(name, value)| (name.to_ascii_lowercase(), value.to_owned())));
        Self {
            defaults,
            session: Values::new(),
            local: Values::new(),
            committed: Values::new(),
            reported: Values::new(),
        }
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.defaults.contains_key(name)
    }

    pub(super) fn value(&self, name: &str) -> Option<String> {
        self.local.get(name).or_else(|| self.session.get(name)).or_else(|| self.defaults.get(name)).cloned()
    }

    /// Those that the session has set.
    pub(super) const fn of_session(&self) -> &Values {
        &self.session
    }

    /// Values that were reported.
    pub(super) const fn reported(&self) -> &Values {
        &self.reported
    }

    /// Whether the client wants to hear of this.
    pub(super) fn says(&self, severity: &str) -> bool {
        let level = self.value("client_min_messages");
        let place = |name: &str| LEVELS.iter().position(|level| *level == name);
        level.as_deref().and_then(place) <= place(severity)
    }

    pub(super) fn set(&mut self, name: &str, value: Option<String>, local: bool) -> Outcome {
        if !self.defaults.contains_key(name) {
            return Err(unknown(name));
        }
        let level = value.as_deref().is_none_or(|value| LEVELS.contains(&value));
        if name == "client_min_messages" && !level {
            let value = value.unwrap_or_default();
            let error = error("22023", format!("invalid value for parameter \"{name}\": \"{value}\""));
            let hint =
                "Available values: debug5, debug4, debug3, debug2, debug1, log, notice, warning, error.";
            return Err(Box::new(error.with_hint(hint)));
        }
        if value.as_deref() == Some("bad") {
            return Err(error("22023", format!("invalid value for parameter \"{name}\": \"bad\"")));
        }
        if local {
            let value = value.unwrap_or_else(|| self.defaults[name].clone());
            self.local.insert(name.to_owned(), value);
            return Ok(());
        }
        self.local.remove(name);
        match value {
            Some(value) => drop(self.session.insert(name.to_owned(), value)),
            None => drop(self.session.remove(name)),
        }
        Ok(())
    }

    pub(super) fn reset_session(&mut self) {
        self.session.clear();
    }

    pub(super) fn reset_all(&mut self) {
        self.session.clear();
        self.local.clear();
    }

    /// A transaction begins.
    pub(super) fn begin(&mut self) {
        self.committed = self.session.clone();
    }

    /// It ends.
    pub(super) fn end(&mut self, commit: bool) {
        if !commit {
            self.session = self.committed.clone();
        }
        self.local.clear();
        self.committed = self.session.clone();
    }

    /// As they were before the transaction.
    pub(super) fn roll_back(&mut self) {
        self.restore(Saved(self.committed.clone(), Values::new()));
    }

    pub(super) fn save(&self) -> Saved {
        Saved(self.session.clone(), self.local.clone())
    }

    pub(super) fn restore(&mut self, Saved(session, local): Saved) {
        (self.session, self.local) = (session, local);
    }

    /// Reports what is not as it was reported, unless `quiet`.
    pub(super) fn report(&mut self, quiet: bool, out: &mut Vec<u8>) {
        for (name, _) in REPORTED {
            let value = self.value(&name.to_ascii_lowercase()).unwrap_or_default();
            if self.reported.get(name) != Some(&value) {
                if !quiet {
                    write::parameter_status(out, name, &value);
                }
                self.reported.insert(name.to_owned(), value);
            }
        }
    }
}
