//! Servers that others wrote: ROAPI and Sail, both from their Python packages, which `./test` installs, and
//! SwanLake, which must be built and started before: see `swanlake.rs`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use forebay_flight::{AsyncFlightSQLPool, AsyncSession, Error, FlightSQLPool, PoolConfig, QueryOptions};

mod swanlake;
mod swanlake_load;

/// A server in a process of its own, which ends with this.
struct Foreign {
    process: Child,
    url: String,
}

impl Foreign {
    /// Starts `program` of the virtual environment on a free port, and waits until it answers.
    async fn start(program: &str, arguments: impl Fn(u16) -> Vec<String>) -> Self {
        let program = here().join("../../target/flight-venv/bin").join(program);
        assert!(program.exists(), "there is no {}: ./test makes it", program.display());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(program)
            .args(arguments(port))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let foreign = Self { process, url: format!("grpc://127.0.0.1:{port}") };
        for _ in 0..600 {
            if let Ok(mut session) = AsyncSession::connect(foreign.url.as_str()).await
                && session.query("SELECT 1").await.is_ok()
            {
                return foreign;
            }
            pause(Duration::from_millis(100)).await;
        }
        panic!("{} does not answer within a minute", foreign.url);
    }

    async fn roapi() -> Self {
        let table = format!("people={}", here().join("tests/foreign/people.csv").display());
        Self::start("roapi", |port| {
            let http = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let flight = format!("127.0.0.1:{port}");
            let arguments =
                ["--addr-http", &http.to_string(), "--addr-flight-sql", &flight, "--table", &table];
            arguments.map(str::to_owned).to_vec()
        })
        .await
    }

    async fn sail() -> Self {
        Self::start("sail", |port| {
            ["flight", "server", "--ip", "127.0.0.1", "--port", &port.to_string()].map(str::to_owned).to_vec()
        })
        .await
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

#[allow(clippy::disallowed_methods, reason = "other people's servers keep real time")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// What every server can be asked for.
async fn common(foreign: &Foreign, long: &str) {
    let config = PoolConfig { max_size: 4, ..PoolConfig::default() };
    let pool = AsyncFlightSQLPool::new(&foreign.url, config).await.unwrap();
    let result = pool.query("SELECT CAST(7 AS BIGINT) AS a").await.unwrap();
    assert_eq!(result.schema().field(0).name(), "a");
    let batch = &result.batches()[0];
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), 7);

    let mut stream = pool.query_stream("SELECT CAST(1 AS BIGINT) AS a WHERE 1 = 0").await.unwrap();
    // ROAPI neither announces nor sends the columns of a result without rows.
    assert!(stream.schema().fields().len() <= 1);
    assert!(stream.next_batch().await.is_none_or(|batch| batch.unwrap().num_rows() == 0));
    drop(stream);

    // A refusal is the server's, and costs no connection.
    for _ in 0..10 {
        let error = pool.query("SELECT nonsense FROM nowhere").await.unwrap_err();
        assert!(matches!(error, Error::Server { .. }), "{error}");
    }
    assert!(pool.status().idle >= 1);

    // Dropped and timed-out statements lose nothing, whatever the server makes of them.
    for _ in 0..5 {
        let options = QueryOptions::new().with_timeout(Duration::ZERO);
        assert!(matches!(
            pool.query_with_options("SELECT 1", options).await,
            Err(Error::QueryTimeout { .. })
        ));
    }
    // The caller is free in time, and the pool as well.
    let options = QueryOptions::new().with_timeout(Duration::from_millis(300));
    let error = pool.query_with_options(long, options).await.unwrap_err();
    assert!(matches!(error, Error::QueryTimeout { .. }), "{error}");
    let held = [pool.acquire_session().await, pool.acquire_session().await, pool.acquire_session().await];
    assert!(held.iter().all(Result::is_ok));
    drop(held);
    assert_eq!(pool.query("SELECT 1").await.unwrap().row_count(), 1);
    assert!(pool.drain(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn roapi_answers() {
    let roapi = Foreign::roapi().await;
    common(&roapi, "SELECT count(*) FROM generate_series(1, 10000000) a, generate_series(1, 10000000) b WHERE a.value % 7 = b.value % 11").await;
    let pool = AsyncFlightSQLPool::with_default(&roapi.url).await.unwrap();
    let old = pool.query("SELECT name FROM people WHERE age > 50 ORDER BY name").await.unwrap();
    assert_eq!(old.row_count(), 2);
    let mut session = pool.acquire_session().await.unwrap();
    let mut prepared = session.prepare_query("SELECT name FROM people ORDER BY name").await.unwrap();
    assert_eq!(prepared.query().await.unwrap().row_count(), 3);
}

#[tokio::test]
async fn sail_answers() {
    let sail = Foreign::sail().await;
    common(&sail, "SELECT count(*) FROM range(0, 10000000) a CROSS JOIN range(0, 10000000) b WHERE a.id % 7 = b.id % 11").await;
    let url = sail.url.clone();
    #[allow(clippy::disallowed_methods, reason = "the blocking face is tried where it may block")]
    let rows = tokio::task::spawn_blocking(move || {
        let pool = FlightSQLPool::with_default(&url).unwrap();
        pool.query("SELECT * FROM range(0, 100000)").unwrap().row_count()
    });
    assert_eq!(rows.await.unwrap(), 100_000);
}
