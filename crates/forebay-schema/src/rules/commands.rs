//! Commands that are refused whatever they say.

use super::{Refusal, has};
use crate::sql::{Statement, Word};

/// The first words of a statement, the server's message, and what to do instead.
type Command = (&'static [&'static str], &'static str, &'static str);

const TEMPORARY: &str = "TEMPORARY or TEMP table not supported for CREATE TABLE";
const USE_A_TABLE: &str = "use an ordinary table, or a common table expression";
const NO_CURSORS: &str = "there are no cursors: read page by page, with WHERE and LIMIT";
const NO_CODE: &str = "there is no procedural code: do it in the application, or in plain SQL";
const NO_TRIGGERS: &str = "there are no triggers: do it in the application";
const NO_TYPES: &str = "there are no types of one's own: use text with a CHECK constraint, or CREATE DOMAIN";
const REMOVE: &str = "remove it: the service does this by itself";
const ONE_DATABASE: &str = "a cluster has one database, postgres: use schemas";
const NO_NOTIFY: &str = "there is no LISTEN and NOTIFY: poll a table, or use a queue outside of the database";
const NO_SAVEPOINTS: &str =
    "there are no savepoints: each statement of a migration is a transaction of its own";
const NO_PREPARE: &str = "clients prepare statements by the protocol; write the statement itself";
const NO_FOREIGN: &str = "there is no foreign data: load the rows into a table";

