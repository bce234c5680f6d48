//! Texts, and what each of them does to a session.

use super::*;
use crate::session::assignment::Assignment;

fn effects(sql: &str) -> Vec<Effect> {
    pieces(sql.as_bytes(), false).into_iter().map(|piece| piece.effect).collect()
}

fn flags(sql: &str) -> Flags {
    match read(sql.as_bytes(), false) {
        Meaning::Plain(flags) => flags,
        Meaning::Pieces(pieces) => panic!("{sql}: {pieces:?}"),
    }
}

fn set(name: &str, text: &str) -> Effect {
    Effect::Set { name: name.into(), text: text.into() }
}

#[test]
fn statements_that_read_are_told_from_those_that_write() {
    for sql in [
        "SELECT 1",
        "select * from t where a in (1, 2)",
        "SHOW x",
        "/* a */ VALUES (1)",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "",
    ] {
        assert_eq!(flags(sql), Flags::default(), "{sql}");
    }
    for sql in [
        "INSERT INTO t (a) VALUES (1)",
        "WITH x AS (DELETE FROM t RETURNING a) SELECT * FROM x",
        "SELECT * INTO u FROM t",
        "EXPLAIN ANALYZE INSERT INTO t VALUES (1)",
        "ANALYZE t",
    ] {
        assert_eq!(flags(sql), Flags::WRITES, "{sql}");
    }
    for sql in [
        "CREATE TABLE t (a varchar(10))",
        "create index async on t (a)",
        "ALTER TABLE t ADD COLUMN b int",
        "SELECT 1; DROP TABLE t",
        "GRANT SELECT ON t TO r",
        "REVOKE SELECT ON t FROM r",
        "COMMENT ON TABLE t IS 'a'",
    ] {
        assert_eq!(flags(sql), Flags::CHANGES_SCHEMA, "{sql}");
    }
    assert_eq!(flags("COMMIT"), Flags::COMMITS);
}

#[test]
fn calls_of_unknown_functions_leave_doubt() {
    let mut doubt = Flags::WRITES;
    doubt.add(Flags::UNSURE);
    for (sql, effect) in [
        ("SELECT set_config('Role', 'c', false)", Effect::Pin),
        ("SELECT \"set_config\"('role', 'c', false)", Effect::Pin),
        ("SELECT set_config($1, 'c', false)", Effect::Pin),
        ("SELECT set_config('a.b', 'c', false) FROM t", Effect::Pin),
        ("SELECT set_config('a' || 'b', 'c', f(1))", Effect::Pin),
        ("SELECT set_config('a.b', f('c'), true)", Effect::None),
        ("SELECT set_config('role', f('c'), true)", Effect::None),
        ("SELECT set_config('seed', '0.5', false)", Effect::Pin),
        ("SELECT set_config('a', 'c', false) FROM t", Effect::None),
        ("SELECT set_config('a', 'c', false), abs(nextval('s'))", Effect::Pin),
        ("SELECT set_config('a', $1, false), abs(lastval())", Effect::Pin),
    ] {
        assert_eq!(effects(sql), [effect], "{sql}");
    }
    for sql in [
        "SELECT set_config('a', 'b', false) FROM t",
        "SELECT set_config('a', 'b', false) WHERE 1 = 0",
        "SELECT set_config('a', 'b', false) LIMIT 0",
        "SELECT set_config('a', 'b', false) UNION SELECT 'c'",
        "SELECT set_config('a', 'b', false), set_config('c', 'd', false)",
        "SELECT set_config('a', 'b', false), my_function()",
        "SELECT set_config('a', 'b', false), coalesce(my_function())",
        "SELECT set_config('a', 'b', false), coalesce(set_config('a', 'c', false), 'd')",
        "SELECT coalesce(set_config('a', 'b', false))",
        "SELECT set_config('a', 'b\\c', false)",
        "SELECT set_config('client_encoding', 'SJIS', false)",
        "SELECT pg_catalog.set_config('a', f('b'), false)",
        "SELECT count(*), my_function(1) FROM t",
        "SELECT other.now()",
        "SELECT set_config('role', 'a', true)",
        "SELECT set_config($1, 'a', true)",
        "SELECT 'x' OPERATOR(pg_catalog.||) set_config('a', 'b', false)",
        "SELECT (1) operator(pg_catalog.+) my_function(2)",
        "SELECT \"Now\"()",
        "DO $$ BEGIN END $$",
        "CALL sys.wait_for_job('x')",
        "UPDATE pg_settings SET setting = 'x' WHERE name = 'search_path'",
        "UPDATE ONLY pg_catalog.\"pg_settings\" AS s SET setting = 'x'",
        "UPDATE U&\"pg\\005fsettings\" SET setting = 'x'",
        "WITH a AS (UPDATE PG_SETTINGS SET setting = 'x') SELECT 1",
    ] {
        assert_eq!(flags(sql), doubt, "{sql}");
    }
    for sql in [
        "SELECT count ( * ), pg_catalog.now(), \"now\"() FROM t AS x(a)",
        "SELECT 'f(1)', \"f\" FROM f -- f(1)",
        "SELECT a::numeric(10, 2)",
        "SELECT setting FROM pg_settings",
    ] {
        assert_eq!(flags(sql), Flags::default(), "{sql}");
    }
    for name in ["search_path", "app.tenant"] {
        assert_eq!(flags(&format!("SELECT set_config('{name}', $1, true)")), Flags::WRITES);
    }
    for sql in
        ["COPY t (a, b) FROM STDIN", "COPY s.t(a) TO STDOUT", "COPY (SELECT count(*) FROM t) TO STDOUT"]
    {
        assert_eq!(flags(sql), Flags::WRITES, "{sql}");
    }
    assert_eq!(flags("COPY (SELECT my_function(a) FROM t) TO STDOUT"), doubt);
}

