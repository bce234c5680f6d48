//! What a borrower has changed in a session.

use std::collections::BTreeSet;

use crate::connection::SessionReset;
use crate::sql::{self, StatementTraits};

/// What the next borrower of a session would see of the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alteration {
    /// Objects, such as temporary tables, or the current schema.
    objects: bool,
    /// The current schema, and nothing else.
    schema: bool,
    /// Settings whose names are known, as they follow `RESET`: `x`, `GLOBAL x`, `VARIABLE x`.
    settings: BTreeSet<String>,
    /// Anything else. Nothing is known to restore it.
    unknown: bool,
}

impl Alteration {
    /// Objects, or the current schema.
    pub(crate) fn objects() -> Self {
        Self { objects: true, ..Self::default() }
    }

    /// The current schema.
    pub(crate) fn schema() -> Self {
        Self { schema: true, ..Self::default() }
    }

    /// What nothing restores.
    pub(crate) fn unknown() -> Self {
        Self { unknown: true, ..Self::default() }
    }

    /// What a statement may change in its session.
    pub(crate) fn of(sql: &str, traits: StatementTraits, reset: &SessionReset) -> Self {
        let objects = (traits.alters_session && !traits.alters_settings) || reset.after_ddl && traits.is_ddl;
        let names = traits.alters_settings.then(|| sql::changed_settings(sql));
        match names {
            None => Self { objects, ..Self::default() },
            Some(None) => Self::unknown(),
            // A script may also have created something.
            Some(Some(settings)) => {
                Self { objects: objects || traits.alters_objects, settings, ..Self::default() }
            }
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        !self.objects && !self.schema && self.settings.is_empty() && !self.unknown
    }

    /// Whether a new session would lack something that its owner wants. The current schema is none of that: the server changes
    /// it as a side effect, and names that depend on it are not found in a new session.
    pub(crate) fn is_wanted(&self) -> bool {
        self.objects || !self.settings.is_empty() || self.unknown
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.objects |= other.objects;
        self.schema |= other.schema;
        self.settings.extend(other.settings);
        self.unknown |= other.unknown;
    }

    /// Whether a reset restores all of it.
    pub(crate) fn can_be_reset(&self, reset: &SessionReset) -> bool {
        !self.unknown
            && (!self.objects || !reset.sql.is_empty())
            && (!self.schema || reset.schema.is_some() || !reset.sql.is_empty())
            && (self.settings.is_empty() || reset.setting.is_some())
    }

    /// The statements that restore it. Settings first: one of them may be in the way of the others.
    pub(crate) fn reset_sql(&self, reset: &SessionReset) -> Vec<String> {
        let setting = reset.setting.as_deref().unwrap_or_default();
        let settings = self.settings.iter().map(|name| setting.replace("{name}", name));
        let rest = match &reset.schema {
            Some(schema) if !self.objects => std::slice::from_ref(schema),
            _ => &reset.sql[..],
        };
        settings.chain(rest.iter().filter(|_| self.objects || self.schema).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reset() -> SessionReset {
        SessionReset {
            sql: vec!["DROP everything".to_owned()],
            schema: Some("USE home".to_owned()),
            setting: Some("RESET {name}".to_owned()),
            after_ddl: true,
        }
    }

    fn left_by(sql: &str) -> Alteration {
        Alteration::of(sql, StatementTraits::of(sql), &reset())
    }

    #[test]
    fn a_reset_does_what_is_needed_and_no_more() {
        for (left, statements) in [
            (left_by("SELECT 1"), &[][..]),
            (left_by("INSERT INTO t VALUES (1)"), &[]),
            (left_by("SET threads = 1"), &["RESET threads"]),
            (left_by("SET GLOBAL b = 1; SET a = 1"), &["RESET GLOBAL b", "RESET a"]),
            (left_by("CREATE TEMP TABLE t (a INT)"), &["DROP everything"]),
            (left_by("CREATE TEMP TABLE t (type TEXT, function TEXT)"), &["DROP everything"]),
            (left_by("CREATE OR REPLACE MACRO m(a) AS a"), &["DROP everything"]),
            (left_by("ALTER TABLE temp.t ADD COLUMN b INT"), &["DROP everything"]),
            (left_by("USE swanlake"), &["DROP everything"]),
            (left_by("CREATE TABLE t (a INT)"), &["DROP everything"]),
            (left_by("CREATE TABLE t (a INT); SET a = 1"), &["RESET a", "DROP everything"]),
            (Alteration::schema(), &["USE home"]),
        ] {
            assert!(left.can_be_reset(&reset()), "{left:?}");
            assert_eq!(left.reset_sql(&reset()), statements, "{left:?}");
        }
        let mut both = Alteration::schema();
        both.add(Alteration::objects());
        assert_eq!(both.reset_sql(&reset()), ["DROP everything"]);
        assert!(both.is_wanted() && !Alteration::schema().is_wanted());
    }

    #[test]
    fn what_nothing_restores_is_not_reset() {
        for sql in [
            "ATTACH 'x.db' AS x",
            "CREATE SECRET s (TYPE s3)",
            "CREATE TEMP MACRO m(a) AS a",
            "CREATE OR REPLACE TEMP FUNCTION m(a) AS a",
            "CREATE TEMPORARY SEQUENCE s",
            "CREATE TYPE temp.mood AS ENUM ('a')",
            "LOAD spatial",
            "CALL everything()",
            "PREPARE p AS SELECT 1",
            "SELECT setseed(0.5)",
            "SET a = 1; LOAD spatial",
        ] {
            assert!(!left_by(sql).can_be_reset(&reset()), "{sql}");
        }
        let none = SessionReset::default();
        for left in [left_by("SET a = 1"), Alteration::schema(), Alteration::objects()] {
            assert!(!left.can_be_reset(&none), "{left:?}");
        }
        let plain = SessionReset { sql: reset().sql, ..SessionReset::default() };
        assert_eq!(Alteration::schema().reset_sql(&plain), ["DROP everything"]);
    }
}