const COMMANDS: &[Command] = &[
    (
        &["TRUNCATE"],
        "unsupported statement: Truncate",
        "use DELETE FROM, at most 3,000 rows in a transaction, or drop and create the table",
    ),
    (
        &["CREATE", "EXTENSION"],
        "unsupported statement: CreateExtension",
        "there are no extensions; gen_random_uuid() is built in",
    ),
    (&["CREATE", "TRIGGER"], "CREATE TRIGGER not supported", NO_TRIGGERS),
    (&["CREATE", "OR", "REPLACE", "TRIGGER"], "CREATE TRIGGER not supported", NO_TRIGGERS),
    (&["CREATE", "CONSTRAINT", "TRIGGER"], "CREATE TRIGGER not supported", NO_TRIGGERS),
    (&["CREATE", "EVENT", "TRIGGER"], "unsupported statement: CreateEventTrig", NO_TRIGGERS),
    (&["CREATE", "DATABASE"], "unsupported statement: Createdb", ONE_DATABASE),
    (&["DROP", "DATABASE"], "unsupported statement: Dropdb", ONE_DATABASE),
    (
        &["ALTER", "DATABASE"],
        "unsupported statement: AlterDatabase",
        "remove it: settings belong to a session",
    ),
    (&["ALTER", "SYSTEM"], "unsupported statement: AlterSystem", REMOVE),
    (&["CREATE", "TEMPORARY", "TABLE"], TEMPORARY, USE_A_TABLE),
    (&["CREATE", "TEMP", "TABLE"], TEMPORARY, USE_A_TABLE),
    (&["CREATE", "LOCAL"], TEMPORARY, USE_A_TABLE),
    (&["CREATE", "GLOBAL"], TEMPORARY, USE_A_TABLE),
    (
        &["CREATE", "TEMPORARY", "SEQUENCE"],
        "TEMPORARY or TEMP sequence not supported for CREATE SEQUENCE",
        "use an ordinary sequence",
    ),
    (
        &["CREATE", "TEMP", "SEQUENCE"],
        "TEMPORARY or TEMP sequence not supported for CREATE SEQUENCE",
        "use an ordinary sequence",
    ),
    (
        &["CREATE", "TEMPORARY", "VIEW"],
        "TEMPORARY or TEMP view not supported for CREATE VIEW",
        "use an ordinary view",
    ),
    (
        &["CREATE", "TEMP", "VIEW"],
        "TEMPORARY or TEMP view not supported for CREATE VIEW",
        "use an ordinary view",
    ),
    (
        &["CREATE", "OR", "REPLACE", "TEMPORARY", "VIEW"],
        "TEMPORARY or TEMP view not supported for CREATE VIEW",
        "use an ordinary view",
    ),
    (
        &["CREATE", "OR", "REPLACE", "TEMP", "VIEW"],
        "TEMPORARY or TEMP view not supported for CREATE VIEW",
        "use an ordinary view",
    ),
    (&["CREATE", "UNLOGGED", "TABLE"], "UNLOGGED table not supported for CREATE TABLE", "remove UNLOGGED"),
    (
        &["CREATE", "MATERIALIZED"],
        "unsupported statement: CreateTableAs",
        "use a view, or a table that the application fills",
    ),
    (
        &["REFRESH"],
        "unsupported statement: RefreshMatView",
        "there are no materialized views: use a view, or fill a table",
    ),
    (&["CREATE", "TABLESPACE"], "unsupported statement: CreateTableSpace", REMOVE),
    (&["CREATE", "FOREIGN"], "unsupported statement: CreateForeignTable", NO_FOREIGN),
    (&["CREATE", "SERVER"], "unsupported statement: CreateForeignServer", NO_FOREIGN),
    (
        &["CREATE", "PUBLICATION"],
        "unsupported statement: CreatePublication",
        "there is no logical replication",
    ),
    (
        &["CREATE", "SUBSCRIPTION"],
        "unsupported statement: CreateSubscription",
        "there is no logical replication",
    ),
    (
        &["CREATE", "POLICY"],
        "unsupported statement: CreatePolicy",
        "there is no row security: use views and grants",
    ),
    (&["CREATE", "RULE"], "unsupported statement: Rule", "there are no rules: do it in the application"),
    (
        &["CREATE", "OR", "REPLACE", "RULE"],
        "unsupported statement: Rule",
        "there are no rules: do it in the application",
    ),
    (&["CREATE", "PROCEDURE"], "PROCEDURE is not supported", NO_CODE),
    (&["CREATE", "OR", "REPLACE", "PROCEDURE"], "PROCEDURE is not supported", NO_CODE),
    (&["DO"], "unsupported statement: Do", NO_CODE),
    (&["ALTER", "TYPE"], "ALTER TYPE not supported", NO_TYPES),
    (&["DROP", "TYPE"], "unsupported object in DROP statement", NO_TYPES),
    (&["VACUUM"], "unsupported VACUUM statement", REMOVE),
    (&["REINDEX"], "unsupported statement: Reindex", "drop the index, and create it again"),
    (&["CLUSTER"], "unsupported statement: Cluster", "remove it: a table is in the order of its primary key"),
    (&["CHECKPOINT"], "unsupported statement: CheckPoint", REMOVE),
    (&["LOAD"], "unsupported statement: Load", "there are no libraries to load"),
    (&["LISTEN"], "unsupported statement: Listen", NO_NOTIFY),
    (&["NOTIFY"], "unsupported statement: Notify", NO_NOTIFY),
    (&["UNLISTEN"], "unsupported statement: Unlisten", NO_NOTIFY),
    (&["SAVEPOINT"], "unsupported transaction statement: SAVEPOINT", NO_SAVEPOINTS),
    (&["RELEASE"], "unsupported transaction statement: RELEASE", NO_SAVEPOINTS),
    (&["ROLLBACK", "TO"], "unsupported transaction statement: ROLLBACK TO", NO_SAVEPOINTS),
    (&["ROLLBACK", "WORK", "TO"], "unsupported transaction statement: ROLLBACK TO", NO_SAVEPOINTS),
    (&["ROLLBACK", "TRANSACTION", "TO"], "unsupported transaction statement: ROLLBACK TO", NO_SAVEPOINTS),
    (
        &["PREPARE", "TRANSACTION"],
        "unsupported transaction statement: PREPARE TRANSACTION",
        "there is no two-phase commit",
    ),
    (
        &["COMMIT", "PREPARED"],
        "unsupported transaction statement: COMMIT PREPARED",
        "there is no two-phase commit",
    ),
    (
        &["ROLLBACK", "PREPARED"],
        "unsupported transaction statement: ROLLBACK PREPARED",
        "there is no two-phase commit",
    ),
    (&["PREPARE"], "unsupported statement: Prepare", NO_PREPARE),
    (&["EXECUTE"], "unsupported statement: Execute", NO_PREPARE),
    (&["DECLARE"], "unsupported statement: DeclareCursor", NO_CURSORS),
    (&["FETCH"], "unsupported statement: Fetch", NO_CURSORS),
    (&["MOVE"], "unsupported statement: Fetch", NO_CURSORS),
    (&["CLOSE"], "unsupported statement: ClosePortal", NO_CURSORS),
    (
        &["LOCK"],
        "unsupported statement: Lock",
        "remove it: the second of two transactions that conflict fails at COMMIT",
    ),
    (&["MERGE"], "unsupported statement type: MERGE", "use INSERT ... ON CONFLICT, or UPDATE and INSERT"),
    (&["DISCARD"], "unsupported statement: Discard", "remove it"),
];

/// Settings of roles.
const ROLE_SETTING: &str = "unsupported statement: AlterRoleSet";
const PUBLIC: &str = "feature not supported on system entity";

