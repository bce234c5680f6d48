//! A client that proves its password with the code of another project, and may change what it sends.

use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::super::{Accepted, LoginError, LoginShared, Peer, login};
use super::start;

/// What a login came to.
pub(super) struct Heard {
    pub(super) login: Result<Outcome, LoginError>,
    /// Every message of the server.
    pub(super) messages: Vec<(u8, Vec<u8>)>,
}

#[derive(Debug)]
pub(super) enum Outcome {
    /// It was let in, and has left. This is what was to be sent to it, and what it had sent.
    Client {
        unsent: Vec<u8>,
        unread: Vec<u8>,
    },
    Other,
}

/// Logs in. `change` gets each message of the authentication before it is sent.
pub(super) async fn visit(
    shared: &LoginShared,
    user: &str,
    password: &str,
    change: impl FnMut(usize, &mut Vec<u8>),
) -> Heard {
    let (near, far) = duplex(64 << 10);
    let guest = guest(near, user, password, change);
    let login = async {
        Ok(match login(far, Peer::Unix, shared).await? {
            Accepted::Client(client) => Outcome::Client { unsent: client.unsent, unread: client.unread },
            Accepted::Cancel(_) | Accepted::Gone => Outcome::Other,
        })
    };
    let (login, mut messages) = tokio::join!(login, guest);
    if let Ok(Outcome::Client { unsent, .. }) = &login {
        let mut unsent = &unsent[..];
        while let Some(message) = split(&mut unsent) {
            messages.push(message);
        }
    }
    Heard { login, messages }
}

async fn guest(
    mut near: DuplexStream,
    user: &str,
    password: &str,
    mut change: impl FnMut(usize, &mut Vec<u8>),
) -> Vec<(u8, Vec<u8>)> {
    let mut messages = Vec::new();
    let hello = start(3 << 16, &[("user", user), ("database", "postgres")]);
    if near.write_all(&hello).await.is_err() {
        return messages;
    }
    let mut scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
    for step in 0.. {
        let Some((kind, body)) = read(&mut near).await else { break };
        messages.push((kind, body.clone()));
        let mut answer = match (kind, body.get(3)) {
            (b'R', Some(10)) => {
                let data = scram.message();
                let length = u32::try_from(data.len()).unwrap().to_be_bytes();
                [b"SCRAM-SHA-256\0", &length[..], data].concat()
            }
            (b'R', Some(11)) => match scram.update(&body[4..]) {
                Ok(()) => scram.message().to_vec(),
                Err(_) => break,
            },
            _ => break,
        };
        let length = u32::try_from(answer.len() + 4).unwrap().to_be_bytes();
        answer.splice(0..0, [b'p'].into_iter().chain(length));
        change(step, &mut answer);
        if near.write_all(&answer).await.is_err() {
            break;
        }
    }
    // Whatever it waits for, this is the end.
    drop(near.shutdown().await);
    while let Some(message) = read(&mut near).await {
        messages.push(message);
    }
    messages
}

async fn read(near: &mut DuplexStream) -> Option<(u8, Vec<u8>)> {
    let mut header = [0; 5];
    near.read_exact(&mut header).await.ok()?;
    let length = u32::from_be_bytes(header[1..].try_into().unwrap());
    let mut body = vec![0; usize::try_from(length).unwrap() - 4];
    near.read_exact(&mut body).await.ok()?;
    Some((header[0], body))
}

fn split(bytes: &mut &[u8]) -> Option<(u8, Vec<u8>)> {
    let (&kind, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (body, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()? - 4)?;
    *bytes = rest;
    Some((kind, body.to_vec()))
}
