use proptest::prelude::*;

use super::*;

fn read_only(sql: &str) -> bool {
    Traits::of(sql).is_read_only
}

#[test]
fn plain_reads_are_known() {
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
    ] {
        assert!(read_only(sql), "{sql}");
    }
}

#[test]
fn whatever_writes_or_might_is_not_read_only() {
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
    ] {
        assert!(!read_only(sql), "{sql}");
    }
}

#[test]
fn what_stays_in_a_session_is_noticed() {
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
    ] {
        assert!(Traits::of(sql).alters_session, "{sql}");
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
        "",
    ] {
        assert!(!Traits::of(sql).alters_session, "{sql}");
    }
}

#[test]
fn transactions_by_words_are_followed() {
    let of = |sql| {
        let traits = Traits::of(sql);
        (traits.begins, traits.ends)
    };
    for sql in [
        "BEGIN",
        "begin immediate",
        "START TRANSACTION",
        "INSERT INTO t VALUES (1); BEGIN",
        "COMMIT AND CHAIN",
    ] {
        assert_eq!(of(sql), (true, false), "{sql}");
    }
    for sql in ["COMMIT", "ROLLBACK", "END", "BEGIN; INSERT INTO t VALUES (1); COMMIT", "COMMIT AND NO CHAIN"]
    {
        assert_eq!(of(sql), (false, true), "{sql}");
    }
    for sql in ["SELECT 1", "ROLLBACK TO SAVEPOINT a", "SELECT 'BEGIN'"] {
        assert_eq!(of(sql), (false, false), "{sql}");
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
    fn any_text_is_judged(text in any::<String>(), sql in "[ -~\n]{0,40}") {
        let _ = (Traits::of(&text), Traits::of(&sql));
        for writer in ["INSERT ", "delete/**/", "Update\n", "CREATE "] {
            prop_assert!(!read_only(&format!("{writer}{sql}")), "{writer}{sql}");
        }
    }

    /// A writing word that is not hidden is found behind anything that hides words.
    #[test]
    fn nothing_hides_what_comes_after_it(
        before in prop::collection::vec(hiding(), 0..4),
        writer in prop::sample::select(WRITERS),
        after in prop::collection::vec(hiding(), 0..4),
    ) {
        let sql = format!("SELECT {} 1 {writer} {}", before.join(", "), after.join(" "));
        prop_assert!(!read_only(&sql), "{sql}");
    }

    /// And one that is hidden does no harm.
    #[test]
    fn what_is_hidden_stays_hidden(hidden in prop::collection::vec(hiding(), 1..4)) {
        let sql = format!("SELECT {} FROM t", hidden.join(", "));
        prop_assert!(read_only(&sql), "{sql}");
    }

    /// A second statement is never overlooked.
    #[test]
    fn a_second_statement_is_seen(hidden in prop::collection::vec(hiding(), 1..4), second in "[a-z]{1,8}") {
        let sql = format!("SELECT {}; {second}", hidden.join(", "));
        prop_assert!(!read_only(&sql), "{sql}");
    }
}
