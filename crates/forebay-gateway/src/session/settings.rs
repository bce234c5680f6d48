//! Settings of a session: what it asked for when it started, and what it has set since.

use std::sync::Arc;

use super::min_messages;

/// Settings in force: for each name in small letters, the text that sets it. Sorted by name.
///
/// It is what follows `SET `, as the client wrote it. So nothing is lost that a setting can express, such as lists and intervals. Or it is a call of
/// `set_config`: that function takes settings which Aurora DSQL refuses to SET or to RESET.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<(Box<str>, Box<str>)>);

impl Settings {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.place(name).ok().map(|place| &*self.0[place].1)
    }

    pub(super) fn set(&mut self, name: &str, text: &str) {
        match self.place(name) {
            Ok(place) => self.0[place].1 = text.into(),
            Err(place) => self.0.insert(place, (name.into(), text.into())),
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Ok(place) = self.place(name) {
            self.0.remove(place);
        }
    }

    /// How many bytes they take, roughly.
    pub(super) fn size(&self) -> usize {
        self.0.iter().map(|(name, text)| name.len() + text.len() + 32).sum()
    }

    /// Those that the server has.
    pub(super) fn of_server(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.0.iter().map(|(name, text)| (&**name, &**text));
        all.filter(|(name, _)| !matches!(*name, min_messages::NAME | min_messages::LOCAL))
    }

    /// Statements that turn `self`, as it is in force, into `wanted`. Empty if they are the same.
    pub(super) fn statements_to(&self, wanted: &Self) -> String {
        let mut sql = String::new();
        let mut add = |parts: [&str; 2]| {
            if !sql.is_empty() {
                sql.push(';');
            }
            sql.extend(parts);
        };
        for (name, _) in self.of_server().filter(|(name, _)| wanted.get(name).is_none()) {
            match modes_of(name).next() {
                Some((_, words)) => add(["SET ", &mode_text(words)]),
                None => add(["RESET ", &quote_name(name)]),
            }
        }
        for (_, text) in wanted.of_server().filter(|(name, text)| self.get(name) != Some(text)) {
            add([if is_call(text) { "SELECT " } else { "SET " }, text]);
        }
        sql
    }

    /// Whether a backend with these cannot be made to forget them.
    pub(super) fn are_lasting(&self) -> bool {
        self.0.iter().any(|(_, text)| is_call(text))
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| (**other).cmp(name))
    }
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
            settings.set(&name, &text_for(&name, value));
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

/// Settings that are modes of the transactions to come: the name, a value, and how SQL says it. First the default of Aurora DSQL, which takes
/// them behind `SET SESSION CHARACTERISTICS AS TRANSACTION` only, and does not RESET them.
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

const CALL: &str = "set_config(";

fn is_call(text: &str) -> bool {
    text.starts_with(CALL)
}

/// The text that gives a setting a value which a function gave it. None for one that needs not be carried over.
pub(super) fn carried(name: &str, value: &str) -> Option<String> {
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
            Some(text_for(name, value))
        }
        name => Some(format!("{CALL}{}, {}, false)", quote_literal(name), quote_literal(value))),
    }
}

/// The text behind `SET ` that gives a setting this value.
pub(super) fn text_for(name: &str, value: &str) -> String {
    if let Some((_, words)) = modes_of(name).find(|(mode, _)| mode.eq_ignore_ascii_case(value)) {
        return mode_text(words);
    }
    let mut text = quote_name(name);
    text.push_str(" TO ");
    // The two settings that are lists of names: one literal would be one name.
    if matches!(name, "search_path" | "temp_tablespaces") {
        let names = split_names(value);
        if names.is_empty() {
            text.push_str("''");
        }
        for (at, name) in names.iter().enumerate() {
            if at > 0 {
                text.push_str(", ");
            }
            text.push_str(&quote_literal(name));
        }
    } else {
        text.push_str(&quote_literal(value));
    }
    text
}

/// As a literal that means the same with any value of `standard_conforming_strings`.
pub(super) fn quote_literal(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    if value.contains('\\') {
        text.push('E');
    }
    text.push('\'');
    for c in value.chars() {
        match c {
            '\'' => text.push_str("''"),
            '\\' => text.push_str("\\\\"),
            '\0' => {}
            c => text.push(c),
        }
    }
    text.push('\'');
    text
}

/// As an identifier, or two with a dot. Quoted only if it must be: some names, such as TIME ZONE's, have a grammar of their own.
fn quote_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.');
    if name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(plain)
        && !name.ends_with('.')
    {
        return name.to_owned();
    }
    let part = |part: &str| format!("\"{}\"", part.replace('"', "\"\"").replace('\0', ""));
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// A list of identifiers as PostgreSQL splits the value of a setting: small letters unless quoted.
fn split_names(value: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = value.trim_start();
    while !rest.is_empty() {
        let mut name = String::new();
        if let Some(mut quoted) = rest.strip_prefix('"') {
            loop {
                let (part, behind) = quoted.split_once('"').unwrap_or((quoted, ""));
                name.push_str(part);
                let Some(more) = behind.strip_prefix('"') else {
                    rest = behind;
                    break;
                };
                name.push('"');
                quoted = more;
            }
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest);
        } else {
            let (part, behind) = rest.split_once(',').unwrap_or((rest, ""));
            name = part.trim_end().to_lowercase();
            rest = behind;
        }
        names.push(name);
        rest = rest.trim_start();
    }
    names
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
        assert_eq!(
            carried("default_transaction_read_only", "on").as_deref(),
            to.get("default_transaction_read_only")
        );
    }

    #[test]
    fn what_cannot_be_set_is_set_by_the_function_and_stays() {
        let mut to = settings(&[("TimeZone", "UTC")]);
        to.set("app.user", &carried("app.user", "o'x").unwrap());
        assert_eq!(
            Settings::default().statements_to(&to),
            "SELECT set_config('app.user', 'o''x', false);SET timezone TO 'UTC'"
        );
        assert!(to.are_lasting() && !settings(&[("TimeZone", "UTC")]).are_lasting());
        assert_eq!(carried("timezone", "UTC").as_deref(), Some("timezone TO 'UTC'"));
        assert_eq!(carried("jit", "off"), None);
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
