//! A statement, and how to send it, by its words.

use super::transaction::Effect;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    /// Without the semicolon.
    pub(crate) text: String,
    /// The line in which it begins.
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    /// Whether it changes rows, so that their number is shown.
    pub(crate) changes_rows: bool,
    /// Whether it may create, rename or remove a table.
    pub(crate) changes_names: bool,
    pub(crate) effect: Effect,
    /// Whether its result is a query plan.
    pub(crate) explains: bool,
    /// Whether it may return rows, although it is sent as an update.
    pub(crate) may_return_rows: bool,
}

/// Flight SQL has one call for statements that return rows and another for the rest. The caller must choose.
/// In doubt it is an update: some servers find out the columns of a query by running it, and then run it
/// again for its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It returns rows.
    Query,
    /// It returns a number of rows.
    Update,
}

/// First words of statements that return rows, and change nothing. WITH is among them only within
/// parentheses, where it is the first word of a query.
const QUERIES: &[&str] = &[
    "desc",
    "describe",
    "explain",
    "from",
    "pivot",
    "select",
    "show",
    "summarize",
    "table",
    "unpivot",
    "values",
    "with",
];

/// First words of statements that return rows on some servers, and change something on others.
const MAY_RETURN_ROWS: &[&str] = &["call", "exec", "execute", "fetch"];

/// Pragmas that return rows, with or without an argument.
const READING_PRAGMAS: &[&str] = &[
    "collation_list",
    "collations",
    "compile_options",
    "database_list",
    "database_size",
    "foreign_key_check",
    "foreign_key_list",
    "freelist_count",
    "function_list",
    "functions",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "metadata_info",
    "module_list",
    "page_count",
    "platform",
    "pragma_list",
    "quick_check",
    "show",
    "show_databases",
    "show_tables",
    "show_tables_expanded",
    "storage_info",
    "table_info",
    "table_list",
    "table_xinfo",
    "user_agent",
    "version",
];

/// Pragmas that return a setting, unless they are given one.
const SETTINGS: &[&str] = &[
    "application_id",
    "auto_vacuum",
    "busy_timeout",
    "cache_size",
    "encoding",
    "foreign_keys",
    "journal_mode",
    "locking_mode",
    "page_size",
    "query_only",
    "synchronous",
    "user_version",
];

/// What may follow the queries of a WITH.
const AFTER_WITH: &[&str] =
    &["delete", "from", "insert", "merge", "replace", "select", "table", "update", "values"];

/// First words of statements that change rows.
const CHANGING: &[&str] = &["delete", "insert", "merge", "replace", "truncate", "update", "upsert"];

/// First words of statements that may create, rename or remove a table.
const NAMING: &[&str] = &["alter", "attach", "create", "detach", "drop", "rollback", "use"];

/// What the words of a statement say about it. The splitter adds them one by one.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    /// The word that says what the statement does.
    verb: Option<String>,
    is_with: bool,
    returns: bool,
    /// Parentheses that are open.
    depth: usize,
    is_routine: bool,
    /// Open blocks of a routine's body: semicolons in them do not end the statement.
    blocks: usize,
    after_end: bool,
    count: usize,
    /// The second word is TRANSACTION.
    is_of_transaction: bool,
    /// There is a TO, as of a savepoint.
    has_to: bool,
    /// There is an INTO, as of `SELECT ... INTO t`.
    has_into: bool,
    /// The last word before an argument, which is the name of a pragma.
    name: Option<String>,
    has_argument: bool,
}

impl Words {
    pub(super) fn open(&mut self) {
        self.depth += 1;
        self.has_argument |= self.verb.is_some();
    }

    pub(super) fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Takes the next character that is not part of a word.
    pub(super) fn sign(&mut self, text: &str) {
        self.has_argument |= text == "=";
    }

