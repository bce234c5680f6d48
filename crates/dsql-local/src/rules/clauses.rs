//! Clauses that the service refuses.

use super::{indexes, spec};
use crate::config::Rules;
use crate::error::SqlError;
use crate::statement::{Kind, Statement, names, tokens};

/// Isolation levels that the service does not have.
const LEVELS: &[&[&str]] = &[&["SERIALIZABLE"], &["READ", "COMMITTED"], &["READ", "UNCOMMITTED"]];
/// Pseudo-types for columns with a sequence.
const SERIALS: &[&str] = &["SERIAL", "SERIAL2", "SERIAL4", "SERIAL8", "BIGSERIAL", "SMALLSERIAL"];
/// Keywords that begin a column constraint.
const CONSTRAINTS: &[&str] = &["CHECK", "DEFAULT", "GENERATED", "NOT", "UNIQUE", "PRIMARY", "REFERENCES"];
/// Which cache sizes a sequence may have.
const CACHE: &str = "please define CACHE greater than or equal to 65536 or equal to 1";

pub(super) fn check(statement: &Statement, rules: Rules) -> Result<(), SqlError> {
    let tokens = tokens(statement.text());
    match statement.kind() {
        Kind::Begin => isolation(&tokens),
        Kind::Select | Kind::Dml => query(statement, &tokens, rules),
        Kind::Ddl => definition(statement, &tokens, rules),
        Kind::Other if statement.begins(&["EXPLAIN"]) => explained(statement, rules),
        _ => Ok(()),
    }?;
    if rules == Rules::Spec { spec::check(statement, &tokens) } else { Ok(()) }
}

pub(super) fn refuse(message: impl Into<String>) -> Result<(), SqlError> {
    Err(SqlError::unsupported(message))
}

/// Whether these tokens follow each other.
pub(super) fn has(tokens: &[String], words: &[&str]) -> bool {
    tokens.windows(words.len()).any(|window| window == words)
}

/// Whether a word is outside of all parentheses.
pub(super) fn outside(tokens: &[String], word: &str) -> bool {
    depths(tokens).any(|(token, depth)| depth == 0 && token == word)
}

/// Each token with its nesting level; an opening parenthesis is inside its own level.
pub(super) fn depths(tokens: &[String]) -> impl Iterator<Item = (&String, usize)> {
    tokens.iter().scan(0_usize, |depth, token| {
        match token.as_str() {
            "(" => *depth += 1,
            ")" => *depth = depth.saturating_sub(1),
            _ => {}
        }
        Some((token, *depth))
    })
}

fn isolation(tokens: &[String]) -> Result<(), SqlError> {
    match LEVELS.iter().find(|level| has(tokens, level)) {
        Some(level) => refuse(format!("Unsupported isolation level: {}", level.join(" "))),
        None => Ok(()),
    }
}

fn query(statement: &Statement, tokens: &[String], rules: Rules) -> Result<(), SqlError> {
    if rules == Rules::Spec && (has(tokens, &["FOR", "SHARE"]) || has(tokens, &["FOR", "KEY", "SHARE"])) {
        return refuse("locking clauses other than FOR UPDATE are not supported");
    }
    if has(tokens, &["FOR", "SHARE"]) || has(tokens, &["FOR", "NO", "KEY", "UPDATE"]) {
        return refuse("locking clauses other than FOR UPDATE/FOR KEY SHARE are not supported");
    }
    let locks = |name: &String| name.starts_with("pg_advisory_") || name.starts_with("pg_try_advisory_");
    if statement.contains_ignore_case("advisory_")
        && let Some(function) = names(statement.text()).iter().find(|name| locks(name))
    {
        return refuse(format!("function {function} not supported"));
    }
    let into = |window: &[String]| window[1] == "INTO" && window[0] != "INSERT";
    if statement.kind() == Kind::Select && tokens.windows(2).any(into) {
        return refuse("unsupported statement: CreateTableAs");
    }
    // A table or column may have this name; then no method follows.
    if tokens.windows(3).any(|window| window[0] == "TABLESAMPLE" && window[2] == "(") {
        return refuse("TABLESAMPLE clause not supported");
    }
    Ok(())
}

