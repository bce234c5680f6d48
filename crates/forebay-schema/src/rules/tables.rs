//! CREATE TABLE, CREATE DOMAIN and sequences.

use std::collections::BTreeMap;

use super::types::{self, Type};
use super::{Known, Refusal, Rules, find, has};
use crate::definition::{is_column, table_parts};
use crate::sql::{Statement, Word};

/// Which cache sizes a sequence may have.
const CACHE: &str = "please define CACHE greater than or equal to 65536 or equal to 1";
const CACHE_REMEDY: &str = "write CACHE 1, or CACHE 65536 if many values are drawn at once";
/// How many columns a table may have, and how many a key.
const COLUMNS: usize = 255;
pub(super) const KEY_COLUMNS: usize = 8;

/// What older clusters refuse in tables.
const LATER: [(&[&str], &str, &str); 5] = [
    (&["CHECK", "("], "CHECK constraint not supported", "check it in the application"),
    (&["REFERENCES"], "FOREIGN KEY constraint not supported", "check it in the application"),
    (&["FOREIGN", "KEY"], "FOREIGN KEY constraint not supported", "check it in the application"),
    (&["AS", "IDENTITY"], "identity column not supported", "use uuid DEFAULT gen_random_uuid()"),
    (&["COLLATE"], "COLLATE clause not supported", "remove it"),
];

/// Functions of extensions that are in many definitions.
const OF_EXTENSIONS: [(&str, &str); 5] = [
    ("uuid_generate_v1", "use gen_random_uuid()"),
    ("uuid_generate_v1mc", "use gen_random_uuid()"),
    ("uuid_generate_v4", "use gen_random_uuid()"),
    ("gen_random_bytes", "make the bytes in the application"),
    ("crypt", "do it in the application"),
];

pub(super) fn check(statement: &Statement, rules: Rules, known: &Known) -> Vec<Refusal> {
    let words = statement.words();
    let refuse = |word: &Word, message: &str, remedy: &str| {
        vec![Refusal::new(statement, message, remedy).at(statement, word)]
    };
    if let Some(word) = words.iter().find(|word| word.depth == 0 && word.is("AS")) {
        return refuse(word, "unsupported statement: CreateTableAs", "create the table, then INSERT INTO it");
    }
    let mut refusals = Vec::new();
    let clauses: [(&[&str], &str, &str); 5] = [
        (
            &["PARTITION", "BY"],
            "PARTITION BY clause not supported for CREATE TABLE",
            "remove it: the service partitions by the primary key",
        ),
        (
            &["PARTITION", "OF"],
            "PARTITION OF clause not supported for CREATE TABLE",
            "remove the statement: one table has all rows",
        ),
        (
            &["INHERITS", "("],
            "INHERITS clause not supported for CREATE TABLE",
            "write the columns themselves, or use LIKE",
        ),
        (
            &["EXCLUDE", "USING"],
            "EXCLUDE constraint not supported for CREATE TABLE",
            "check it in the application",
        ),
        (
            &["EXCLUDE", "("],
            "EXCLUDE constraint not supported for CREATE TABLE",
            "check it in the application",
        ),
    ];
    for (keys, message, remedy) in clauses {
        refusals.extend(find(words, keys).into_iter().flat_map(|word| refuse(word, message, remedy)));
    }
    let with = words.windows(2).find(|pair| pair[0].depth == 0 && pair[0].is("WITH") && pair[1].is("("));
    refusals.extend(with.into_iter().flat_map(|pair| {
        refuse(&pair[0], "WITH clause not supported for CREATE TABLE", "remove it: storage is the service's")
    }));
    refusals.extend(later(statement, words, rules));
    let parts = table_parts(statement).unwrap_or_default();
    let columns: Vec<&&[Word]> = parts.iter().filter(|part| is_column(part)).collect();
    for column in &columns {
        refusals.extend(check_column(statement, column, rules, known));
    }
    if columns.len() > COLUMNS {
        refusals.extend(refuse(
            &columns[COLUMNS][0],
            "tables can have at most 255 columns",
            "split the table",
        ));
    }
    refusals.extend(keys(statement, &parts, rules));
    refusals
}

/// What only older clusters refuse.
pub(super) fn later(statement: &Statement, words: &[Word], rules: Rules) -> Option<Refusal> {
    let refused = |(keys, message, remedy): &(&[&str], &str, &str)| {
        Some(Refusal::new(statement, *message, *remedy).at(statement, find(words, keys)?))
    };
    (rules == Rules::Spec).then(|| LATER.iter().find_map(refused))?
}

