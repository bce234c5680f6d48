//! Who is asked to give way.

use dsql_local::{Cluster, Credentials};
use forebay_dsql::{Options, RootCertificates, SignFuture, Signed, Signer, Token, TokenError, TokenRequest};

use super::*;
use crate::seat::Ask;

struct Keys(Arc<Cluster>);

impl Signer for Keys {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(async {
            let token = self.0.token(&request.identity.user);
            let token = token.ok_or_else(|| TokenError::credentials("the cluster has no key"))?;
            Ok(Signed { token: Token::new(token), credentials_expire: None })
        })
    }
}

/// So many backends.
async fn backends(connections: usize) -> Arc<Backends> {
    let credentials = vec![Credentials::new("AKIDEXAMPLE", "not-a-secret")];
    let cluster = Arc::new(Cluster::start(dsql_local::Config { credentials, ..Default::default() }).unwrap());
    let options = Options::builder(cluster.endpoint())
        .port(cluster.address().port())
        .region(cluster.region())
        .roots(RootCertificates::Pem(cluster.ca_pem().as_bytes().into()))
        .reservoir(true)
        .max_connections(connections)
        .startup_jitter(Duration::ZERO)
        .build();
    let pool = DsqlPool::connect(options.unwrap(), Keys(cluster)).await.unwrap();
    Arc::new(Backends::new(pool, Duration::from_secs(60), false))
}

/// So many sessions with an idle backend, that of the first the longest.
fn idle(backends: &Backends, count: usize) -> Vec<Arc<Seat>> {
    let seats: Vec<_> = (0..count).map(|_| Arc::new(Seat::default())).collect();
    for seat in &seats {
        backends.hold(seat);
        assert!(!backends.is_idle(seat), "nobody waits");
    }
    seats
}

fn asked(seats: &[Arc<Seat>]) -> Vec<bool> {
    seats.iter().map(|seat| seat.take(Ask::GiveWay)).collect()
}

#[tokio::test]
async fn the_one_that_has_been_idle_for_longest_is_asked_and_each_only_once() {
    let backends = backends(1).await;
    let seats = idle(&backends, 3);
    // The first one has worked meanwhile, and is the last in turn.
    seats[0].set_busy();
    backends.is_idle(&seats[0]);
    for expected in [[false, true, false], [false, false, true], [true, false, false], [false; 3]] {
        backends.ask_one();
        assert_eq!(asked(&seats), expected);
    }
}

#[tokio::test]
async fn somebody_else_is_asked_if_the_asked_one_is_busy_or_has_none_any_more() {
    let backends = backends(1).await;
    let seats = idle(&backends, 4);
    backends.ask_one();
    // It has got work before it could answer, so those that wait ask again.
    seats[0].set_busy();
    backends.ask_one();
    assert_eq!(asked(&seats), [true, true, false, false]);
    // One that has lost its backend is not asked at all.
    backends.release(&seats[2]);
    backends.ask_one();
    backends.ask_one();
    assert_eq!(asked(&seats), [false, false, false, true]);
}

/// Without this, whoever became idle at the wrong moment would keep its backend, and the other one would wait.
#[tokio::test]
async fn who_waits_asks_and_who_becomes_idle_is_told() {
    let backends = backends(1).await;
    let held = backends.acquire().await.unwrap();
    let seats = idle(&backends, 2);
    let mut waits = Box::pin(backends.acquire());
    let context = &mut Context::from_waker(std::task::Waker::noop());
    assert!(waits.as_mut().poll(context).is_pending());
    assert_eq!(asked(&seats), [true, false], "it asks before it waits");
    let late = Arc::new(Seat::default());
    backends.hold(&late);
    assert!(backends.is_idle(&late), "it is to give way at once");
    drop(held);
    let served = waits.await.unwrap();
    assert!(!backends.is_wanted() && !backends.is_idle(&late));
    drop(served);
    // One that gives up is not waited for.
    let held = backends.acquire().await.unwrap();
    let mut waits = Box::pin(backends.acquire());
    assert!(waits.as_mut().poll(context).is_pending() && backends.is_wanted());
    drop(waits);
    assert!(!backends.is_wanted());
    drop(held);
}

/// Sessions do not wait for those that ask: one may become busy in between.
#[tokio::test]
async fn somebody_is_asked_whenever_somebody_is_idle() {
    let backends = backends(1).await;
    let seats = idle(&backends, 2);
    let (done, begin) = (std::sync::atomic::AtomicBool::new(false), std::sync::Barrier::new(2));
    let in_vain = std::thread::scope(|scope| {
        // It is always the first in turn.
        let restless = scope.spawn(|| {
            begin.wait();
            while !done.load(Ordering::Relaxed) {
                seats[0].set_idle(1);
                seats[0].set_busy();
            }
        });
        begin.wait();
        let in_vain = (0..200_000).filter(|_| {
            seats[1].set_idle(2);
            backends.ask_one();
            !asked(&seats).contains(&true)
        });
        let in_vain = in_vain.count();
        done.store(true, Ordering::Relaxed);
        restless.join().unwrap();
        in_vain
    });
    assert_eq!(in_vain, 0);
}
