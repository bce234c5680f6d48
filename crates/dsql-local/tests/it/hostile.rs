//! Input that no correct client sends: no panic, and bounded memory and time.

use std::time::Duration;

use dsql_local::{Cluster, Config};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::{PATIENCE, client_config, config, connect, eventually, socket, start};

/// Waits until the server closes the socket.
async fn closed(mut socket: impl tokio::io::AsyncRead + Unpin) -> Vec<u8> {
    let mut said = Vec::new();
    let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut said)).await.expect("still open");
    // A reset is a close, too.
    drop(read);
    said
}

async fn tls(cluster: &Cluster, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = socket(cluster.address()).await;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(client_config(cluster)).connect(name, socket).await
}

fn impatient() -> Config {
    // Enough for a correct login on a busy machine.
    Config { login_timeout: Duration::from_secs(2), write_timeout: Duration::from_millis(500), ..config() }
}

#[tokio::test]
async fn malformed_and_truncated_packets_close_the_connection() {
    let cluster = start(impatient());
    let mut packets: Vec<Vec<u8>> = vec![
        vec![0x7f, 0xff, 0xff, 0xff, 4, 210, 22, 47],
        vec![0xff; 64],
        vec![0; 64],
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        // Half a start-up packet; half a TLS record.
        vec![0, 0, 0, 80, 0, 3],
        vec![0x16, 3, 1, 2, 0, 1, 0],
        vec![0x16; 600],
        vec![],
    ];
    // Pseudo-random bytes, the same in every run.
    packets.extend((1..40_u32).map(|seed| {
        let mut state = seed;
        let next = |state: &mut u32| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        (0..seed * 7).map(|_| next(&mut state)).collect()
    }));
    let (count, address) = (packets.len() as u64, cluster.address());
    let mut sockets = tokio::task::JoinSet::new();
    for packet in packets {
        sockets.spawn(async move {
            let mut socket = socket(address).await;
            drop(socket.write_all(&packet).await);
            closed(socket).await;
        });
    }
    while let Some(ended) = sockets.join_next().await {
        ended.unwrap();
    }
    connect(&cluster).await.simple_query("SELECT 1").await.unwrap();
    eventually("all counted", || cluster.counters().refusals() == count).await;
}

#[tokio::test]
async fn inside_tls_too() {
    let cluster = start(impatient());
    let mut startup = vec![0, 0, 0, 19, 0, 3, 0, 0];
    startup.extend(b"user\0admin\0\0");
    startup[3] = u8::try_from(startup.len()).unwrap();
    let huge_password = [startup.clone(), vec![b'p', 0x7f, 0xff, 0xff, 0xff]].concat();
    // A message that is allowed only after the login.
    let long_password = [startup.clone(), vec![b'p', 0, 0x20, 0, 0]].concat();
    let not_a_password = [startup.clone(), vec![b'Q', 0, 0, 0, 6, b'x', 0]].concat();
    for packet in [
        vec![0x7f, 0xff, 0xff, 0xff],
        vec![0xff; 9],
        vec![0, 0, 0, 9, 0, 3, 0, 0, 1],
        huge_password,
        long_password,
        not_a_password,
    ] {
        let mut stream = tls(&cluster, "localhost").await.unwrap();
        drop(stream.write_all(&packet).await);
        drop(stream.flush().await);
        closed(stream).await;
    }
    connect(&cluster).await.simple_query("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn tls_needs_the_right_server_name_and_explains_a_missing_one() {
    let cluster = start(config());
    tls(&cluster, "evil.example").await.unwrap_err();
    eventually("counted", || cluster.counters().refused.get("tls") == Some(&1)).await;
    // An IP address is not sent as a server name.
    let mut stream = tls(&cluster, "127.0.0.1").await.unwrap();
    stream.write_all(b"\0\0\0\x14\0\x03\0\0user\0admin\0\0").await.unwrap();
    let said = closed(stream).await;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("unable to accept connection, sni was not received"), "{said}");
}

#[tokio::test]
async fn direct_tls_without_alpn_closes_the_connection() {
    let cluster = start(config());
    let mut client = (*client_config(&cluster)).clone();
    client.alpn_protocols.clear();
    let socket = socket(cluster.address()).await;
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(std::sync::Arc::new(client)).connect(name, socket).await.unwrap();
    assert!(closed(stream).await.is_empty());
    eventually("counted", || cluster.counters().refused.get("alpn") == Some(&1)).await;
}

