//! How a setting is given its value.

use std::fmt;

use super::quote;

/// How a setting was given its value, and how another backend is given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Assignment {
    /// By SET. The text is what follows `SET `, as the client wrote it: so nothing is lost that a setting can express, such as
    /// lists and intervals.
    Set(Box<str>),
    /// By a call of `set_config`, which is the text. It takes settings that Aurora DSQL refuses to SET or to RESET, so such a value stays.
    Call(Box<str>),
}

impl Assignment {
    /// SET of this value.
    pub(super) fn to(name: &str, value: &str) -> Self {
        Self::Set(text_for(name, value).into())
    }

    /// Of a value that a function gave. None for a setting that need not be carried over.
    pub(super) fn carried(name: &str, value: &str) -> Option<Self> {
        // These can be SET, as far as is known.
        let can_be_set = [
            "application_name",
            "bytea_output",
            "client_encoding",
            "datestyle",
            "extra_float_digits",
            "intervalstyle",
            "search_path",
            "standard_conforming_strings",
            "timezone",
        ];
        match name {
            // asyncpg turns it off whenever it looks up types. It changes no result.
            "jit" => None,
            name if can_be_set.contains(&name)
                || modes_of(name).any(|(mode, _)| mode == value)
                || name.starts_with("enable_")
                || name.starts_with("dsql.") =>
            {
                Some(Self::to(name, value))
            }
            name => {
                let call = format!(
                    "pg_catalog.set_config({}, {}, false)",
                    quote::literal(name),
                    quote::literal(value)
                );
                Some(Self::Call(call.into()))
            }
        }
    }

    /// What follows SET or SELECT.
    pub(super) const fn text(&self) -> &str {
        let (Self::Set(text) | Self::Call(text)) = self;
        text
    }

    /// Whether a backend cannot be made to forget it.
    pub(super) const fn is_lasting(&self) -> bool {
        matches!(self, Self::Call(_))
    }

    /// The statement that undoes any of this setting.
    pub(super) fn undo(name: &str) -> String {
        match modes_of(name).next() {
            Some((_, words)) => format!("SET {}", mode_text(words)),
            None => format!("RESET {}", quote::setting_name(name)),
        }
    }
}

/// The statement.
impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(text) => write!(f, "SET {text}"),
            Self::Call(text) => write!(f, "SELECT {text}"),
        }
    }
}

/// Settings that are modes of the transactions to come: the name, a value, and how SQL says it. First the default of Aurora DSQL, which
/// takes them behind `SET SESSION CHARACTERISTICS AS TRANSACTION` only, and does not RESET them.
const MODES: [(&str, &str, &str); 8] = [
    ("default_transaction_deferrable", "off", "NOT DEFERRABLE"),
    ("default_transaction_deferrable", "on", "DEFERRABLE"),
    ("default_transaction_isolation", "repeatable read", "ISOLATION LEVEL REPEATABLE READ"),
    ("default_transaction_isolation", "serializable", "ISOLATION LEVEL SERIALIZABLE"),
    ("default_transaction_isolation", "read committed", "ISOLATION LEVEL READ COMMITTED"),
    ("default_transaction_isolation", "read uncommitted", "ISOLATION LEVEL READ UNCOMMITTED"),
    ("default_transaction_read_only", "off", "READ WRITE"),
    ("default_transaction_read_only", "on", "READ ONLY"),
];

/// The values of such a setting, and how SQL says them.
fn modes_of(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    MODES.iter().filter(move |(own, ..)| *own == name).map(|(_, value, words)| (*value, *words))
}

fn mode_text(words: &str) -> String {
    format!("SESSION CHARACTERISTICS AS TRANSACTION {words}")
}

/// The name of a setting that is such a mode, and the text behind `SET ` that sets it. `says` is told how SQL says it.
pub(super) fn mode(says: impl Fn(&str) -> bool) -> Option<(&'static str, String)> {
    let (name, _, words) = MODES.iter().find(|(.., words)| says(words))?;
    Some((name, mode_text(words)))
}

/// The text behind `SET ` that gives a setting this value.
fn text_for(name: &str, value: &str) -> String {
    if let Some((_, words)) = modes_of(name).find(|(mode, _)| mode.eq_ignore_ascii_case(value)) {
        return mode_text(words);
    }
    let mut text = quote::setting_name(name);
    text.push_str(" TO ");
    // The two settings that are lists of names: one literal would be one name.
    if matches!(name, "search_path" | "temp_tablespaces") {
        let names = quote::split_names(value);
        if names.is_empty() {
            text.push_str("''");
        }
        for (at, name) in names.iter().enumerate() {
            if at > 0 {
                text.push_str(", ");
            }
            text.push_str(&quote::literal(name));
        }
    } else {
        text.push_str(&quote::literal(value));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_leave_its_literal() {
        assert_eq!(
            text_for("application_name", "a'; DROP TABLE t; --"),
            "application_name TO 'a''; DROP TABLE t; --'"
        );
        assert_eq!(text_for("application_name", "a\\'b"), "application_name TO E'a\\\\''b'");
        assert_eq!(text_for("a b\".c", "1"), "\"a b\"\"\".\"c\" TO '1'");
        assert_eq!(text_for("dsql.enable_x", "on"), "dsql.enable_x TO 'on'");
    }

    #[test]
    fn what_a_function_has_set_is_set_by_set_where_that_is_known_to_work() {
        let set = |text: &str| Some(Assignment::Set(text.into()));
        assert_eq!(Assignment::carried("timezone", "UTC"), set("timezone TO 'UTC'"));
        assert_eq!(
            Assignment::carried("default_transaction_read_only", "on"),
            set("SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        );
        let call = Assignment::Call("pg_catalog.set_config('app.user', 'o''x', false)".into());
        assert_eq!(Assignment::carried("app.user", "o'x"), Some(call));
        assert_eq!(Assignment::carried("jit", "off"), None);
    }

    #[test]
    fn a_list_of_names_stays_a_list() {
        assert_eq!(
            text_for("search_path", "\"$user\", Public,\"a\"\"b\" , c"),
            "search_path TO '$user', 'public', 'a\"b', 'c'"
        );
        assert_eq!(text_for("search_path", ""), "search_path TO ''");
        assert_eq!(text_for("search_path", "\"\""), "search_path TO ''");
    }
}
