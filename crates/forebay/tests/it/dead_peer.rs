//! Real sockets: a driver task that reads its socket and holds a monitor guard notices a peer that closes.
#![allow(clippy::disallowed_methods, reason = "the sockets and the driver tasks are tokio's")]

use std::future::Future;
use std::time::Duration;

use forebay::{Connect, ConnectionMonitor, Discard, Failure, OpenError, Reservoir};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

use crate::support::config;

struct Tcp(String);

impl Connect for Tcp {
    type Connection = OwnedWriteHalf;

    async fn open(&self, monitor: ConnectionMonitor) -> Result<OwnedWriteHalf, OpenError> {
        let socket = TcpStream::connect(&self.0).await;
        let (mut reader, writer) = socket.map_err(|error| OpenError::new(Failure::Open, error))?.into_split();
        let guard = monitor.guard();
        tokio::spawn(async move {
            let _guard = guard;
            while reader.read(&mut [0; 64]).await.is_ok_and(|bytes| bytes > 0) {}
        });
        Ok(writer)
    }
}

/// Accepts connections, and closes all of them whenever it is sent a message.
async fn peer() -> (String, broadcast::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let close_all = broadcast::Sender::new(1);
    let closing = close_all.clone();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let mut closing = closing.subscribe();
            tokio::spawn(async move {
                closing.recv().await.ok();
                drop(socket);
            });
        }
    });
    (address, close_all)
}

/// Bounded, so that a death that goes unnoticed fails the test instead of hanging it.
async fn eventually(what: &str, condition: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(60), condition)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn connections_whose_peer_closes_are_discarded_and_replaced_though_nobody_uses_them() {
    let (address, close_all) = peer().await;
    let reservoir = Reservoir::builder(Tcp(address)).config(config(10)).start().await.unwrap();
    let lent = reservoir.checkout().await.unwrap();
    assert_eq!((reservoir.status().ready, reservoir.status().in_use), (9, 1));

    // A connect succeeds before the peer accepts it, so the peer may not know all connections yet.
    eventually("all accepted", async {
        while close_all.receiver_count() < 10 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    close_all.send(()).unwrap();
    eventually("all ready connections are replaced", async {
        loop {
            let status = reservoir.status();
            if status.counts.discards(Discard::Died) >= 9 && status.ready == 9 {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;

    // The lent one is dead as well. It is not lent again.
    eventually("the lent connection is due", async {
        while !lent.is_due() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(lent);
    assert_eq!(reservoir.status().counts.discards(Discard::Died), 10);

    // All connections that are ready now work.
    let mut fresh = reservoir.checkout().await.unwrap();
    fresh.write_all(b"hello").await.unwrap();
    assert!(!fresh.is_due());
}
