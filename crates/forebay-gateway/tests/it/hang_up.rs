//! Clients that leave in the middle of something. Their connections are used again, and the next client sees nothing of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dsql_local::EngineKind;
use forebay_gateway::protocol::write;
use futures_util::SinkExt;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

use crate::world::{PATIENCE, Plan, World, eventually};

/// One connection, so that whoever comes next gets the one that was left.
async fn world(mode: &'static str) -> World {
    Plan { connections: 1, mode, ..Plan::default() }.start().await
}

/// From now on, statements take until [`go_on`]. Those that run already do not.
fn hold_up(world: &World) {
    world.cluster.inject("delay:at=statement,for=1h".parse().unwrap());
}

fn go_on(world: &World) {
    world.cluster.heal_all();
}

/// A client that can be killed.
struct Mortal {
    client: Arc<Client>,
    connection: JoinHandle<()>,
}

impl Mortal {
    async fn new(world: &World) -> Self {
        let (client, connection) = world.config().connect(NoTls).await.unwrap();
        let connection = tokio::spawn(async move {
            // How it ends is told to the client.
            let _ = connection.await;
        });
        Self { client: Arc::new(client), connection }
    }

    /// Sends a statement, and does not wait for the answer.
    fn runs(&self, sql: &'static str) {
        let client = Arc::clone(&self.client);
        tokio::spawn(async move { client.batch_execute(sql).await });
    }

    /// Its socket closes without a word.
    async fn dies(self) {
        self.connection.abort();
        assert!(self.connection.await.unwrap_err().is_cancelled());
    }
}

/// The cluster runs a statement of somebody.
async fn runs(world: &World, statements: u64) {
    eventually("the statement runs", || world.cluster.counters().statements > statements).await;
}

/// Its client is gone, and the gateway has noticed.
async fn gone(world: &World) {
    eventually("nobody is connected", || world.gateway.clients() == 0).await;
}

/// The connection is free, and no other one was opened.
async fn is_reused(world: &World) {
    eventually("it is given back", || world.in_use() == 0).await;
    let client = world.client().await;
    let row = client.query_one("SHOW search_path", &[]).await.unwrap();
    assert_ne!(row.get::<_, String>(0), "elsewhere");
    // It is in no transaction.
    client.batch_execute("BEGIN; ROLLBACK").await.unwrap();
    assert_eq!(world.cluster.counters().accepted, 1);
}