/// The name of a column, its type, and what follows.
pub(super) fn check_column(
    statement: &Statement,
    column: &[Word],
    rules: Rules,
    known: &Known,
) -> Vec<Refusal> {
    let [name, rest @ ..] = column else { return Vec::new() };
    let Some(kind) = Type::read(statement, rest) else { return Vec::new() };
    let mut refusals: Vec<Refusal> = types::check(statement, name, &kind, rules, known).into_iter().collect();
    refusals.extend(identity(statement, column, &kind, rules));
    for word in column {
        let function = statement.name(word).unwrap_or_default();
        let Some((_, remedy)) = OF_EXTENSIONS.iter().find(|(of, _)| *of == function) else { continue };
        if !known.functions.contains(&function) {
            let message = format!("function {function}() does not exist");
            refusals.push(Refusal::new(statement, message, *remedy).at(statement, word));
        }
    }
    refusals
}

/// An identity column is a bigint, and names the size of its cache.
pub(super) fn identity(statement: &Statement, column: &[Word], kind: &Type, rules: Rules) -> Option<Refusal> {
    let at = column.windows(2).position(|pair| pair[0].is("AS") && pair[1].is("IDENTITY"))?;
    if rules == Rules::Spec {
        return None;
    }
    let word = &column[at + 1];
    let options = match column.get(at + 2) {
        Some(open) if open.is("(") => &column[at + 3..],
        _ => &[],
    };
    let options =
        &options[..options.iter().position(|word| word.depth == column[0].depth).unwrap_or(options.len())];
    if !has(options, &["CACHE"]) {
        let message = format!("identity column is not supported without an explicit cache size. {CACHE}");
        return Some(
            Refusal::new(statement, message, "write AS IDENTITY (CACHE 1), or (CACHE 65536)")
                .at(statement, word),
        );
    }
    if kind.full_name() != "bigint" {
        let message =
            format!("datatype {} not supported, identity column type must be bigint", kind.full_name());
        return Some(Refusal::new(statement, message, "use bigint").at(statement, word));
    }
    cache(statement, options)
}

/// The size of a cache is 1, or large.
fn cache(statement: &Statement, words: &[Word]) -> Option<Refusal> {
    let pair = words.windows(2).find(|pair| pair[0].is("CACHE"))?;
    let size: u64 = pair[1].key().parse().ok()?;
    let message = format!("CACHE ({size}) must be greater than or equal to 65536 or equal to 1");
    (2..65_536)
        .contains(&size)
        .then(|| Refusal::new(statement, message, CACHE_REMEDY).at(statement, &pair[1]))
}

/// The columns of the keys of a table.
fn keys(statement: &Statement, parts: &[&[Word]], rules: Rules) -> Vec<Refusal> {
    let types = column_types(statement);
    let mut refusals = Vec::new();
    for part in parts {
        let is_key = |word: &&Word| word.depth == 1 && (word.is("PRIMARY") || word.is("UNIQUE"));
        let Some(key) = part.iter().find(is_key) else { continue };
        let columns: Vec<&Word> = if is_column(part) {
            vec![&part[0]]
        } else {
            let open = part.iter().position(|word| word.is("(")).unwrap_or(part.len());
            part[open..]
                .iter()
                .skip(1)
                .take_while(|word| word.depth > 1)
                .filter(|word| word.is_name())
                .collect()
        };
        refusals.extend(key_columns(statement, key, &columns, &types, rules));
    }
    refusals
}

/// A key has at most eight columns, and some types cannot be in one.
pub(super) fn key_columns(
    statement: &Statement,
    key: &Word,
    columns: &[&Word],
    types: &BTreeMap<String, String>,
    rules: Rules,
) -> Option<Refusal> {
    if columns.len() > KEY_COLUMNS {
        let message = "more than 8 column keys in an index are not supported";
        return Some(Refusal::new(statement, message, "use fewer columns").at(statement, key));
    }
    let is_bad = |kind: &str| {
        kind == "json" || kind == "jsonb" || rules == Rules::Spec && kind == "bytea" && columns.len() > 1
    };
    columns.iter().find_map(|column| {
        let kind = types.get(&statement.name(column)?).filter(|kind| is_bad(kind))?;
        let message = format!("datatype {kind} is not supported in a key");
        Some(
            Refusal::new(statement, message, "use a column of another type, such as text or uuid")
                .at(statement, column),
        )
    })
}

/// The full names of the types of a table's columns.
pub(super) fn column_types(statement: &Statement) -> BTreeMap<String, String> {
    let parts = table_parts(statement).unwrap_or_default();
    let column = |part: &&[Word]| {
        let [name, rest @ ..] = *part else { return None };
        Some((statement.name(name)?, Type::read(statement, rest)?.full_name().to_owned()))
    };
    parts.iter().filter(|part| is_column(part)).filter_map(column).collect()
}

/// `CREATE DOMAIN name AS type`.
pub(super) fn domain(statement: &Statement, rules: Rules, known: &Known) -> Vec<Refusal> {
    let words = statement.words();
    let mut at = 2;
    while statement.key(at + 1) == "." {
        at += 2;
    }
    at += 1 + usize::from(statement.key(at + 1) == "AS");
    let kind = words.get(at..).and_then(|rest| Type::read(statement, rest));
    let mut refusals: Vec<Refusal> = later(statement, words, rules).into_iter().collect();
    refusals.extend(kind.and_then(|kind| types::check(statement, &words[at], &kind, rules, known)));
    refusals
}

