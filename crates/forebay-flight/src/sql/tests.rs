use proptest::prelude::*;

use super::vocabulary::WRITERS;
use super::*;

fn read_only(sql: &str) -> bool {
    StatementTraits::of(sql).is_read_only
}

#[test]
fn reads_are_recognized() {
    for sql in [
        "SELECT 1",
        "select * from t where a = 'insert into x' and \"delete\" > 1 -- drop table t",
        "  /* update */ SELECT count(*), sum(a) FROM s.t GROUP BY b;",
        "WITH a AS (SELECT 1), b (x, y) AS (SELECT 1, 2) SELECT * FROM a, b",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT max(i) FROM n",
        "VALUES (1), (2)",
        "SELECT $$insert; into$$, $1, $tag$ ; drop $tag$",
        "SELECT a.update FROM a",
        "EXPLAIN SELECT 1",
        "SHOW TABLES",
        "SELECT CASE WHEN a IN (1, 2) THEN CAST(b AS DECIMAL(10, 2)) END FROM t",
        "SELECT 'it''s' || \"a\"\"b\"",
        "SELECT row_number() OVER (PARTITION BY a ORDER BY b) FROM t",
        "(SELECT 1) UNION (SELECT 2)",
        "SELECT /*+ BROADCAST(t) */ a FROM t WHERE regexp_matches(b, '\\d+')",
        "WITH a AS (SELECT 1), b(x) AS NOT MATERIALIZED (SELECT 2) SELECT * FROM a, b",
        "SELECT * FROM (WITH \"a b\" (x) AS (SELECT 1) SELECT x FROM \"a b\") t",
        "SELECT 1e10, 1e-3, 0x1f, 1.5 FROM t -- with a carriage return\r\n",
        "SELECT a[1], ['it', 'is'] FROM t",
        "SELECT a #>> '{b}' FROM t",
    ] {
        assert!(read_only(sql), "{sql}");
    }
}

#[test]
fn possible_writes_are_not_read_only() {
    for sql in [
        "",
        ";",
        "INSERT INTO t VALUES (1)",
        "WITH x AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM x",
        "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x",
        "EXPLAIN ANALYZE DELETE FROM t",
        "EXPLAIN ANALYZE SELECT 1",
        "SELECT 1; DELETE FROM t",
        "SELECT 1; SELECT 2",
        "SELECT * INTO u FROM t",
        "SELECT * FROM t FOR UPDATE",
        "SELECT * FROM t FOR SHARE",
        "SELECT nextval('s')",
        "SELECT my_function(1)",
        "SELECT s.my_function(1)",
        "SELECT \"my function\"(1)",
        "SELECT * FROM purge()",
        "SELECT 'unfinished",
        "SELECT /* unfinished",
        "SELECT $$ unfinished",
        "SELECT 'a\\' ; DELETE FROM t; --'",
        "SELECT E'a\\'; DELETE FROM t; --'",
        "SELECT /* /* */ 1 ; DELETE FROM t */",
        "SELECT /*! delete */ 1",
        "SELECT \"\\\"\" ; DELETE FROM t ; SELECT \"\\\"\"",
        "SELECT '\\'' ; DELETE FROM t ; SELECT '\\''",
        "SELECT 5--1; DELETE FROM t",
        "SELECT 5; --1; DELETE FROM t",
        "PRAGMA user_version = 3",
        "CALL f()",
        "(DELETE FROM t)",
        "SELECT 1 --\n; DELETE FROM t",
        "SELECT 1, nextval('s') AS id",
        "SELECT a, my_write(a) AS b FROM t",
        "FROM t, purge(a) AS p",
        "WITH a AS (SELECT 1, my_write(x) AS b) SELECT * FROM a",
        "WITH a AS (SELECT 1) SELECT 1, my_write(x) AS (a)",
        "WITH a(my_write(x)) AS (SELECT 1) SELECT 1",
        "SELECT 1 -- c\r; DELETE FROM t",
        "SELECT 1 -- c\r, nextval('s')",
        "SELECT [my_write](1)",
        "SELECT [a'b], my_write(1), [c'd]",
        "SELECT [a--b], my_write(1)\n",
        "SELECT 1 # it's\n, my_write('s') # that's",
        "SELECT 1into t",
        "SELECT 1e5into t",
        "SELECT 0x1finto t",
        "SELECT 1.into t",
        "SELECT @x := 5",
        "VALUES (1, my_write(1))",
    ] {
        assert!(!read_only(sql), "{sql}");
    }
}

