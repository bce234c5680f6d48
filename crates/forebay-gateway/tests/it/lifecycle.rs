//! Limits, reloads and the end of a gateway.

use std::time::Duration;

use tokio_postgres::NoTls;

use crate::world::{PATIENCE, Plan, eventually};

fn code(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("", |code| code.code())
}

#[tokio::test]
async fn what_a_client_leaves_behind_is_rolled_back_and_reset() {
    let world = Plan { connections: 1, ..Plan::default() }.start().await;
    let first = world.client().await;
    first.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    first.batch_execute("SET search_path = 'elsewhere'").await.unwrap();
    first.batch_execute("BEGIN").await.unwrap();
    first.batch_execute("SET application_name = 'lost'; INSERT INTO public.t VALUES (1)").await.unwrap();
    drop(first);
    let second = world.client().await;
    assert!(second.query("SELECT id FROM t", &[]).await.unwrap().is_empty());
    let row = second.query_one("SHOW search_path", &[]).await.unwrap();
    assert_ne!(row.get::<_, String>(0), "elsewhere");
    let row = second.query_one("SHOW application_name", &[]).await.unwrap();
    assert_ne!(row.get::<_, String>(0), "lost");
    // On the same connection: nothing was wasted.
    assert_eq!(world.cluster.counters().accepted, 1);
}

/// The pool resets all settings of a connection that was left in a transaction with another time zone.
#[tokio::test]
async fn start_up_settings_hold_on_a_connection_that_was_left_in_a_transaction() {
    let world = Plan { connections: 1, ..Plan::default() }.start().await;
    let connect = async || {
        let mut config = world.config();
        let (client, connection) = config.options("-c TimeZone=Asia/Tokyo").connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    };
    let first = connect().await;
    first.batch_execute("BEGIN").await.unwrap();
    first.batch_execute("SET TimeZone = 'Europe/Berlin'").await.unwrap();
    drop(first);
    let second = connect().await;
    let row = second.query_one("SHOW TimeZone", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "Asia/Tokyo");
    assert_eq!(world.cluster.counters().accepted, 1);
}

#[tokio::test]
async fn statements_of_the_one_before_are_not_there() {
    let world = Plan { connections: 1, ..Plan::default() }.start().await;
    let first = world.client().await;
    let _kept = first.prepare("SELECT 1").await.unwrap();
    std::mem::forget(_kept);
    drop(first);
    let second = world.client().await;
    // tokio-postgres counts its statements from zero in each process, so a raw Parse of the first name it used must succeed.
    for _ in 0..3 {
        second.prepare("SELECT 2").await.unwrap();
    }
    assert_eq!(world.cluster.counters().accepted, 1);
}

#[tokio::test]
async fn a_client_that_waits_in_vain_is_told_why_and_goes_on() {
    let mut plan = Plan { connections: 1, ..Plan::default() };
    plan.settings.push(("backend_timeout", "1s".to_owned()));
    let world = plan.start().await;
    let [first, second] = [world.client().await, world.client().await];
    first.batch_execute("SELECT 1").await.unwrap();
    let error = second.batch_execute("SELECT 2").await.unwrap_err();
    assert_eq!(code(&error), "53300", "{error:?}");
    assert!(error.as_db_error().unwrap().message().contains("all 1 connections are in use"));
    drop(first);
    eventually("the connection is free", || world.in_use() == 0).await;
    second.batch_execute("SELECT 2").await.unwrap();
}

