//! Nothing is wrong, and nothing changes.

use crate::place::Place;
use crate::proxy::{Behaviour, Proxy};

#[test]
fn a_healthy_setup_has_no_faults() {
    let place = Place::new();
    let names = place.dynamo.crashed(3, "ledger");
    let before = place.dynamo.keys();
    let found = place.examine(&[]);
    assert_eq!(found.status, 0, "{}", found.text);
    for check in ["configuration", "dns", "tcp", "tls", "credentials", "token", "connect", "tables", "clock"]
    {
        let statuses = found.statuses(check);
        assert!(statuses.contains(&"ok"), "{check}: {statuses:?}\n{}", found.text);
    }
    assert_eq!(found.statuses("service"), ["skipped"]);
    for words in [
        "CLUSTER_ENDPOINT = abc.dsql.us-east-1.on.aws",
        "DSQL_MAX_CONNS = 10",
        "AWS_SECRET_ACCESS_KEY = (not shown)",
        "region us-east-1 (from the name of the host)",
        "issued by dsql-local authority",
        "variables (AWS_ACCESS_KEY_ID), key ...MPLE",
        "signed for admin (dsql:DbConnectAdmin)",
        "lets admin in",
        "GetItem, UpdateItem are allowed",
        "of 400 slots are held by 2 instances",
        "clock agrees with DynamoDB",
        "clock agrees with the cluster",
        "nothing is wrong",
    ] {
        let seen = found.text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(seen.contains(words), "{words} is missing:\n{}", found.text);
    }
    let width = found.text.lines().map(|line| line.chars().count()).max();
    assert!(width <= Some(80), "{}", found.text);
    assert_eq!(place.dynamo.keys(), before, "the table has the same items");
    assert!(names.iter().all(|name| found.text.contains(&format!("{name}: "))), "{}", found.text);
    // One session for each of the two runs, and none is left. The cluster may learn of an end a moment later.
    while place.cluster.counters().live > 0 {
        std::thread::yield_now();
    }
    assert_eq!(place.cluster.counters().accepted, 2);
}

#[test]
fn a_healthy_setup_in_mode_counter_has_no_faults() {
    let mut place = Place::new();
    place.dynamo.crashed(3, "counter");
    place.set("DSQL_DISTRIBUTED_CONN_LEASE_MODE", "counter");
    let before = place.dynamo.keys();
    let found = place.examine(&["--only", "tables"]);
    assert_eq!(found.status, 0, "{}", found.text);
    let seen = found.text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(seen.contains("GetItem, UpdateItem, PutItem, DeleteItem are allowed"), "{}", found.text);
    assert!(seen.contains("the counter says 6, and there are 6 leases"), "{}", found.text);
    assert_eq!(place.dynamo.keys(), before);
}

#[test]
fn a_service_alone_needs_no_tables() {
    let mut place = Place::new();
    for name in
        ["CONN_LEASE_ENABLED", "CONN_LEASE_TABLE", "CONN_LIMIT", "RATE_LIMITER_ENABLED", "RATE_LIMITER_TABLE"]
    {
        place.unset(&format!("DSQL_DISTRIBUTED_{name}"));
    }
    let found = place.examine(&[]);
    assert_eq!((found.status, found.statuses("tables")), (0, vec!["skipped"]), "{}", found.text);
}

#[test]
fn the_policy_of_an_instance_is_enough() {
    let mut place = Place::new();
    let denied = vec!["DescribeTable", "DescribeTimeToLive", "Scan", "PutItem", "DeleteItem"];
    let proxy = Proxy::start(&place.dynamo.url(), Behaviour { denied, ..Behaviour::default() });
    place.set("AWS_ENDPOINT_URL_DYNAMODB", proxy.url());
    let found = place.examine(&["--only", "tables"]);
    assert_eq!(found.status, 0, "{}", found.text);
    assert!(found.statuses("tables").contains(&"skipped"), "{}", found.text);
}

#[test]
fn the_manual_lists_the_permissions_that_it_uses() {
    let mut place = Place::new();
    place.dynamo.crashed(1, "counter");
    let proxy = Proxy::start(&place.dynamo.url(), Behaviour::default());
    place.set("AWS_ENDPOINT_URL_DYNAMODB", proxy.url());
    place.set("DSQL_DISTRIBUTED_CONN_LEASE_MODE", "counter");
    assert_eq!(place.run(&["--only", "tables"]).status.code(), Some(0));
    let parts = |action: String| match action.as_str() {
        // A transaction needs the permissions of its parts.
        "TransactWriteItems" => vec!["DeleteItem".to_owned(), "PutItem".to_owned()],
        _ => vec![action],
    };
    let mut used: Vec<String> = proxy.actions().into_iter().flat_map(parts).collect();
    used.sort();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md")).unwrap();
    let policy = page.split("```json").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let policy: serde_json::Value = serde_json::from_str(policy).unwrap();
    let listed =
        policy["Statement"].as_array().unwrap().iter().flat_map(|one| one["Action"].as_array().unwrap());
    let mut listed: Vec<&str> =
        listed.filter_map(|action| action.as_str()?.strip_prefix("dynamodb:")).collect();
    listed.sort_unstable();
    assert_eq!(used, listed);
}

#[test]
fn aws_is_asked_whose_credentials_they_are_if_its_address_is_named() {
    let mut place = Place::new();
    let known = "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
                 <GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/app</Arn><UserId>U</UserId>\
                 <Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>";
    let sts = Proxy::start("", Behaviour { always: Some((200, known.to_owned())), ..Behaviour::default() });
    place.set("AWS_ENDPOINT_URL_STS", sts.url());
    let found = place.examine(&["--only", "credentials"]);
    assert_eq!(found.status, 0, "{}", found.text);
    assert!(found.record.to_string().contains("arn:aws:iam::123456789012:user/app"), "{}", found.text);

    let refusal = "<ErrorResponse><Error><Type>Sender</Type><Code>InvalidClientTokenId</Code>\
                   <Message>The security token included in the request is invalid.</Message></Error></ErrorResponse>";
    let sts = Proxy::start("", Behaviour { always: Some((403, refusal.to_owned())), ..Behaviour::default() });
    place.set("AWS_ENDPOINT_URL_STS", sts.url());
    place.examine(&["--only", "credentials"]).names(
        "credentials",
        "refused-credentials",
        "InvalidClientTokenId",
    );
    // An STS that cannot be reached says nothing about the credentials.
    place.set("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1");
    assert_eq!(place.examine(&["--only", "credentials"]).status, 0);
}
