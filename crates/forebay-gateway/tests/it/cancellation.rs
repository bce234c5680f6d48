//! Every public future is dropped at its awaits: nothing is lost, nothing is left, and it can be called again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio_postgres::NoTls;

use crate::world::{Gate, PATIENCE, Plan, World, eventually};

/// Users with two roles, so that a start opens two pools.
const TWO_ROLES: &str = "[[user]]\nname = 'app'\nrole = 'admin'\n[[user]]\nname = 'bi'\nrole = 'reader'\n";
const ONE_ROLE: &str = "[[user]]\nname = 'app'\nrole = 'admin'\n";
const FOREVER: Duration = Duration::from_secs(3_600);

/// Runs `future` until it waits there, and drops it.
async fn drop_when(what: &str, future: impl Future, waits: impl FnMut() -> bool) {
    match select(Box::pin(future), Box::pin(eventually(what, waits))).await {
        Either::Left(_) => panic!("it has not waited: {what}"),
        Either::Right(((), future)) => drop(future),
    }
}

/// Polls it once.
fn waits_at_once<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

async fn is_let_in(world: &World, user: &str) -> bool {
    let connected = world.config().user(user).connect(NoTls).await;
    if let Ok((client, connection)) = connected {
        tokio::spawn(connection);
        client.batch_execute("SELECT 1").await.unwrap();
        return true;
    }
    false
}

#[tokio::test]
async fn start_dropped_at_each_gate_leaves_no_socket_and_no_pool() {
    let first = Plan::default().start().await;
    first.write_users(TWO_ROLES);
    let live = || first.cluster.counters().live;
    let before = live();
    let directory = tempfile::tempdir().unwrap();
    let plan = |workers| {
        let settings = vec![("unix_socket_dir", directory.path().display().to_string())];
        Plan { workers, settings, ..Plan::default() }
    };
    for (gates, workers) in (0..4).flat_map(|gates| [(gates, 0), (gates, 2)]) {
        let gate = Arc::new(Gate::default());
        gate.let_pass(gates);
        let start = first.beside_held_at(plan(workers), Arc::clone(&gate));
        // Both pools are opened at the same time.
        let held = if gates == 0 { 2 } else { 1 };
        drop_when("pools are opened", start, || gate.held() >= held).await;
        eventually("its pools are closed", || live() == before).await;
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no socket is left");
    }
    let second = first.beside(plan(0)).await.unwrap();
    assert!(is_let_in(&second, "bi").await);
    assert_eq!(second.gateway.drain(PATIENCE).await, 0);
    drop(second);
    eventually("its pools are closed", || live() == before).await;
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn reload_dropped_at_each_gate_changes_nothing() {
    let world = Plan::default().start().await;
    let live = || world.cluster.counters().live;
    eventually("the pool is full", || live() == 4).await;
    world.write_users(TWO_ROLES);
    for gates in 0..2 {
        let held = world.gate.held();
        world.gate.let_pass(gates);
        let reload = world.gateway.reload(world.gateway_config());
        drop_when("the pool is opened", reload, || world.gate.held() > held).await;
        eventually("the new pool is closed", || live() == 4).await;
        assert_eq!(world.gateway.backends().len(), 1);
        assert!(!is_let_in(&world, "bi").await && is_let_in(&world, "app").await);
    }
    // One that waits for another: it is the other one's turn, and nobody else's.
    let held = world.gate.held();
    world.gate.let_pass(0);
    let first = world.gateway.reload(world.gateway_config());
    let waits = async {
        eventually("the first one is held", || world.gate.held() > held).await;
        let mut second = Box::pin(world.gateway.reload(world.gateway_config()));
        assert!(waits_at_once(&mut second));
        drop(second);
    };
    match select(Box::pin(first), Box::pin(waits)).await {
        Either::Left(_) => panic!("it was not held"),
        Either::Right(((), first)) => drop(first),
    }
    world.gate.let_pass(usize::MAX);
    world.gateway.reload(world.gateway_config()).await.unwrap();
    assert!(is_let_in(&world, "bi").await);
    world.write_users(ONE_ROLE);
    world.gateway.reload(world.gateway_config()).await.unwrap();
    eventually("its pool is closed", || live() == 4).await;
}

/// Where a drain waits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Grace,
    LastCall,
    Pools,
}

#[tokio::test]
async fn drain_dropped_at_each_await_goes_on_when_it_is_called_again() {
    for at in [At::Grace, At::LastCall, At::Pools] {
        let world = Plan::default().start().await;
        let address = world.gateway.addresses()[0];
        let (client, connection) = world.config().connect(NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        client.batch_execute("BEGIN").await.unwrap();
        let backends = Arc::clone(&world.gateway.backends()[0].1);
        let held = backends.pool().acquire().await.unwrap();
        let grace = if at == At::LastCall { Duration::ZERO } else { FOREVER };
        if at == At::Pools {
            client.batch_execute("COMMIT").await.unwrap();
            drop(client);
            connection.await.unwrap().unwrap();
            drop_when("a pool is being closed", world.gateway.drain(grace), || {
                backends.pool().status().closed
            })
            .await;
        } else {
            let closed = || std::net::TcpListener::bind(address).is_ok();
            drop_when("it does not listen", world.gateway.drain(grace), closed).await;
            assert_eq!(world.gateway.clients(), 1, "{at:?}");
            client.batch_execute("COMMIT").await.unwrap();
            if at == At::LastCall {
                // It was asked, and that holds.
                let error = connection.await.unwrap().unwrap_err();
                assert_eq!(error.code().unwrap().code(), "57P01");
            } else {
                client.batch_execute("SELECT 1").await.unwrap();
                drop(client);
            }
        }
        drop(held);
        assert_eq!(world.gateway.drain(FOREVER).await, 0, "{at:?}");
        assert_eq!(world.gateway.clients(), 0);
        eventually("every connection is closed", || world.cluster.counters().live == 0).await;
    }
}

#[tokio::test]
async fn reported_dropped_while_it_waits_takes_nothing() {
    let world = Plan { connections: 1, ..Plan::default() }.start().await;
    let backends = Arc::clone(&world.gateway.backends()[0].1);
    let held = backends.pool().acquire().await.unwrap();
    drop_when("it waits", backends.reported(), || backends.pool().status().waiting == 1).await;
    assert_eq!(backends.pool().status().waiting, 0);
    // Served, but not taken any more.
    let mut served = Box::pin(backends.reported());
    assert!(waits_at_once(&mut served));
    drop(held);
    drop(served);
    eventually("it is free", || backends.pool().status().in_use == 0).await;
    assert!(backends.reported().await.unwrap().get("server_version").is_some());
    eventually("it is free", || backends.pool().status().in_use == 0).await;
    assert_eq!(world.cluster.counters().accepted, 1);
}
