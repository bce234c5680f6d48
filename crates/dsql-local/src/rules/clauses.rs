//! Clauses that the service refuses.

use super::{indexes, spec};
use crate::config::Rules;
use crate::error::SqlError;
use crate::statement::{Kind, Statement, has, names, spans, tokens};

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
        _ if statement.begins(&["COPY"]) => copy(statement, &tokens, rules),
        Kind::Begin => isolation(&tokens),
        Kind::Set if statement.begins(&["SET", "SESSION", "CHARACTERISTICS"]) => isolation(&tokens),
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

/// Data comes from the client and goes to the client. A file would be one of the server.
fn copy(statement: &Statement, tokens: &[String], rules: Rules) -> Result<(), SqlError> {
    let pair = |pair: [(&String, usize); 2]| {
        let [(direction, depth), (end, _)] = pair;
        depth == 0
            && ["FROM", "TO"].contains(&direction.as_str())
            && ["STDIN", "STDOUT"].contains(&end.as_str())
    };
    let depths: Vec<_> = depths(tokens).collect();
    if !depths.windows(2).any(|window| pair([window[0], window[1]])) {
        return refuse("unsupported statement: Copy");
    }
    // `COPY (query) TO STDOUT`.
    let spans = spans(statement.text());
    let closed = depths.iter().skip(1).position(|(token, depth)| *token == ")" && *depth == 0);
    match closed.filter(|_| tokens.get(1).is_some_and(|token| token == "(")) {
        Some(last) => {
            let query = &statement.text()[spans[1].1.end..spans[1 + last].1.start];
            Statement::split(query).iter().try_for_each(|query| super::check(query, rules))
        }
        None => Ok(()),
    }
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
        ("CREATE" | "ALTER", "SEQUENCE") if rules != Rules::Spec => sequence_type(tokens),
        // It would change the settings of the emulator's own connections.
        ("ALTER", "ROLE" | "USER") if outside(tokens, "SET") || outside(tokens, "RESET") => {
            refuse("unsupported statement: AlterRoleSet")
        }
        // Tables in it may be granted: ALL TABLES IN SCHEMA public.
        ("GRANT" | "REVOKE", _) if has(tokens, &["ON", "SCHEMA", "PUBLIC"]) => {
            refuse("feature not supported on system entity")
        }
        ("ALTER", "TABLE") => alteration(tokens),
        ("ALTER", "STATISTICS") => statistics(tokens),
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
    if has(tokens, &["EXCLUDE", "USING"]) || has(tokens, &["EXCLUDE", "("]) {
        return refuse("EXCLUDE constraint not supported for CREATE TABLE");
    }
    if depths(tokens)
        .zip(&tokens[1..])
        .any(|((token, depth), next)| depth == 0 && token == "WITH" && next == "(")
    {
        return refuse("WITH clause not supported for CREATE TABLE");
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
    identities(tokens)?;
    let unsupported = |what: &str| refuse(format!("unsupported ALTER TABLE {what} statement"));
    for action in actions(tokens) {
        let does = |words: &[&str]| has(action, words);
        if adds_column(action) && is_constrained(action) {
            return refuse("ALTER TABLE ADD COLUMN with constraint not supported");
        }
        let constraint =
            ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"].map(|word| does(&["ADD", word]));
        if constraint.contains(&true) && !does(&["NOT", "VALID"]) && !does(&["USING", "INDEX"]) {
            return unsupported("ADD CONSTRAINT");
        }
        if does(&["VALIDATE", "CONSTRAINT"]) && tokens[2] != "ASYNC" {
            return unsupported("VALIDATE CONSTRAINT");
        }
        for (words, what) in [
            (&["ENABLE", "ROW", "LEVEL"][..], "ENABLE ROW SECURITY"),
            (&["REPLICA", "IDENTITY"], "REPLICA IDENTITY"),
            (&["SET", "LOGGED"], "SET LOGGED"),
            (&["SET", "UNLOGGED"], "SET UNLOGGED"),
            (&["SET", "WITHOUT", "CLUSTER"], "SET WITHOUT CLUSTER"),
            (&["SET", "("], "SET"),
        ] {
            if does(words) {
                return unsupported(what);
            }
        }
        let Some(at) = action.iter().position(|token| token == "ALTER") else { continue };
        let column = action[at + 1..].iter().map(String::as_str);
        // The name may be that of a keyword.
        let change: Vec<&str> = column.skip_while(|word| *word == "COLUMN").skip(1).take(3).collect();
        let what = match change[..] {
            ["TYPE", ..] | ["SET", "DATA", ..] => "SET DATA TYPE",
            ["SET", "NOT", ..] => "SET NOT NULL",
            ["SET", "STATISTICS", ..] => "SET STATISTICS",
            ["SET", "COMPRESSION", ..] => "SET COMPRESSION",
            _ => continue,
        };
        return unsupported(&format!("ALTER COLUMN ... {what}"));
    }
    Ok(())
}

/// The actions of an ALTER TABLE, which commas separate.
fn actions(tokens: &[String]) -> impl Iterator<Item = &[String]> {
    let before = ["IF", "EXISTS", "ONLY", "ASYNC"];
    let is_name = |at: &usize| !before.contains(&tokens[*at].as_str());
    // The name of the table may be that of a keyword.
    let mut name = (2..tokens.len()).find(is_name).unwrap_or(tokens.len());
    while tokens.get(name + 1).is_some_and(|token| token == ".") {
        name += 2;
    }
    let rest = &tokens[tokens.len().min(name + 1)..];
    let commas = depths(rest).enumerate().filter(|(_, (token, depth))| *depth == 0 && *token == ",");
    let mut ends: Vec<usize> = commas.map(|(at, _)| at).collect();
    ends.push(rest.len());
    let mut start = 0;
    ends.into_iter().map(move |end| &rest[std::mem::replace(&mut start, end + 1).min(end)..end])
}

fn adds_column(action: &[String]) -> bool {
    let constraints = ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "EXCLUDE"];
    let Some(add) = action.iter().position(|token| token == "ADD") else { return false };
    let next = action.get(add + 1).map_or("", String::as_str);
    // `ALTER c ADD GENERATED` changes a column.
    !action[..add].iter().any(|token| token == "ALTER") && !constraints.contains(&next)
}