#[test]
fn set_config_of_a_constant_is_a_set() {
    let set = |name: &str, text: &str| Effect::SetConfig {
        name: name.into(),
        assignment: Assignment::Set(text.into()),
    };
    let call = |name: &str, text: &str| Effect::SetConfig {
        name: name.into(),
        assignment: Assignment::Call(text.into()),
    };
    let to = |name: &str, parameter| Effect::SetConfigTo { name: name.into(), parameter };
    for (sql, effect) in [
        ("SELECT set_config('bytea_output', 'hex', false)", set("bytea_output", "bytea_output TO 'hex'")),
        ("select PG_CATALOG.Set_Config('search_path', '', FALSE);", set("search_path", "search_path TO ''")),
        (
            "SELECT set_config('a.b', 'it''s'::text, false) AS x",
            call("a.b", "pg_catalog.set_config('a.b', 'it''s', false)"),
        ),
        ("SELECT\n current_setting('jit') AS cur,\n set_config('jit', 'off', false) AS new", Effect::None),
        ("SELECT 1, set_config('TimeZone', $2, false) tz, $1", to("timezone", 1)),
    ] {
        assert_eq!(effects(sql), [effect], "{sql}");
    }
    assert_eq!(pieces(b"SELECT set_config('a', 'b', false)", false)[0].flags, Flags::default());
}

#[test]
fn what_drivers_send_by_themselves_leaves_no_doubt_and_does_not_pin() {
    for sql in include_str!("drivers.sql").split(";\n") {
        for piece in pieces(sql.as_bytes(), false) {
            let certain = piece.effect != Effect::Pin && !piece.flags.has(Flags::UNSURE)
                || matches!(piece.effect, Effect::SetConfigTo { .. });
            assert!(certain, "{piece:?}: {sql}");
        }
    }
}

