//! Types of columns.

use super::{Known, Refusal, Rules};
use crate::sql::{Statement, Word};

/// Ways to write the types that a column may have, and their full names.
const SUPPORTED: &[(&str, &str)] = &[
    ("bigint", "bigint"),
    ("bool", "boolean"),
    ("boolean", "boolean"),
    ("bpchar", "character"),
    ("bytea", "bytea"),
    ("char", "character"),
    ("character varying", "character varying"),
    ("character", "character"),
    ("date", "date"),
    ("dec", "numeric"),
    ("decimal", "numeric"),
    ("double precision", "double precision"),
    ("float", "double precision"),
    ("float4", "real"),
    ("float8", "double precision"),
    ("int", "integer"),
    ("int2", "smallint"),
    ("int4", "integer"),
    ("int8", "bigint"),
    ("integer", "integer"),
    ("interval", "interval"),
    ("json", "json"),
    ("jsonb", "jsonb"),
    ("name", "name"),
    ("national character varying", "character varying"),
    ("national character", "character"),
    ("nchar", "character"),
    ("numeric", "numeric"),
    ("oid", "oid"),
    ("real", "real"),
    ("smallint", "smallint"),
    ("text", "text"),
    ("time", "time without time zone"),
    ("timestamp", "timestamp without time zone"),
    ("timestamptz", "timestamp with time zone"),
    ("timetz", "time with time zone"),
    ("uuid", "uuid"),
    ("varchar", "character varying"),
];

/// Types of PostgreSQL that no column may have, and their full names where these differ.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("\"char\"", "\"char\""),
    ("aclitem", "aclitem"),
    ("bit varying", "bit varying"),
    ("bit", "bit"),
    ("box", "box"),
    ("cidr", "cidr"),
    ("circle", "circle"),
    ("daterange", "daterange"),
    ("inet", "inet"),
    ("int4range", "int4range"),
    ("int8range", "int8range"),
    ("jsonpath", "jsonpath"),
    ("line", "line"),
    ("lseg", "lseg"),
    ("macaddr", "macaddr"),
    ("macaddr8", "macaddr8"),
    ("money", "money"),
    ("numrange", "numrange"),
    ("path", "path"),
    ("pg_lsn", "pg_lsn"),
    ("pg_snapshot", "pg_snapshot"),
    ("point", "point"),
    ("polygon", "polygon"),
    ("regclass", "regclass"),
    ("regproc", "regproc"),
    ("regtype", "regtype"),
    ("tsquery", "tsquery"),
    ("tsrange", "tsrange"),
    ("tstzrange", "tstzrange"),
    ("tsvector", "tsvector"),
    ("txid_snapshot", "txid_snapshot"),
    ("varbit", "bit varying"),
    ("xid", "xid"),
    ("xid8", "xid8"),
    ("xml", "xml"),
];

/// Pseudo-types for columns with a sequence.
pub(super) const SERIALS: [&str; 6] = ["serial", "serial2", "serial4", "serial8", "bigserial", "smallserial"];

/// Types that consist of several words.
const SEVERAL: [&[&str]; 8] = [
    &["DOUBLE", "PRECISION"],
    &["NATIONAL", "CHAR", "VARYING"],
    &["NATIONAL", "CHAR"],
    &["NATIONAL", "CHARACTER", "VARYING"],
    &["NATIONAL", "CHARACTER"],
    &["CHARACTER", "VARYING"],
    &["CHAR", "VARYING"],
    &["BIT", "VARYING"],
];

/// The type of a column as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Type {
    /// In lower case, without its schema and without what is in parentheses.
    name: String,
    is_array: bool,
    size: Option<u64>,
}

impl Type {
    /// Reads the type at the beginning of some words.
    pub(super) fn read(statement: &Statement, words: &[Word]) -> Option<Self> {
        let mut at = 0;
        while words.get(at + 1).is_some_and(|word| word.is(".")) {
            at += 2;
        }
        let rest = words.get(at..)?;
        let first = rest.first().filter(|word| word.is_name())?;
        let several = SEVERAL
            .iter()
            .find(|keys| rest.len() >= keys.len() && rest.iter().zip(**keys).all(|(word, key)| word.is(key)));
        let (name, mut at) = match several {
            Some(["CHAR", "VARYING"]) => ("character varying".to_owned(), 2),
            Some(keys @ ["NATIONAL", "CHAR", ..]) => {
                (format!("character{}", if keys.len() == 3 { " varying" } else { "" }), keys.len())
            }
            // It is another type than char.
            None if statement.text()[first.range.clone()] == *"\"char\"" => ("\"char\"".to_owned(), 1),
            Some(keys) => (keys.join(" ").to_lowercase(), keys.len()),
            None => (statement.name(first)?, 1),
        };
        let mut size = None;
        if rest.get(at).is_some_and(|word| word.is("(")) {
            size = rest.get(at + 1).and_then(|word| word.key().parse().ok());
            let depth = rest[at].depth;
            let close = rest[at + 1..].iter().position(|word| word.depth == depth)?;
            at += close + 2;
        }
        let is_timed = matches!(rest.get(at).map(Word::key), Some("WITH" | "WITHOUT"))
            && rest.get(at + 1).is_some_and(|word| word.is("TIME"));
        let is_zoned = is_timed && rest[at].is("WITH");
        at += 3 * usize::from(is_timed);
        let is_array = rest.get(at).is_some_and(|word| word.is("[") || word.is("ARRAY"));
        let name = if is_zoned { format!("{name}tz") } else { name };
        Some(Self { name, is_array, size })
    }

