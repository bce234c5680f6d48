//! Each fault is injected, and must be named.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, ToSocketAddrs};

use dsql_local::EngineKind;
use forebay_fleet::Item;
use serde_json::json;

use crate::place::Place;
use crate::proxy::{Behaviour, Proxy};
use crate::server::ENDPOINT;
use crate::tls_server::TlsServer;

#[test]
fn a_wrong_endpoint_that_nobody_knows() {
    let mut place = Place::new();
    place
        .set("CLUSTER_ENDPOINT", "nosuch.dsql.us-east-1.invalid")
        .set("REGION", "us-east-1")
        .unset("PGHOSTADDR");
    let found = place.examine(&["--only", "dns,tcp,tls,connect"]);
    // Without a resolver, nobody can say that there is no such name.
    let error = ("nosuch.invalid", 5432).to_socket_addrs().unwrap_err().to_string();
    let fault = if error.contains("Temporary failure") { "no-resolver" } else { "wrong-endpoint" };
    found.names("dns", fault, "nosuch.dsql.us-east-1.invalid");
    for check in ["tcp", "tls", "connect"] {
        assert_eq!(found.statuses(check), ["skipped"], "{}", found.text);
    }
    // Alone, each of them finds out by itself.
    for check in ["tcp", "tls"] {
        place.examine(&["--only", check]).names(check, fault, "cannot be looked up");
    }
}

#[test]
fn a_wrong_endpoint_that_is_another_cluster() {
    let mut place = Place::new();
    place.set("CLUSTER_ENDPOINT", "other.dsql.us-east-1.on.aws");
    place.examine(&["--only", "tls"]).names("tls", "other-server", "no certificate for other.dsql");
}

#[test]
fn no_endpoint() {
    let mut place = Place::new();
    place.unset("CLUSTER_ENDPOINT");
    let found = place.examine(&[]);
    found.names("configuration", "no-endpoint", "CLUSTER_ENDPOINT");
    assert_eq!(found.record["failures"], 1, "{}", found.text);
    for check in ["dns", "tcp", "tls", "token", "connect", "tables", "clock"] {
        assert_eq!(found.statuses(check), ["skipped"], "{}", found.text);
    }
    assert!(found.statuses("credentials").contains(&"ok"), "{}", found.text);
}

/// Certificates are no reason not to look at the network.
#[test]
fn roots_that_cannot_be_read() {
    let mut place = Place::new();
    place.set("PGSSLROOTCERT", "/nowhere/ca.pem");
    let found = place.examine(&[]);
    found.names("configuration", "invalid-setting", "PGSSLROOTCERT is \"/nowhere/ca.pem\"");
    assert_eq!(found.record["failures"], 1, "{}", found.text);
    for check in ["dns", "tcp", "credentials", "token", "tables"] {
        assert!(found.statuses(check).contains(&"ok"), "{check}: {}", found.text);
    }
    // Alone, each check says why it cannot run, and what to do.
    for arguments in [&[][..], &["--only", "tls"], &["--only", "connect"]] {
        let found = place.examine(arguments);
        let blocked: Vec<_> = found.findings().filter(|finding| finding["status"] == "skipped").collect();
        let blocked =
            blocked.iter().filter(|finding| ["tls", "connect"].contains(&finding["check"].as_str().unwrap()));
        let mut seen = 0;
        for finding in blocked {
            let what = finding["what"].as_str().unwrap();
            assert!(what.starts_with("configuration failed: PGSSLROOTCERT is \"/nowhere/ca.pem\""), "{what}");
            assert_eq!(finding["remedy"], "set the variable to what is allowed");
            seen += 1;
        }
        assert_eq!(seen, if arguments.is_empty() { 2 } else { 1 }, "{}", found.text);
        assert!(found.text.contains("remedy: set the variable to what is allowed"), "{}", found.text);
    }
}

#[test]
fn a_wrong_region_stops_only_what_is_signed() {
    let mut place = Place::new();
    place.set("REGION", "nowhere at all");
    let found = place.examine(&[]);
    found.names("configuration", "invalid-setting", "REGION is \"nowhere at all\"");
    for check in ["dns", "tcp", "tls"] {
        assert!(found.statuses(check).contains(&"ok"), "{check}: {}", found.text);
    }
    for check in ["token", "connect", "tables"] {
        assert_eq!(found.statuses(check), ["skipped"], "{}", found.text);
    }
}

#[test]
fn a_closed_port() {
    let mut place = Place::new();
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    place.set("PGPORT", free.to_string());
    let found = place.examine(&[]);
    found.names("tcp", "closed-port", &format!("127.0.0.1:{free}"));
    for check in ["tls", "connect"] {
        assert_eq!(found.statuses(check), ["skipped"], "{}", found.text);
    }
    let blocked = found.findings().find(|finding| finding["check"] == "connect").unwrap();
    assert_eq!(blocked["what"], "tcp failed", "{blocked}");
    assert!(blocked["remedy"].as_str().unwrap().starts_with("check PGPORT"), "{blocked}");
    assert!(found.text.contains("begin with tcp"), "{}", found.text);
}