#[test]
fn settings_are_read_in_every_spelling() {
    assert_eq!(
        effects("SET a TO b; set A.B = 'c', d -- e"),
        [set("a", "a TO b"), set("a.b", "A.B = 'c', d")]
    );
    assert_eq!(effects("SET SESSION \"DateStyle\" TO iso"), [set("datestyle", "\"DateStyle\" TO iso")]);
    let zone = "TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE";
    assert_eq!(effects(&format!("SET {zone}")), [set("timezone", zone)]);
    assert_eq!(
        effects("SET NAMES 'UTF8';SET SCHEMA 's'"),
        [set("client_encoding", "NAMES 'UTF8'"), set("search_path", "SCHEMA 's'")]
    );
    let default = |name: &str| Effect::SetDefault(name.into());
    assert_eq!(
        effects("SET a TO DEFAULT;SET TIME ZONE LOCAL;SET NAMES"),
        [default("a"), default("timezone"), default("client_encoding")]
    );
    assert_eq!(
        effects("SET LOCAL a TO b;SET LOCAL a TO DEFAULT"),
        [Effect::None, Effect::LocalDefault("a".into())]
    );
    assert_eq!(
        effects("SET TRANSACTION READ ONLY;SET transaction_isolation TO serializable"),
        [Effect::None, Effect::None]
    );
    let reset = |name: &str| Effect::Reset(name.into());
    assert_eq!(
        effects("RESET ALL;RESET a.B;RESET TIME ZONE"),
        [Effect::ResetAll, reset("a.b"), reset("timezone")]
    );
    let role = |name, text: Option<&str>| Effect::Role { name, text: text.map(Into::into) };
    assert_eq!(
        effects(
            "SET ROLE r;SET ROLE NONE;RESET ROLE;SET SESSION AUTHORIZATION 'x';SET role = r;SET SESSION ROLE r"
        ),
        [
            role("role", Some("ROLE r")),
            role("role", None),
            role("role", None),
            role("session_authorization", Some("SESSION AUTHORIZATION 'x'")),
            role("role", Some("role = r")),
            role("role", Some("ROLE r"))
        ]
    );
    // How a backslash is read may change: such a text is not kept.
    assert!(matches!(
        &pieces(b"SET a TO 'b\\c'", false)[..],
        [Piece { effect: Effect::None, flags: Flags::UNSURE, .. }]
    ));
    assert_eq!(
        effects("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"),
        [set(
            "default_transaction_isolation",
            "SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"
        )]
    );
    // Several at once.
    assert!(matches!(
        &pieces(b"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY, DEFERRABLE", false)[..],
        [Piece { flags: Flags::UNSURE, .. }]
    ));
}

#[test]
fn what_drivers_clean_up_with_is_recognised() {
    assert_eq!(
        effects("SELECT pg_advisory_unlock_all();CLOSE ALL;UNLISTEN *;DISCARD ALL;DISCARD TEMPORARY"),
        [
            Effect::UnlockAll,
            Effect::CloseAll,
            Effect::Unlisten,
            Effect::DiscardAll,
            Effect::Discard("DISCARD TEMP")
        ]
    );
    assert_eq!(
        effects("DEALLOCATE ALL;DEALLOCATE PREPARE Ab;DEALLOCATE \"A\"\"b\";DEALLOCATE prepare"),
        [
            Effect::DeallocateAll,
            Effect::Deallocate(b"ab"[..].into()),
            Effect::Deallocate(b"A\"b"[..].into()),
            Effect::Deallocate(b"prepare"[..].into())
        ]
    );
    assert_eq!(effects("SELECT pg_catalog.pg_advisory_unlock_all()"), [Effect::UnlockAll]);
    for sql in [
        "SELECT pg_advisory_unlock_all(), 1",
        "SELECT 1, pg_advisory_unlock_all()",
        "SELECT pg_advisory_unlock_all() AS a",
        "CLOSE c",
    ] {
        assert_eq!(effects(sql), [Effect::None], "{sql}");
    }
    assert_eq!(
        effects("SELECT nextval('s');SELECT setseed(1);LISTEN a;CREATE TEMP TABLE t (a int)"),
        [const { Effect::Pin }; 4]
    );
}

