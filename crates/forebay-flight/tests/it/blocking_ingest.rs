//! Threads that ingest from an iterator that is slow, blocks or panics.

use std::convert::Infallible;

use flight_local::Config;
use forebay_flight::{Error, FlightSQLPool, Ingest, QueryOptions};

use crate::fixture::{blocking_server, eventually_blocking, integers, numbers, small};

#[test]
fn the_deadline_of_an_ingest_passes_while_its_iterator_blocks() {
    let server = blocking_server(Config::default());
    let pool = FlightSQLPool::new(&server.url(), small(1)).unwrap();
    pool.update("CREATE TABLE t (a INTEGER)").unwrap();
    let ingest = || Ingest::into_table("t").options(QueryOptions::new().with_timeout_ms(500));
    let ended = || server.counters().statements_finished + server.counters().statements_interrupted;
    let blocked = || {
        // Since before the load, which may not have reached the server when its second batch is asked for.
        let before = ended();
        let first = std::iter::once(Ok::<_, Infallible>(numbers([1])));
        first.chain(std::iter::once_with(move || {
            eventually_blocking("the load has been stopped meanwhile", || ended() > before);
            Ok(numbers([2]))
        }))
    };
    let error = pool.ingest(ingest(), blocked()).unwrap_err();
    assert!(matches!(error, Error::QueryTimeout { .. }), "{error}");
    let mut session = pool.acquire_session().unwrap();
    let error = session.ingest(ingest(), blocked()).unwrap_err();
    assert!(matches!(error, Error::QueryTimeout { .. }), "{error}");
    assert_eq!(integers(&session.query("SELECT count(*) FROM t").unwrap()), [0]);
}

#[test]
fn an_iterator_that_panics_loads_nothing() {
    let server = blocking_server(Config::default());
    let pool = FlightSQLPool::new(&server.url(), small(1)).unwrap();
    pool.update("CREATE TABLE t (a INTEGER)").unwrap();
    let batches = (0..2).map(|turn| {
        assert_eq!(turn, 0, "the second batch is none");
        Ok::<_, Infallible>(numbers([1]))
    });
    let load = std::panic::AssertUnwindSafe(|| pool.ingest(Ingest::into_table("t"), batches));
    assert!(std::panic::catch_unwind(load).is_err());
    assert_eq!(integers(&pool.query("SELECT count(*) FROM t").unwrap()), [0]);
}
