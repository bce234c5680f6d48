//! Other processes that serve the same clients: cancel requests find the one that has the session.
//!
//! A cancel request is a connection of its own. So the system, or a load balancer, may give it to another process than the session. Each
//! process has a number, which is part of its keys, and listens for requests that others pass on. Those are never passed on again.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::clients::CancelKey;

/// Passes a request on, and waits until it was carried out. Cancel safe: a request is sent whole, or not.
pub(crate) async fn pass_on(address: &str, key: CancelKey) -> io::Result<()> {
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(&request(key)).await?;
    // The peer says nothing. It closes the connection when it has done it.
    match socket.read(&mut [0]).await? {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a peer_listen of a gateway")),
    }
}

/// The message by which clients ask, too.
fn request(key: CancelKey) -> [u8; 16] {
    let mut message = [0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e, 0, 0, 0, 0, 0, 0, 0, 0];
    message[8..].copy_from_slice(&key);
    message
}
