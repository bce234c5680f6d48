//! Users, roles and limits that change while clients are connected.

use std::sync::Arc;
use std::time::Duration;

use forebay_gateway::config::Authentication;
use tokio_postgres::NoTls;

use crate::world::{PATIENCE, Plan, World, eventually};

/// The user `app` is `admin`; `bi` is `reader`.
const BOTH: &str = "[[user]]\nname = 'app'\nrole = 'admin'\n[[user]]\nname = 'bi'\nrole = 'reader'\n";
const ONE: &str = "[[user]]\nname = 'app'\nrole = 'admin'\n";

async fn with_two_roles() -> World {
    let world = Plan::default().start().await;
    set_users(&world, BOTH).await;
    world
}

async fn set_users(world: &World, text: &str) {
    world.write_users(text);
    world.gateway.reload(world.gateway_config()).await.unwrap();
}

/// A client with a connection of `reader`.
async fn reader(world: &World) -> tokio_postgres::Client {
    let mut config = world.config();
    let (client, connection) = config.user("bi").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("SELECT 1").await.unwrap();
    client
}

#[tokio::test]
async fn the_pool_of_a_removed_role_closes_when_its_last_client_leaves() {
    let world = with_two_roles().await;
    let live = || world.cluster.counters().live;
    eventually("both pools are full", || live() == 8).await;
    let [first, second] = [reader(&world).await, reader(&world).await];
    // Weakly: it must not stay open for this.
    let removed = Arc::downgrade(&world.gateway.backends()[1].1);
    set_users(&world, ONE).await;
    assert_eq!(world.gateway.backends().len(), 1);
    assert!(world.config().user("bi").connect(NoTls).await.is_err(), "nobody is this user any more");
    drop(first);
    // The other one goes on, also on a connection that it has yet to get.
    assert!(world.cluster.sever(1.0) > 0);
    eventually("the gateway has noticed", || {
        removed.upgrade().is_some_and(|pool| pool.pool().status().in_use == 0)
    })
    .await;
    eventually("both pools are full again", || live() == 8).await;
    second.batch_execute("SELECT 1").await.unwrap();
    drop(second);
    eventually("the other pool alone", || live() == 4).await;
    assert!(removed.upgrade().is_none());
}

#[tokio::test]
async fn a_pool_without_clients_closes_at_once_and_one_that_is_wanted_again_stays() {
    let world = with_two_roles().await;
    let live = || world.cluster.counters().live;
    let client = reader(&world).await;
    eventually("both pools are full", || live() == 8).await;
    let opened = world.cluster.counters().accepted;
    set_users(&world, ONE).await;
    set_users(&world, BOTH).await;
    // The pool that the client has kept open is used again.
    let other = reader(&world).await;
    assert_eq!((live(), world.cluster.counters().accepted), (8, opened));
    drop((client, other));
    set_users(&world, ONE).await;
    eventually("the other pool alone", || live() == 4).await;
    set_users(&world, BOTH).await;
    reader(&world).await;
}

#[tokio::test]
async fn a_drain_closes_the_pools_of_removed_roles_too() {
    let world = with_two_roles().await;
    let client = reader(&world).await;
    set_users(&world, ONE).await;
    let drained = tokio::join!(world.gateway.drain(Duration::from_secs(60)), async { drop(client) });
    assert_eq!(drained.0, 0);
    eventually("every connection is closed", || world.cluster.counters().live == 0).await;
}

#[tokio::test]
async fn a_new_backend_timeout_holds_for_pools_that_are_open() {
    let settings = vec![("backend_timeout", "1h".to_owned())];
    let world = Plan { connections: 1, settings, ..Plan::default() }.start().await;
    let [first, second] = [world.client().await, world.client().await];
    first.batch_execute("SELECT 1").await.unwrap();
    let mut config = world.gateway_config();
    config.timeouts.backend = Duration::from_millis(20);
    world.gateway.reload(config).await.unwrap();
    let waits = tokio::time::timeout(PATIENCE, second.batch_execute("SELECT 2"));
    let error = waits.await.expect("not for an hour").unwrap_err();
    assert_eq!(error.code().unwrap().code(), "53300", "{error:?}");
    drop(first);
}

/// Where it listens was checked with the old one, and stays as it is.
#[tokio::test]
async fn how_clients_prove_who_they_are_stays_until_a_restart() {
    let world = with_two_roles().await;
    let mut config = world.gateway_config();
    assert_eq!(std::mem::replace(&mut config.auth, Authentication::Scram), Authentication::Trust);
    // With SCRAM, these users would have no way to log in, and the reload would be refused.
    world.gateway.reload(config).await.unwrap();
    drop(reader(&world).await);
}
