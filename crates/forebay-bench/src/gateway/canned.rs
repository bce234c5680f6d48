//! A server that has nothing behind it: it answers with bytes that were encoded before. What pgbench reaches with it is what a
//! proxy can reach at most on these cores.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::contestant::{Contestant, NOTHING};
use super::door::Door;
use super::wire;

/// Threads that serve one client after the other.
const THREADS: usize = 8;
/// `AuthenticationOk`, what libpq wants to know of a server, and `ReadyForQuery`.
const GREETING: &[u8] = b"R\0\0\0\x08\0\0\0\0S\0\0\0\x18server_version\x0015.0\0\
                          S\0\0\0\x19client_encoding\0UTF8\0Z\0\0\0\x05I";
/// The answer to `SELECT 1`.
const ANSWER: &[u8] = b"T\0\0\0\x21\0\x01?column?\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0\
                        D\0\0\0\x0b\0\x01\0\0\0\x011C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I";

/// The server. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Canned {
    pub(super) contestant: Contestant,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Canned {
    pub(super) fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let (listener, over) = (listener.try_clone()?, Arc::clone(&over));
            threads.push(thread::Builder::new().spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // A client that leaves in the middle is nobody's error.
                    drop(listener.accept().and_then(|(socket, _)| serve(socket)));
                }
            })?);
        }
        let door = Door { address, tls: None, password: None };
        let contestant = Contestant { name: NOTHING, door, processes: Vec::new(), _files: None };
        Ok(Self { contestant, over, threads })
    }

    fn address(&self) -> SocketAddr {
        self.contestant.door.address
    }
}

impl Drop for Canned {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Each thread waits for a client.
        for _ in &self.threads {
            drop(TcpStream::connect(self.address()));
        }
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

/// Serves one client until it leaves. Each of its messages comes alone and whole.
fn serve(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut bytes = [0; 1_024];
    if socket.read(&mut bytes)? == 0 {
        return Ok(());
    }
    socket.write_all(GREETING)?;
    loop {
        let count = socket.read(&mut bytes)?;
        if count == 0 || bytes[..count].starts_with(wire::TERMINATE) {
            return Ok(());
        }
        socket.write_all(ANSWER)?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::Connection;
    use super::*;

    #[test]
    fn its_answers_are_those_of_a_server() {
        let server = Canned::start().unwrap();
        let mut connection = Connection::open(&server.contestant.door).unwrap();
        connection.ask(wire::SELECT_1).unwrap();
        assert_eq!(connection.rows(), [[Some("1".to_owned())]]);
    }
}
