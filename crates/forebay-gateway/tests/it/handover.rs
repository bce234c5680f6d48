//! A process takes over the port of another.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_gateway::StartError;
use forebay_gateway::users::ScramVerifier;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio_postgres::NoTls;

use crate::world::{PATIENCE, Plan, World, eventually};

fn plan(settings: &[(&'static str, String)]) -> Plan {
    Plan { workers: 2, settings: settings.to_vec(), ..Plan::default() }
}

/// A gateway on a TCP port or on a Unix socket in this directory, and its successor.
async fn two(socket: Option<&Path>) -> (World, World) {
    let (listen, socket) = match socket {
        None => ("127.0.0.1:0", String::new()),
        Some(directory) => ("", directory.display().to_string()),
    };
    let mut settings = vec![("listen", listen.to_owned()), ("unix_socket_dir", socket)];
    let old = plan(&settings).start().await;
    if let Some(address) = old.gateway.addresses().first() {
        settings[0].1 = address.to_string();
    }
    assert!(matches!(old.beside(plan(&settings)).await, Err(StartError::Listen { .. })), "an accident");
    settings.push(("so_reuseport", "true".to_owned()));
    let new = old.beside(plan(&settings)).await.unwrap();
    (old, new)
}

/// Clients that connect, run a statement and leave, until they are stopped.
struct Visitors {
    stop: Arc<AtomicBool>,
    visits: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Visitors {
    fn new(count: usize, config: &tokio_postgres::Config) -> Self {
        let (stop, visits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let visit = |_| {
            let (stop, visits, config) = (Arc::clone(&stop), Arc::clone(&visits), config.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let (client, connection) = config.connect(NoTls).await.expect("nobody is refused");
                    let connection = tokio::spawn(connection);
                    client.batch_execute("SELECT 1").await.expect("and everybody is served");
                    drop(client);
                    connection.await.unwrap().unwrap();
                    visits.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let tasks = (0..count).map(visit).collect();
        Self { stop, visits, tasks }
    }

    async fn more(&self, count: usize) {
        let enough = self.visits.load(Ordering::Relaxed) + count;
        eventually("more visits", || {
            self.visits.load(Ordering::Relaxed) >= enough || self.tasks.iter().any(|task| task.is_finished())
        })
        .await;
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn nobody_is_refused(old: World, new: World, config: tokio_postgres::Config) {
    let visitors = Visitors::new(16, &config);
    visitors.more(100).await;
    assert_eq!(old.gateway.drain(PATIENCE).await, 0);
    drop(old);
    // None is left in a queue of the old one: those whose first packet it dropped have come again.
    visitors.more(100).await;
    visitors.stop().await;
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    eventually("it is a client of the new one", || new.gateway.clients() == 1).await;
    drop(client);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_is_refused_while_a_successor_takes_over_the_port() {
    let (old, new) = two(None).await;
    let config = old.config();
    nobody_is_refused(old, new, config).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_is_refused_while_a_successor_takes_over_the_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = two(Some(directory.path())).await;
    let mut config = tokio_postgres::Config::new();
    config.host_path(directory.path()).port(6432).user("app").dbname("postgres");
    nobody_is_refused(old, new, config).await;
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the last one removes its socket");
}

/// Both are listening, and so half of these have connected to the old one.
#[tokio::test]
async fn those_that_have_connected_are_served_by_the_old_one() {
    let (old, new) = two(None).await;
    let address = old.gateway.addresses()[0];
    let mut waiting = Vec::new();
    for _ in 0..40 {
        waiting.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    let drain = async {
        assert_eq!(old.gateway.drain(PATIENCE).await, 0);
    };
    let clients = async {
        // They have been silent until now: the drain has begun.
        for socket in waiting {
            let mut config = old.config();
            config.ssl_mode(tokio_postgres::config::SslMode::Disable);
            let (client, connection) = config.connect_raw(socket, NoTls).await.expect("it is let in");
            let connection = tokio::spawn(connection);
            client.batch_execute("SELECT 1").await.unwrap();
            drop(client);
            connection.await.unwrap().unwrap();
        }
    };
    tokio::join!(drain, clients);
    eventually("those of the new one have left, too", || new.gateway.clients() == 0).await;
}

#[tokio::test]
async fn a_login_after_the_grace_is_refused_and_one_within_it_is_not() {
    let world = Plan::default().start().await;
    let held = world.client().await;
    held.batch_execute("BEGIN").await.unwrap();
    let mut config = world.config();
    config.ssl_mode(tokio_postgres::config::SslMode::Disable);
    let address = world.gateway.addresses()[0];
    let connect = async || tokio::net::TcpStream::connect(address).await.unwrap();
    let [early, late] = [connect().await, connect().await];
    let drain = async {
        assert_eq!(
            world.gateway.drain(Duration::from_millis(300)).await,
            0,
            "the transaction has ended in time"
        );
    };
    let clients = async {
        // The drain has begun.
        let (early, connection) = config.connect_raw(early, NoTls).await.expect("within the grace");
        let connection = tokio::spawn(connection);
        early.batch_execute("SELECT 1").await.unwrap();
        // It is idle, so it is asked to leave when the grace is over.
        let error = connection.await.unwrap().unwrap_err();
        assert_eq!(error.code().unwrap().code(), "57P01", "{error:?}");
        let refused = config.connect_raw(late, NoTls).await.err().expect("after the grace");
        assert_eq!(refused.code().unwrap().code(), "57P03", "{refused:?}");
        held.batch_execute("COMMIT").await.unwrap();
    };
    tokio::join!(drain, clients);
}

/// Passes bytes on in both directions; but what the gateway says first waits for `go`.
async fn slow(
    mut near: tokio::io::DuplexStream,
    mut far: tokio::net::TcpStream,
    heard: Arc<Notify>,
    go: Arc<Notify>,
) {
    let (mut asked, mut said) = ([0; 1_024], [0; 1_024]);
    let count = near.read(&mut asked).await.unwrap();
    far.write_all(&asked[..count]).await.unwrap();
    let count = far.read(&mut said).await.unwrap();
    heard.notify_one();
    go.notified().await;
    near.write_all(&said[..count]).await.unwrap();
    // Either side may go first.
    drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
}

/// It is not yet there when everybody is asked to leave.
#[tokio::test]
async fn a_login_that_ends_during_the_last_call_is_asked_to_leave_like_the_others() {
    let verifier = ScramVerifier::derive("secret", b"0123456789abcdef", 4_096).to_text();
    let users = format!("[[user]]\nname = 'app'\nrole = 'admin'\npassword = '{verifier}'\n");
    let settings = vec![("auth", "scram".to_owned())];
    let world = Plan { users, settings, ..Plan::default() }.start().await;
    let mut config = world.config();
    config.password("secret").ssl_mode(tokio_postgres::config::SslMode::Disable);
    let (held, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    held.batch_execute("BEGIN").await.unwrap();
    let [heard, go] = [(); 2].map(|()| Arc::new(Notify::new()));
    let (near, far) = tokio::io::duplex(4_096);
    let socket = tokio::net::TcpStream::connect(world.gateway.addresses()[0]).await.unwrap();
    tokio::spawn(slow(far, socket, Arc::clone(&heard), Arc::clone(&go)));
    let login = config.connect_raw(near, NoTls);
    let drain = async {
        // It was asked for its password, so its name was let pass.
        heard.notified().await;
        world.gateway.drain(Duration::ZERO).await
    };
    let clients = async {
        eventually("all were asked to leave", || !world.gateway.readiness().reasons().is_empty()).await;
        go.notify_one();
    };
    let end = async {
        let (client, connection) = login.await.expect("its password is right");
        let error = connection.await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "57P01", "{error:?}");
        drop(client);
        held.batch_execute("COMMIT").await.unwrap();
    };
    let (cut, (), ()) = tokio::join!(drain, clients, end);
    assert_eq!(cut, 0);
}

#[tokio::test]
async fn an_accident_is_told_with_its_remedy() {
    let world = Plan::default().start().await;
    let on = world.gateway.addresses()[0].to_string();
    let Err(StartError::Listen { on: told, error }) = world.beside(plan(&[("listen", on.clone())])).await
    else {
        panic!("two gateways on {on}");
    };
    assert_eq!((&told, error.kind()), (&on, ErrorKind::AddrInUse));
    let said = StartError::Listen { on, error }.to_string();
    assert!(said.contains("another process listens there") && said.contains("so_reuseport"), "{said}");
}
