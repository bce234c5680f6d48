//! The status page that options ask for.

use std::net::{Ipv4Addr, SocketAddr};

use forebay_dsql::{Dsql, Member, OptionsBuilder};
use forebay_fleet::{MemoryTable, Tables};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::cluster::{Keys, PATIENCE, eventually, options, start};

/// Any free port. Each test has its own address: pools with the same address are on one page.
fn loopback(host: u8) -> SocketAddr {
    (Ipv4Addr::new(127, 0, 0, host), 0).into()
}

/// The status and the body of the answer.
async fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

#[tokio::test]
async fn one_line_serves_a_page_about_all_pools_until_they_are_gone() {
    let cluster = start();
    let of = |name: &str, reservoir: bool| {
        let options = options(&cluster, 3).service("orders").pool(name);
        options.reservoir(reservoir).status_page(loopback(2)).build().unwrap()
    };
    let one = Dsql::connect(of("one", true), Keys::of(&cluster)).await.unwrap();
    let other = Dsql::connect(of("other", false), Keys::of(&cluster)).await.unwrap();
    let address = one.status_page().unwrap();
    assert_eq!(other.status_page(), Some(address), "one page for the process");
    assert_ne!(address.port(), 0);

    let (status, body) = get(address, "/status.json").await;
    assert!(status.ends_with("200 OK"), "{status}");
    for expected in ["orders/one", "orders/other", "\"reservoir\"", "\"standard\""] {
        assert!(body.contains(expected), "no {expected} in\n{body}");
    }
    assert_eq!(get(address, "/readyz").await.0, "HTTP/1.1 200 OK");
    let token = one.token_status().unwrap();
    assert!(token.age.is_some() && token.failures == 0, "{token:?}");

    assert!(one.drain(PATIENCE).await.is_complete());
    drop((one, other));
    eventually("the page is gone with the last pool", || std::net::TcpStream::connect(address).is_err())
        .await;
}

#[tokio::test]
async fn the_page_shows_the_leases_of_a_member_and_its_fleet() {
    let cluster = start();
    let options = || -> OptionsBuilder {
        options(&cluster, 3)
            .reservoir(true)
            .status_page(loopback(3))
            .variable("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true")
            .variable("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "table")
            .variable("DSQL_DISTRIBUTED_CONN_LIMIT", "123")
    };
    let tables = Tables::one(MemoryTable::new());
    let member = Member::builder(&options().build().unwrap(), Keys::of(&cluster)).tables(tables);
    let member = member.join().await.unwrap();
    let pool: Dsql = member.pool(options().build().unwrap()).connect().await.unwrap();
    let fleet = pool.fleet_status().unwrap();
    assert_eq!((fleet.limit, fleet.leases), (123, 3));
    let (_, body) = get(pool.status_page().unwrap(), "/status.json").await;
    assert!(body.contains("123") && body.contains(&fleet.instance), "{body}");
}

#[tokio::test]
async fn an_address_that_is_taken_does_not_stop_the_service() {
    let cluster = start();
    let taken = std::net::TcpListener::bind(loopback(4)).unwrap();
    let address = taken.local_addr().unwrap();
    let options = options(&cluster, 1).status_page(address).build().unwrap();
    let pool = Dsql::connect(options, Keys::of(&cluster)).await.unwrap();
    assert_eq!(pool.status_page(), None);
    pool.acquire().await.unwrap().batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_pool_with_another_token_is_not_on_the_page() {
    let cluster = start();
    let of = |name: &str, token: &str| {
        let options = options(&cluster, 1).pool(name).status_page(loopback(5));
        options.variable("DSQL_DESK_TOKEN", token).build().unwrap()
    };
    let open = Dsql::connect(of("open", ""), Keys::of(&cluster)).await.unwrap();
    let address = open.status_page().unwrap();
    let secret = Dsql::connect(of("secret", "4fd0c1d95a4e4b5c"), Keys::of(&cluster)).await.unwrap();
    assert_eq!(secret.status_page(), None);
    let (_, body) = get(address, "/status.json").await;
    assert!(body.contains("/open") && !body.contains("/secret"), "{body}");
    secret.acquire().await.unwrap().batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_page_is_served_again_at_once() {
    let cluster = start();
    let of = |address| options(&cluster, 1).status_page(address).build().unwrap();
    let first = Dsql::connect(of(loopback(6)), Keys::of(&cluster)).await.unwrap();
    let address = first.status_page().unwrap();
    drop(first);
    let second = Dsql::connect(of(address), Keys::of(&cluster)).await.unwrap();
    assert_eq!(second.status_page(), Some(address));
}

#[tokio::test]
async fn pools_of_the_same_name_are_all_shown() {
    let cluster = start();
    let options = || options(&cluster, 1).service("orders").status_page(loopback(7)).build().unwrap();
    let first = Dsql::connect(options(), Keys::of(&cluster)).await.unwrap();
    let second = Dsql::connect(options(), Keys::of(&cluster)).await.unwrap();
    let address = first.status_page().unwrap();
    let names = || async { get(address, "/status.json").await.1 };
    let shown = names().await;
    assert!(shown.contains("orders/default\"") && shown.contains("orders/default (2)\""), "{shown}");
    drop(first);
    let third = Dsql::connect(options(), Keys::of(&cluster)).await.unwrap();
    assert!(!names().await.contains("orders/default (3)"), "the first name is free again");
    drop((second, third));
}