#[test]
fn transactions_are_followed() {
    let name = |name: &[u8]| name.into();
    assert_eq!(
        effects(
            "BEGIN;SAVEPOINT A;ROLLBACK TO SAVEPOINT a;ROLLBACK WORK TO a;RELEASE a;ROLLBACK AND CHAIN;ABORT;END"
        ),
        [
            Effect::Begin,
            Effect::Savepoint(name(b"a")),
            Effect::RollbackTo(name(b"a")),
            Effect::RollbackTo(name(b"a")),
            Effect::Release(name(b"a")),
            Effect::RollbackAndChain,
            Effect::Rollback,
            Effect::Commit
        ]
    );
    let chains = Effect::CommitAndChain;
    assert_eq!(
        effects(
            "COMMIT AND CHAIN;END /* no */ WORK AND--\nCHAIN -- y\n;commit transaction and chain;COMMIT AND NO\nCHAIN;\
             ROLLBACK -- and chain\n;ABORT WORK AND CHAIN;ROLLBACK AND NO CHAIN"
        ),
        [
            chains.clone(),
            chains.clone(),
            chains,
            Effect::Commit,
            Effect::Rollback,
            Effect::RollbackAndChain,
            Effect::Rollback
        ]
    );
    assert_eq!(pieces(b"COMMIT AND CHAIN", false)[0].flags, Flags::COMMITS);
    assert_eq!(pieces(b"ROLLBACK AND CHAIN", false)[0].flags, Flags::ROLLS_BACK);
    assert_eq!(read(b"BEGIN", false), Meaning::Plain(Flags::default()));
    assert!(matches!(read(b"BEGIN; SELECT 1", false), Meaning::Pieces(pieces) if pieces.len() == 2));
}

#[test]
fn a_statement_ends_where_postgresql_ends_it() {
    let texts = |sql: &str| -> Vec<String> {
        pieces(sql.as_bytes(), false).into_iter().map(|piece| sql[piece.range].to_owned()).collect()
    };
    assert_eq!(texts(";; SELECT ';' ;/*;*/ SELECT $a$;$a$ ; "), ["SELECT ';'", "SELECT $a$;$a$"]);
    let function =
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END";
    assert_eq!(texts(&format!("{function}; SELECT 1")), [function, "SELECT 1"]);
    let block = "BEGIN ATOMIC SELECT r.end, 1 AS end FROM r; SELECT (CASE 1 WHEN 1 THEN 2 END) end; END";
    for create in [
        "CREATE FUNCTION g() RETURNS int BEGIN ATOMIC SELECT r.end FROM r; SELECT 1; END",
        "CREATE FUNCTION g() RETURNS int BEGIN ATOMIC SELECT 1 AS begin, 2 AS case; END",
        "create or replace procedure p() begin /* x */ atomic end",
        "CREATE FUNCTION g() RETURNS int BEGIN ATOMIC; SELECT 1; ; END",
        "CREATE FUNCTION g(begin atomic) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 1' SET search_path TO begin, atomic",
        "CREATE FUNCTION a.begin() RETURNS int RETURN 1",
        &format!("CREATE FUNCTION g() RETURNS int SET a.begin TO begin {block}"),
        "CREATE VIEW function AS SELECT function.begin atomic FROM (SELECT 1 AS begin) function",
        "CREATE VIEW v AS SELECT function begin, a atomic FROM f",
        "CREATE TABLE procedure (begin atomic)",
        "CREATE VIEW a AS SELECT 1 AS function, begin atomic FROM b",
    ] {
        assert_eq!(texts(&format!("{create}; SET search_path TO x")), [create, "SET search_path TO x"]);
    }
    let rule = "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)";
    assert_eq!(texts(&format!("{rule}; SELECT 1")), [rule, "SELECT 1"]);
    assert_eq!(texts("(SELECT 1); SELECT 2"), ["(SELECT 1)", "SELECT 2"]);
}