#[test]
fn a_silent_address() {
    let mut place = Place::new();
    // The system accepts for it, and nobody reads.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    place.set("PGPORT", silent.local_addr().unwrap().port().to_string());
    let found = place.examine(&["--only", "tcp,tls,connect", "--timeout", "2s"]);
    found.names("tls", "silent-address", "does not answer");
    assert_eq!(found.statuses("connect"), ["skipped"], "{}", found.text);
}

#[test]
fn an_untrusted_certificate() {
    let (mut place, other) = (Place::new(), Place::new());
    place.set("PGSSLROOTCERT", other.cluster.ca_file().display().to_string());
    let found = place.examine(&[]);
    found.names("tls", "untrusted-certificate", "not trusted");
    assert!(found.text.contains("issued by dsql-local authority"), "{}", found.text);
    let words = "PGSSLROOTCERT has an authority of this name with another key";
    assert!(found.record.to_string().contains(words), "{}", found.text);
    assert_eq!(found.statuses("connect"), ["skipped"], "{}", found.text);
    // The public authorities do not know it, either.
    place.unset("PGSSLROOTCERT");
    let found = place.examine(&["--only", "tls"]);
    found.names("tls", "untrusted-certificate", "not trusted");
    assert!(!found.record.to_string().contains("another key"), "{}", found.text);
}

#[test]
fn a_clock_that_is_off_by_20_minutes() {
    for (skew, side) in [(1_200, "behind"), (-1_200, "ahead of")] {
        let place = Place::with(|config| config.token_skew = skew);
        let found = place.examine(&[]);
        found.names("connect", "refused-signature", "access denied");
        found.names("clock", "wrong-clock", &format!("{side} the cluster"));
        let what = found.of("wrong-clock")[0]["what"].as_str().unwrap();
        assert!(what.contains("20m") || what.contains("19m59s"), "{what}");
    }
}

#[test]
fn a_clock_that_only_the_answers_of_others_show() {
    // Tokens of a long life are good, but the hour is not.
    let place = Place::new();
    place.cluster.clock().advance(std::time::Duration::from_secs(1_200));
    place.examine(&["--only", "clock"]).names("clock", "wrong-clock", "behind the cluster");

    let mut place = Place::new();
    let date = Some("Tue, 17 Nov 2015 03:48:21 GMT");
    let proxy = Proxy::start(&place.dynamo.url(), Behaviour { date, ..Behaviour::default() });
    place.set("AWS_ENDPOINT_URL_DYNAMODB", proxy.url());
    place.examine(&["--only", "clock"]).names("clock", "wrong-clock", "ahead of DynamoDB");

    let refusal = json!({
        "__type": "com.amazon.coral.service#InvalidSignatureException",
        "message": "Signature expired: 20151117T000000Z is now earlier than 20151117T000500Z (20151117T002000Z - 15 min.)",
    });
    let always = Some((400, refusal.to_string()));
    let proxy = Proxy::start("", Behaviour { always, ..Behaviour::default() });
    place.set("AWS_ENDPOINT_URL_DYNAMODB", proxy.url());
    let found = place.examine(&["--only", "tables,clock"]);
    found.names("tables", "refused-by-table", "Signature expired");
    found.names("clock", "wrong-clock", "ahead of DynamoDB");
}

#[test]
fn no_credentials() {
    let mut place = Place::new();
    place.unset("AWS_ACCESS_KEY_ID").unset("AWS_SECRET_ACCESS_KEY").unset("AWS_SESSION_TOKEN");
    let found = place.examine(&[]);
    found.names("credentials", "no-credentials", "there are no credentials");
    assert!(!found.text.contains("again"), "the doctor tries once:\n{}", found.text);
    for check in ["token", "connect", "tables"] {
        assert_eq!(found.statuses(check), ["skipped"], "{}", found.text);
    }
    assert!(found.statuses("tls").contains(&"ok"), "{}", found.text);
    for check in ["token", "connect"] {
        let found = place.examine(&["--only", check]);
        found.names(check, "no-token", "there are no credentials");
        assert!(!found.text.contains("again"), "{}", found.text);
    }
}

#[test]
fn credentials_without_the_permission_to_connect() {
    let place = Place::new();
    place.cluster.inject("refuse:how=denied".parse().unwrap());
    let found = place.examine(&[]);
    found.names("connect", "access-denied", "access denied");
    assert!(found.text.contains("role admin needs dsql:DbConnectAdmin"), "{}", found.text);
    // A key that the cluster does not know is answered in the same way.
    let mut place = Place::new();
    place.set("AWS_ACCESS_KEY_ID", "AKIDANOTHER");
    place.examine(&["--only", "connect"]).names("connect", "access-denied", "access denied");
}