    /// Takes the next word that is neither quoted nor in a comment.
    pub(super) fn take(&mut self, word: &str) {
        let word = word.to_ascii_lowercase();
        self.follow_blocks(&word);
        self.count += 1;
        if self.depth > 0 {
            // A query in parentheses.
            if self.count == 1 {
                self.verb = Some(word);
            }
            return;
        }
        self.returns |= word == "returning";
        self.has_to |= word == "to";
        self.has_into |= word == "into";
        if !self.has_argument {
            self.name = Some(word.clone());
        }
        self.is_of_transaction |= self.count == 2 && word == "transaction";
        match &self.verb {
            None if self.count == 1 && word == "with" => self.is_with = true,
            None if self.is_with && !AFTER_WITH.contains(&word.as_str()) => {}
            None => self.verb = Some(word),
            Some(_) => {}
        }
    }

    fn follow_blocks(&mut self, word: &str) {
        let is_early = self.count < 6 && self.verb.as_deref() == Some("create");
        self.is_routine |= is_early && ["function", "procedure", "trigger"].contains(&word);
        if !self.is_routine {
            return;
        }
        // END IF and the like end a block that did not begin with BEGIN.
        let ends_other = self.after_end && ["for", "if", "loop", "repeat", "while"].contains(&word);
        let ends_case = self.after_end && word == "case";
        self.after_end = word == "end";
        match word {
            "begin" => self.blocks += 1,
            "case" if !ends_case => self.blocks += 1,
            "end" => self.blocks = self.blocks.saturating_sub(1),
            _ if ends_other => self.blocks += 1,
            _ => {}
        }
    }

    pub(super) fn is_in_body(&self) -> bool {
        self.blocks > 0
    }

    pub(super) fn statement(&self, text: String, line: usize) -> Statement {
        let verb = self.verb.as_deref().unwrap_or_default();
        let (changes_rows, changes_names) = (CHANGING.contains(&verb), NAMING.contains(&verb));
        Statement {
            text,
            line,
            kind: if self.is_query(verb) { Kind::Query } else { Kind::Update },
            changes_rows,
            changes_names,
            effect: self.effect(verb),
            explains: verb == "explain",
            may_return_rows: MAY_RETURN_ROWS.contains(&verb),
        }
    }

    fn is_query(&self, verb: &str) -> bool {
        match verb {
            "pragma" => {
                let name = self.name.as_deref().unwrap_or_default();
                READING_PRAGMAS.contains(&name) || SETTINGS.contains(&name) && !self.has_argument
            }
            // The statement that is explained may have an INTO.
            "explain" => true,
            _ if CHANGING.contains(&verb) => self.returns,
            _ => QUERIES.contains(&verb) && !self.has_into,
        }
    }

