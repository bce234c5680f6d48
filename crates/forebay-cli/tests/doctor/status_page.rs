//! The status page of a running service, which may be anything.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

use serde_json::json;

use crate::place::Place;
use crate::proxy::{Behaviour, Proxy};

fn page(status: u16, body: String) -> Proxy {
    Proxy::start("", Behaviour { always: Some((status, body)), ..Behaviour::default() })
}

#[test]
fn pools_are_shown_with_their_sentences() {
    let place = Place::new();
    let pool = |name: &str, tone: &str| {
        json!({
            "name": name,
            "tone": tone,
            "sentence": format!("{tone} so far"),
            "counters": { "checkouts": 7, "open_failures": { "auth": 3 } },
        })
    };
    let healthy = json!({ "version": 1, "pools": [pool("default", "good")] });
    let found = place.examine(&["--only", "service", "--status", &page(200, healthy.to_string()).url()]);
    assert_eq!(found.status, 0, "{}", found.text);
    assert!(found.text.contains("pool default: good so far"), "{}", found.text);
    let broken = json!({ "version": 1, "pools": [pool("default", "good"), pool("reports", "bad")] });
    let found = place.examine(&["--only", "service", "--status", &page(200, broken.to_string()).url()]);
    found.names("service", "failing-pool", "pool reports: bad so far");
    assert!(found.text.contains("failed opens: 3 auth"), "{}", found.text);
}

#[test]
fn what_is_not_such_a_page_is_named() {
    let place = Place::new();
    // A port that was free a moment ago may be another test's by now.
    let closed = "127.0.0.1:1";
    for (url, fault, words) in [
        (page(401, String::new()).url(), "locked-service", "HTTP 401"),
        (page(403, "<html>".to_owned()).url(), "other-name", "HTTP 403"),
        (page(200, json!({ "version": 1 }).to_string()).url(), "not-a-status", "no list of pools"),
        (page(404, String::new()).url(), "not-a-status", "HTTP 404"),
        (page(200, "<html>".to_owned()).url(), "not-a-status", "does not answer in JSON"),
        (page(200, json!({ "version": 2, "pools": [] }).to_string()).url(), "other-version", "version 2"),
        (format!("http://{closed}"), "unreachable-service", "does not answer"),
        ("https://localhost".to_owned(), "not-a-status", "--status must be"),
        ("http://admin:hunter2@localhost".to_owned(), "not-a-status", "without a user"),
    ] {
        place.examine(&["--only", "service", "--status", &url]).names("service", fault, words);
    }
    // One that never answers.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let found = place.examine(&["--only", "service", "--status", &url, "--timeout", "200ms"]);
    found.names("service", "unreachable-service", "does not answer in time");
}

/// A server that answers everything with these bytes, as often as said, and then waits or ends.
fn raw(bytes: &'static [u8], times: usize, ends: bool) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let _ = socket.read(&mut [0; 4096]);
                // The client leaves when it has read enough.
                let sent = (0..times).try_for_each(|_| socket.write_all(bytes));
                if sent.is_ok() && !ends {
                    let _ = socket.read(&mut [0]);
                }
            });
        }
    });
    url
}

#[test]
fn garbage_and_endless_answers_are_named() {
    let place = Place::new();
    for (url, words) in [
        (raw(b"HTTP/1.1 200 OK\r\n\r\n0123456789abcdef0123456789abcdef", usize::MAX, true), "does not end"),
        (raw(b"\x00\xff\xfe\x1b[2J", 100, true), "is not HTTP"),
        (raw(b"", 0, true), "without an answer"),
        (raw(b"HTTP/1.1 200 OK\r\n\r\n[[[[", 1, true), "does not answer in JSON"),
    ] {
        place.examine(&["--only", "service", "--status", &url]).names("service", "not-a-status", words);
    }
    // One that keeps the connection open after its answer, and talks to the terminal.
    let body = b"HTTP/1.1 200 OK\r\ncontent-length: 84\r\n\r\n\
                 {\"version\":1,\"pools\":[{\"name\":\"a\",\"tone\":\"good\",\"sentence\":\"b\\u001b[2Jc\\u202ed\"}]}  ";
    let found = place.examine(&["--only", "service", "--status", &raw(body, 1, false)]);
    assert_eq!(found.status, 0, "{}", found.text);
    assert!(found.text.contains("pool a: b[2Jcd\n"), "{}", found.text);
}
