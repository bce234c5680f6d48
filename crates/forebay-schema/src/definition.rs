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
}
