//! The few statements that the model understands. It reads them in its own way: a judge shares no code with the judged.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// One column of rows, all known.
    Rows {
        column: &'static str,
        rows: Vec<String>,
    },
    /// `SELECT * FROM t`: its type changes while the test runs.
    Table,
    /// `SELECT $1`.
    Parameter,
    Show(String),
    Set {
        name: String,
        value: Option<String>,
        local: bool,
    },
    Reset(String),
    ResetAll,
    SetConfig {
        name: String,
        value: String,
    },
    Begin,
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    /// It fails when it is parsed.
    Wrong,
    /// It fails when it is executed.
    Divides,
    /// What it inserts. Every value comes once in a test. `$1` is the parameter.
    Insert(String),
    /// A change of the schema, with its tag, and the value that it inserts into the names of the columns, if it has one.
    Change(&'static str, Option<String>),
    CopyIn,
    CopyOut,
    Notice,
    Deallocate(String),
    DeallocateAll,
    DiscardAll,
    CloseAll,
    Unlisten,
    UnlockAll,
    /// What the gateway asks.
    ReadSettings,
    Empty,
}

impl Op {
    pub(super) fn read(sql: &str) -> Self {
        let words: Vec<&str> = sql.split_whitespace().collect();
        let lower = words.join(" ").to_ascii_lowercase();
        let word = |at: usize| words.get(at).copied().unwrap_or_default().to_ascii_lowercase();
        let rows = |column, rows: Vec<String>| Self::Rows { column, rows };
        let value = |from: usize| {
            let value = words.get(from..).unwrap_or_default().join(" ").trim_matches('\'').replace("''", "'");
            (!value.eq_ignore_ascii_case("default")).then_some(value)
        };
        match &*word(0) {
            "" => Self::Empty,
            "select" if lower == "select 1/0" => Self::Divides,
            "select" if lower == "select wrong" => Self::Wrong,
            "select" if lower == "select * from t" => Self::Table,
            "select" if lower == "select $1" => Self::Parameter,
            "select" if lower == "select pg_advisory_unlock_all()" => Self::UnlockAll,
            "select" if lower.contains("pg_settings") => Self::ReadSettings,
            "select" if lower.starts_with("select set_config(") => {
                if lower.contains("$1") {
                    let name = sql.split('\'').nth(1).unwrap_or_default().to_owned();
                    return Self::SetConfig { name, value: "$1".to_owned() };
                }
                let mut parts = sql.split('\'');
                Self::SetConfig {
                    name: parts.nth(1).unwrap_or_default().to_owned(),
                    value: parts.nth(1).unwrap_or_default().to_owned(),
                }
            }
            "select" if lower.contains("generate_series") => {
                let count = lower
                    .split(',')
                    .nth(1)
                    .and_then(|rest| rest.split(')').next())
                    .and_then(|number| number.trim().parse().ok());
                rows("g", (1..=count.unwrap_or(1)).map(|row: u32| row.to_string()).collect())
            }
            "select" => rows("?column?", vec![words[1..].join(" ")]),
            "show" => Self::Show(word(1)),
            "set" if word(1) == "local" => Self::Set { name: word(2), value: value(4), local: true },
            "set" if word(1) == "time" => {
                Self::Set { name: "timezone".to_owned(), value: value(3), local: false }
            }
            "set" => Self::Set { name: word(1), value: value(3), local: false },
            "reset" if word(1) == "all" => Self::ResetAll,
            "reset" => Self::Reset(word(1)),
            "begin" => Self::Begin,
            "commit" => Self::Commit,
            "rollback" if word(1) == "to" => Self::RollbackTo(word(2)),
            "rollback" => Self::Rollback,
            "savepoint" => Self::Savepoint(word(1)),
            "release" => Self::Release(word(1)),
            "insert" => {
                let value = lower.split("values (").nth(1).and_then(|rest| rest.split(')').next());
                Self::Insert(value.unwrap_or_default().to_owned())
            }
            "alter" => Self::Change("ALTER TABLE", lower.split(" column c").nth(1).map(str::to_owned)),
            "create" => Self::Change("CREATE TABLE", None),
            "drop" => Self::Change("DROP TABLE", None),
            "copy" if lower.ends_with("from stdin") => Self::CopyIn,
            "copy" => Self::CopyOut,
            "do" => Self::Notice,
            "deallocate" if word(1) == "all" => Self::DeallocateAll,
            "deallocate" => Self::Deallocate(word(1)),
            "discard" => Self::DiscardAll,
            "close" => Self::CloseAll,
            "unlisten" => Self::Unlisten,
            _ => Self::Wrong,
        }
    }

    /// Whether a failed transaction lets it pass.
    pub(super) const fn is_exit(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback | Self::RollbackTo(_))
    }

    /// Whether Aurora DSQL refuses it, or must never see it because it means the virtual session.
    pub(super) fn is_refused(&self) -> bool {
        if let Self::Set { name, .. } | Self::Reset(name) | Self::Show(name) = self
            && name == "client_min_messages"
        {
            return true;
        }
        matches!(
            self,
            Self::Deallocate(_)
                | Self::DeallocateAll
                | Self::DiscardAll
                | Self::CloseAll
                | Self::Unlisten
                | Self::UnlockAll
        )
    }
}

/// The statements of a Query.
pub(super) fn split(sql: &str) -> Vec<String> {
    let mut statements = vec![String::new()];
    let mut quoted = false;
    for c in sql.chars() {
        quoted ^= c == '\'';
        if c == ';' && !quoted {
            statements.push(String::new());
        } else if let Some(last) = statements.last_mut() {
            last.push(c);
        }
    }
    statements.retain(|statement| !statement.trim().is_empty());
    statements
}
