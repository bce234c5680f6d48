//! Definitions of tables, as far as they must be understood.

use crate::sql::{Statement, Word};

/// What a CREATE TABLE creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreatedTable {
    /// As it is written, with its schema if it has one.
    pub(crate) name: String,
    /// The names of the columns; none if they come from elsewhere.
    pub(crate) columns: Option<Vec<String>>,
}

/// Words that begin a part of a table which is not a column.
const NOT_COLUMNS: [&str; 7] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "EXCLUDE", "LIKE"];

/// The table that a statement creates.
pub(crate) fn created_table(statement: &Statement) -> Option<CreatedTable> {
    if !statement.begins(&["CREATE", "TABLE"]) {
        return None;
    }
    let at = if statement.key(2) == "IF" { 5 } else { 2 };
    let words = statement.words();
    let mut end = at;
    while statement.key(end + 1) == "." {
        end += 2;
    }
    let name = statement.text().get(words.get(at)?.range.start..words.get(end)?.range.end)?.to_owned();
    Some(CreatedTable { name, columns: column_names(statement) })
}

fn column_names(statement: &Statement) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for part in table_parts(statement)? {
        let first = part.first()?;
        match first.key() {
            "LIKE" => return None,
            key if NOT_COLUMNS.contains(&key) => {}
            _ => names.push(statement.name(first)?),
        }
    }
    Some(names)
}

/// The columns and constraints between the parentheses of a CREATE TABLE.
pub(crate) fn table_parts(statement: &Statement) -> Option<Vec<&[Word]>> {
    let words = statement.words();
    let open = words.iter().position(|word| word.is("("))?;
    let close = open + 1 + words[open + 1..].iter().position(|word| word.depth == 0)?;
    let inner = &words[open + 1..close];
    Some(inner.split(|word| word.depth == 1 && word.is(",")).filter(|part| !part.is_empty()).collect())
}

/// Whether a part of a table is a column.
pub(crate) fn is_column(part: &[Word]) -> bool {
    part.first().is_some_and(|word| !NOT_COLUMNS.contains(&word.key()))
}

/// Words between the verb of a definition and the kind of object.
const BEFORE_KIND: [&str; 7] = ["OR", "REPLACE", "UNIQUE", "ASYNC", "RECURSIVE", "FOREIGN", "ONLY"];
/// Kinds of objects.
const KINDS: [&str; 6] = ["TABLE", "VIEW", "SEQUENCE", "DOMAIN", "FUNCTION", "SCHEMA"];

/// The objects that a definition creates or changes. For an index, that is its table.
pub(crate) fn targets(statement: &Statement) -> Vec<String> {
    if !["CREATE", "ALTER", "COMMENT"].contains(&statement.key(0)) {
        return Vec::new();
    }
    let words = statement.words();
    let mut at = 1 + usize::from(statement.key(0) == "COMMENT");
    while BEFORE_KIND.contains(&statement.key(at)) {
        at += 1;
    }
    let kind = statement.key(at).to_owned();
    let start = match kind.as_str() {
        "INDEX" => words.iter().position(|word| word.depth == 0 && word.is("ON")).map(|on| on + 1),
        kind if KINDS.contains(&kind) => Some(at + 1),
        _ => None,
    };
    let name = |mut at: usize| {
        while ["IF", "NOT", "EXISTS", "ONLY", "ASYNC"].contains(&statement.key(at)) {
            at += 1;
        }
        while statement.key(at + 1) == "." {
            at += 2;
        }
        words.get(at).and_then(|word| statement.name(word))
    };
    let renamed = words.windows(2).position(|pair| pair[0].is("RENAME") && pair[1].is("TO"));
    start.and_then(name).into_iter().chain(renamed.and_then(|at| name(at + 2))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_their_columns() {
        let created = |sql: &str| created_table(&Statement::parse(sql));
        let table = created("CREATE TABLE IF NOT EXISTS s.\"T\" (id int, \"b\" numeric(1, 2) CHECK (b > 0), PRIMARY KEY (id))").unwrap();
        assert_eq!(table.name, "s.\"T\"");
        assert_eq!(table.columns.unwrap(), ["id", "b"]);
        assert_eq!(created("CREATE TABLE t (LIKE u)").unwrap().columns, None);
        assert_eq!(created("CREATE INDEX ASYNC i ON t (a)"), None);
        assert!(created("CREATE TABLE").is_none());
    }

    #[test]
    fn definitions_have_targets() {
        for (sql, expected) in [
            ("CREATE TABLE IF NOT EXISTS s.t (a int)", &["t"][..]),
            ("CREATE UNIQUE INDEX ASYNC i ON ONLY s.t (a)", &["t"]),
            ("ALTER TABLE ASYNC t VALIDATE CONSTRAINT c", &["t"]),
            ("ALTER TABLE IF EXISTS a RENAME TO b", &["a", "b"]),
            ("CREATE OR REPLACE VIEW v AS SELECT 1", &["v"]),
            ("COMMENT ON TABLE t IS 'x'", &["t"]),
            ("DROP TABLE t", &[]),
            ("INSERT INTO t VALUES (1)", &[]),
            ("CREATE ROLE r", &[]),
        ] {
            assert_eq!(targets(&Statement::parse(sql)), expected, "{sql}");
        }
    }
}
