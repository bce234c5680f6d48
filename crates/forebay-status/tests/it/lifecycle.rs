//! How a page, its server and its streams end.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use forebay_status::{PoolSnapshot, PoolSource, StatusPage};
use tokio::net::TcpStream;

use crate::http::{Stream, get};
use crate::{pool, serve};

#[tokio::test]
async fn a_dropped_server_closes_its_port_and_its_streams() {
    let page = StatusPage::new();
    let server = serve(&page).await;
    let address = server.address();
    let mut stream = Stream::events(address).await;
    stream.until("event: whole").await;
    let mut idle = TcpStream::connect(address).await.expect("connected");
    drop(server);
    stream.end().await;
    assert_eq!(tokio::io::AsyncReadExt::read(&mut idle, &mut [0; 1]).await.unwrap_or_default(), 0);
    while TcpStream::connect(address).await.is_ok() {
        forebay::rt::yield_now().await;
    }
    // The page itself goes on.
    let again = serve(&page).await;
    assert_eq!(get(again.address(), "/healthz").await.status, 200);
}

#[tokio::test]
async fn the_address_of_a_dropped_server_is_free_at_once() {
    let page = StatusPage::new();
    let server = serve(&page).await;
    let listen = forebay_status::Listen::new(server.address());
    drop(server);
    let again = page.serve(listen).await.expect("the address is free");
    assert_eq!(get(again.address(), "/healthz").await.status, 200);
}

#[test]
fn a_server_ends_with_its_runtime() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let page = StatusPage::new();
    let first = runtime();
    let server = first.block_on(serve(&page));
    assert!(server.is_serving());
    drop(first);
    assert!(!server.is_serving());
    assert!(std::net::TcpStream::connect(server.address()).is_err(), "the port is closed");
}

#[test]
fn a_page_goes_on_in_another_runtime() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let page = StatusPage::new();
    let first = runtime();
    drop(first.block_on(serve(&page)));
    drop(first);
    runtime().block_on(async {
        let server = serve(&page).await;
        let mut stream = Stream::events(server.address()).await;
        stream.until("event: sample").await;
    });
}

/// A source that panics, and calls the page back when it is asked and when it is dropped.
struct Rude(StatusPage);

impl PoolSource for Rude {
    fn snapshot(&self) -> Option<PoolSnapshot> {
        self.0.note("asked");
        panic!("the source fell over, as told")
    }
}

impl Drop for Rude {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

#[tokio::test]
async fn a_source_that_panics_and_calls_back_does_not_stop_the_page() {
    let page = StatusPage::new();
    let (_memory, reservoir) = pool().await;
    page.pool("broken", Rude(page.clone()));
    page.reservoir("orders", &reservoir);
    let server = serve(&page).await;
    let mut stream = Stream::events(server.address()).await;
    stream.until("event: sample").await;
    page.reservoir("broken", &reservoir);
    stream.until("dropped").await;
    assert_eq!(get(server.address(), "/readyz").await.status, 200);
}

#[tokio::test]
async fn a_closed_page_ends_its_streams_and_opens_no_more() {
    let page = StatusPage::new();
    let server = serve(&page).await;
    let mut stream = Stream::events(server.address()).await;
    stream.until("event: whole").await;
    page.close();
    stream.end().await;
    let mut refused = Stream::events(server.address()).await;
    refused.end().await;
    assert_eq!(get(server.address(), "/status.json").await.status, 200, "the rest still answers");
}

#[tokio::test]
async fn a_page_does_not_keep_a_pool_open() {
    let (memory, reservoir) = pool().await;
    let page = StatusPage::new();
    page.reservoir("orders", &reservoir);
    let server = serve(&page).await;
    let mut stream = Stream::events(server.address()).await;
    stream.until("\"state\":\"full\"").await;
    drop(reservoir);
    stream.until("\"state\":\"closed\"").await;
    while memory.live() > 0 {
        forebay::rt::yield_now().await;
    }
}

#[tokio::test]
async fn a_cancelled_serve_leaves_nothing_behind() {
    let page = StatusPage::new();
    let free = serve(&page).await.address();
    // Cut off at its first poll, if it did not complete at once.
    {
        let mut serving = pin!(page.serve(forebay_status::Listen::new(free)));
        let polled = serving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(Ok(server)) = polled {
            drop(server);
        }
    }
    while TcpStream::connect(free).await.is_ok() {
        forebay::rt::yield_now().await;
    }
    let server = page.serve(forebay_status::Listen::new(free)).await.expect("the port is free again");
    assert_eq!(get(server.address(), "/healthz").await.status, 200);
}

#[tokio::test]
async fn a_router_from_outside_a_runtime_starts_with_its_first_request() {
    let page = StatusPage::new();
    let router = std::thread::scope(|scope| scope.spawn(|| page.router()).join().expect("no panic"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    #[allow(clippy::disallowed_methods, reason = "as a service does it")]
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let status = get(address, "/status.json").await.json();
    assert_eq!(status["tick"], 1);
    serving.abort();
}
