//! What goes to stdout, and what to files.

use std::fs;
use std::fs::File;
use std::process::Command;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_ipc::reader::StreamReader;

use crate::server::{Server, text, until};

const ROWS: &str = "SELECT 1 AS n, 'a' AS t UNION ALL SELECT 2, NULL UNION ALL SELECT 3, 'x,\"y\"'";

#[test]
fn each_format_is_written_as_it_should_be() {
    let server = Server::plain("formats");
    let table = "\
┌───┬───────┐
│ n │ t     │
├───┼───────┤
│ 1 │ a     │
│ 2 │ NULL  │
│ 3 │ x,\"y\" │
└───┴───────┘
(3 rows)
";
    assert_eq!(server.prints(&["-c", ROWS]), table);
    assert_eq!(server.prints(&["-c", ROWS, "--format", "csv"]), "n,t\n1,a\n2,\n3,\"x,\"\"y\"\"\"\n");
    let json = "{\"n\":1,\"t\":\"a\"}\n{\"n\":2,\"t\":null}\n{\"n\":3,\"t\":\"x,\\\"y\\\"\"}\n";
    assert_eq!(server.prints(&["-c", ROWS, "--json"]), json);
    assert_eq!(server.prints(&["-c", ROWS, "--format", "json"]), json);
    let bytes = server.run(&["-c", ROWS, "--format", "arrow"]).stdout;
    let batches: Vec<RecordBatch> =
        StreamReader::try_new(bytes.as_slice(), None).unwrap().map(Result::unwrap).collect();
    let values: Vec<i64> =
        batches.iter().flat_map(|batch| batch["n"].as_primitive::<Int64Type>().values().to_vec()).collect();
    assert_eq!(values, [1, 2, 3]);
}

#[test]
fn every_type_of_the_server_is_written_in_full() {
    let server = Server::plain("types");
    let script = "CREATE TABLE t (i BIGINT, b BOOLEAN, d DATE, at TIMESTAMP, x DOUBLE, s TEXT, raw BLOB);
        INSERT INTO t VALUES
        (9223372036854775807, 1, '2026-11-15', '2026-11-15 20:15:00.123456', 9e999, 'a,\"b\"\n', x'00ff'),
        (-9223372036854775808, 0, '0001-01-01', '1969-12-31T23:59:59', 1e300, '', x''),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL);";
    server.run_with_stdin(&[], script);
    let all = |format| server.prints(&["-c", "SELECT * FROM t", "--format", format]);
    assert_eq!(
        all("csv"),
        "i,b,d,at,x,s,raw\n\
         9223372036854775807,true,2026-11-15,2026-11-15T20:15:00.123456,inf,\"a,\"\"b\"\"\n\",00ff\n\
         -9223372036854775808,false,0001-01-01,1969-12-31T23:59:59,1e300,\"\",\"\"\n\
         ,,,,,,\n"
    );
    let expected = [
        r#"{"i":9223372036854775807,"b":true,"d":"2026-11-15","at":"2026-11-15T20:15:00.123456","x":"Infinity","s":"a,\"b\"\n","raw":"00ff"}"#,
        r#"{"i":-9223372036854775808,"b":false,"d":"0001-01-01","at":"1969-12-31T23:59:59","x":1e300,"s":"","raw":""}"#,
        r#"{"i":null,"b":null,"d":null,"at":null,"x":null,"s":null,"raw":null}"#,
        "",
    ];
    assert_eq!(all("json"), expected.join("\n"));
    let table = "\
┌──────────────────────┬───────┬────────────┬────────────────────────────┬───────┬────────┬──────┐
│                    i │ b     │ d          │ at                         │     x │ s      │ raw  │
├──────────────────────┼───────┼────────────┼────────────────────────────┼───────┼────────┼──────┤
│  9223372036854775807 │ true  │ 2026-11-15 │ 2026-11-15T20:15:00.123456 │   inf │ a,\"b\"␊ │ 00ff │
│ -9223372036854775808 │ false │ 0001-01-01 │ 1969-12-31T23:59:59        │ 1e300 │        │      │
│                 NULL │ NULL  │ NULL       │ NULL                       │  NULL │ NULL   │ NULL │
└──────────────────────┴───────┴────────────┴────────────────────────────┴───────┴────────┴──────┘
(3 rows)
";
    assert_eq!(all("table"), table, "\n{}", all("table"));
    let twice = ["-c", "SELECT 1 AS a, 2 AS a, 3 AS b", "--format"];
    let write = |format| server.prints(&[&twice[..], &[format]].concat());
    assert_eq!(write("json"), "{\"a\":1,\"a_2\":2,\"b\":3}\n");
    assert_eq!(write("csv"), "a,a,b\n1,2,3\n");
}

