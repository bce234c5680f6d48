//! Uploads to servers that answer early, late, never, or endlessly.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay_flight::{AsyncFlightSQLPool, CancelHandle, Error, Ingest, QueryOptions};
use futures_util::future::{Either, select};
use futures_util::{FutureExt, Stream, StreamExt, stream};

use super::odd_server::{OddServer, Oddity, Upload};
use super::{forebay_timeout, url};
use crate::fixture::{eventually, numbers, pause, small};

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(30);

async fn server(upload: Upload) -> (OddServer, AsyncFlightSQLPool) {
    let (server, port) = OddServer::start(Oddity { upload: Some(upload), ..Oddity::default() }).await;
    let pool = AsyncFlightSQLPool::new(&url(port), small(1)).await.unwrap();
    (server, pool)
}

/// Batches without end, and how many were asked for. `held` is let go with the last of them.
fn endless(
    asked: &Arc<AtomicUsize>,
    held: &Arc<()>,
) -> impl Stream<Item = Result<RecordBatch, Infallible>> + use<> {
    let (asked, held) = (Arc::clone(asked), Arc::clone(held));
    stream::repeat(()).then(move |()| {
        let _held = &held;
        asked.fetch_add(1, Ordering::Relaxed);
        pause(Duration::from_millis(1)).map(|()| Ok(numbers(0..10)))
    })
}

/// One that is tried.
struct Trial<'a> {
    server: &'a OddServer,
    pool: &'a AsyncFlightSQLPool,
    asked: Arc<AtomicUsize>,
    held: Arc<()>,
}

impl Trial<'_> {
    fn endless(&self) -> impl Stream<Item = Result<RecordBatch, Infallible>> + use<> {
        endless(&self.asked, &self.held)
    }

    /// Until the server has some of it.
    async fn begun(&self) {
        let before = self.server.received().messages;
        eventually("some of it is there", || self.server.received().messages > before + 3).await;
    }
}

/// It is given up: the server hears that it broke off, never that it has ended, and the input is let go.
async fn is_broken_off(give_up: impl AsyncFn(&Trial<'_>)) {
    for upload in [Upload::Late, Upload::Early] {
        let (server, pool) = server(upload).await;
        for turn in 1..=3 {
            let trial = Trial { server: &server, pool: &pool, asked: Arc::default(), held: Arc::default() };
            give_up(&trial).await;
            eventually("the input is let go", || Arc::strong_count(&trial.held) == 1).await;
            let asked = trial.asked.load(Ordering::Relaxed);
            eventually("the server hears of it", || server.received().broken == turn).await;
            assert_eq!(
                trial.asked.load(Ordering::Relaxed),
                asked,
                "nothing is sent behind the caller's back"
            );
            assert_eq!(server.received().ended, 0, "{upload:?}: a part counted as the whole");
        }
    }
}

#[tokio::test]
async fn a_dropped_ingest_is_broken_off() {
    is_broken_off(async |trial| {
        let ingest = trial.pool.ingest(Ingest::into_table("t"), trial.endless());
        assert!(matches!(select(pin!(ingest), pin!(trial.begun())).await, Either::Right(_)));
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_ingest_is_broken_off() {
    is_broken_off(async |trial| {
        let cancel = CancelHandle::new();
        let options = QueryOptions::new().with_cancel(cancel.clone());
        let ingest = trial.pool.ingest(Ingest::into_table("t").options(options), trial.endless());
        let (outcome, ()) = tokio::join!(ingest, async {
            trial.begun().await;
            cancel.cancel();
        });
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Cancelled { may_have_run: true }), "{error}");
    })
    .await;
}

#[tokio::test]
async fn an_ingest_whose_input_fails_is_broken_off() {
    is_broken_off(async |trial| {
        let failing = trial.endless().map(|batch| batch.map_err(|never| match never {}));
        let failing = failing.take(5).chain(stream::iter([Err::<_, &str>("no more")]));
        let error = trial.pool.ingest(Ingest::into_table("t"), failing).await.unwrap_err();
        assert!(matches!(&error, Error::Input { message } if message == "no more"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn an_ingest_whose_input_panics_is_an_error() {
    for healthy in [0, 5] {
        is_broken_off(async |trial| {
            let panicking = stream::once(async { panic!("on purpose") });
            let panicking = trial.endless().take(healthy).chain(panicking);
            let ingest = trial.pool.ingest(Ingest::into_table("t"), panicking);
            let error = forebay_timeout(LONG, ingest).await.expect("it hangs").unwrap_err();
            assert!(matches!(&error, Error::Input { message } if message.contains("panicked")), "{error}");
        })
        .await;
    }
}

#[tokio::test]
async fn an_upload_that_the_server_does_not_read_is_dropped() {
    let (server, pool) = server(Upload::Never).await;
    let held = Arc::new(());
    let large = numbers(0..100_000);
    let asked = Arc::new(AtomicUsize::new(0));
    let batches = stream::repeat((Arc::clone(&held), Arc::clone(&asked))).map(move |(_held, asked)| {
        asked.fetch_add(1, Ordering::Relaxed);
        Ok::<_, Infallible>(large.clone())
    });
    let ingest = pool.ingest(Ingest::into_table("t"), batches);
    let begun = eventually("some of it is on its way", || asked.load(Ordering::Relaxed) > 0);
    assert!(matches!(select(pin!(ingest), pin!(begun)).await, Either::Right(_)));
    eventually("the input is let go", || Arc::strong_count(&held) == 1).await;
    assert_eq!(server.received().ended, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_is_kept_however_much_a_server_answers() {
    let (_server, pool) = server(Upload::Endless).await;
    let options = QueryOptions::new().with_timeout(SHORT);
    let update = pool.update_with_options("INSERT INTO t VALUES (1)", options);
    let error = forebay_timeout(LONG, update).await.expect("it hangs").unwrap_err();
    assert!(matches!(error, Error::QueryTimeout { .. }), "{error}");
}
