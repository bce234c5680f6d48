//! Clients that do not read what they asked for.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::world::{PATIENCE, Plan, World, eventually};

/// More than all the buffers on the way hold.
const ROWS: usize = 120_000;

/// More than the buffers of the system hold.
const MOST_BUFFERED: usize = 24 << 20;

/// A client that is logged in and has asked for many rows.
async fn asker(world: &World) -> TcpStream {
    let mut socket = guest(world).await;
    let text =
        format!("SELECT g, 'some more bytes for each of the rows' FROM generate_series(1, {ROWS}) AS g\0");
    let length = u32::try_from(text.len() + 4).unwrap().to_be_bytes();
    socket.write_all(&[b"Q", &length[..], text.as_bytes()].concat()).await.unwrap();
    socket
}

/// A client that is logged in.
async fn guest(world: &World) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut socket = socket.connect(world.gateway.addresses()[0]).await.unwrap();
    let body = b"\0\x03\0\0user\0app\0database\0postgres\0\0";
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    socket.write_all(&[&length[..], body].concat()).await.unwrap();
    while frame(&mut socket).await.0 != b'Z' {}
    socket
}

async fn frame(socket: &mut TcpStream) -> (u8, usize) {
    let kind = socket.read_u8().await.unwrap();
    let length = socket.read_u32().await.unwrap() as usize - 4;
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.unwrap();
    (kind, length)
}

#[tokio::test]
async fn a_slow_reader_gets_everything() {
    let world = Plan { workers: 1, ..Plan::default() }.start().await;
    let mut socket = asker(&world).await;
    let read = async {
        let mut rows = 0;
        loop {
            match frame(&mut socket).await.0 {
                b'D' => rows += 1,
                b'Z' => return rows,
                _ => {}
            }
            // Now and then it does something else, until all buffers are full.
            if rows % 50_000 == 1_000 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, read).await.unwrap(), ROWS);
}

#[tokio::test]
async fn one_that_does_not_read_at_all_is_cut_off() {
    let mut plan = Plan::default();
    plan.settings.push(("write_timeout", "100ms".to_owned()));
    let world = plan.start().await;
    let socket = asker(&world).await;
    eventually("it has a backend", || world.in_use() == 1).await;
    eventually("it is cut off", || world.gateway.clients() == 0 && world.in_use() == 0).await;
    drop(socket);
}

/// Each Sync is answered without a backend, and nobody reads the answers.
#[tokio::test]
async fn a_flood_of_requests_is_not_read_without_end() {
    let world = Plan { workers: 1, ..Plan::default() }.start().await;
    let mut socket = guest(&world).await;
    let flood = b"S\0\0\0\x04".repeat(10_000);
    let mut sent = 0;
    // Until nobody takes more. The buffers of the system hold some megabytes.
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(300), socket.write(&flood)).await {
        sent += written.unwrap();
        assert!(sent < MOST_BUFFERED, "the gateway goes on reading");
    }
}