#[test]
fn results_go_to_a_file_and_notes_do_not() {
    let server = Server::plain("files");
    let path = server.path("out.csv");
    let path = path.to_str().unwrap();
    let statements =
        ["-c", "CREATE TABLE t (n INTEGER)", "-c", "INSERT INTO t VALUES (1), (2)", "-c", "SELECT n FROM t"];
    let output = server.run(&[&statements[..], &["--format", "csv", "--output", path]].concat());
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), ""));
    assert_eq!(fs::read_to_string(path).unwrap(), "n\n1\n2\n");
    let path = server.path("out.arrow");
    let arguments = ["-c", "SELECT 1 AS n", "--format", "arrow", "--output", path.to_str().unwrap()];
    assert_eq!(server.prints(&arguments), "");
    let read: usize = StreamReader::try_new(File::open(&path).unwrap(), None)
        .unwrap()
        .map(|batch| batch.unwrap().num_rows())
        .sum();
    assert_eq!(read, 1);
}

#[test]
fn statements_come_from_arguments_files_and_stdin_in_one_session() {
    let server = Server::plain("sources");
    let script = "CREATE TEMP TABLE t (n INTEGER); -- it is gone with the session\n\
                  INSERT INTO t VALUES (1), (2);\nBEGIN; DELETE FROM t; ROLLBACK;\nSELECT count(*) AS n FROM t";
    let expected =
        "done\n2 rows changed\ndone\n2 rows changed\ndone\n┌───┐\n│ n │\n├───┤\n│ 2 │\n└───┘\n(1 row)\n";
    let file = server.file("script.sql", script);
    assert_eq!(server.prints(&["--file", &file]), expected);
    let output = server.run_with_stdin(&[], script);
    assert_eq!((text(&output.stdout), text(&output.stderr)), (expected, ""));
    let output = server.run_with_stdin(&["--file", "-"], script);
    assert_eq!(text(&output.stdout), expected);
    assert_eq!(server.prints(&["-c", script]), expected);
    let include = format!("\\i {file}");
    assert_eq!(server.prints(&["-c", &include]), expected);
    assert_eq!(server.counters().sessions_open, 0, "each is closed at the end");
}

