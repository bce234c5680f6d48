//! Commands that change the table ask first.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use forebay_fleet::Item;

use crate::server::{DynamoDb, ENDPOINT, text};

/// The command on a terminal, at which someone types `answer`.
fn at_terminal(server: &DynamoDb, arguments: &str, answer: &str) -> Output {
    let line = server.command(&[]);
    let words: Vec<String> = std::iter::once(line.get_program())
        .chain(arguments.split(' ').map(AsRef::as_ref))
        .chain(line.get_args())
        .map(|word| word.to_str().unwrap().to_owned())
        .collect();
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &words.join(" "), "/dev/null"]).env("SHELL", "/bin/sh");
    for (name, value) in line.get_envs() {
        terminal.env(name, value.unwrap());
    }
    let mut child =
        terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn evict_frees_the_slots_of_one() {
    let server = DynamoDb::with_table();
    let names = server.crashed(5, "ledger");
    let held = server.record(&["lease", "status"], 0)["held"].as_u64().unwrap();
    let out = server.record(&["lease", "evict", &names[0], "--yes"], 0);
    assert_eq!((&out["instance"], &out["found"]), (&names[0].as_str().into(), &true.into()));
    let freed = out["freed"].as_u64().unwrap();
    assert!(freed >= 5, "{out}");
    let after = server.record(&["lease", "status"], 0);
    assert_eq!((&after["held"], &after["exact"]), (&(held - freed).into(), &true.into()));
    let again = server.on_cluster(&["lease", "evict", &names[0], "--yes"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stdout).contains("there is no instance"), "{}", text(&again.stdout));
}

#[test]
fn nothing_is_changed_unless_the_user_agrees() {
    let server = DynamoDb::with_table();
    let names = server.crashed(1, "ledger");
    let keys = server.keys();
    for arguments in [&["lease", "reset"][..], &["lease", "evict", &names[0]], &["lease", "reconcile"]] {
        let refused = server.on_cluster(arguments);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains("--yes"), "{}", text(&refused.stderr));
    }
    let reset = format!("lease reset --table forebay --endpoint {ENDPOINT}");
    for answer in ["no\n", "\n", "y\n"] {
        let refused = at_terminal(&server, &reset, answer);
        let seen = text(&refused.stdout);
        assert_eq!(refused.status.code(), Some(1), "{seen}");
        let words = seen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("may exceed the limit") && words.contains("nothing was changed"), "{seen}");
    }
    assert_eq!(server.keys(), keys);
    let done = at_terminal(&server, &reset, "yes\n");
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stdout));
    assert!(text(&done.stdout).contains("deleted; live instances join again"), "{}", text(&done.stdout));
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn reset_keeps_a_counter_that_is_in_use() {
    let server = DynamoDb::with_table();
    server.crashed(4, "counter");
    let kept = server.on_cluster(&["lease", "reset", "--yes"]);
    let seen = text(&kept.stdout);
    assert_eq!(kept.status.code(), Some(1), "{seen}");
    assert!(seen.contains("kept: the counter, which is 8") && seen.contains("lease reconcile"), "{seen}");
    assert_eq!(server.record(&["lease", "status"], 0)["counter"]["active"], 8);
    assert_eq!(server.record(&["lease", "reset", "--yes"], 1)["counter_kept"], 8);
}

#[test]
fn reconcile_sets_a_counter_to_what_is_held() {
    let server = DynamoDb::with_table();
    server.crashed(4, "counter");
    let exact = server.record(&["lease", "status"], 0);
    assert_eq!((&exact["counter"]["active"], &exact["counter"]["leases"]), (&8.into(), &8.into()));
    // One more that died long ago, and was counted three times.
    let dead = Item::new().with("ttl_epoch", 1).with("created_ms", 1).with("renewed_ms", 1);
    server.put(&format!("dsqllease#{ENDPOINT}#dead"), &dead);
    server.put(
        &format!("dsqllease_counter#{ENDPOINT}"),
        &Item::new().with("active", 12).with("updated_ms", 1).with("renewed_ms", 1),
    );
    let drifted = server.on_cluster(&["lease", "status"]);
    let seen = text(&drifted.stdout);
    assert_eq!(drifted.status.code(), Some(1), "{seen}");
    assert!(seen.contains("12 active, 9 leases") && seen.contains("drift: +3"), "{seen}");
    let repaired = server.record(&["lease", "reconcile", "--yes"], 0);
    assert_eq!(repaired, serde_json::json!({ "counted": 12, "held": 8, "expired": 1 }));
    assert_eq!(server.record(&["lease", "status"], 0)["counter"]["drift"], 0);
}

#[test]
fn reconcile_refuses_while_it_cannot_know() {
    let server = DynamoDb::with_table();
    let none = server.on_cluster(&["lease", "reconcile", "--yes"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("there is no counter"), "{}", text(&none.stderr));
    server.crashed(1, "counter");
    // A peer that does not renew was here in the year 2100: its clock is off, and its connections cannot be
    // counted.
    let peers = Item::new().with("active", 3).with("updated_ms", 4_102_444_800_000);
    server.put(&format!("dsqllease_counter#{ENDPOINT}"), &peers);
    let refused = server.on_cluster(&["lease", "reconcile", "--yes", "--longest-session", "30m"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("do not renew"), "{}", text(&refused.stderr));
    let wrong = server.on_cluster(&["lease", "reconcile", "--longest-session", "soon"]);
    assert!(text(&wrong.stderr).contains("such as 1h"), "{}", text(&wrong.stderr));
}
