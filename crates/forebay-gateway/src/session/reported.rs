//! What a server reports of its settings: ParameterStatus.

use std::fmt;
use std::sync::Arc;

use super::start_value::StartValue;
use crate::protocol::write;

/// The ParameterStatus messages of a server's start-up, in their order. Cheap to clone: many sessions share one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Reported(Arc<[(Box<str>, Box<str>)]>);

impl Reported {
    /// From names and values, as they were reported.
    pub fn new<N: Into<Box<str>>, V: Into<Box<str>>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// The value of a name, as it was at the start.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| &**other == name).map(|(_, value)| &**value)
    }

    /// All names and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Values now: those of a start-up, and what has changed since. Changes are few, so each is searched one by one.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportedNow {
    start: Reported,
    changes: Vec<(Box<str>, Box<str>)>,
}

/// About as many bytes as a new client is told.
const GREETING: usize = 512;

/// A server reports about 15 names. More than this is not remembered, whatever it sends.
const MOST_CHANGES: usize = 64;

impl ReportedNow {
    pub(super) fn new(start: &Reported) -> Self {
        Self { start: start.clone(), changes: Vec::new() }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.changed(name).or_else(|| self.start.get(name))
    }

    fn changed(&self, name: &str) -> Option<&str> {
        self.changes.iter().find(|(other, _)| &**other == name).map(|(_, value)| &**value)
    }

    /// Notes a value. Whether it is another than before.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        if self.get(name) == Some(value) {
            return false;
        }
        let back = self.start.get(name) == Some(value);
        match self.changes.iter().position(|(other, _)| &**other == name) {
            Some(place) if back => drop(self.changes.swap_remove(place)),
            Some(place) => self.changes[place].1 = value.into(),
            None if self.changes.len() < MOST_CHANGES => self.changes.push((name.into(), value.into())),
            None => {}
        }
        true
    }

    /// Tells a client, which knows `self`, what is different in `now`.
    pub(super) fn catch_up(&mut self, now: &Self, to_client: &mut Vec<u8>) {
        if !self.start.is(&now.start) {
            let differs =
                |(name, value): &(&str, &str)| now.changed(name).is_none() && self.get(name) != Some(value);
            let different: Vec<_> = now.start.iter().filter(differs).collect();
            for (name, value) in different {
                self.tell(name, value, to_client);
            }
        } else if !self.changes.is_empty() {
            // What the client knows as changed, and is as at the start here.
            let mut place = 0;
            while place < self.changes.len() {
                let name = self.changes[place].0.clone();
                if now.changed(&name).is_none()
                    && let Some(value) = now.start.get(&name)
                {
                    self.tell(&name, value, to_client);
                } else {
                    place += 1;
                }
            }
        }
        for (name, value) in &now.changes {
            self.tell(name, value, to_client);
        }
    }

    fn tell(&mut self, name: &str, value: &str, to_client: &mut Vec<u8>) {
        if self.set(name, value) {
            write::parameter_status(to_client, name, value);
        }
    }

    /// Tells a new client all of it.
    pub(super) fn greet(&self, to_client: &mut Vec<u8>) {
        to_client.reserve(GREETING);
        for (name, value) in self.start.iter() {
            write::parameter_status(to_client, name, self.changed(name).unwrap_or(value));
        }
    }

    /// Applies what the client asked for at its start, as a server reports it. What is not known exactly is left for the first backend to say.
    pub(super) fn ask(&mut self, name: &str, value: &str) {
        let Some(reported) = self
            .start
            .0
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(name, _)| name.clone())
        else {
            return;
        };
        let default = self.get(&reported).map(str::to_owned);
        let value = match StartValue::read(&reported, value, default.as_deref()) {
            StartValue::Known(value) => value,
            // Most probably.
            StartValue::Unknown if &*reported == "TimeZone" => value.to_owned(),
            StartValue::Unknown | StartValue::Invalid => return,
        };
        self.set(&reported, &value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(pairs: &[(&str, &str)]) -> ReportedNow {
        ReportedNow::new(&Reported::new(pairs.iter().copied()))
    }

    #[test]
    fn a_client_hears_only_of_what_changed() {
        let start = Reported::new([("a", "1"), ("b", "2"), ("c", "3")]);
        let mut told = ReportedNow::new(&start);
        let mut here = ReportedNow::new(&start);
        assert!(told.set("a", "x") && !told.set("a", "x") && here.set("b", "y"));
        let mut out = Vec::new();
        told.catch_up(&here, &mut out);
        let mut expected = Vec::new();
        write::parameter_status(&mut expected, "a", "1");
        write::parameter_status(&mut expected, "b", "y");
        assert_eq!(out, expected);
        out.clear();
        told.catch_up(&here, &mut out);
        assert!(out.is_empty());
        // Another server: its version is new, and the rest is as before.
        let mut other = now(&[("a", "1"), ("b", "2"), ("c", "4")]);
        other.set("b", "y");
        told.catch_up(&other, &mut out);
        expected.clear();
        write::parameter_status(&mut expected, "c", "4");
        assert_eq!(out, expected);
    }

    #[test]
    fn what_was_asked_for_is_told_as_a_server_writes_it() {
        let mut told = now(&[
            ("application_name", ""),
            ("client_encoding", "SQL_ASCII"),
            ("DateStyle", "Postgres, DMY"),
            ("x", "1"),
        ]);
        for (name, value) in [
            ("application_name", "psql"),
            ("client_encoding", "utf-8"),
            ("datestyle", "iso"),
            ("x", "2"),
            ("y", "3"),
        ] {
            told.ask(name, value);
        }
        let seen = ["application_name", "client_encoding", "DateStyle", "x"]
            .map(|name| told.get(name).unwrap_or_default());
        assert_eq!(seen, ["psql", "UTF8", "ISO, DMY", "1"]);
    }
}