async fn values(world: &World) -> Vec<i32> {
    let rows = world.client().await.query("SELECT id FROM t ORDER BY id", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn with_table(world: &World) {
    world.client().await.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    gone(world).await;
}

/// A client that is logged in and says what it likes.
async fn raw(world: &World) -> TcpStream {
    let mut socket = TcpStream::connect(world.gateway.addresses()[0]).await.unwrap();
    let body = b"\0\x03\0\0user\0app\0database\0postgres\0\0";
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    socket.write_all(&[&length[..], body].concat()).await.unwrap();
    hears(&mut socket, b'Z').await;
    socket
}

/// Waits for a message of this type.
async fn hears(socket: &mut TcpStream, kind: u8) {
    loop {
        let heard = socket.read_u8().await.unwrap();
        let length = socket.read_u32().await.unwrap() as usize - 4;
        socket.read_exact(&mut vec![0; length]).await.unwrap();
        if heard == kind {
            return;
        }
    }
}

fn execute(out: &mut Vec<u8>, sql: &str) {
    write::parse(out, b"", &[sql.as_bytes(), &[0, 0, 0]].concat());
    write::bind(out, b"", b"");
    write::execute(out, b"");
}

#[tokio::test]
async fn one_that_dies_during_a_statement() {
    for mode in ["session", "elastic"] {
        let world = world(mode).await;
        with_table(&world).await;
        let mortal = Mortal::new(&world).await;
        mortal.client.batch_execute("SET search_path = 'elsewhere'").await.unwrap();
        hold_up(&world);
        let before = world.cluster.counters().statements;
        mortal.runs("INSERT INTO public.t VALUES (1)");
        runs(&world, before).await;
        mortal.dies().await;
        // Its place is free, though its statement goes on.
        gone(&world).await;
        assert_eq!(world.in_use(), 1);
        go_on(&world);
        is_reused(&world).await;
        assert_eq!(values(&world).await, [1], "as with a server that has not noticed");
    }
}

#[tokio::test]
async fn one_that_dies_during_a_statement_of_a_transaction() {
    let world = world("session").await;
    with_table(&world).await;
    let mortal = Mortal::new(&world).await;
    mortal.client.batch_execute("BEGIN; SET search_path = 'elsewhere'").await.unwrap();
    hold_up(&world);
    let before = world.cluster.counters().statements;
    mortal.runs("INSERT INTO public.t VALUES (1)");
    runs(&world, before).await;
    mortal.dies().await;
    gone(&world).await;
    go_on(&world);
    is_reused(&world).await;
    assert_eq!(values(&world).await, [0; 0]);
}

#[tokio::test]
async fn one_that_dies_in_the_middle_of_a_pipeline() {
    let world = world("session").await;
    with_table(&world).await;
    // Without a Flush, nothing is answered; with one, everything is.
    for flushes in [false, true] {
        let mut socket = raw(&world).await;
        let mut frames = Vec::new();
        let before = world.cluster.counters().statements;
        execute(&mut frames, "INSERT INTO t VALUES (1)");
        execute(&mut frames, "INSERT INTO t VALUES (2)");
        // And a part of the next one.
        frames.extend_from_slice(b"P\0\0\0\x40un");
        if flushes {
            frames.truncate(frames.len() - 7);
            write::bare(&mut frames, b'H');
        }
        socket.write_all(&frames).await.unwrap();
        if flushes {
            hears(&mut socket, b'C').await;
            hears(&mut socket, b'C').await;
        } else {
            runs(&world, before + 1).await;
        }
        drop(socket);
        gone(&world).await;
        is_reused(&world).await;
        assert_eq!(values(&world).await, [0; 0], "it had no Sync, flushes: {flushes}");
    }
}

#[tokio::test]
async fn one_that_says_good_bye_without_waiting_for_its_answers() {
    let world = world("session").await;
    with_table(&world).await;
    let mut socket = raw(&world).await;
    let mut frames = Vec::new();
    write::query(&mut frames, b"INSERT INTO t VALUES (1)");
    execute(&mut frames, "INSERT INTO t VALUES (2)");
    write::bare(&mut frames, b'S');
    write::bare(&mut frames, b'X');
    socket.write_all(&frames).await.unwrap();
    drop(socket);
    gone(&world).await;
    is_reused(&world).await;
    assert_eq!(values(&world).await, [1, 2]);
}

#[tokio::test]
async fn one_that_dies_on_postgresql_while_it_sleeps_and_while_it_copies() {
    let world = Plan { engine: EngineKind::Postgres, connections: 1, ..Plan::default() }.start().await;
    with_table(&world).await;
    let mortal = Mortal::new(&world).await;
    let before = world.cluster.counters().statements;
    mortal.runs("SELECT pg_sleep(0.2)");
    runs(&world, before).await;
    mortal.dies().await;
    gone(&world).await;
    is_reused(&world).await;
    // Data has come, but not all of it.
    let mortal = Mortal::new(&world).await;
    let sink = mortal.client.copy_in::<_, Bytes>("COPY t FROM STDIN").await.unwrap();
    let mut sink = Box::pin(sink);
    sink.send(Bytes::from_static(b"1\n2\n")).await.unwrap();
    mortal.dies().await;
    drop(sink);
    gone(&world).await;
    is_reused(&world).await;
    // The server has not said yet that it takes data.
    let mut socket = raw(&world).await;
    let mut frames = Vec::new();
    execute(&mut frames, "COPY t FROM STDIN");
    write::bare(&mut frames, b'S');
    socket.write_all(&frames).await.unwrap();
    drop(socket);
    gone(&world).await;
    is_reused(&world).await;
    assert_eq!(values(&world).await, [0; 0]);
}

#[tokio::test]
async fn a_statement_that_takes_too_long_costs_its_connection() {
    let world = world("session").await;
    let mortal = Mortal::new(&world).await;
    hold_up(&world);
    let before = world.cluster.counters().statements;
    mortal.runs("SELECT 1");
    runs(&world, before).await;
    mortal.dies().await;
    eventually("another one is opened", || world.cluster.counters().accepted == 2).await;
    go_on(&world);
    world.client().await.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn one_that_waits_gets_the_connection_of_one_that_has_died() {
    for mode in ["session", "elastic"] {
        let world = world(mode).await;
        let mortal = Mortal::new(&world).await;
        hold_up(&world);
        let before = world.cluster.counters().statements;
        mortal.runs("SELECT 1");
        runs(&world, before).await;
        let heir = world.client().await;
        let served = heir.batch_execute("SELECT 2");
        let death = async {
            eventually("it waits", || world.gateway.backends()[0].1.pool().status().waiting == 1).await;
            mortal.dies().await;
            eventually("it alone is connected", || world.gateway.clients() == 1).await;
            go_on(&world);
        };
        let (served, ()) = tokio::join!(served, death);
        served.unwrap();
        assert_eq!(world.cluster.counters().accepted, 1, "{mode}");
    }
}

/// It may have tried elsewhere meanwhile.
#[tokio::test]
async fn one_that_dies_while_it_waits_for_a_connection_has_not_asked_for_anything() {
    for mode in ["session", "elastic"] {
        let world = world(mode).await;
        with_table(&world).await;
        let first = world.client().await;
        first.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
        let second = Mortal::new(&world).await;
        let waits = || world.gateway.backends()[0].1.pool().status().waiting == 1;
        second.runs("INSERT INTO t VALUES (2)");
        eventually("it waits", waits).await;
        second.dies().await;
        eventually("it is gone, and waits no more", || world.gateway.clients() == 1 && !waits()).await;
        first.batch_execute("COMMIT").await.unwrap();
        drop(first);
        assert_eq!(values(&world).await, [1], "{mode}");
    }
}

#[tokio::test]
async fn the_connection_may_be_lost_meanwhile() {
    let world = world("elastic").await;
    let mortal = Mortal::new(&world).await;
    hold_up(&world);
    let before = world.cluster.counters().statements;
    mortal.runs("SELECT 1");
    runs(&world, before).await;
    mortal.dies().await;
    gone(&world).await;
    assert_eq!(world.cluster.sever(1.0), 1);
    eventually("another one is opened", || world.cluster.counters().accepted == 2).await;
    go_on(&world);
    world.client().await.batch_execute("SELECT 1").await.unwrap();
    eventually("it is free", || world.in_use() == 0).await;
}

#[tokio::test]
async fn a_pool_without_users_waits_for_its_last_statement() {
    let world = world("session").await;
    let users = "[[user]]\nname = 'app'\nrole = 'admin'\n[[user]]\nname = 'bi'\nrole = 'reader'\n";
    world.write_users(users);
    world.gateway.reload(world.gateway_config()).await.unwrap();
    let live = || world.cluster.counters().live;
    eventually("both pools are full", || live() == 2).await;
    let removed = Arc::downgrade(&world.gateway.backends()[1].1);
    let (client, connection) = world.config().user("bi").connect(NoTls).await.unwrap();
    let mortal =
        Mortal { client: Arc::new(client), connection: tokio::spawn(async move { drop(connection.await) }) };
    hold_up(&world);
    let before = world.cluster.counters().statements;
    mortal.runs("SELECT 1");
    runs(&world, before).await;
    mortal.dies().await;
    gone(&world).await;
    world.write_users("[[user]]\nname = 'app'\nrole = 'admin'\n");
    let reload = world.gateway.reload(world.gateway_config());
    reload.await.unwrap();
    go_on(&world);
    eventually("the other pool alone", || live() == 1 && removed.upgrade().is_none()).await;
    world.client().await.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_gateway_that_ends_waits_for_a_moment() {
    for answered in [true, false] {
        let world = world("session").await;
        let mortal = Mortal::new(&world).await;
        hold_up(&world);
        let before = world.cluster.counters().statements;
        mortal.runs("SELECT 1");
        runs(&world, before).await;
        mortal.dies().await;
        gone(&world).await;
        if answered {
            go_on(&world);
        }
        assert_eq!(world.gateway.drain(PATIENCE).await, 0);
        go_on(&world);
        eventually("every connection is closed", || world.cluster.counters().live == 0).await;
    }
}

/// The counters of this thread.
#[derive(Default)]
struct Counted(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: String = key.labels().map(|label| label.value()).collect();
        let name = format!("{} {labels}", key.name());
        Counter::from_arc(Arc::clone(self.0.lock().unwrap().entry(name).or_default()))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

impl Counted {
    fn abandoned(&self, outcome: &str) -> u64 {
        let name = format!("forebay_gateway_abandoned_total {outcome}");
        self.0.lock().unwrap().get(&name).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn what_comes_of_each_is_counted() {
    let counted = Counted::default();
    let _local = metrics::set_default_local_recorder(&counted);
    let world = world("session").await;
    // One that leaves between two statements is nothing to count.
    drop(world.client().await);
    for outcome in ["reused", "lost", "late"] {
        let mortal = Mortal::new(&world).await;
        // It has a connection, also if the one before was lost.
        mortal.client.batch_execute("SELECT 1").await.unwrap();
        hold_up(&world);
        let before = world.cluster.counters().statements;
        mortal.runs("SELECT 1");
        runs(&world, before).await;
        mortal.dies().await;
        gone(&world).await;
        assert_eq!(counted.abandoned(outcome), 0);
        match outcome {
            "reused" => go_on(&world),
            "lost" => assert_eq!(world.cluster.sever(1.0), 1),
            _ => {}
        }
        eventually("it is counted", || counted.abandoned(outcome) == 1).await;
        go_on(&world);
    }
    let mut socket = raw(&world).await;
    let mut frames = Vec::new();
    write::query(&mut frames, b"BEGIN");
    execute(&mut frames, "INSERT INTO t VALUES ($1)");
    // A Bind with a long parameter that does not come.
    frames.extend_from_slice(b"B\0\0\x20\0\0\0\0\0\0\x01\0\0\x10\0value");
    socket.write_all(&frames).await.unwrap();
    hears(&mut socket, b'Z').await;
    drop(socket);
    eventually("it is counted", || counted.abandoned("useless") == 1).await;
    let counts = ["reused", "lost", "late", "useless"].map(|outcome| counted.abandoned(outcome));
    assert_eq!(counts, [1; 4]);
}

/// Whatever comes first.
#[tokio::test]
async fn everything_at_once() {
    for order in 0..8 {
        let world = Plan { workers: order % 3, ..Plan::elastic(2) }.start().await;
        let [mortal, other] = [Mortal::new(&world).await, Mortal::new(&world).await];
        hold_up(&world);
        let before = world.cluster.counters().statements;
        mortal.runs("INSERT INTO t VALUES (1)");
        other.runs("SELECT 1");
        runs(&world, before + 1).await;
        let cancel = mortal.client.cancel_token();
        let cancel = tokio::spawn(async move { drop(cancel.cancel_query(NoTls).await) });
        let cut = || {
            world.cluster.sever(1.0);
        };
        let drain = async {
            if order & 1 == 0 {
                tokio::task::yield_now().await;
                go_on(&world);
            }
            world.gateway.drain(Duration::from_millis(10)).await
        };
        let die = async {
            if order & 2 == 0 {
                cut();
            }
            if order & 4 == 0 {
                tokio::task::yield_now().await;
            }
            mortal.dies().await;
            cut();
            other.dies().await;
            cut();
            go_on(&world);
        };
        let (unfinished, ()) = tokio::join!(drain, die);
        assert_eq!(unfinished, 0, "{order}");
        cancel.await.unwrap();
        assert_eq!((world.gateway.clients(), world.in_use()), (0, 0), "{order}");
        eventually("every connection is closed", || world.cluster.counters().live == 0).await;
    }
}
