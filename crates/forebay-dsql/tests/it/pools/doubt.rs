//! Connections that do not tell of their death, and how long callers wait while those in doubt are asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::rt::{Runtime, VirtualTime};
use forebay::{BoxError, CheckoutError, Connect, ConnectionMonitor, OpenError};
use forebay_dsql::{Builder, DsqlPool, Error, ErrorKind, Options, Session};

use super::world::{config, poll, seconds};

/// A server whose connections go silent.
#[derive(Clone)]
struct Server {
    time: VirtualTime,
    /// No more connections are opened, and those that are there give no answer.
    silent: Arc<AtomicBool>,
    /// Those that are there say that they are dead.
    dead: Arc<AtomicBool>,
}

struct Link {
    server: Server,
    lost: bool,
}

impl Connect for Server {
    type Connection = Link;

    async fn open(&self, _: ConnectionMonitor) -> Result<Link, OpenError> {
        if self.silent.load(Ordering::SeqCst) || self.dead.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(Link { server: self.clone(), lost: false })
    }

    fn is_usable(&self, link: &Link) -> bool {
        !link.lost
    }

    async fn check(&self, _: &mut Link) -> Result<(), BoxError> {
        if self.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.dead.load(Ordering::SeqCst) { Err("dead".into()) } else { Ok(()) }
    }
}

impl Session for Link {
    async fn begin(&mut self) -> Result<(), Error> {
        self.lost = self.server.silent.load(Ordering::SeqCst) || self.server.dead.load(Ordering::SeqCst);
        if self.lost { Err(Error::new(ErrorKind::Disconnected, "gone")) } else { Ok(()) }
    }

    async fn commit(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        if self.lost { Err(Error::new(ErrorKind::Disconnected, "gone")) } else { Ok(()) }
    }
}

fn pool(connections: usize) -> (VirtualTime, Server, DsqlPool<Server>) {
    let time = VirtualTime::new();
    let server = Server { time: time.clone(), silent: Arc::default(), dead: Arc::default() };
    let config = config(connections).acquire_timeout(seconds(2)).check_after(seconds(3600));
    let options = Options::builder("abc.dsql.us-east-1.on.aws").config(config).reservoir(true);
    let builder = Builder::over(server.clone(), options.build().unwrap()).runtime(server.time.clone());
    let pool = time.run(builder.connect()).unwrap();
    time.advance(seconds(60));
    assert_eq!(pool.status().open, connections);
    (time, server, pool)
}

#[test]
fn silent_connections_do_not_keep_a_caller_past_its_limit() {
    let millis = Duration::from_millis;
    for limit in [Some(millis(100)), None] {
        let (time, server, pool) = pool(10);
        let mut lent = time.run(pool.acquire()).unwrap();
        server.silent.store(true, Ordering::SeqCst);
        assert!(time.run(lent.begin()).is_err());
        time.advance(millis(1));
        drop(lent);
        time.settle();
        let began = time.now();
        let outcome = match limit {
            Some(limit) => time.run(pool.acquire_within(limit)).map(drop),
            None => time.run(pool.acquire()).map(drop),
        };
        let limit = limit.unwrap_or(seconds(2));
        assert!(
            matches!(outcome, Err(CheckoutError::Empty { waited, .. }) if waited == limit),
            "{outcome:?}"
        );
        assert_eq!(time.now().since(began), limit);
    }
}

#[test]
fn the_wait_for_another_is_part_of_the_same_limit() {
    let (time, server, pool) = pool(2);
    let kept = time.run(pool.acquire()).unwrap();
    let mut lost = time.run(pool.acquire()).unwrap();
    server.dead.store(true, Ordering::SeqCst);
    assert!(time.run(lost.begin()).is_err());
    time.advance(Duration::from_millis(1));
    let began = time.now();
    let mut waiting = Box::pin(pool.acquire());
    assert!(poll(&mut waiting).is_pending());
    time.advance(Duration::from_millis(1900));
    drop(lost);
    time.settle();
    // It gets this one, which says that it is dead; then it waits for what is left.
    drop(kept);
    let outcome = time.run(waiting).map(drop);
    assert!(
        matches!(outcome, Err(CheckoutError::Empty { waited, .. }) if waited == seconds(2)),
        "{outcome:?}"
    );
    assert_eq!(time.now().since(began), seconds(2));
}