pub(super) fn check(statement: &Statement) -> Option<Refusal> {
    let refuse = |message: &str, remedy: &str| Some(Refusal::new(statement, message, remedy));
    let words = statement.words();
    if let Some((_, message, remedy)) = COMMANDS.iter().find(|(keys, ..)| statement.begins(keys)) {
        let message = match statement.key(0) {
            "ALTER" if has(words, &["RENAME", "TO"]) && statement.key(1) == "TYPE" => {
                "unsupported object in RENAME statement"
            }
            _ => message,
        };
        return refuse(message, remedy);
    }
    match (statement.key(0), statement.key(1)) {
        _ if words.iter().any(|word| word.is("\\")) => {
            refuse("a command of psql", "remove it: only SQL is sent to the server")
        }
        ("DROP", "INDEX") if statement.key(2) == "CONCURRENTLY" => {
            refuse("DROP INDEX CONCURRENTLY cannot run inside a transaction block", "remove CONCURRENTLY")
        }
        ("COMMENT", _) if statement.key(2) == "EXTENSION" => {
            refuse("must be owner of the extension", "remove it: there are no extensions")
        }
        ("ANALYZE" | "ANALYSE", _) if is_analyze_of_everything(words) => {
            refuse("ANALYZE without a table not supported", "name the table, or remove it")
        }
        ("CREATE", "TYPE") => refuse(
            match () {
                () if has(words, &["AS", "ENUM"]) => "CREATE TYPE not supported",
                () if has(words, &["AS", "RANGE"]) => "unsupported statement: CreateRange",
                () => "unsupported statement: CompositeType",
            },
            NO_TYPES,
        ),
        ("DROP", "DOMAIN") if words.last().is_some_and(|word| word.is("CASCADE")) => {
            refuse("DROP DOMAIN with CASCADE unsupported", "remove CASCADE, and drop what uses it first")
        }
        ("ALTER", "ROLE" | "USER") if words.iter().any(|word| word.is("SET") || word.is("RESET")) => {
            refuse(ROLE_SETTING, "set it in the session")
        }
        // Tables in it may be granted: ALL TABLES IN SCHEMA public.
        ("GRANT" | "REVOKE", _) if has(words, &["ON", "SCHEMA", "PUBLIC"]) => {
            refuse(PUBLIC, "privileges of the schema public are fixed: use a schema of your own")
        }
        ("CREATE", _) => function(statement),
        ("ALTER", "STATISTICS") => statistics(statement),
        _ => None,
    }
}

fn is_analyze_of_everything(words: &[Word]) -> bool {
    words[1..].iter().all(|word| word.is("VERBOSE") || word.depth > 0 || word.is("(") || word.is(")"))
}

/// Functions are in SQL only.
fn function(statement: &Statement) -> Option<Refusal> {
    let at = if statement.key(1) == "OR" { 3 } else { 1 };
    if statement.key(at) != "FUNCTION" {
        return None;
    }
    let words = statement.words();
    let place = words.iter().position(|word| word.depth == 0 && word.is("LANGUAGE"))?;
    let word = words.get(place + 1)?;
    let written = &statement.text()[word.range.clone()];
    let language = written.trim_matches(['\'', '"']).to_lowercase();
    if language == "sql" {
        return None;
    }
    let message = format!("CREATE FUNCTION with language {language} not supported");
    Some(
        Refusal::new(statement, message, "functions are in SQL only; do it in the application")
            .at(statement, word),
    )
}

/// The service has a lower limit than PostgreSQL.
fn statistics(statement: &Statement) -> Option<Refusal> {
    let words = statement.words();
    let [.., set, what, number] = words else { return None };
    if !set.is("SET") || !what.is("STATISTICS") {
        return None;
    }
    let target: u32 = number.key().parse().ok()?;
    let message = format!("statistics target {target} exceeds maximum allowed value of 100");
    (target > 100).then(|| Refusal::new(statement, message, "use 100 or less"))
}

#[cfg(test)]
mod tests {
    use crate::rules::{Rules, refusals};

    #[test]
    fn commands_are_refused_by_their_words() {
        let view = "TEMPORARY or TEMP view not supported for CREATE VIEW";
        for (sql, message) in [
            ("GRANT USAGE ON SCHEMA public TO r", "feature not supported on system entity"),
            ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", view),
            ("DROP INDEX CONCURRENTLY i", "DROP INDEX CONCURRENTLY cannot run inside a transaction block"),
            ("SELECT 1 \\gexec\nSELECT 2", "a command of psql"),
            ("\\connect other", "a command of psql"),
        ] {
            assert_eq!(refusals(sql, Rules::Today), [message], "{sql}");
        }
        for fine in [
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO r",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO r",
            "DROP INDEX concurrently_built",
            "SELECT E'\\\\', '\\'",
        ] {
            assert_eq!(refusals(fine, Rules::Today), [""; 0], "{fine}");
        }
    }
}