    fn effect(&self, verb: &str) -> Effect {
        match verb {
            "begin" => Effect::Begin,
            "start" if self.is_of_transaction => Effect::Begin,
            "commit" | "end" => Effect::Commit,
            // To a savepoint.
            "rollback" if self.has_to => Effect::None,
            "abort" | "rollback" => Effect::Rollback,
            _ => Effect::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::splitter::{Piece, Splitter};
    use super::*;

    fn statement(text: &str) -> Statement {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.feed(text), [], "{text}");
        match splitter.finish() {
            Ok(Some(Piece::Statement(statement))) => statement,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn only_what_certainly_returns_rows_is_a_query() {
        for query in [
            "SELECT 1",
            "-- insert\nSELECT 1",
            "/* drop */ select 'insert'",
            "(SELECT 1)",
            "(SELECT 1) UNION (SELECT 2)",
            "((WITH a AS (SELECT 1) SELECT * FROM a))",
            "VALUES (1)",
            "TABLE t",
            "FROM t",
            "FROM t SELECT a",
            "SHOW TABLES",
            "DESCRIBE t",
            "SUMMARIZE t",
            "PIVOT t ON a USING sum(b)",
            "PRAGMA table_info(t)",
            "PRAGMA main.table_info('t')",
            "PRAGMA show_tables",
            "PRAGMA foreign_keys",
            "EXPLAIN INSERT INTO t VALUES (1)",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "WITH a AS (SELECT 1) FROM a",
            "WITH a AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM a",
            "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a RETURNING b",
            "INSERT INTO t VALUES (1) RETURNING a",
            "INSERT INTO t BY NAME SELECT 1 AS a RETURNING a",
            "DELETE FROM t RETURNING *",
        ] {
            assert_eq!(statement(query).kind, Kind::Query, "{query}");
        }
        for update in [
            "insert into t values (1)",
            "INSERT INTO t SELECT x FROM (SELECT 1 AS returning)",
            "INSERT INTO t VALUES ('RETURNING')",
            "INSERT INTO t BY NAME SELECT 1 AS a",
            "INSERT OR REPLACE INTO t SELECT 1",
            "WITH a AS (SELECT 1) DELETE FROM t",
            "WITH RECURSIVE a (n) AS (SELECT 1) INSERT INTO t SELECT n FROM a",
            "COPY t FROM 'a.csv'",
            "COPY (SELECT 1) TO 'a.csv'",
            "CREATE TABLE t AS SELECT 1",
            "CREATE OR REPLACE TABLE t AS FROM u",
            "SELECT 1 AS a INTO t",
            "ATTACH 'a.db' AS a",
            "DETACH a",
            "USE a",
            "set x = 1",
            "RESET x",
            "INSTALL httpfs",
            "LOAD httpfs",
            "EXPORT DATABASE 'a'",
            "IMPORT DATABASE 'a'",
            "CHECKPOINT",
            "PRAGMA foreign_keys = ON",
            "PRAGMA user_version(3)",
            "PRAGMA enable_profiling",
            "PRAGMA threads = 4",
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE",
            "CALL ducklake_expire_snapshots('a')",
            "PREPARE a AS SELECT 1",
            "EXECUTE a",
            "BEGIN",
            "something unheard of",
        ] {
            assert_eq!(statement(update).kind, Kind::Update, "{update}");
        }
        assert!(statement("CALL f()").may_return_rows && !statement("USE a").may_return_rows);
        assert!(statement("explain SELECT 1").explains && !statement("SELECT 'explain'").explains);
    }

    #[test]
    fn what_may_make_or_lose_a_table_is_known() {
        for text in ["CREATE TABLE t (a INT)", "drop table t", "ALTER TABLE t RENAME TO u"] {
            assert!(statement(text).changes_names, "{text}");
        }
        assert!(!statement("SELECT 'create'").changes_names);
    }

    #[test]
    fn what_begins_and_ends_a_transaction_is_known() {
        for (text, effect) in [
            ("BEGIN", Effect::Begin),
            ("begin immediate transaction", Effect::Begin),
            ("START TRANSACTION READ ONLY", Effect::Begin),
            ("START SLAVE", Effect::None),
            ("COMMIT", Effect::Commit),
            ("-- all of it\nEND TRANSACTION", Effect::Commit),
            ("ROLLBACK", Effect::Rollback),
            ("ABORT", Effect::Rollback),
            ("ROLLBACK TO SAVEPOINT a", Effect::None),
            ("rollback transaction to a", Effect::None),
            ("SELECT 'BEGIN'", Effect::None),
            ("CREATE TRIGGER a AFTER INSERT ON t BEGIN DELETE FROM u; END", Effect::None),
        ] {
            assert_eq!(statement(text).effect, effect, "{text}");
        }
    }

    #[test]
    fn the_body_of_a_routine_is_part_of_it() {
        for text in [
            "CREATE TRIGGER a AFTER INSERT ON t BEGIN UPDATE t SET n = CASE n WHEN 1 THEN 2 END; DELETE FROM u; END",
            "CREATE OR REPLACE PROCEDURE p() BEGIN IF a THEN b; END IF; c; END",
            "create function f() returns int begin atomic select 1; select 2; end",
        ] {
            assert_eq!(statement(text).text, text);
        }
    }
}
