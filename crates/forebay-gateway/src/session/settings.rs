//! Settings of a session: what it asked for when it started, and what it has set since.

use std::sync::Arc;

use super::assignment::Assignment;
use super::min_messages;

/// Settings in force: for each name in small letters, how it was set. Sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<(Box<str>, Assignment)>);

impl Settings {
    pub(super) fn get(&self, name: &str) -> Option<&Assignment> {
        self.place(name).ok().map(|place| &self.0[place].1)
    }

    pub(super) fn set(&mut self, name: &str, assignment: Assignment) {
        match self.place(name) {
            Ok(place) => self.0[place].1 = assignment,
            Err(place) => self.0.insert(place, (name.into(), assignment)),
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Ok(place) = self.place(name) {
            self.0.remove(place);
        }
    }

    /// How many bytes they take, roughly.
    pub(super) fn size(&self) -> usize {
        self.0.iter().map(|(name, assignment)| name.len() + assignment.text().len() + 32).sum()
    }

    /// Those that the server has.
    pub(super) fn of_server(&self) -> impl Iterator<Item = (&str, &Assignment)> {
        let all = self.0.iter().map(|(name, assignment)| (&**name, assignment));
        all.filter(|(name, _)| !matches!(*name, min_messages::NAME | min_messages::LOCAL))
    }

    /// Those that the client has made up. `pg_settings` lists none of them.
    pub(super) fn own(&self) -> impl Iterator<Item = (&str, &Assignment)> {
        self.of_server().filter(|(name, _)| is_own(name))
    }

    /// Statements that turn `self`, as it is in force, into `wanted`. Empty if they are the same.
    pub(super) fn statements_to(&self, wanted: &Self) -> String {
        let gone = self.of_server().filter(|(name, _)| wanted.get(name).is_none());
        let other = wanted.of_server().filter(|(name, wanted)| self.get(name) != Some(wanted));
        let undone = gone.map(|(name, _)| Assignment::undo(name));
        undone.chain(other.map(|(_, assignment)| assignment.to_string())).collect::<Vec<_>>().join(";")
    }

    /// Whether a backend with these cannot be made to forget them.
    pub(super) fn are_lasting(&self) -> bool {
        self.0.iter().any(|(_, assignment)| assignment.is_lasting())
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| (**other).cmp(name))
    }
}

/// Whether it is a setting of the client's own, which has a dot in its name.
pub(super) fn is_own(name: &str) -> bool {
    name.contains('.')
}

/// What the client asked for in its start-up message. `RESET` returns to it. Cheap to clone: sessions with the same should share one.
#[derive(Clone, Debug, Default)]
pub struct StartSettings(Arc<Start>);

#[derive(Debug, Default)]
struct Start {
    settings: Arc<Settings>,
    values: Vec<(Box<str>, Box<str>)>,
}

impl StartSettings {
    /// From names and values, both as the client sent them. Of a name that comes twice, the last value counts.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut settings = Settings::default();
        let mut values = Vec::new();
        for (name, value) in pairs {
            let name = name.to_ascii_lowercase();
            settings.set(&name, Assignment::to(&name, value));
            values.push((name.into(), value.into()));
        }
        Self(Arc::new(Start { settings: Arc::new(settings), values }))
    }

    pub(super) fn settings(&self) -> &Arc<Settings> {
        &self.0.settings
    }

    /// Names in small letters, and values.
    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.values.iter().map(|(name, value)| (&**name, &**value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        (**StartSettings::new(pairs.iter().copied()).settings()).clone()
    }

    #[test]
    fn only_what_differs_is_set() {
        let from = settings(&[("DateStyle", "ISO"), ("application_name", "a"), ("search_path", "x")]);
        let to = settings(&[("application_name", "b"), ("search_path", "x"), ("TimeZone", "UTC")]);
        assert_eq!(
            from.statements_to(&to),
            "RESET datestyle;SET application_name TO 'b';SET timezone TO 'UTC'"
        );
        assert_eq!(from.statements_to(&from), "");
    }

    /// The service refuses SET and RESET of their names.
    #[test]
    fn modes_of_transactions_are_session_characteristics() {
        let to = settings(&[
            ("default_transaction_isolation", "Repeatable Read"),
            ("default_transaction_read_only", "on"),
        ]);
        assert_eq!(
            Settings::default().statements_to(&to),
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ;\
             SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"
        );
        let undone = to.statements_to(&settings(&[("default_transaction_isolation", "repeatable read")]));
        assert_eq!(undone, "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE");
    }

    #[test]
    fn what_cannot_be_set_is_set_by_the_function_and_stays() {
        let mut to = settings(&[("TimeZone", "UTC")]);
        to.set("app.user", Assignment::carried("app.user", "o'x").unwrap());
        assert_eq!(
            Settings::default().statements_to(&to),
            "SELECT pg_catalog.set_config('app.user', 'o''x', false);SET timezone TO 'UTC'"
        );
        assert!(to.are_lasting() && !settings(&[("TimeZone", "UTC")]).are_lasting());
    }
}