    pub(super) fn bigint() -> Self {
        Self { name: "bigint".to_owned(), is_array: false, size: None }
    }

    /// The name that the server has for it.
    pub(super) fn full_name(&self) -> &str {
        let known = SUPPORTED.iter().chain(UNSUPPORTED).find(|(name, _)| *name == self.name);
        known.map_or(&self.name, |(_, full)| full)
    }

    fn is_supported(&self) -> bool {
        SUPPORTED.iter().any(|(name, _)| *name == self.name)
    }
}

/// Whether a column may have this type.
pub(super) fn check(
    statement: &Statement,
    at: &Word,
    kind: &Type,
    rules: Rules,
    known: &Known,
) -> Option<Refusal> {
    let refuse =
        |message: String, remedy: &str| Some(Refusal::new(statement, message, remedy).at(statement, at));
    let Type { name, is_array, size } = kind;
    let full = kind.full_name();
    if SERIALS.contains(&name.as_str()) {
        let remedy = match rules {
            Rules::Today => {
                "use uuid DEFAULT gen_random_uuid(), or bigint GENERATED BY DEFAULT AS IDENTITY (CACHE 1), or (CACHE 65536) if many \
                 rows are inserted at once"
            }
            Rules::Spec => "use uuid DEFAULT gen_random_uuid(), or ids that the application makes",
        };
        return refuse(format!("type \"{name}\" does not exist"), remedy);
    }
    if *is_array {
        return refuse(format!("datatype {full}[] not supported"), "use jsonb, or a table of its own");
    }
    if UNSUPPORTED.iter().any(|(unsupported, _)| unsupported == name) {
        let remedy = match full {
            "money" => "use numeric",
            "bit" | "bit varying" => "use bytea, bigint or text",
            "tsvector" | "tsquery" => "search elsewhere, or with LIKE",
            _ => "use text",
        };
        return refuse(format!("datatype {full} not supported"), remedy);
    }
    if !kind.is_supported() && !known.domains.contains(name) {
        let remedy = "there are no extensions and no types of one's own but domains: use text, with a CHECK constraint if need be";
        return refuse(format!("type \"{name}\" does not exist"), remedy);
    }
    match (full, rules, size) {
        ("jsonb", Rules::Spec, _) => refuse("datatype jsonb not supported".to_owned(), "use json or text"),
        ("character varying", _, Some(65_536..)) => refuse(
            "Datatype limit greater than 65535 bytes not supported for varchar".to_owned(),
            "use text, or a smaller limit",
        ),
        ("character", _, Some(4_097..)) => {
            refuse("Datatype limit greater than 4096 bytes not supported for char".to_owned(), "use text")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::refusals;

    #[test]
    fn supported_types_in_all_their_spellings() {
        let types = "smallint, integer, bigint, real, double precision, numeric, numeric(18,6), decimal(10,2), character(10), \
                     character varying(20), bpchar(5), text, date, time, time with time zone, timestamp, timestamp(3) with time zone, \
                     interval, boolean, bytea, uuid, json, jsonb, int2, int8, float4, bool, varchar(5), char(5), dec, timetz, \
                     timestamptz, pg_catalog.int4, varchar, \"text\", float(53), timestamp without time zone, \
                     national char(5), national char varying(5), nchar varying(5)";
        // Commas in parentheses do not separate.
        let types = types.replace("(18,6)", "(18;6)").replace("(10,2)", "(10;2)");
        for kind in types.split(", ") {
            let sql = format!("CREATE TABLE t (a int, b {} NOT NULL)", kind.replace(';', ","));
            assert_eq!(refusals(&sql, Rules::Today), [""; 0], "{sql}");
        }
    }

    #[test]
    fn other_types_are_refused_by_their_full_names() {
        for (kind, message) in [
            ("serial PRIMARY KEY", "type \"serial\" does not exist"),
            ("BIGSERIAL", "type \"bigserial\" does not exist"),
            ("text[]", "datatype text[] not supported"),
            ("int[3]", "datatype integer[] not supported"),
            ("varchar(3) ARRAY", "datatype character varying[] not supported"),
            ("timestamptz[]", "datatype timestamp with time zone[] not supported"),
            ("money", "datatype money not supported"),
            ("\"char\"", "datatype \"char\" not supported"),
            ("varbit(8)", "datatype bit varying not supported"),
            ("inet", "datatype inet not supported"),
            ("mood", "type \"mood\" does not exist"),
            ("public.citext", "type \"citext\" does not exist"),
            ("varchar(70000)", "Datatype limit greater than 65535 bytes not supported for varchar"),
        ] {
            let sql = format!("CREATE TABLE t (a {kind})");
            assert_eq!(refusals(&sql, Rules::Today), [message], "{sql}");
        }
        assert_eq!(refusals("CREATE DOMAIN mood AS text; CREATE TABLE t (a mood)", Rules::Today), [""; 0]);
        assert_eq!(refusals("CREATE DOMAIN m AS money", Rules::Today), ["datatype money not supported"]);
        assert_eq!(refusals("CREATE TABLE t (a jsonb)", Rules::Spec), ["datatype jsonb not supported"]);
    }
}
