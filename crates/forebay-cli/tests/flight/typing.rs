//! The shell at a terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use flight_local::{Actions, Config, Support};

use crate::server::{Server, text, until};
use crate::terminal::{CTRL_C, Terminal, UP};

const LONG: &str = "SELECT sleep_ms(600000);";

/// Whether the server's counter of work stands still.
#[allow(clippy::disallowed_methods, reason = "to see that nothing happens takes time")]
fn is_at_rest(server: &Server) -> bool {
    let before = server.counters().steps;
    thread::sleep(Duration::from_millis(300));
    server.counters().steps == before
}

fn runs(server: &Server) {
    until("the statement runs", || server.counters().statements_running == 1);
}

#[test]
fn ctrl_c_stops_the_statement_on_the_server_and_the_shell_goes_on() {
    // Where the server tells how far it is, the statement runs apart from its call; elsewhere it ends with
    // it.
    for poll_flight_info in [Support::Known, Support::Unknown] {
        let actions = Actions { poll_flight_info, ..Actions::default() };
        let server = Server::start("ctrl-c", Config { actions, ..Config::default() });
        let mut terminal = Terminal::at_prompt(&server);
        terminal.enter("CREATE TEMP TABLE kept (n INTEGER); INSERT INTO kept VALUES (7);");
        terminal.expect("1 row changed");
        terminal.prompt();
        // The first query finds out whether the server tells.
        terminal.enter("SELECT n + 1 AS first FROM kept;");
        terminal.expect("│     8 │");
        terminal.prompt();
        let polls = server.counters().poll_flight_info;
        terminal.enter(LONG);
        runs(&server);
        assert!(!is_at_rest(&server), "it is at work");
        assert_eq!(server.counters().poll_flight_info > polls, poll_flight_info == Support::Known);
        terminal.press(CTRL_C);
        terminal.expect("Cancelled.");
        terminal.prompt();
        until("it has stopped", || server.counters().statements_running == 0);
        until("nothing is computed any more", || is_at_rest(&server));
        assert_eq!(server.counters().statements_interrupted, 1);
        // The same session: its temporary table is there.
        terminal.enter("SELECT n * 6 AS answer FROM kept;");
        terminal.expect("│     42 │");
        terminal.leave();
        assert_eq!(server.counters().sessions_ever, 1);
    }
}

