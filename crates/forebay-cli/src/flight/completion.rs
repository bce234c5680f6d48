//! Completion with Tab.

use super::command::COMMANDS;
use super::splitter::Splitter;

const KEYWORDS: &[&str] = &[
    "ALL",
    "ALTER",
    "ANALYZE",
    "AND",
    "AS",
    "ASC",
    "BEGIN",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COALESCE",
    "COLUMN",
    "COMMIT",
    "COUNT",
    "CREATE",
    "CROSS",
    "CURRENT_DATE",
    "CURRENT_TIMESTAMP",
    "DATE",
    "DEFAULT",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "FALSE",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INDEX",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "KEY",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "PRIMARY",
    "RETURNING",
    "RIGHT",
    "ROLLBACK",
    "SELECT",
    "SET",
    "SHOW",
    "TABLE",
    "TEMP",
    "THEN",
    "TRUE",
    "UNION",
    "UNIQUE",
    "UPDATE",
    "USING",
    "VALUES",
    "VIEW",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
];

/// Words before a table's name.
const BEFORE_TABLE: &[&str] = &["from", "join", "into", "update", "table", "describe"];

/// Completes the word before the cursor: where it begins, and its replacements.
pub(crate) fn complete(line: &str, cursor: usize, names: &[String]) -> (usize, Vec<String>) {
    let typed = &line[..cursor];
    if typed.starts_with('\\') {
        return complete_command(typed, names);
    }
    let mut splitter = Splitter::default();
    splitter.feed(typed);
    if splitter.quote() == Some('"') {
        return complete_quoted(typed, names);
    }
    let start = word_start(typed);
    if !splitter.is_in_the_open() {
        return (start, Vec::new());
    }
    let word = &typed[start..];
    let before =
        typed[..start].trim_end().rsplit(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    let wants_table = typed[..start].ends_with(char::is_whitespace)
        && BEFORE_TABLE.iter().any(|keyword| keyword.eq_ignore_ascii_case(before));
    if word.is_empty() && !wants_table {
        return (start, Vec::new());
    }
    let mut found = tables(word, names);
    if !wants_table {
        let upper = word.to_ascii_uppercase();
        // In the user's case.
        let is_lower = word.chars().next().is_some_and(char::is_lowercase);
        let keywords = KEYWORDS.iter().filter(|keyword| keyword.starts_with(&upper));
        found.extend(
            keywords.map(|keyword| if is_lower { keyword.to_lowercase() } else { (*keyword).to_owned() }),
        );
    }
    (start, found)
}

fn complete_command(typed: &str, names: &[String]) -> (usize, Vec<String>) {
    let Some((command, argument)) = typed.split_once(' ') else {
        let found = COMMANDS.iter().map(|(name, ..)| *name).filter(|name| name.starts_with(typed));
        return (0, found.map(str::to_owned).collect());
    };
    let start = typed.len() - argument.len();
    let offered: Vec<String> = match command {
        "\\d" => return (start, tables(argument, names)),
        "\\timing" => ["on", "off"].map(str::to_owned).to_vec(),
        "\\format" => ["table", "csv", "json", "arrow"].map(str::to_owned).to_vec(),
        _ => Vec::new(),
    };
    (start, offered.into_iter().filter(|offer| offer.starts_with(argument)).collect())
}

/// In quotes, only names that need them.
fn complete_quoted(typed: &str, names: &[String]) -> (usize, Vec<String>) {
    let start = typed.rfind('"').unwrap_or(0);
    (start, names.iter().filter(|name| name.starts_with(&typed[start..])).cloned().collect())
}

fn tables(word: &str, names: &[String]) -> Vec<String> {
    let begins = |name: &&String| name.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    names.iter().filter(begins).cloned().collect()
}

fn word_start(typed: &str) -> usize {
    let is_part = |letter: char| letter.is_alphanumeric() || ['_', '.', '$'].contains(&letter);
    typed
        .rfind(|letter: char| !is_part(letter))
        .map_or(0, |at| at + typed[at..].chars().next().map_or(0, char::len_utf8))
}

/// A name as a statement must write it.
pub(crate) fn quote_name(name: &str) -> String {
    let is_plain = name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
        && name.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(typed: &str) -> Vec<String> {
        let names = ["orders", "order_lines", "Customers", "\"my table\"", "main.orders"].map(str::to_owned);
        complete(typed, typed.len(), &names).1
    }

    #[test]
    fn keywords_come_as_the_user_writes_them() {
        assert_eq!(offered("SEL"), ["SELECT"]);
        assert_eq!(offered("select 1 wh"), ["when", "where"]);
        assert_eq!(offered("ORD"), ["orders", "order_lines", "ORDER"]);
        assert_eq!(offered("SELECT "), [""; 0]);
    }

    #[test]
    fn tables_are_offered_where_they_belong() {
        assert_eq!(offered("SELECT * FROM ord"), ["orders", "order_lines"]);
        assert_eq!(
            offered("SELECT * FROM "),
            ["orders", "order_lines", "Customers", "\"my table\"", "main.orders"]
        );
        assert_eq!(offered("insert into cus"), ["Customers"]);
        assert_eq!(offered("SELECT * FROM main.o"), ["main.orders"]);
        assert_eq!(offered("SELECT * FROM \"my"), ["\"my table\""]);
        let names = ["tc", "main.tc", "swanlake.tc", "swanlake.main.tc"].map(str::to_owned);
        for (typed, name) in [
            ("SELECT * FROM swanlake.t", "swanlake.tc"),
            ("SELECT * FROM main.t", "main.tc"),
            ("\\d swanlake.main.", "swanlake.main.tc"),
        ] {
            assert_eq!(complete(typed, typed.len(), &names).1, [name], "{typed}");
        }
        assert_eq!(
            complete("SELECT * FROM ord WHERE x", 17, &["orders".to_owned()]),
            (14, vec!["orders".to_owned()])
        );
    }

    #[test]
    fn strings_and_comments_are_the_users_own() {
        for typed in ["SELECT 'sel", "SELECT 1 -- sel", "/* sel"] {
            assert_eq!(offered(typed), [""; 0], "{typed}");
        }
    }

    #[test]
    fn commands_and_their_arguments_are_offered() {
        assert_eq!(offered("\\d"), ["\\d", "\\dt", "\\dn"]);
        assert_eq!(offered("\\d or"), ["orders", "order_lines"]);
        assert_eq!(offered("\\format c"), ["csv"]);
        assert_eq!(offered("\\timing o"), ["on", "off"]);
        assert_eq!(offered("\\zzz"), [""; 0]);
    }

    #[test]
    fn names_are_quoted_where_they_must_be() {
        for (name, expected) in [
            ("t_1", "t_1"),
            ("größe", "größe"),
            ("my table", "\"my table\""),
            ("1a", "\"1a\""),
            ("a\"b", "\"a\"\"b\""),
        ] {
            assert_eq!(quote_name(name), expected);
        }
    }
}