/// CREATE SEQUENCE and ALTER SEQUENCE.
pub(super) fn sequence(statement: &Statement, rules: Rules) -> Vec<Refusal> {
    let words = statement.words();
    let refuse = |message: String, remedy: &str| vec![Refusal::new(statement, message, remedy)];
    let verb = statement.key(0);
    if rules == Rules::Spec {
        return refuse(format!("{verb} SEQUENCE not supported"), "use uuid DEFAULT gen_random_uuid()");
    }
    if verb == "CREATE" && !has(words, &["CACHE"]) {
        let message = format!("CREATE SEQUENCE is not supported without an explicit cache size. {CACHE}");
        return refuse(message, CACHE_REMEDY);
    }
    if words.windows(2).any(|pair| pair[0].is("AS") && !pair[1].is("BIGINT") && !pair[1].is("INT8")) {
        return refuse("sequence type must be bigint".to_owned(), "use AS bigint, or leave it out");
    }
    cache(statement, words).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use crate::rules::{Rules, refusals};

    #[test]
    fn tables_are_refused_for_what_they_are() {
        for (sql, message) in [
            ("CREATE TABLE IF NOT EXISTS t (a) AS SELECT f(1)", "unsupported statement: CreateTableAs"),
            (
                "CREATE TABLE t (a int) PARTITION BY RANGE (a)",
                "PARTITION BY clause not supported for CREATE TABLE",
            ),
            ("CREATE TABLE t (a int) WITH (fillfactor = 70)", "WITH clause not supported for CREATE TABLE"),
            (
                "CREATE TABLE t (a int, EXCLUDE (a WITH =))",
                "EXCLUDE constraint not supported for CREATE TABLE",
            ),
            ("CREATE TABLE t (a jsonb PRIMARY KEY)", "datatype jsonb is not supported in a key"),
            ("CREATE TABLE t (a json, b int, PRIMARY KEY (b, a))", "datatype json is not supported in a key"),
            (
                "CREATE TABLE t (a int GENERATED ALWAYS AS IDENTITY (CACHE 1))",
                "datatype integer not supported, identity column type must be bigint",
            ),
            (
                "CREATE TABLE t (a bigint GENERATED ALWAYS AS IDENTITY (CACHE 20))",
                "CACHE (20) must be greater than or equal to 65536 or equal to 1",
            ),
            (
                "CREATE TABLE t (a uuid DEFAULT uuid_generate_v4())",
                "function uuid_generate_v4() does not exist",
            ),
            ("CREATE SEQUENCE s AS integer CACHE 1", "sequence type must be bigint"),
        ] {
            assert_eq!(refusals(sql, Rules::Today), [message], "{sql}");
        }
        let unbuffered =
            refusals("CREATE TABLE t (a bigint GENERATED ALWAYS AS IDENTITY, b int)", Rules::Today);
        assert!(unbuffered[0].starts_with("identity column is not supported without"), "{unbuffered:?}");
        for fine in [
            "CREATE TABLE t (serial text, n int CHECK (n > 0), PRIMARY KEY (serial))",
            "CREATE TABLE t (id int, v int GENERATED ALWAYS AS (id + 1) STORED)",
            "CREATE TABLE t (id bigint GENERATED BY DEFAULT AS IDENTITY (START 5 CACHE 65536) PRIMARY KEY)",
            "CREATE TABLE t (LIKE u INCLUDING ALL)",
            "CREATE TABLE t (a int REFERENCES u (id), b timestamptz DEFAULT now() NOT NULL)",
            "CREATE SEQUENCE s CACHE 1",
        ] {
            assert_eq!(refusals(fine, Rules::Today), [""; 0], "{fine}");
        }
    }

    #[test]
    fn everything_is_reported_at_once() {
        let sql = "CREATE TABLE t (\n id serial PRIMARY KEY,\n tags text[],\n ip inet\n)";
        assert_eq!(
            refusals(sql, Rules::Today),
            [
                "type \"serial\" does not exist",
                "datatype text[] not supported",
                "datatype inet not supported"
            ]
        );
    }

    #[test]
    fn older_clusters_refuse_more() {
        for sql in [
            "CREATE TABLE t (n int CHECK (n > 0))",
            "CREATE TABLE t (n int REFERENCES p (id))",
            "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1))",
            "CREATE TABLE t (v text COLLATE \"C\")",
            "CREATE TABLE t (a int, b bytea, PRIMARY KEY (a, b))",
            "CREATE SEQUENCE s CACHE 1",
        ] {
            assert_eq!(refusals(sql, Rules::Today), [""; 0], "{sql}");
            assert_eq!(refusals(sql, Rules::Spec).len(), 1, "{sql}");
        }
    }
}