fn definition(statement: &Statement, tokens: &[String], rules: Rules) -> Result<(), SqlError> {
    let (verb, noun) = (statement.word(0), statement.word(1));
    match (verb, noun) {
        ("CREATE", "TYPE") => {
            let kind = |words: &[&str]| has(tokens, words);
            refuse(match () {
                () if kind(&["AS", "ENUM"]) => "CREATE TYPE not supported",
                () if kind(&["AS", "RANGE"]) => "unsupported statement: CreateRange",
                () => "unsupported statement: CompositeType",
            })
        }
        ("ALTER", "TYPE") if has(tokens, &["RENAME", "TO"]) => {
            refuse("unsupported object in RENAME statement")
        }
        ("ALTER", "TYPE") => refuse("ALTER TYPE not supported"),
        ("DROP", "DOMAIN") if tokens.last().is_some_and(|last| last == "CASCADE") => {
            refuse("DROP DOMAIN with CASCADE unsupported")
        }
        ("CREATE", "TABLE") => table(tokens),
        ("CREATE", "INDEX" | "UNIQUE") => indexes::check(tokens, rules),
        ("CREATE", "SEQUENCE") if rules != Rules::Spec && !has(tokens, &["CACHE"]) => {
            refuse(format!("CREATE SEQUENCE is not supported without an explicit cache size. {CACHE}"))
        }
        // It would change the settings of the emulator's own connections.
        ("ALTER", "ROLE" | "USER") if outside(tokens, "SET") || outside(tokens, "RESET") => {
            refuse("unsupported statement: AlterRoleSet")
        }
        ("GRANT" | "REVOKE", _) if has(tokens, &["SCHEMA", "PUBLIC"]) => {
            refuse("feature not supported on system entity")
        }
        ("ALTER", "TABLE") => alteration(tokens),
        ("CREATE", _) if statement.mentions("FUNCTION") => {
            let words = names(statement.text());
            let named = words.windows(2).any(|pair| pair == ["language", "plpgsql"]);
            let quoted = statement.text().to_ascii_lowercase().contains("'plpgsql'");
            if named || quoted {
                return refuse("CREATE FUNCTION with language plpgsql not supported");
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn table(tokens: &[String]) -> Result<(), SqlError> {
    if outside(tokens, "AS") {
        return refuse("unsupported statement: CreateTableAs");
    }
    for clause in ["BY", "OF"] {
        if has(tokens, &["PARTITION", clause]) {
            return refuse(format!("PARTITION {clause} clause not supported for CREATE TABLE"));
        }
    }
    if has(tokens, &["INHERITS", "("]) {
        return refuse("INHERITS clause not supported for CREATE TABLE");
    }
    if has(tokens, &["EXCLUDE", "USING"]) {
        return refuse("EXCLUDE constraint not supported for CREATE TABLE");
    }
    identities(tokens)?;
    serial(tokens)
}

/// The options of an identity column, in parentheses, must name the cache size.
fn identities(tokens: &[String]) -> Result<(), SqlError> {
    let identity = |(_, pair): &(usize, &[String])| pair == &["AS", "IDENTITY"];
    for (at, _) in tokens.windows(2).enumerate().filter(identity) {
        let options = tokens[at + 2..].iter().take_while(|token| *token != ")");
        let cached = options.clone().next().is_some_and(|first| first == "(")
            && options.into_iter().any(|option| option == "CACHE");
        if !cached {
            return refuse(format!(
                "identity column is not supported without an explicit cache size. {CACHE}"
            ));
        }
    }
    Ok(())
}

fn alteration(tokens: &[String]) -> Result<(), SqlError> {
    serial(tokens)?;
    let unsupported = |what: &str| refuse(format!("unsupported ALTER TABLE {what} statement"));
    let later = |words: &[&str]| has(&tokens[2..], words);
    let constraints = CONSTRAINTS.iter().filter(|word| later(&[word])).count();
    // The NOT of IF NOT EXISTS does not count.
    if later(&["ADD", "COLUMN"]) && constraints > usize::from(later(&["IF", "NOT", "EXISTS"])) {
        return refuse("ALTER TABLE ADD COLUMN with constraint not supported");
    }
    let adds = later(&["ADD", "CONSTRAINT"]) || later(&["ADD", "PRIMARY"]) || later(&["ADD", "UNIQUE"]);
    if adds && !later(&["NOT", "VALID"]) && !later(&["USING", "INDEX"]) {
        return unsupported("ADD CONSTRAINT");
    }
    if later(&["VALIDATE", "CONSTRAINT"]) && tokens[2] != "ASYNC" {
        return unsupported("VALIDATE CONSTRAINT");
    }
    if later(&["ENABLE", "ROW", "LEVEL"]) {
        return unsupported("ENABLE ROW SECURITY");
    }
    if let Some(at) = tokens[2..].windows(2).position(|window| window == ["ALTER", "COLUMN"]) {
        // After the column's name.
        let action: Vec<&str> = tokens[2..].iter().skip(at + 3).take(3).map(String::as_str).collect();
        let what = match action[..] {
            ["TYPE", ..] | ["SET", "DATA", ..] => "SET DATA TYPE",
            ["SET", "NOT", ..] => "SET NOT NULL",
            ["SET", "STATISTICS", ..] => "SET STATISTICS",
            _ => return Ok(()),
        };
        return unsupported(&format!("ALTER COLUMN ... {what}"));
    }
    Ok(())
}

/// A type is the second word of a column definition; the name may be `serial` too.
fn serial(tokens: &[String]) -> Result<(), SqlError> {
    let before = ["(", ",", "COLUMN", "ADD", "EXISTS"];
    let is_type =
        |window: &&[String]| before.contains(&window[0].as_str()) && SERIALS.contains(&window[2].as_str());
    match tokens.windows(3).find(is_type) {
        Some(window) => {
            let name = window[2].to_ascii_lowercase();
            Err(SqlError::new("42704", format!("type \"{name}\" does not exist")))
        }
        None => Ok(()),
    }
}

/// Checks the statement inside an EXPLAIN.
fn explained(statement: &Statement, rules: Rules) -> Result<(), SqlError> {
    let rest = statement.text().get("EXPLAIN".len()..).unwrap_or_default().trim_start();
    let analyze = |word: &&str| word.eq_ignore_ascii_case("ANALYZE");
    let rest = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((_, rest)) => rest,
        None if rest.get(..7).is_some_and(|word| analyze(&word)) => &rest[7..],
        None => rest,
    };
    let inner = Statement::split(rest);
    // A nested EXPLAIN is a syntax error, which the database reports.
    let mut inner = inner.iter().filter(|inner| !inner.begins(&["EXPLAIN"]));
    inner.try_for_each(|inner| super::check(inner, rules))
}

#[cfg(test)]
mod tests {
    use crate::rules::refusal;

    #[test]
    fn clauses_are_refused_at_any_depth_and_not_in_literals() {
        let locking = "0A000: locking clauses other than FOR UPDATE/FOR KEY SHARE are not supported";
        assert_eq!(refusal("SELECT 1 FROM (SELECT 1 FROM t FOR SHARE) x").unwrap(), locking);
        let function = "0A000: function pg_try_advisory_lock not supported";
        assert_eq!(refusal("SELECT pg_try_advisory_lock(1)").unwrap(), function);
        for fine in [
            "SELECT 'for share'",
            "SELECT \"for\" /* for share */ FROM t FOR UPDATE",
            "WITH w AS (INSERT INTO t VALUES (1) RETURNING a) SELECT a FROM w",
            "CREATE TABLE t (serial text, n int CHECK (n > serial))",
            "CREATE TABLE t (id int, v int GENERATED ALWAYS AS (id + 1) STORED)",
            "CREATE VIEW v AS SELECT 1 AS serial",
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS c int",
            "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0) NOT VALID",
            "ALTER TABLE t ALTER COLUMN type SET DEFAULT 'a'",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "EXPLAIN ANALYZE SELECT 1",
            "EXPLAIN (VERBOSE) SELECT 1",
            "\"éééé\" EXPLAIN",
            &"EXPLAIN ".repeat(100_000),
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
        ] {
            assert_eq!(refusal(fine), None, "{fine}");
        }
    }

    #[test]
    fn definitions_are_refused_for_what_they_are() {
        for (sql, expected) in [
            (
                "CREATE TABLE IF NOT EXISTS t (a) AS SELECT f(1)",
                "0A000: unsupported statement: CreateTableAs",
            ),
            ("CREATE TABLE t AS SELECT 1", "0A000: unsupported statement: CreateTableAs"),
            ("CREATE TABLE t (id bigserial)", "42704: type \"bigserial\" does not exist"),
            (
                "ALTER TABLE t ADD COLUMN a int DEFAULT 1",
                "0A000: ALTER TABLE ADD COLUMN with constraint not supported",
            ),
            ("ALTER TABLE t ADD PRIMARY KEY (a)", "0A000: unsupported ALTER TABLE ADD CONSTRAINT statement"),
            ("begin isolation level serializable", "0A000: Unsupported isolation level: SERIALIZABLE"),
            ("EXPLAIN TRUNCATE t", "0A000: unsupported statement: Truncate"),
            ("ALTER ROLE admin SET lock_timeout = 0", "0A000: unsupported statement: AlterRoleSet"),
            ("ALTER USER ALL RESET ALL", "0A000: unsupported statement: AlterRoleSet"),
            ("ALTER DATABASE postgres SET x = 1", "0A000: unsupported statement: AlterDatabase"),
        ] {
            assert_eq!(refusal(sql).as_deref(), Some(expected), "{sql}");
        }
    }
}