#[test]
fn changes_of_the_session_are_recognized() {
    for sql in [
        "SET a = 1",
        "RESET ALL",
        "CREATE TEMP TABLE t (a int)",
        "create temporary view v as select 1",
        "SELECT 1 INTO #t",
        "USE other",
        "ATTACH 'x.db' AS x",
        "PRAGMA foreign_keys = on",
        "LOAD httpfs",
        "SELECT set_config('a', 'b', false)",
        "PREPARE p AS SELECT 1",
        "SELECT 1; SET a = 2",
        "SELECT 'unfinished",
        "SELECT a INTO TEMP t FROM s",
        "SELECT 'a\\'; SET b = 1; --'",
        "CREATE TABLE \"temp\".t (a INT)",
        "CREATE TABLE `temp`.t (a INT)",
        "CREATE TABLE 'temp'.t (a INT)",
        "CREATE TABLE [temp].t (a INT)",
        "CREATE TABLE pg_temp.t (a INT)",
        "CREATE TABLE \"PG_TEMP_3\" . t (a INT)",
        "CREATE TABLE #t (a INT)",
        "SELECT 1 AS a INTO LOCAL TEMP t",
        "SELECT 1 AS a INTO pg_temp.t",
        "SELECT 1into temp t",
        "SELECT 1 INTO --x\nTEMP t",
        "SELECT 1 INTO @x",
        "SELECT @x := 5",
        "EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 1",
        "EXPLAIN (ANALYZE, VERBOSE) CREATE TEMP TABLE t AS SELECT 1",
        "EXPLAIN ANALYZE EXECUTE p",
        "WITH x AS (SELECT 1) CREATE TEMP TABLE t AS SELECT 1",
        "SELECT pg_advisory_lock(1)",
        "SELECT \"pg_try_advisory_lock\"(1)",
        "SELECT pg_catalog.setseed(0.5)",
        "SELECT [a'b]; SET x = 1; SELECT [c'd]",
        "SELECT 1 # it's\n; SET x = 1 # that's",
        "SELECT 1 -- c\r; SET x = 1",
        "PRAGMA table_info = 't'",
        "PRAGMA cache_size(10)",
        "SELEC 1",
    ] {
        assert!(StatementTraits::of(sql).alters_session, "{sql}");
    }
    for sql in [
        "SELECT 1",
        "INSERT INTO t SELECT 'set a = 1'",
        "WITH x AS (SELECT 1) DELETE FROM t",
        "CREATE TABLE t (a int)",
        "BEGIN",
        "START TRANSACTION",
        "COMMIT",
        "EXPLAIN SELECT 1",
        "SELECT my_function(1)",
        "SELECT temp, '\\d+' FROM weather",
        "SELECT 'it\\'s'",
        "--without a space\nSELECT 1",
        "(SELECT 1)",
        "SUMMARIZE t",
        "DROP TABLE temp.t",
        "EXPLAIN ANALYZE SELECT 1",
        "EXPLAIN (ANALYZE) SELECT 1",
        "EXPLAIN CREATE TEMP TABLE t (a int)",
        "INSERT INTO temp VALUES (1)",
        "SELECT pg_advisory_xact_lock(1)",
        "SELECT struct_pack(a := 1)",
        "PRAGMA table_info(t)",
        "PRAGMA main.table_info('t')",
        "CREATE TABLE t (a TEXT DEFAULT 'temp')",
        "",
    ] {
        assert!(!StatementTraits::of(sql).alters_session, "{sql}");
    }
}