#[test]
fn an_unknown_role() {
    let mut place = Place::with(|config| config.engine = EngineKind::Postgres);
    place.set("PGUSER", "nobody_here");
    place.examine(&["--only", "connect"]).names(
        "connect",
        "unknown-role",
        "role \"nobody_here\" does not exist",
    );
}

#[test]
fn an_unknown_database() {
    let mut place = Place::new();
    place.set("PGDATABASE", "app");
    place.examine(&["--only", "connect"]).names(
        "connect",
        "unknown-database",
        "database \"app\" does not exist",
    );
}

#[test]
fn a_missing_table() {
    let mut place = Place::new();
    place.set("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "nowhere");
    let found = place.examine(&["--only", "tables"]);
    found.names("tables", "missing-table", "no such table: nowhere");
    // The table of the rate is another one now, and is fine.
    assert!(found.text.contains("table forebay (rate) answers"), "{}", found.text);
}

/// The name of the table is missing. What is on is not called off because of it.
#[test]
fn no_name_of_a_table() {
    let mut place = Place::new();
    place.unset("DSQL_DISTRIBUTED_CONN_LEASE_TABLE");
    let found = place.examine(&[]);
    found.names("configuration", "invalid-setting", "DSQL_DISTRIBUTED_CONN_LEASE_TABLE is not set");
    assert!(!found.text.contains("is not true") && !found.text.contains("neither leases"), "{}", found.text);
    assert_eq!(found.record["failures"], 1, "{}", found.text);
    let seen = found.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = "leases: DSQL_DISTRIBUTED_CONN_LEASE_ENABLED is true, but the settings are wrong: see check configuration";
    assert!(seen.contains(words), "{}", found.text);
    // The rate has a table.
    assert!(seen.contains("table forebay (rate) answers"), "{}", found.text);
}

#[test]
fn a_table_without_time_to_live() {
    let mut place = Place::new();
    create(&place, "bare", "pk");
    place.set("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "bare");
    let found = place.examine(&["--only", "tables"]);
    found.names("tables", "no-ttl", "table bare");
    assert_eq!(found.status, 1, "{}", found.text);
}

#[test]
fn a_table_with_other_keys() {
    let mut place = Place::new();
    create(&place, "other", "id");
    place.set("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "other");
    let found = place.examine(&["--only", "tables"]);
    found.names("tables", "wrong-table", "its partition key is id (string), and must be pk (string)");
}

fn create(place: &Place, name: &str, key: &str) {
    let request = json!({
        "TableName": name,
        "KeySchema": [{ "AttributeName": key, "KeyType": "HASH" }],
        "AttributeDefinitions": [{ "AttributeName": key, "AttributeType": "S" }],
        "BillingMode": "PAY_PER_REQUEST",
    });
    place.dynamo.database.create_table(serde_json::from_value(request).unwrap()).unwrap();
}

#[test]
fn no_permission_to_update_items() {
    let mut place = Place::new();
    for (action, mode) in [("UpdateItem", "ledger"), ("GetItem", "ledger"), ("UpdateItem", "counter")] {
        let denied = vec![action];
        let proxy = Proxy::start(&place.dynamo.url(), Behaviour { denied, ..Behaviour::default() });
        place.set("AWS_ENDPOINT_URL_DYNAMODB", proxy.url()).set("DSQL_DISTRIBUTED_CONN_LEASE_MODE", mode);
        let found = place.examine(&["--only", "tables"]);
        found.names("tables", "no-permission", &format!("dynamodb:{action} is not allowed"));
        assert_eq!(found.of("no-permission").len(), 1, "{}", found.text);
    }
    assert!(place.dynamo.keys().is_empty());
}

#[test]
fn a_drifted_counter() {
    let mut place = Place::new();
    place.dynamo.crashed(2, "counter");
    let counter = Item::new().with("active", 12).with("updated_ms", 1).with("renewed_ms", 1);
    place.dynamo.put(&format!("dsqllease_counter#{ENDPOINT}"), &counter);
    place.set("DSQL_DISTRIBUTED_CONN_LEASE_MODE", "counter");
    let found = place.examine(&["--only", "tables"]);
    found.names("tables", "drifted-counter", "the counter says 12, and there are 4 leases: a drift of +8");
    assert_eq!(found.status, 1, "{}", found.text);
    // At the limit, nobody can open a connection any more.
    place.set("DSQL_DISTRIBUTED_CONN_LIMIT", "12");
    let found = place.examine(&["--only", "tables"]);
    let words = "the counter says 12, the limit is 12, and 8 of them have no lease";
    found.names("tables", "drifted-counter", words);
    assert_eq!((found.status, found.of("limit-reached").len()), (2, 0), "{}", found.text);
}

#[test]
fn a_damaged_ledger() {
    let place = Place::new();
    place.dynamo.crashed(3, "ledger");
    let key = place.dynamo.keys().into_iter().find(|key| key.starts_with("forebay_ledger#")).unwrap();
    let request = json!({
        "TableName": "forebay",
        "Key": { "pk": { "S": key } },
        "UpdateExpression": "ADD #free :more",
        "ExpressionAttributeNames": { "#free": "free" },
        "ExpressionAttributeValues": { ":more": { "N": "2" } },
    });
    place.dynamo.database.update_item(serde_json::from_value(request).unwrap()).unwrap();
    place.examine(&["--only", "tables"]).names("tables", "damaged-ledger", "differ from its capacity by 2");
}

#[test]
fn a_lifetime_above_the_servers_limit() {
    let mut place = Place::new();
    place.set("DSQL_RESERVOIR_BASE_LIFETIME", "61m");
    let found = place.examine(&[]);
    found.names("configuration", "lifetime-above-limit", "DSQL_RESERVOIR_BASE_LIFETIME is 1h1m");
    // A wrong number is no reason not to look at the rest.
    for check in ["connect", "tables"] {
        assert!(found.statuses(check).contains(&"ok"), "{}", found.text);
    }
}

#[test]
fn a_limit_above_the_clusters() {
    let mut place = Place::new();
    place.set("DSQL_DISTRIBUTED_CONN_LIMIT", "20000");
    let found = place.examine(&["--only", "configuration"]);
    found.names("configuration", "limit-above-quota", "DSQL_DISTRIBUTED_CONN_LIMIT is 20000");
    assert_eq!(place.examine(&["--only", "configuration", "--quota", "20000"]).status, 0);
}

#[test]
fn a_cluster_that_admits_nobody() {
    for (how, fault, words) in [
        ("53300", "too-many-connections", "too many open connections. (SQLSTATE 53300)"),
        ("53400", "rate-exceeded", "rate exceeded. (SQLSTATE 53400)"),
        ("waking", "waking-cluster", "waking up cluster"),
        ("close", "broken-tls", "ended in the handshake"),
    ] {
        let place = Place::new();
        place.cluster.inject(format!("refuse:how={how}").parse().unwrap());
        let check = if how == "close" { "tls" } else { "connect" };
        place.examine(&["--only", check]).names(check, fault, words);
    }
}

#[test]
fn a_dynamodb_that_cannot_be_reached() {
    let mut place = Place::new();
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    place.set("AWS_ENDPOINT_URL_DYNAMODB", format!("http://{free}"));
    let found = place.examine(&["--only", "tables"]);
    found.names("tables", "unreachable-table", "table forebay");
    let tried = format!("tried http://{free} (AWS_ENDPOINT_URL_DYNAMODB): nothing listens there");
    assert_eq!(found.of("unreachable-table")[0]["details"], json!([tried]), "{}", found.text);
    // A listener that never answers.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let found = place.examine(&["--only", "tables", "--dynamodb-endpoint", &url, "--timeout", "300ms"]);
    let tried = found.of("unreachable-table")[0]["details"][0].as_str().unwrap();
    assert!(tried.starts_with(&format!("tried {url} (--dynamodb-endpoint): no answer")), "{}", found.text);
    place.examine(&["--only", "tables", "--dynamodb-endpoint", "nonsense"]).names(
        "tables",
        "no-table-location",
        "\"nonsense\" is not an address",
    );
}

#[test]
fn a_certificate_that_has_expired_or_soon_will() {
    for (days, fault, words) in [
        (-1, "expired-certificate", "the certificate has expired"),
        (3, "expiring-certificate", "its certificate is trusted, and valid until"),
    ] {
        let mut place = Place::new();
        let server = TlsServer::start(ENDPOINT, place.dynamo.wall(), days);
        place.set("PGPORT", server.port().to_string()).set("PGSSLROOTCERT", server.authority());
        place.examine(&["--only", "tls"]).names("tls", fault, words);
    }
}

#[test]
fn a_server_without_tls() {
    let mut place = Place::new();
    let plain = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    place.set("PGPORT", plain.local_addr().unwrap().port().to_string());
    std::thread::spawn(move || {
        for mut socket in plain.incoming().map_while(Result::ok) {
            // As PostgreSQL says no.
            let _ = socket.read_exact(&mut [0; 8]).and_then(|()| socket.write_all(b"N"));
        }
    });
    place.examine(&["--only", "tls"]).names("tls", "no-tls", "refuses TLS");
}