#[tokio::test]
async fn every_timeout_has_its_code() {
    for (setting, statements, expected) in [
        ("idle_timeout", &["SELECT 1"][..], "57P05"),
        ("idle_in_transaction_timeout", &["BEGIN"][..], "25P03"),
        ("transaction_timeout", &["BEGIN"][..], "25P04"),
    ] {
        let mut plan = Plan::default();
        plan.settings.push((setting, "60ms".to_owned()));
        let world = plan.start().await;
        let (client, connection) = world.config().connect(NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        for statement in statements {
            // On a busy machine an idle client may be ended before its first statement.
            drop(client.batch_execute(statement).await);
        }
        let error = tokio::time::timeout(PATIENCE, connection).await.unwrap().unwrap().unwrap_err();
        assert_eq!(code(&error), expected, "{setting}: {error:?}");
        eventually("the backend is back, and clean", || world.in_use() == 0).await;
        assert_eq!(world.gateway.clients(), 0);
    }
}

#[tokio::test]
async fn a_drain_ends_idle_sessions_and_lets_transactions_finish() {
    let world = Plan::default().start().await;
    let (idle, connection) = world.config().connect(NoTls).await.unwrap();
    let idle_end = tokio::spawn(connection);
    idle.batch_execute("SELECT 1").await.unwrap();
    let busy = world.client().await;
    busy.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    busy.batch_execute("BEGIN").await.unwrap();
    busy.batch_execute("INSERT INTO t VALUES (1)").await.unwrap();
    let drain = async {
        assert_eq!(world.gateway.drain(Duration::from_millis(20)).await, 0, "clients were cut off");
    };
    let finish = async {
        let error = idle_end.await.unwrap().unwrap_err();
        assert_eq!(code(&error), "57P01", "{error:?}");
        busy.batch_execute("COMMIT").await.unwrap();
    };
    tokio::join!(drain, finish);
    assert!(world.config().connect(NoTls).await.is_err(), "nobody listens any more");
    eventually("every connection is closed", || world.cluster.counters().live == 0).await;
}

#[tokio::test]
async fn a_drain_can_be_dropped_at_any_time_and_called_again() {
    let world = Plan::default().start().await;
    let client = world.client().await;
    client.batch_execute("BEGIN").await.unwrap();
    for _ in 0..3 {
        let drain = world.gateway.drain(Duration::from_secs(600));
        assert!(tokio::time::timeout(Duration::from_millis(5), drain).await.is_err());
    }
    client.batch_execute("COMMIT").await.unwrap();
    drop(client);
    assert_eq!(world.gateway.drain(Duration::from_secs(600)).await, 0);
}

#[tokio::test]
async fn a_gateway_is_ready_while_a_role_has_a_connection_and_until_it_drains() {
    let world = Plan::default().start().await;
    let readiness = world.gateway.readiness();
    assert_eq!(readiness.reasons(), [""; 0]);
    // Nobody gets in any more, and those who are in are thrown out.
    world.cluster.set_limits(dsql_local::Limits { connections: 0, ..world.cluster.limits() });
    world.cluster.sever(1.0);
    eventually("it has noticed", || !readiness.reasons().is_empty()).await;
    assert_eq!(readiness.reasons(), ["no role has a connection to the cluster"]);
    world.cluster.set_limits(dsql_local::Limits::default());
    eventually("it has one again", || readiness.reasons().is_empty()).await;
    let held = world.client().await;
    let drain = async {
        world.gateway.drain(PATIENCE).await;
    };
    let look = async {
        assert_eq!(readiness.reasons(), ["the gateway is draining"]);
        drop(held);
    };
    tokio::join!(drain, look);
    drop(world);
    eventually("nothing of it is left", || readiness.reasons() == ["the gateway has ended"]).await;
}

#[tokio::test]
async fn who_does_not_finish_is_cut_off_and_counted() {
    let world = Plan::default().start().await;
    world.client().await.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    eventually("it has left", || world.gateway.clients() == 0).await;
    let (idle, connection) = world.config().connect(NoTls).await.unwrap();
    let end_of_idle = tokio::spawn(connection);
    idle.batch_execute("BEGIN").await.unwrap();
    let (rolls_back, may_commit) = (world.client().await, world.client().await);
    rolls_back.batch_execute("BEGIN").await.unwrap();
    // From now on, statements take too long.
    world.cluster.inject("delay:at=statement,for=1h".parse().unwrap());
    let mut ends = Vec::new();
    for (client, expected) in [(rolls_back, "57P01"), (may_commit, "08007")] {
        let before = world.cluster.counters().statements;
        let insert = tokio::spawn(async move { client.batch_execute("INSERT INTO t VALUES (1)").await });
        ends.push((insert, expected));
        eventually("the statement runs", || world.cluster.counters().statements > before).await;
    }
    // They have five seconds for it.
    assert_eq!(world.gateway.drain(Duration::ZERO).await, 3);
    assert_eq!(code(&end_of_idle.await.unwrap().unwrap_err()), "57P01");
    for (end, expected) in ends {
        let error = end.await.unwrap().unwrap_err();
        assert_eq!(code(&error), expected, "{error:?}");
    }
    assert_eq!(world.gateway.clients(), 0);
    // The statements end.
    world.cluster.clock().advance(Duration::from_secs(3_600));
    eventually("every connection is closed", || world.cluster.counters().live == 0).await;
}

#[tokio::test]
async fn a_reload_adds_users_or_changes_nothing() {
    let world = Plan::default().start().await;
    let mut config = world.config();
    config.user("later");
    assert!(config.connect(NoTls).await.is_err());
    world.write_users("[[user]]\nname = 'app'\nrole = 'admin'\n[[user]]\nname = 'later'\n");
    assert!(world.gateway.reload(world.gateway_config()).await.is_err(), "a user without a role");
    assert!(config.connect(NoTls).await.is_err());
    world.client().await.batch_execute("SELECT 1").await.unwrap();
    world.write_users("[[user]]\nname = 'app'\nrole = 'admin'\n[[user]]\nname = 'later'\nrole = 'admin'\n");
    world.gateway.reload(world.gateway_config()).await.unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_client_that_waits_is_told_why_while_it_waits() {
    let world = Plan { connections: 1, ..Plan::default() }.start().await;
    let first = world.client().await;
    first.batch_execute("SELECT 1").await.unwrap();
    let (second, mut connection) = world.config().connect(NoTls).await.unwrap();
    let notice = tokio::spawn(async move {
        loop {
            match std::future::poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(tokio_postgres::AsyncMessage::Notice(notice))) => return (notice, connection),
                Some(Ok(_)) => {}
                other => panic!("no notice, but {:?}", other.map(|message| message.err())),
            }
        }
    });
    let waits = tokio::spawn(async move { second.batch_execute("SELECT 2").await });
    let (notice, connection) = tokio::time::timeout(PATIENCE, notice).await.unwrap().unwrap();
    assert!(notice.message().contains("all 1 connections are in use"), "{notice:?}");
    let served = tokio::spawn(connection);
    drop(first);
    waits.await.unwrap().unwrap();
    drop(served);
}
