//! Cancel requests, also by way of another process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::{Client, NoTls};

use crate::world::{PATIENCE, Plan, World, eventually};

fn plan(id: u8) -> Plan {
    let settings = vec![("peer_id", id.to_string()), ("peer_listen", "127.0.0.1:0".to_owned())];
    Plan { settings, ..Plan::default() }
}

/// Tells a process where its peers are.
async fn introduce(world: &World, peers: &[(u8, SocketAddr)]) {
    let mut config = world.gateway_config();
    let addresses = peers.iter().map(|(id, address)| (*id, address.to_string())).collect();
    config.peers.as_mut().unwrap().addresses = addresses;
    world.gateway.reload(config).await.unwrap();
}

/// Two processes that know each other.
async fn two() -> (World, World) {
    let one = plan(1).start().await;
    let two = one.beside(plan(2)).await.unwrap();
    introduce(&one, &[(2, two.gateway.peer_address().unwrap())]).await;
    introduce(&two, &[(1, one.gateway.peer_address().unwrap())]).await;
    (one, two)
}

/// A client with the key that it was given.
async fn client(world: &World) -> (Client, [u8; 8]) {
    let (client, connection) = world.config().connect(NoTls).await.unwrap();
    // The token shows its key to a server only.
    let key = key_of(&client.cancel_token()).await;
    tokio::spawn(connection);
    (client, key)
}

async fn key_of(token: &tokio_postgres::CancelToken) -> [u8; 8] {
    let (near, mut far) = tokio::io::duplex(64);
    token.cancel_query_raw(near, NoTls).await.unwrap();
    let mut message = [0; 16];
    far.read_exact(&mut message).await.unwrap();
    message[8..].try_into().unwrap()
}

/// Asks at this address to cancel, and waits for the end of the connection. Returns what was answered.
async fn ask(address: SocketAddr, key: [u8; 8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(&[&[0, 0, 0, 16, 4, 210, 22, 46][..], &key].concat()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await.unwrap().unwrap();
    answer
}

/// A statement that waits until it is cancelled: others have all backends.
async fn cancelled_statement(world: &World, client: &Client, cancel: impl Future<Output = ()>) {
    let waits = client.batch_execute("SELECT 1");
    let cancel = async {
        eventually("it waits", || world.gateway.backends()[0].1.pool().status().waiting == 1).await;
        cancel.await;
    };
    let (result, ()) = tokio::join!(waits, cancel);
    assert_eq!(result.unwrap_err().code().unwrap().code(), "57014");
}

/// Clients with all backends.
async fn hold_all(world: &World) -> Vec<Client> {
    let mut holders = Vec::new();
    while world.in_use() < 4 {
        let holder = world.client().await;
        holder.batch_execute("SELECT 1").await.unwrap();
        holders.push(holder);
    }
    holders
}

#[tokio::test]
async fn a_request_at_the_wrong_process_reaches_the_right_one() {
    let (one, two) = two().await;
    for (own, other) in [(&one, &two), (&two, &one)] {
        let (client, key) = client(own).await;
        assert!(key[0] < 128, "drivers take it for a positive number");
        let cancel = async {
            assert!(ask(other.gateway.addresses()[0], key).await.is_empty());
        };
        let holders = hold_all(own).await;
        cancelled_statement(own, &client, cancel).await;
        drop(holders);
        client.batch_execute("SELECT 1").await.unwrap();
    }
}

/// Its clients are still there while it drains, and their requests come to its successor.
#[tokio::test]
async fn a_process_that_drains_is_still_reached() {
    let (one, two) = two().await;
    let (client, key) = client(&one).await;
    let holders = hold_all(&one).await;
    let (cut, ()) = tokio::join!(one.gateway.drain(PATIENCE), async {
        let cancel = async {
            ask(two.gateway.addresses()[0], key).await;
        };
        cancelled_statement(&one, &client, cancel).await;
        drop((client, holders));
    });
    assert_eq!(cut, 0);
}

/// A process that only counts the requests that it is passed.
struct Counter {
    address: SocketAddr,
    count: Arc<AtomicUsize>,
}

impl Counter {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                socket.read_exact(&mut [0; 16]).await.unwrap();
                // Before the end of the connection, for which everybody waits.
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { address, count }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn what_was_passed_on_is_not_passed_on_again() {
    let third = Counter::new().await;
    let world = plan(1).start().await;
    introduce(&world, &[(3, third.address)]).await;
    let mut key = [7; 8];
    key[1] = 3;
    // As from a client: it is passed on, and the connection ends after that.
    assert!(ask(world.gateway.addresses()[0], key).await.is_empty());
    assert_eq!(third.count(), 1);
    // As from a peer that believes it is ours.
    assert!(ask(world.gateway.peer_address().unwrap(), key).await.is_empty());
    assert_eq!(third.count(), 1);
}

#[tokio::test]
async fn a_stranger_learns_nothing_and_reaches_nobody() {
    let (one, two) = two().await;
    let (client, key) = client(&one).await;
    let wrong = |at: usize, bit: u8| {
        let mut wrong = key;
        wrong[at] ^= bit;
        wrong
    };
    client.batch_execute("BEGIN").await.unwrap();
    let places = [
        one.gateway.addresses()[0],
        two.gateway.addresses()[0],
        one.gateway.peer_address().unwrap(),
        two.gateway.peer_address().unwrap(),
    ];
    for place in places {
        // A wrong guess, a process that does not exist, the number zero.
        for key in [wrong(7, 1), wrong(0, 1), wrong(1, 0x40), [0; 8], [255; 8]] {
            assert!(ask(place, key).await.is_empty());
        }
    }
    // The peers' address is for them alone: nobody logs in there.
    for world in [&one, &two] {
        let mut config = world.config();
        config.ssl_mode(tokio_postgres::config::SslMode::Disable);
        let socket = TcpStream::connect(world.gateway.peer_address().unwrap()).await.unwrap();
        let error = config.connect_raw(socket, NoTls).await.err().expect("no login there");
        assert!(error.code().is_none(), "no answer: {error:?}");
    }
    // Nothing was cancelled.
    client.batch_execute("SELECT 1").await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn a_peer_that_does_not_answer_holds_up_no_login() {
    let mut plan = plan(1);
    plan.settings.push(("max_logins", "1".to_owned()));
    let world = plan.start().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    introduce(&world, &[(2, silent.local_addr().unwrap())]).await;
    let mut waits = TcpStream::connect(world.gateway.addresses()[0]).await.unwrap();
    waits.write_all(&[&[0, 0, 0, 16, 4, 210, 22, 46][..], &[2; 8]].concat()).await.unwrap();
    let (mut held, _) = silent.accept().await.unwrap();
    held.read_exact(&mut [0; 16]).await.unwrap();
    world.client().await.batch_execute("SELECT 1").await.unwrap();
    // It still waits for its end, as clients do.
    assert_eq!(waits.try_read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(held);
    assert_eq!(waits.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_peer_that_is_gone_is_no_reason_to_wait() {
    let world = plan(1).start().await;
    let address = world.gateway.addresses()[0];
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    introduce(&world, &[(2, gone)]).await;
    assert!(ask(address, [2; 8]).await.is_empty());
    // What a reload has read holds from now on.
    let peer = Counter::new().await;
    introduce(&world, &[(9, peer.address)]).await;
    assert!(ask(address, [2; 8]).await.is_empty());
    assert!(ask(address, [9; 8]).await.is_empty());
    assert_eq!(peer.count(), 1);
}