#[tokio::test]
async fn five_thousand_silent_sockets_block_nobody() {
    let cluster = start(Config { login_timeout: PATIENCE, ..config() });
    let mut silent = Vec::new();
    for _ in 0..5_000 {
        silent.push(socket(cluster.address()).await);
    }
    eventually("all accepted", || cluster.counters().sockets == 5_000).await;
    connect(&cluster).await.simple_query("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn silent_sockets_are_limited() {
    let cluster = start(Config { login_limit: 3, login_timeout: PATIENCE, ..config() });
    let mut silent = Vec::new();
    for _ in 0..5 {
        silent.push(socket(cluster.address()).await);
    }
    eventually("two turned away", || cluster.counters().refused.get("crowded") == Some(&2)).await;
    silent.clear();
    eventually("three gone", || cluster.counters().refused.get("gone") == Some(&3)).await;
    connect(&cluster).await;
}

#[tokio::test]
async fn and_a_deadline() {
    let cluster = start(Config { login_timeout: Duration::from_millis(100), ..config() });
    for _ in 0..3 {
        closed(socket(cluster.address()).await).await;
    }
    eventually("all timed out", || cluster.counters().refused.get("timeout") == Some(&3)).await;
}

#[tokio::test]
async fn a_client_that_never_reads_is_dropped() {
    let cluster = start(impatient());
    let client = connect(&cluster).await;
    client.simple_query("SELECT 1").await.unwrap();
    drop(client);
    let mut stream = login(&cluster).await;
    // Answers of a megabyte each, which the client does not read.
    let sql = b"SELECT hex(randomblob(500000))\0";
    let mut query = vec![b'Q'];
    query.extend(u32::try_from(sql.len() + 4).unwrap().to_be_bytes());
    query.extend(sql);
    for _ in 0..200 {
        if stream.write_all(&query).await.is_err() {
            break;
        }
    }
    drop(stream.flush().await);
    eventually("dropped", || cluster.counters().live == 0).await;
    connect(&cluster).await;
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_the_session() {
    let cluster = start(config());
    let mut stream = login(&cluster).await;
    stream.write_all(&[b'Q', 0x7f, 0xff, 0xff, 0xff]).await.unwrap();
    assert!(closed(stream).await.is_empty());
    eventually("gone", || cluster.counters().live == 0).await;
}

#[tokio::test]
async fn names_of_statements_take_room_too() {
    let cluster = start(config());
    let mut stream = login(&cluster).await;
    let mut refused = false;
    // Names of 4 MB; a session may keep fifteen with their statements.
    for number in 0..16_u8 {
        let mut name = vec![b'x'; 4 << 20];
        name[0] = b'A' + number;
        let body = [&name[..], b"\0SELECT 1\0\0\0"].concat();
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        let parse = [&b"P"[..], &length, &body, b"S\0\0\0\x04"].concat();
        stream.write_all(&parse).await.unwrap();
        stream.flush().await.unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"Z\0\0\0\x05I") {
            assert!(stream.read_buf(&mut said).await.unwrap() > 0);
        }
        refused |= String::from_utf8_lossy(&said).contains("C54000");
    }
    assert!(refused);
}

#[tokio::test]
async fn a_query_of_millions_of_statements_is_refused_at_once() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let error = client.simple_query(&"a;".repeat(4 << 20)).await.err().unwrap();
    assert_eq!(error.code().unwrap().code(), "54000");
    client.simple_query("SELECT 1").await.unwrap();
}

/// A session without a client library.
pub(crate) async fn login(cluster: &Cluster) -> TlsStream<TcpStream> {
    let mut stream = tls(cluster, "localhost").await.unwrap();
    let startup = b"\0\0\0\x26\0\x03\0\0user\0admin\0database\0postgres\0\0";
    stream.write_all(startup).await.unwrap();
    let token = cluster.token("admin").unwrap();
    let mut password = vec![b'p'];
    password.extend(u32::try_from(token.len() + 5).unwrap().to_be_bytes());
    password.extend(token.as_bytes());
    password.push(0);
    stream.write_all(&password).await.unwrap();
    // The last message of a login is ReadyForQuery.
    let mut said = Vec::new();
    while !said.ends_with(b"Z\0\0\0\x05I") {
        assert!(stream.read_buf(&mut said).await.unwrap() > 0, "{}", String::from_utf8_lossy(&said));
    }
    stream
}