#[test]
fn a_create_that_may_run_something_leaves_doubt() {
    for sql in ["CREATE TABLE t AS VALUES (f())", "CREATE TABLE t AS SELECT f()", "CREATE VIEW f AS SELECT 1"]
    {
        assert!(flags(sql).has(Flags::UNSURE), "{sql}");
    }
    assert_eq!(flags("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END"), Flags::CHANGES_SCHEMA);
    // What follows its end is hidden from the scanner.
    let open = &pieces(b"CREATE FUNCTION f() BEGIN ATOMIC SELECT 1; SET search_path TO x", false)[0];
    assert!(open.effect == Effect::Pin && open.flags.has(Flags::UNSURE), "{open:?}");
}

/// One Query must not keep a thread for long: no part of it is read more than a few times.
#[test]
fn what_is_read_grows_with_the_text_and_not_faster() {
    let read_of = |part: &str, count: usize| {
        let sql = format!("SELECT {}", part.repeat(count));
        lexer::steps::take();
        let _ = read(sql.as_bytes(), false);
        let _ = read(sql.as_bytes(), true);
        let _ = single(sql.as_bytes(), false);
        let _ = pieces(sql.as_bytes(), false);
        lexer::steps::take()
    };
    for part in [
        "set_config(",
        "set_config('a', ",
        "set_config(set_config('a', 'b', true), ",
        "set_config('a', 'b', false), ",
        "set_config('a', 'b', false)) ",
        "coalesce(set_config(",
        "(",
        ")",
        "f(",
        "a.",
        "$a",
        "$a$ $b$ ",
        "$a$;",
        "/* ",
        "*/",
        "-- \n",
        "'a' \n",
        "E'a' \n",
        "E'a' -- x\n",
        "E'\\",
        "\"a",
        "\"\"",
        "U&\"a\" ",
        "CASE ",
        "BEGIN ATOMIC ",
        "; CREATE FUNCTION a() BEGIN ATOMIC ",
        "; CREATE RULE r AS ON INSERT TO t DO (",
        "; CREATE PROCEDURE p() BEGIN ATOMIC SELECT CASE WHEN 1; END",
        ";",
        "; a",
        "; BEGIN; COMMIT",
        "; SET a TO b, c",
        "; SET a.b",
        "; SET SESSION",
        ", SET LOCAL a = b",
        "; DEALLOCATE a",
        "; SAVEPOINT a; ROLLBACK TO a",
        "; SELECT set_config('a', $1, false)",
        "; SHOW x",
    ] {
        let (once, twice) = (read_of(part, 2_000), read_of(part, 4_000));
        assert!(twice < 3 * once, "{part}: {once}, {twice}");
        // Each of the four reads it three times at most: to look at it, statement by statement, and as a list of calls.
        let most = 4 * 3 * 2 * 4_000 * (part.len() + 1) + 100;
        assert!(twice < most, "{part}: {twice} of {most}");
    }
}

