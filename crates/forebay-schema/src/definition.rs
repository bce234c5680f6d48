//! Definitions of tables, as far as they must be understood.

use crate::sql::{Statement, Word};

/// What a CREATE TABLE creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreatedTable {
    /// As it is written, with its schema if it has one.
    pub(crate) name: String,
    /// Its schema, if that is written.
    pub(crate) schema: Option<String>,
    /// Its name without the schema, as the catalog has it.
    pub(crate) plain: String,
    /// The names of the columns; none if they come from elsewhere.
    pub(crate) columns: Option<Vec<String>>,
}

/// Words that begin a part of a table which is not a column.
const NOT_COLUMNS: [&str; 6] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "LIKE"];

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
    let schema = if end > at { words.get(end - 2).and_then(|word| statement.name(word)) } else { None };
    let plain = statement.name(words.get(end)?)?;
    Some(CreatedTable { name, schema, plain, columns: column_names(statement) })
}

/// What a CREATE INDEX creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreatedIndex {
    /// None if the server chooses it.
    pub(crate) name: Option<String>,
    /// The name of its table, without the schema.
    pub(crate) table: String,
}

/// The index that a statement creates.
pub(crate) fn created_index(statement: &Statement) -> Option<CreatedIndex> {
    let at = 1 + usize::from(statement.key(1) == "UNIQUE");
    if statement.key(0) != "CREATE" || statement.key(at) != "INDEX" {
        return None;
    }
    let words = statement.words();
    let before = ["ASYNC", "CONCURRENTLY", "IF", "NOT", "EXISTS"];
    let first = (at + 1..words.len()).find(|at| !before.contains(&statement.key(*at)))?;
    let name = if statement.key(first) == "ON" { None } else { statement.name(&words[first]) };
    Some(CreatedIndex { name, table: targets(statement).into_iter().next()?.name })
}

fn column_names(statement: &Statement) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for part in table_parts(statement)? {
        let first = part.first()?;
        if first.is("LIKE") {
            return None;
        }
        if is_column(part) {
            names.push(statement.name(first)?);
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
    part.first().is_some_and(|word| !NOT_COLUMNS.contains(&word.key())) && !is_exclusion(part)
}

/// Whether it is an EXCLUDE constraint: a column may have that name.
pub(crate) fn is_exclusion(part: &[Word]) -> bool {
    matches!(part, [first, second, ..] if first.is("EXCLUDE") && (second.is("USING") || second.is("(")))
}

/// Words between the verb of a definition and the kind of object.
const BEFORE_KIND: [&str; 7] = ["OR", "REPLACE", "UNIQUE", "ASYNC", "RECURSIVE", "FOREIGN", "ONLY"];
/// Kinds of objects.
const KINDS: [&str; 6] = ["TABLE", "VIEW", "SEQUENCE", "DOMAIN", "FUNCTION", "SCHEMA"];

/// An object that a definition creates or changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// None if it is not written.
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
}

/// The objects that a definition creates or changes. For an index, that is its table.
pub(crate) fn targets(statement: &Statement) -> Vec<Target> {
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
        let mut schema = None;
        while statement.key(at + 1) == "." {
            schema = words.get(at).and_then(|word| statement.name(word));
            at += 2;
        }
        Some(Target { schema, name: statement.name(words.get(at)?)? })
    };
    let Some(target) = start.and_then(name) else { return Vec::new() };
    let after = |first: &str, second: &str| {
        let at = words.windows(2).position(|pair| pair[0].is(first) && pair[1].is(second))?;
        words.get(at + 2).and_then(|word| statement.name(word))
    };
    let renamed = after("RENAME", "TO").map(|name| Target { name, ..target.clone() });
    let moved = after("SET", "SCHEMA").map(|schema| Target { schema: Some(schema), ..target.clone() });
    [Some(target), renamed, moved].into_iter().flatten().collect()
}

/// The schema and the name of an object, as the catalog writes it; none if it has no schema.
pub(crate) fn parts_of(object: &str) -> Option<(String, String)> {
    let object = Statement::parse(object);
    match object.words() {
        [schema, dot, name, ..] if dot.is(".") => Some((object.name(schema)?, object.name(name)?)),
        _ => None,
    }
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
        assert_eq!((table.schema.as_deref(), table.plain.as_str()), (Some("s"), "T"));
        assert_eq!(created("CREATE TABLE t (LIKE u)").unwrap().columns, None);
        let named = created("CREATE TABLE t (exclude boolean, EXCLUDE USING gist (a WITH =))").unwrap();
        assert_eq!((named.schema, named.columns.unwrap()), (None, vec!["exclude".to_owned()]));
        assert_eq!(created("CREATE INDEX ASYNC i ON t (a)"), None);
        assert!(created("CREATE TABLE").is_none());
    }

    #[test]
    fn objects_have_a_schema_or_none() {
        let pair = |schema: &str, name: &str| Some((schema.to_owned(), name.to_owned()));
        assert_eq!(parts_of("public.t"), pair("public", "t"));
        assert_eq!(parts_of("\"My \"\"S\".\"T.x\"(i integer)"), pair("My \"S", "T.x"));
        assert_eq!(parts_of("schema odd"), None);
    }

    #[test]
    fn indexes_have_a_name_or_none() {
        let created = |sql: &str| {
            created_index(&Statement::parse(sql)).map(|one| (one.name.unwrap_or_default(), one.table))
        };
        let pair = |name: &str, table: &str| Some((name.to_owned(), table.to_owned()));
        assert_eq!(created("CREATE UNIQUE INDEX ASYNC IF NOT EXISTS \"I\" ON ONLY s.t (a)"), pair("I", "t"));
        assert_eq!(created("CREATE INDEX ASYNC ON t (a)"), pair("", "t"));
        assert_eq!(created("ALTER TABLE ASYNC t VALIDATE CONSTRAINT c"), None);
    }

    #[test]
    fn definitions_have_targets() {
        for (sql, expected) in [
            ("CREATE TABLE IF NOT EXISTS s.t (a int)", &["s.t"][..]),
            ("CREATE UNIQUE INDEX ASYNC i ON ONLY s.t (a)", &["s.t"]),
            ("ALTER TABLE s.a RENAME TO b", &["s.a", "s.b"]),
            ("ALTER TABLE s.a SET SCHEMA u", &["s.a", "u.a"]),
            ("ALTER TABLE ASYNC t VALIDATE CONSTRAINT c", &["t"]),
            ("ALTER TABLE IF EXISTS a RENAME TO b", &["a", "b"]),
            ("CREATE OR REPLACE VIEW v AS SELECT 1", &["v"]),
            ("COMMENT ON TABLE t IS 'x'", &["t"]),
            ("DROP TABLE t", &[]),
            ("INSERT INTO t VALUES (1)", &[]),
            ("CREATE ROLE r", &[]),
        ] {
            let shown = |target: Target| match target {
                Target { schema: Some(schema), name } => format!("{schema}.{name}"),
                Target { name, .. } => name,
            };
            let found: Vec<String> = targets(&Statement::parse(sql)).into_iter().map(shown).collect();
            assert_eq!(found, expected, "{sql}");
        }
    }
}
