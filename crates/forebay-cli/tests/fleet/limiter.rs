//! The connect rate.

use forebay_fleet::Item;

use crate::server::{DynamoDb, ENDPOINT, text};

#[test]
fn status_shows_how_long_a_new_caller_waits() {
    let server = DynamoDb::with_table();
    let quiet = server.on_cluster(&["limiter", "status"]);
    assert_eq!(quiet.status.code(), Some(0), "{}", text(&quiet.stderr));
    assert!(text(&quiet.stdout).contains("bucket: not used yet"), "{}", text(&quiet.stdout));
    server.crashed(1, "ledger");
    let used = server.record(&["limiter", "status"], 0);
    assert_eq!((&used["rate_reserved_seconds"], &used["endpoint"]), (&0.0.into(), &ENDPOINT.into()));
    assert!(used["window_last_second"].is_null(), "{used}");
    // Reserved up to the year 2100.
    let far = Item::new().with("due_ns", 4_102_444_800_000_000_000);
    server.put(&format!("forebay_bucket#{ENDPOINT}"), &far);
    let busy = server.on_cluster(&["limiter", "status"]);
    assert!(text(&busy.stdout).contains("bucket: a new caller waits"), "{}", text(&busy.stdout));
    assert!(server.record(&["limiter", "status"], 0)["rate_reserved_seconds"].as_f64() > Some(1e9));
}

#[test]
fn status_counts_the_permits_of_the_last_full_second() {
    let server = DynamoDb::with_table();
    let now = server.wall().as_secs();
    // As many seconds as the command may take to start.
    for second in now - 1..now + 60 {
        server.put(&format!("dsqlconnect#{ENDPOINT}#{second}"), &Item::new().with("count", 37));
    }
    let seen = server.on_cluster(&["limiter", "status"]);
    assert!(
        text(&seen.stdout).contains("window: 37 permits in the last full second"),
        "{}",
        text(&seen.stdout)
    );
    assert_eq!(server.record(&["limiter", "status"], 0)["window_last_second"], 37);
}

#[test]
fn its_table_has_a_variable_of_its_own() {
    let server = DynamoDb::start();
    let made = server
        .command(&["limiter", "setup"])
        .env("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "rates")
        .env("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "leases")
        .output()
        .unwrap();
    assert!(text(&made.stdout).contains("rates: created and active"), "{}", text(&made.stdout));
}