fn is_constrained(action: &[String]) -> bool {
    let begins = |pair: &[String]| CONSTRAINTS.contains(&pair[1].as_str()) && pair != ["STORAGE", "DEFAULT"];
    // The name of the column may be that of a keyword.
    let words = ["ADD", "COLUMN", "IF", "NOT", "EXISTS"];
    let name = action.iter().position(|token| !words.contains(&token.as_str())).unwrap_or(0);
    action[name..].windows(2).any(begins)
}

fn sequence_type(tokens: &[String]) -> Result<(), SqlError> {
    let other = |pair: &[String]| pair[0] == "AS" && !["BIGINT", "INT8"].contains(&pair[1].as_str());
    match tokens.windows(2).any(other) {
        true => Err(SqlError::new("22023", "sequence type must be bigint")),
        false => Ok(()),
    }
}

/// The service has a lower limit than PostgreSQL.
fn statistics(tokens: &[String]) -> Result<(), SqlError> {
    const LARGEST: u32 = 100;
    match tokens {
        [.., set, what, number] if set == "SET" && what == "STATISTICS" => match number.parse::<u32>() {
            Ok(target) if target > LARGEST => {
                let message =
                    format!("statistics target {target} exceeds maximum allowed value of {LARGEST}");
                Err(SqlError::new("22023", message))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
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
            "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES t (id) NOT VALID, ADD COLUMN b int",
            "ALTER TABLE t ADD COLUMN c text STORAGE DEFAULT, ADD d int",
            "ALTER STATISTICS s SET STATISTICS 100",
            "ALTER TABLE t ADD COLUMN generated int",
            "ALTER TABLE t ALTER COLUMN type SET DEFAULT 'a'",
            "ALTER TABLE t ALTER type SET DEFAULT 'a'",
            "ALTER TABLE t ALTER id ADD GENERATED ALWAYS AS IDENTITY (CACHE 1)",
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
            (
                "ALTER TABLE t ADD a int, ADD CHECK (a > 0)",
                "0A000: unsupported ALTER TABLE ADD CONSTRAINT statement",
            ),
            (
                "ALTER TABLE alter ALTER c TYPE text",
                "0A000: unsupported ALTER TABLE ALTER COLUMN ... SET DATA TYPE statement",
            ),
            (
                "ALTER TABLE t ADD a int NOT NULL",
                "0A000: ALTER TABLE ADD COLUMN with constraint not supported",
            ),
            (
                "ALTER STATISTICS s SET STATISTICS 101",
                "22023: statistics target 101 exceeds maximum allowed value of 100",
            ),
            (
                "ALTER TABLE t REPLICA IDENTITY FULL",
                "0A000: unsupported ALTER TABLE REPLICA IDENTITY statement",
            ),
            ("ALTER TABLE t SET (fillfactor = 70)", "0A000: unsupported ALTER TABLE SET statement"),
            ("ALTER TABLE t SET UNLOGGED", "0A000: unsupported ALTER TABLE SET UNLOGGED statement"),
            (
                "ALTER TABLE ONLY t ALTER c SET COMPRESSION lz4",
                "0A000: unsupported ALTER TABLE ALTER COLUMN ... SET COMPRESSION statement",
            ),
            (
                "ALTER TABLE t ALTER c TYPE text",
                "0A000: unsupported ALTER TABLE ALTER COLUMN ... SET DATA TYPE statement",
            ),
            (
                "CREATE TABLE t (a int) WITH (autovacuum_enabled = false)",
                "0A000: WITH clause not supported for CREATE TABLE",
            ),
            (
                "CREATE TABLE t (a int, EXCLUDE (a WITH =))",
                "0A000: EXCLUDE constraint not supported for CREATE TABLE",
            ),
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