#[test]
fn ctrl_c_stops_an_update_and_a_result_that_is_being_written() {
    let server = Server::plain("ctrl-c-more");
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter("CREATE TABLE t (n INTEGER);");
    terminal.expect("done");
    terminal.enter("INSERT INTO t SELECT sleep_ms(600000);");
    runs(&server);
    terminal.press(CTRL_C);
    terminal.expect("Cancelled.");
    terminal.enter("SELECT value FROM generate_series(1, 1000000000);");
    terminal.expect("│  1000 │");
    terminal.press(CTRL_C);
    terminal.expect("Cancelled.");
    until("it has stopped", || server.counters().statements_running == 0);
    terminal.enter("SELECT 6 * 7 AS answer;");
    terminal.expect("│     42 │");
    terminal.enter("\\q");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn the_prompt_shows_an_open_transaction_and_doubt_after_ctrl_c() {
    let server = Server::plain("transaction");
    server.prints(&["-c", "CREATE TABLE t (n INTEGER)"]);
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter("BEGIN;");
    terminal.prompt_with("sql*> ");
    terminal.enter("INSERT INTO t VALUES (1);");
    terminal.prompt_with("sql*> ");
    terminal.enter("SELECT * FROM missing;");
    terminal.expect("no such table");
    terminal.expect("hint: a statement of the transaction failed. ROLLBACK undoes");
    terminal.prompt_with("sql!> ");
    terminal.enter("ROLLBACK;");
    terminal.prompt();
    terminal.enter("BEGIN;");
    terminal.prompt_with("sql*> ");
    terminal.enter("INSERT INTO t SELECT sleep_ms(600000);");
    runs(&server);
    terminal.press(CTRL_C);
    terminal.expect("Cancelled.");
    terminal.expect("warning: the server may have ended the transaction");
    terminal.prompt_with("sql?> ");
    // It has, and this would be committed by itself, so it is not sent.
    terminal.enter("INSERT INTO t VALUES (2);");
    terminal.expect("a statement of the transaction has failed");
    terminal.prompt_with("sql?> ");
    terminal.enter("ROLLBACK;");
    terminal.expect("error: ");
    terminal.prompt();
    terminal.enter("BEGIN;");
    terminal.prompt_with("sql*> ");
    terminal.enter("\\c");
    terminal.expect("warning: the transaction was left open");
    terminal.expect("This is a new session.");
    terminal.leave();
    assert_eq!(server.prints(&["-c", "SELECT n FROM t", "--format", "csv"]), "n\n");
}

#[test]
fn leaving_in_doubt_about_a_transaction_warns() {
    let server = Server::plain("doubt");
    server.prints(&["-c", "CREATE TABLE t (n INTEGER)"]);
    for leave in ["\\c", "\\q"] {
        let mut terminal = Terminal::at_prompt(&server);
        terminal.enter("BEGIN;");
        terminal.prompt_with("sql*> ");
        terminal.enter("INSERT INTO t SELECT sleep_ms(600000);");
        runs(&server);
        terminal.press(CTRL_C);
        terminal.prompt_with("sql?> ");
        terminal.enter(leave);
        terminal.expect("warning: a transaction may still be open: what was not committed is undone");
        if leave == "\\c" {
            terminal.prompt();
            terminal.enter("\\q");
        }
        assert_eq!(terminal.end(), 0);
    }
    assert_eq!(server.prints(&["-c", "SELECT n FROM t", "--format", "csv"]), "n\n");
}

#[test]
fn leaving_a_failed_transaction_undoes_it_and_says_so() {
    // It keeps the session, and would keep the transaction in it.
    let server = Server::start("failed", Config { log_statements: true, ..Config::like_swanlake() });
    server.prints(&["-c", "CREATE TABLE t (n INTEGER)"]);
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter("BEGIN; INSERT INTO t VALUES (1);");
    terminal.prompt_with("sql*> ");
    terminal.enter("INSERT INTO missing VALUES (1);");
    terminal.prompt_with("sql!> ");
    terminal.enter("\\q");
    terminal.expect("warning: a statement of the transaction failed: the transaction is undone");
    assert_eq!(terminal.end(), 0);
    assert_eq!(server.local.statements().last().map(String::as_str), Some("ROLLBACK"));
    assert_eq!(server.prints(&["-c", "SELECT count(*) AS n FROM t", "--format", "csv"]), "n\n0\n");
}

#[test]
fn committing_a_failed_transaction_rolls_it_back() {
    let server = Server::plain("failed-commit");
    server.prints(&["-c", "CREATE TABLE t (n INTEGER)"]);
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter("BEGIN;");
    terminal.prompt_with("sql*> ");
    terminal.enter("INSERT INTO missing VALUES (1);");
    terminal.prompt_with("sql!> ");
    terminal.enter("COMMIT;");
    terminal.expect("a statement of the transaction has failed");
    terminal.prompt();
    terminal.enter("INSERT INTO t VALUES (1);");
    terminal.leave();
    assert_eq!(server.prints(&["-c", "SELECT n FROM t", "--format", "csv"]), "n\n1\n");
}

#[test]
fn a_server_that_cannot_stop_a_statement_does_not_block_the_user() {
    // It lists the actions and refuses them, and runs on when a call is dropped.
    let config =
        Config { actions: Actions::all(Support::Refused), interrupt_on_drop: false, ..Config::default() };
    let server = Server::start("stubborn", config);
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter(LONG);
    runs(&server);
    terminal.press(CTRL_C);
    terminal.expect("Cancelled.");
    terminal.prompt();
    // The session is busy; the user can cancel the wait for it.
    terminal.enter("SELECT 1;");
    terminal.expect(" s  (Ctrl-C cancels)");
    terminal.press(CTRL_C);
    terminal.expect("hint: if the server does not stop, \\c opens a new session");
    terminal.prompt();
    terminal.enter("\\c");
    terminal.expect("This is a new session.");
    terminal.enter("SELECT 6 * 7 AS answer;");
    terminal.expect("│     42 │");
    terminal.enter("\\q");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn at_the_prompt_ctrl_c_clears_and_ctrl_d_leaves() {
    let server = Server::plain("prompt");
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter("SELECT 'never");
    terminal.press("ending");
    for _ in 0..3 {
        terminal.press(CTRL_C);
        terminal.prompt();
    }
    terminal.enter("SELECT 6 *");
    terminal.enter(" 7 AS answer; SELECT 'and' || ' more' AS text;");
    terminal.expect("│     42 │");
    terminal.expect("and more");
    terminal.expect("Time: ");
    terminal.leave();
    assert_eq!(server.counters().sessions_open, 0);
}

#[test]
fn beginners_find_help_and_the_way_out() {
    let server = Server::plain("beginners");
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter("help");
    terminal.expect("A statement ends with a semicolon.");
    terminal.prompt();
    terminal.enter("SELECT 'a");
    terminal.expect("' is still open");
    terminal.enter("b' AS text");
    terminal.expect("; ends the statement");
    terminal.enter(";");
    terminal.expect("a␊b");
    terminal.prompt();
    terminal.enter("quit");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn an_error_is_shown_and_a_lost_session_is_replaced() {
    let server = Server::plain("mistakes");
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter("SELECT * FROM missing;");
    terminal.expect("error: ");
    terminal.expect("no such table: missing");
    terminal.enter("\\zzz");
    terminal.expect("\\? lists the commands");
    terminal.enter("\\format arrow");
    terminal.expect("Arrow is binary");
    terminal.enter("CREATE TEMP TABLE t (n INTEGER);");
    terminal.expect("done");
    terminal.prompt();
    server.runtime.block_on(server.local.reboot(Duration::ZERO)).unwrap();
    terminal.enter("SELECT 1;");
    terminal.expect("the session is lost");
    terminal.expect("warning: this is a new session: the transaction, temporary tables and settings");
    terminal.prompt();
    terminal.enter("SELECT count(*) FROM t;");
    terminal.expect("no such table: t");
    terminal.enter("SELECT 6 * 7 AS answer;");
    terminal.expect("│     42 │");
    terminal.leave();
}

#[test]
fn a_table_is_as_wide_as_the_terminal_and_no_wider() {
    let server = Server::plain("width");
    let mut terminal = Terminal::with(&server, &[], 40, &[]);
    terminal.prompt();
    terminal.enter("SELECT 'a long text that has no room' AS a, 'another text without any room' AS b;");
    terminal.expect("│ a long text tha… │ another text wi… │");
    terminal.leave();
}

#[test]
fn a_long_message_is_broken_between_words() {
    let server = Server::plain("wrap");
    let mut terminal = Terminal::with(&server, &[], 40, &[]);
    terminal.prompt();
    terminal.enter("\\format arrow");
    terminal.expect(
        "error: Arrow is binary, and stdout is a\r\nterminal: give --output FILE, or\r\nredirect stdout\r\n",
    );
    terminal.leave();
}

#[test]
fn a_long_statement_shows_how_long_and_how_far() {
    let server = Server::plain("progress");
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter("SELECT progress(1, 4), sleep_ms(600000);");
    terminal.expect(" s  25 %  (Ctrl-C cancels)");
    terminal.press(CTRL_C);
    terminal.expect("Cancelled.");
    terminal.leave();
    let output = server.run(&["-c", "SELECT sleep_ms(1500)", "--format", "csv"]);
    assert_eq!(text(&output.stderr), "", "nothing of it where there is no terminal");
}

#[test]
fn a_failed_statement_was_sent_once_and_progress_still_works() {
    let server = Server::start("once", Config { log_statements: true, ..Config::default() });
    server.prints(&["-c", "CREATE TABLE t (n INTEGER PRIMARY KEY)"]);
    let mut terminal = Terminal::at_prompt(&server);
    // The first query of the session, and no other: a server's refusal of it says nothing about polling.
    let failing = "INSERT INTO t VALUES (1) RETURNING abs(-9223372036854775807 - n)";
    terminal.enter(&format!("{failing};"));
    terminal.expect("error: ");
    terminal.prompt();
    let sent = server.local.statements().iter().filter(|sql| sql.contains(failing)).count();
    assert_eq!(sent, 1, "{:?}", server.local.statements());
    terminal.enter("SELECT progress(1, 4), sleep_ms(600000);");
    terminal.expect(" s  25 %  (Ctrl-C cancels)");
    terminal.press(CTRL_C);
    terminal.expect("Cancelled.");
    terminal.leave();
}

#[test]
fn tab_completes_words_and_tables() {
    let server = Server::plain("tab");
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter("CREATE TABLE orders_of_today (n INTEGER);");
    terminal.expect("done");
    terminal.enter("INSERT INTO orders_of_today VALUES (42);");
    terminal.expect("1 row changed");
    terminal.prompt();
    terminal.enter("SEL\t n AS answer FR\t orders\t;");
    terminal.expect("│     42 │");
    terminal.enter("\\d orders\t");
    terminal.expect("Int64");
    terminal.prompt();
    terminal.enter("SELECT n + 1 AS answer FROM main.ord\t;");
    terminal.expect("│     43 │");
    terminal.leave();
}

#[test]
fn the_history_is_stored_for_the_user_alone() {
    let server = Server::plain("history");
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter("SELECT 6 * 7\n AS answer;");
    terminal.expect("│     42 │");
    terminal.prompt();
    terminal.enter(" SELECT 'a secret, after a blank';");
    terminal.expect("(1 row)");
    terminal.leave();
    let path = server.path(".local/state/forebay/flight_history");
    let kept = fs::read_to_string(&path).expect("it was kept");
    assert!(kept.contains("SELECT 6 * 7") && !kept.contains("a secret"), "{kept}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "for nobody else");
    let mut terminal = Terminal::at_prompt(&server);
    terminal.enter(UP);
    terminal.expect("│     42 │");
    terminal.leave();
}

#[test]
fn without_a_place_for_its_history_it_is_a_shell_all_the_same() {
    let server = Server::plain("no-history");
    let mut terminal = Terminal::with(&server, &[], 80, &[("XDG_STATE_HOME", "/dev/null/nowhere")]);
    terminal.prompt();
    terminal.enter("SELECT 6 * 7 AS answer;");
    terminal.expect("│     42 │");
    terminal.leave();
    assert!(terminal.seen().contains("warning: cannot write the history to"), "{}", terminal.seen());
}

#[test]
fn a_terminal_gets_no_binary_data() {
    let server = Server::plain("binary");
    let mut terminal = Terminal::open(&server, &["-c", "SELECT 1", "--format", "arrow"]);
    assert_eq!(terminal.end(), 2);
    assert!(terminal.seen().contains("give --output FILE"), "{}", terminal.seen());
    assert_eq!(server.counters().connections_ever, 0);
}

#[test]
fn an_interrupt_ends_a_script_and_stops_the_server() {
    let server = Server::plain("interrupt");
    let interrupt = |id: u32| {
        let sent = Command::new("kill").args(["-INT", &id.to_string()]).status().expect("kill runs");
        assert!(sent.success());
    };
    let child = server.spawn(&["-c", LONG, "-c", "SELECT 1"]);
    runs(&server);
    interrupt(child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(130), ""));
    until("it has stopped", || server.counters().statements_running == 0);
    let stopped = server.counters();
    assert_eq!(stopped.statements_interrupted, 1);
    until("nothing is computed any more", || is_at_rest(&server));
    // One that waits for its input has nothing to cancel.
    let mut child = server.spawn(&[]);
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"SELECT 1;\n").unwrap();
    until("it waits", || server.counters().statements_finished > stopped.statements_finished);
    // The first may come while the shell still has the result of its statement in hand.
    let mut status = None;
    until("it ends", || {
        status = child.try_wait().unwrap();
        status.is_some() || {
            interrupt(child.id());
            false
        }
    });
    assert_eq!(status.unwrap().code(), Some(130));
}

#[test]
fn an_interrupt_stops_the_server_while_the_output_is_not_read() {
    let server = Server::plain("unread");
    let rows = "SELECT value FROM generate_series(1, 100000000000)";
    let child = server.spawn(&["--format", "json", "-c", rows]);
    runs(&server);
    until("it waits for its reader", || is_at_rest(&server));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    until("the server has stopped", || server.counters().statements_running == 0);
    // The reader is back.
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
}