#[test]
fn an_open_transaction_at_the_end_is_a_warning() {
    let server = Server::plain("left-open");
    let output = server.run(&["-c", "CREATE TABLE t (n INTEGER); BEGIN; INSERT INTO t VALUES (1)"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("what was not committed is undone"), "{}", text(&output.stderr));
    assert_eq!(server.prints(&["-c", "SELECT count(*) AS n FROM t", "--format", "csv"]), "n\n0\n");
}

#[test]
fn a_plan_keeps_its_lines() {
    let server = Server::plain("plan");
    let select = "SELECT 'one\ntwo' AS x";
    assert!(server.prints(&["-c", select]).contains("│ one␊two │"));
    // The plan has the string.
    let plan = server.prints(&["-c", &format!("EXPLAIN {select}")]);
    assert!(plan.contains("opcode") && !plan.contains('␊'), "{plan}");
    let line = |word: &str| plan.lines().position(|line| line.contains(word));
    assert!(line("one").is_some_and(|one| line("two") == Some(one + 1)), "{plan}");
}

#[test]
fn writes_are_sent_as_updates_and_run_once() {
    let server = Server::plain("updates");
    let script =
        "CREATE TABLE t AS SELECT 1 AS n; ATTACH ':memory:' AS other; DETACH other; PRAGMA foreign_keys = ON";
    assert_eq!(server.prints(&["-c", script]), "done\n".repeat(4));
    assert_eq!(server.counters().batches_sent, 0, "none was a query");
    let rows = ["-c", "INSERT INTO t VALUES (2) RETURNING n + 1 AS m", "--format", "csv"];
    assert_eq!(server.prints(&rows), "m\n3\n");
    assert_eq!(server.prints(&["-c", "PRAGMA user_version", "--format", "csv"]), "user_version\n0\n");
}

#[test]
fn sql_may_begin_with_a_hyphen_and_comments_alone_are_not_an_error() {
    let server = Server::plain("hyphens");
    for nothing in ["-- nothing to do", "--", "/* nothing */", "", " ;; -- really\n;"] {
        assert_eq!(server.prints(&["-c", nothing]), "", "{nothing:?}");
        assert_eq!(server.prints(&["-c", nothing, "--format", "csv"]), "", "{nothing:?}");
        let output = server.run_with_stdin(&[], nothing);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{nothing:?}");
    }
    assert_eq!(server.counters().connections_ever, 0, "nothing was asked of the server");
    let commented = "-- how many\nSELECT 1 AS n";
    assert_eq!(server.prints(&["-c", commented, "--format", "csv"]), "n\n1\n");
    let output = server.run(&["-c", "-1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("error: "), "it was sent: {}", text(&output.stderr));
}

#[test]
fn the_shells_commands_list_catalogs_schemas_tables_and_columns() {
    let server = Server::plain("commands");
    let script =
        "CREATE TABLE orders (id INTEGER NOT NULL, note TEXT);\nCREATE VIEW late AS SELECT * FROM orders;\n";
    server.run_with_stdin(&[], script);
    let tables = server.prints(&["-c", "\\dt", "--format", "csv"]);
    assert!(tables.starts_with("catalog,schema,table,type\n"), "{tables}");
    assert!(tables.contains(",orders,table\n") && tables.contains(",late,view\n"), "{tables}");
    assert_eq!(server.prints(&["-c", "\\d", "--format", "csv"]), tables);
    let columns = server.prints(&["-c", "\\d ORDERS", "--format", "csv"]);
    assert_eq!(columns, "column,type,null\nid,Int64,no\nnote,Utf8,yes\n");
    assert_eq!(server.prints(&["-c", "\\d main.orders", "--format", "csv"]), columns);
    let output = server.run(&["-c", "CREATE TEMP TABLE orders (n INTEGER)", "-c", "\\d orders"]);
    assert_eq!(
        text(&output.stderr),
        "error: -c number 2: there are several tables orders; write one of main.orders, temp.orders\n"
    );
    for (list, column) in [("\\dn", "catalog,schema"), ("\\l", "catalog")] {
        let listed = server.prints(&["-c", list, "--format", "csv"]);
        assert!(listed.starts_with(column) && listed.contains("main"), "{list}: {listed}");
    }
    let script = "\\timing\n\\format csv\nSELECT 1 AS n;\n\\timing off\n\\format json\nSELECT 1 AS n;\n\\q\nSELECT 2;\n";
    let output = server.run_with_stdin(&[], script);
    assert_eq!(text(&output.stdout), "Timing is on.\nn\n1\n{\"n\":1}\n");
    assert!(server.prints(&["-c", "\\?"]).contains("\\timing [on|off]"));
}

#[test]
fn a_result_far_larger_than_memory_may_be_is_streamed() {
    let server = Server::plain("large");
    // Its reader takes a few lines and goes: the rest is neither computed nor an error.
    let mut child =
        server.spawn(&["-c", "SELECT value AS n FROM generate_series(1, 100000000000)", "--json"]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "{\"n\":1}");
    drop(lines);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    until("all has ended", || {
        let now = server.counters();
        (now.statements_running, now.sessions_open) == (0, 0)
    });
}

#[test]
fn a_result_larger_than_the_memory_it_may_have_is_written() {
    let server = Server::plain("memory");
    let rows = 50_000_000;
    let shell = server.command(&["--format", "arrow", "--output", "/dev/null", "-c"]);
    let mut limited = Command::new("sh");
    // In kibibytes; the result is larger.
    limited
        .args(["-c", "ulimit -v 400000; exec \"$@\"", "sh"])
        .arg(shell.get_program())
        .args(shell.get_args());
    let output = limited.arg(format!("SELECT * FROM prebuilt(rows => {rows})")).output().expect("a shell");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    assert!(server.counters().batches_sent > 100);
}
