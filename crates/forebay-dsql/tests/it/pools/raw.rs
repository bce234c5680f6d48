//! Connections without a client: what a pool knows of them, although their users speak the protocol themselves.

use std::sync::Arc;

use dsql_local::Cluster;
use forebay_dsql::{ConnectionState, DsqlPool, PooledConnection, RawPostgres};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::cluster::{PATIENCE, eventually, pool, start};
use crate::fake::{Act, Anybody, Fake, done, error, in_order, message};

/// Remembers how often it was used.
type Raw = RawPostgres<u32>;
type Lent<'a> = PooledConnection<'a, Raw>;

fn query(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len() + 5).unwrap().to_be_bytes();
    [b"Q", &length[..], text.as_bytes(), b"\0"].concat()
}

async fn say(connection: &mut Lent<'_>, text: &str) {
    connection.write_all(&query(text)).await.unwrap();
    connection.flush().await.unwrap();
}

/// Says something, and reads until the server is ready again. The kinds of the frames it answered with.
async fn ask(connection: &mut Lent<'_>, text: &str) -> String {
    frames(connection, text).await.into_iter().map(|(kind, _)| char::from(kind)).collect()
}

/// The same, with all that the server said.
async fn answer(connection: &mut Lent<'_>, text: &str) -> Vec<u8> {
    frames(connection, text).await.into_iter().flat_map(|(_, body)| body).collect()
}

async fn frames(connection: &mut Lent<'_>, text: &str) -> Vec<(u8, Vec<u8>)> {
    say(connection, text).await;
    let mut frames = Vec::new();
    loop {
        let kind = connection.read_u8().await.unwrap();
        let length = connection.read_u32().await.unwrap();
        let mut body = vec![0; length as usize - 4];
        connection.read_exact(&mut body).await.unwrap();
        frames.push((kind, body));
        if kind == b'Z' {
            return frames;
        }
    }
}

async fn one(cluster: &Arc<Cluster>) -> DsqlPool<Raw> {
    pool(cluster, 1, true).await
}

#[tokio::test]
async fn the_program_speaks_and_its_memory_stays_with_the_connection() {
    let cluster = start();
    let pool = one(&cluster).await;
    let mut lent = pool.acquire().await.unwrap();
    assert!(lent.reported().iter().any(|(name, _)| &**name == "server_version"));
    assert_eq!(ask(&mut lent, "SELECT 1").await, "TDCZ");
    lent.memory += 1;
    let id = lent.id();
    drop(lent);
    let lent = pool.acquire().await.unwrap();
    assert_eq!((lent.memory, lent.id()), (1, id));
    assert!(lent.is_alive() && !lent.is_due());
}

#[tokio::test]
async fn a_transaction_that_is_left_open_is_rolled_back() {
    let cluster = start();
    let pool = one(&cluster).await;
    let mut lent = pool.acquire().await.unwrap();
    let id = lent.id();
    assert_eq!(ask(&mut lent, "CREATE TABLE t (id int PRIMARY KEY)").await, "CZ");
    for begin in ["BEGIN", "BEGIN; SELECT nothing"] {
        ask(&mut lent, begin).await;
        ask(&mut lent, "INSERT INTO t VALUES (1)").await;
        drop(lent);
        lent = pool.acquire().await.unwrap();
        assert_eq!(lent.id(), id, "after {begin}");
        assert_eq!(ask(&mut lent, "SELECT id FROM t").await, "TCZ", "after {begin}");
    }
}

#[tokio::test]
async fn answers_that_nobody_reads_do_not_reach_the_next_user() {
    let cluster = start();
    let pool = one(&cluster).await;
    let mut lent = pool.acquire().await.unwrap();
    let id = lent.id();
    for unread in ["SELECT 1", "SELECT generate_series(1, 10000)", "BEGIN"] {
        say(&mut lent, unread).await;
        drop(lent);
        lent = pool.acquire().await.unwrap();
        assert_eq!(lent.id(), id, "after {unread}");
        assert_eq!(ask(&mut lent, "SELECT 2").await, "TDCZ", "after {unread}");
    }
}

#[tokio::test]
async fn settings_are_the_programs_business_once_it_says_so() {
    let cluster = start();
    let pool = one(&cluster).await;
    let mut lent = pool.acquire().await.unwrap();
    let id = lent.id();
    ask(&mut lent, "SET application_name = 'mine'").await;
    assert_eq!(lent.state(), ConnectionState::Altered);
    lent.settings_are_known();
    assert_eq!(lent.state(), ConnectionState::Clean);
    drop(lent);
    let mut lent = pool.acquire().await.unwrap();
    assert_eq!(lent.id(), id);
    // If it does not, or says that it does not know, they are reset.
    for unknown in [false, true] {
        ask(&mut lent, "SET search_path = 'mine'").await;
        if unknown {
            lent.settings_are_known();
            lent.settings_are_unknown();
        }
        drop(lent);
        lent = pool.acquire().await.unwrap();
        assert_eq!(lent.id(), id);
        assert_eq!(lent.state(), ConnectionState::Clean);
        let answer = answer(&mut lent, "SHOW search_path").await;
        assert!(!String::from_utf8_lossy(&answer).contains("mine"), "{answer:?}");
    }
}

/// RESET ALL leaves the role, and a server of which nothing is known may have let a function change it.
#[tokio::test]
async fn a_connection_with_another_role_is_for_nobody() {
    for is_changed in [false, true] {
        let fake = Fake::start(move |text| {
            let answer = match text {
                text if text.contains("current_user") && is_changed => {
                    [error("ERROR", "22012", "division by zero"), message(b'Z', b"I")].concat()
                }
                text if text.contains("current_user") => done("SELECT 1", b"I"),
                text => in_order(text),
            };
            vec![Act::Send(answer)]
        })
        .await;
        let options = fake.options(1).reservoir(true).build().unwrap();
        let pool: DsqlPool<Raw> = DsqlPool::connect(options, Anybody).await.unwrap();
        let lent = pool.acquire().await.unwrap();
        let id = lent.id();
        lent.settings_are_unknown();
        drop(lent);
        let lent = pool.acquire_within(PATIENCE).await.unwrap();
        assert_eq!(lent.id() != id, is_changed);
    }
}

#[tokio::test]
async fn a_connection_that_dies_in_the_pool_is_replaced_before_anybody_wants_it() {
    let cluster = start();
    let pool: DsqlPool<Raw> = pool(&cluster, 4, true).await;
    eventually("it is full", || pool.status().idle == 4).await;
    let born = cluster.counters().accepted;
    assert_eq!(cluster.sever(1.0), 4);
    eventually("others have taken their place", || {
        pool.status().idle == 4 && cluster.counters().accepted == born + 4
    })
    .await;
    let mut lent = pool.acquire().await.unwrap();
    assert_eq!(ask(&mut lent, "SELECT 1").await, "TDCZ");
    // One that is in use ends for its user.
    cluster.sever(1.0);
    assert_eq!(lent.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert!(!lent.is_alive());
    drop(lent);
    assert!(pool.drain(PATIENCE).await.is_complete());
}