#[test]
fn transactions_by_sql_are_recognized() {
    let of = |sql| {
        let traits = StatementTraits::of(sql);
        (traits.begins, traits.ends)
    };
    for sql in [
        "BEGIN",
        "begin immediate",
        "START TRANSACTION",
        "--comment\nSTART TRANSACTION",
        "START --x\nTRANSACTION",
        "INSERT INTO t VALUES (1); BEGIN",
        "COMMIT AND CHAIN",
        "SAVEPOINT a",
        "BEGIN; INSERT INTO t VALUES (1); COMMIT",
        "SELECT 1 BEGIN TRAN",
        "SELECT [a'b]; BEGIN; SELECT [c'd]",
    ] {
        assert_eq!(of(sql), (true, false), "{sql}");
    }
    for sql in ["COMMIT", "ROLLBACK", "END;", "commit work -- now", "END TRANSACTION", "COMMIT AND NO CHAIN"]
    {
        assert_eq!(of(sql), (false, true), "{sql}");
    }
    for sql in [
        "SELECT 1",
        "ROLLBACK TO SAVEPOINT a",
        "ROLLBACK WORK TO a",
        "SELECT 'BEGIN'",
        "SELECT begin, start FROM t",
        "COMMIT; SELECT 1",
        "CREATE TRIGGER tr AFTER INSERT ON a BEGIN DELETE FROM b; END",
        "COMMIT PREPARED 'x'",
    ] {
        assert_eq!(of(sql), (false, false), "{sql}");
    }
}

#[test]
fn a_script_may_end_its_own_transaction() {
    for sql in ["BEGIN; INSERT INTO t VALUES (1); COMMIT", "BEGIN; COMMIT; SELECT 1", "COMMIT"] {
        assert!(StatementTraits::of(sql).ends_last, "{sql}");
    }
    for sql in ["BEGIN", "BEGIN; COMMIT; BEGIN", "COMMIT; SAVEPOINT a", "BEGIN; ROLLBACK TO a", "SELECT 1"] {
        assert!(!StatementTraits::of(sql).ends_last, "{sql}");
    }
}

#[test]
fn a_refused_statement_keeps_its_session_only_if_nothing_was_done() {
    for sql in ["SELEC 1", "SELECT 'x", "FORM t SELECT 1;", "PIVOTT t", "SELECT \"x"] {
        assert!(StatementTraits::of(sql).is_all_or_nothing, "{sql}");
    }
    for sql in [
        "SET a = 1",
        "SELEC 1; SELECT 2",
        "SELECT [it's]; SELEC",
        "SELECT 1 SET x 1 SELEC",
        "CALL f()",
        "SELECT setseed(1) / 0",
        "SELECT pg_advisory_lock(1) / 0",
        "BEGIN",
        "/*! SET a = 1 */",
    ] {
        assert!(!StatementTraits::of(sql).is_all_or_nothing, "{sql}");
    }
}

/// Things that hide words from a reader.
fn hiding() -> impl Strategy<Value = String> {
    let text = "[a-z ;()]{0,12}";
    prop_oneof![
        text.prop_map(|text| format!("'{text}'")),
        text.prop_map(|text| format!("'it''s {text}'")),
        text.prop_map(|text| format!("\"{text}\"")),
        text.prop_map(|text| format!("/* {text} */ 1")),
        text.prop_map(|text| format!("-- {text}\n1")),
        text.prop_map(|text| format!("$${text}$$")),
        text.prop_map(|text| format!("$q${text}$q$")),
    ]
}

proptest! {
    /// No text makes it panic, and none that begins with a writing word is taken for a read.
    #[test]
    fn any_text_can_be_read(text in any::<String>(), sql in "[ -~\n]{0,40}") {
        let _ = (StatementTraits::of(&text), StatementTraits::of(&sql));
        for writer in ["INSERT ", "delete/**/", "Update\n", "CREATE "] {
            prop_assert!(!read_only(&format!("{writer}{sql}")), "{writer}{sql}");
        }
    }

    /// A writing word that is not hidden is found behind anything that hides words.
    #[test]
    fn a_string_or_comment_does_not_hide_what_follows(
        before in prop::collection::vec(hiding(), 0..4),
        writer in prop::sample::select(WRITERS),
        after in prop::collection::vec(hiding(), 0..4),
    ) {
        let sql = format!("SELECT {} 1 {writer} {}", before.join(", "), after.join(" "));
        prop_assert!(!read_only(&sql), "{sql}");
    }

    /// And one that is hidden does no harm.
    #[test]
    fn strings_and_comments_hide_their_words(hidden in prop::collection::vec(hiding(), 1..4)) {
        let sql = format!("SELECT {} FROM t", hidden.join(", "));
        prop_assert!(read_only(&sql), "{sql}");
    }

    /// A second statement is never overlooked.
    #[test]
    fn a_second_statement_is_noticed(hidden in prop::collection::vec(hiding(), 1..4), second in "[a-z]{1,8}") {
        let sql = format!("SELECT {}; {second}", hidden.join(", "));
        prop_assert!(!read_only(&sql), "{sql}");
    }
}
