//! The endpoints, through real sockets on loopback.

mod access;
mod endpoints;
mod http;
mod lifecycle;
mod streams;

use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::TokioRuntime;
use forebay::{Config, Reservoir};
use forebay_status::{Server, StatusPage};

/// A server in memory, and a full reservoir of ten connections to it.
async fn pool() -> (Memory, Reservoir<Memory>) {
    let server = Memory::new(TokioRuntime::current().expect("a runtime"));
    let config = Config::default().max_open(10).startup_jitter(Duration::ZERO);
    let reservoir = Reservoir::builder(server.clone()).config(config).start().await.expect("a reservoir");
    (server, reservoir)
}

/// The page on a free port of loopback.
async fn serve(page: &StatusPage) -> Server {
    page.serve("127.0.0.1:0".parse().expect("an address")).await.expect("a server")
}