/// Whatever is not understood may change anything.
#[test]
fn a_command_that_is_not_understood_is_never_taken_for_one_that_leaves_nothing() {
    for sql in [
        "SET U&\"\\0072ole\" TO other",
        "SET U&\"r!006fle\" UESCAPE '!' TO other",
        "SET U&\"role\" UESCAPE '!' TO other",
        "SET SESSION U&\"search\\005fpath\" TO evil",
        "SET LOCAL U&\"see\\0064\" TO 0.5",
        "SET LOCAL seed TO 0.5",
        "SET role FROM CURRENT",
        "SET session_authorization FROM CURRENT",
        "SET app.tenant FROM CURRENT",
        "SET app.tenant = 'a\\b'",
        "SET a.b.c.d.e.f.g.h.i TO DEFAULT",
        "RESET U&\"\\0072ole\"",
        "RESET U&\"role\" UESCAPE '!'",
        "SAVEPOINT U&\"\\0061\"",
        "ROLLBACK TO U&\"\\0061\"",
        "ROLLBACK WORK TO SAVEPOINT U&\"a\" UESCAPE '!'",
        "RELEASE U&\"\\0061\"",
        "RELEASE SAVEPOINT U&\"\\0061\"",
        "DEALLOCATE U&\"\\0061\"",
        "EXECUTE s",
        "EXPLAIN ANALYZE EXECUTE s",
        "EXPLAIN (ANALYZE) CREATE TABLE t AS EXECUTE s",
        "CREATE TABLE t AS EXECUTE s",
        "DEALLOCATE PREPARE U&\"a\" UESCAPE '!'",
        "SELECT U&\"set_config\"('app.tenant', 'x', false)",
        "SELECT U&\"nextv\\0061l\"('s')",
        "SELECT U&\"pg\\005fcatalog\".nextval('s')",
    ] {
        assert_eq!(effects(sql), [Effect::Pin], "{sql}");
    }
    // PostgreSQL cuts a name, and then it may be another.
    for verb in ["SAVEPOINT", "ROLLBACK TO", "RELEASE"] {
        assert_eq!(effects(&format!("{verb} {}", "a".repeat(64))), [Effect::Pin], "{verb}");
    }
    assert_eq!(effects(&format!("SET ROLE /*{}*/ a", "x".repeat(4096))), [Effect::Pin]);
    for sql in ["SET search_path FROM CURRENT", "SET SESSION TimeZone FROM CURRENT"] {
        assert_eq!(pieces(sql.as_bytes(), false)[0].flags, Flags::UNSURE, "{sql}");
    }
    // They end with the transaction.
    for sql in [
        "SET LOCAL app.tenant = 'a\\b'",
        "SET LOCAL role FROM CURRENT",
        "SET LOCAL local.tenant = 5",
        "RESET TRANSACTION ISOLATION LEVEL",
        "SET CONSTRAINTS ALL DEFERRED",
        "SET SESSION TRANSACTION READ ONLY",
    ] {
        assert_eq!(flags(sql), Flags::default(), "{sql}");
    }
}

#[test]
fn a_keyword_in_front_of_a_dot_is_a_name() {
    for name in [
        "session.tenant",
        "local.tenant",
        "transaction.tenant",
        "constraints.x",
        "names.x",
        "role.x",
        "schema.x",
        "time.zone",
        "xml.option",
        "characteristics.x",
    ] {
        let text = format!("{name} = '5'");
        assert_eq!(effects(&format!("SET {text}")), [set(name, &text)]);
        assert_eq!(effects(&format!("SET SESSION {text}")), [set(name, &text)]);
        assert_eq!(effects(&format!("RESET {name}")), [Effect::Reset(name.into())]);
    }
}

#[test]
fn a_name_is_the_same_in_quotes_of_any_kind() {
    assert_eq!(
        effects("SET U&\"search_path\" TO evil;SAVEPOINT U&\"a\";DEALLOCATE u&\"A\"\"b\""),
        [
            set("search_path", "U&\"search_path\" TO evil"),
            Effect::Savepoint(b"a"[..].into()),
            Effect::Deallocate(b"A\"b"[..].into())
        ]
    );
    let role = |text: Option<&str>| Effect::Role { name: "role", text: text.map(Into::into) };
    assert_eq!(
        effects("SET \"Role\" = r;SET U&\"role\" TO DEFAULT;RESET \"role\""),
        [role(Some("\"Role\" = r")), role(None), role(None)]
    );
}

/// The server refuses it, so it never runs. If it does run, it is something else.
#[test]
fn several_statements_in_one_that_is_prepared_may_be_anything() {
    assert_eq!(single(b"SELECT 1; SELECT 2", false), (Flags::UNSURE, Effect::Pin));
    assert_eq!(single(b" ; SELECT 1;", false), (Flags::default(), Effect::None));
    assert_eq!(single(b" ;", false), (Flags::default(), Effect::None));
}
