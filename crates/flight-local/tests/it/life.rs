//! Start, reboot and stop.

use std::future::Future;
use std::net::TcpStream;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flight_local::{Access, Config, FlightLocal, StartError, tell};

use crate::client::{beside, connect, number, pause, query, start, until, update};

#[tokio::test]
async fn a_reboot_ends_sessions_and_keeps_what_was_committed() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TABLE t (n INT); INSERT INTO t VALUES (1)").await.unwrap();
    update(&mut client, "CREATE TEMP TABLE mine (n INT); BEGIN; INSERT INTO t VALUES (2)").await.unwrap();
    let mut busy = connect(&server).await;
    let running = beside(async move { query(&mut busy, "SELECT sleep_ms(600000)").await });
    until(&server, |counters| counters.statements_running == 1).await;
    let address = server.address();
    let mut refused = false;
    {
        let mut rebooting = pin!(server.reboot(Duration::from_millis(300)));
        let done = std::future::poll_fn(|context| {
            let done = rebooting.as_mut().poll(context);
            if done.is_pending() {
                refused |= TcpStream::connect(address).is_err();
                context.waker().wake_by_ref();
            }
            done
        });
        done.await.unwrap();
    }
    assert!(refused, "nobody was refused meanwhile");
    assert!(running.await.unwrap().is_err());
    // The channel reconnects by itself, and has another session.
    assert!(query(&mut client, "SELECT * FROM mine").await.is_err());
    assert_eq!(server.address(), address);
    until(&server, |counters| counters.statements_running == 0).await;
    let mut again = connect(&server).await;
    assert_eq!(number(&mut again, "SELECT sum(n) FROM t").await, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_stop_interrupts_what_runs_and_frees_the_port() {
    let server = start(Config::default()).await;
    let address = server.address();
    let mut client = connect(&server).await;
    let running = beside(async move { query(&mut client, "SELECT sleep_ms(600000)").await });
    until(&server, |counters| counters.statements_running == 1).await;
    server.stop().await;
    assert!(running.await.unwrap().is_err());
    assert!(TcpStream::connect(address).is_err());
    let server = start(Config { listen: address, ..Config::default() }).await;
    assert_eq!(server.address(), address);
    let taken = FlightLocal::start(Config { listen: address, ..Config::default() }).await.unwrap_err();
    assert!(matches!(taken, StartError::Listen { .. }), "{taken}");
    assert!(taken.to_string().contains(&address.to_string()));
    drop(server);
    assert!(TcpStream::connect(address).is_err());
    for config in [
        Config { session_limit: 0, ..Config::default() },
        Config { endpoints_per_result: 0, ..Config::default() },
        Config { max_batch_rows: 0, ..Config::default() },
        Config { endpoints_per_result: 101, ..Config::default() },
    ] {
        let nothing = FlightLocal::start(config).await.unwrap_err();
        assert!(matches!(nothing, StartError::Setting(_)), "{nothing}");
    }
}

#[tokio::test]
async fn a_database_can_be_kept_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let config = || Config { database: Some(directory.path().join("kept.db")), ..Config::default() };
    let server = start(config()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TABLE t (n INT); INSERT INTO t VALUES (7)").await.unwrap();
    server.stop().await;
    let server = start(config()).await;
    let mut client = connect(&server).await;
    assert_eq!(number(&mut client, "SELECT n FROM t").await, 7);
    server.stop().await;
}

/// Polls a future this many times and drops it.
fn poll_times<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..times).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

#[tokio::test]
async fn every_call_can_be_dropped_at_every_await() {
    for times in 0..3 {
        drop(poll_times(FlightLocal::start(Config::default()), times));
    }
    let server = start(Config { control: true, ..Config::default() }).await;
    let mut client = connect(&server).await;
    number(&mut client, "SELECT 1").await;
    for times in 0..5 {
        drop(poll_times(tell(&server.url(), &Access::default(), "counters"), times));
    }
    until(&server, |counters| counters.connections_open == 1).await;
    for times in 0..3 {
        drop(poll_times(server.reboot(Duration::ZERO), times));
    }
    // A reboot continues without its caller.
    until(&server, |counters| counters.sessions_open == 0).await;
    server.reboot(Duration::ZERO).await.unwrap();
    let mut client = connect(&server).await;
    assert_eq!(number(&mut client, "SELECT 1").await, 1);
    let address = server.address();
    // A stop continues too; on a busy machine it may end before it is dropped.
    let (None | Some(())) = poll_times(server.stop(), 1);
    while TcpStream::connect(address).is_ok() {
        pause(5).await;
    }
    let server = start(Config::default()).await;
    let address = server.address();
    drop(server.stop());
    assert!(TcpStream::connect(address).is_err());
}
