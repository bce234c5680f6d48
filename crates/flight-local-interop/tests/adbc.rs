//! ADBC's Flight SQL driver, which is written in Go, and pyarrow. The script is `tests/python/clients.py`.

use std::path::{Path, PathBuf};
use std::process::Command;

use flight_local::{Auth, Config, FlightLocal, Tls};

/// Runs one function of the script against a server. Returns the server's counters.
async fn run(function: &str, config: Config, authority: Option<&Path>) -> flight_local::Counters {
    let server = FlightLocal::start(config).await.unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = here.join("../../target/adbc-venv/bin/python");
    assert!(python.exists(), "there is no {}: ./test makes it", python.display());
    let mut command = Command::new(python);
    command.arg(here.join("tests/python/clients.py")).arg(function).env("FLIGHT_SQL_URL", server.url());
    if let Some(authority) = authority {
        command.env("FLIGHT_SQL_CA_FILE", authority);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{function}: {}", String::from_utf8_lossy(&output.stderr));
    let counters = server.counters();
    server.stop().await;
    counters
}

#[tokio::test]
async fn adbc_reads_and_writes() {
    run("statements", Config::default(), None).await;
}

#[tokio::test]
async fn adbcs_connections_are_sessions() {
    let counters = run("sessions", Config::default(), None).await;
    assert_eq!(counters.sessions_ever, 2);
}

#[tokio::test]
async fn adbc_ingests() {
    assert_eq!(run("ingest", Config::default(), None).await.rows_ingested, 100_020);
}

#[tokio::test]
async fn adbc_finds_its_way_about() {
    run("catalog", Config::default(), None).await;
}

#[tokio::test]
async fn adbc_cancels_and_the_statement_stops() {
    let counters = run("cancellation", Config::default(), None).await;
    assert_eq!((counters.statements_interrupted, counters.statements_running), (1, 0));
}

#[tokio::test]
async fn adbc_polls() {
    let counters = run("progress", Config::default(), None).await;
    assert!(counters.poll_flight_info > 2, "{counters:?}");
}

#[tokio::test]
async fn adbc_follows_endpoints_to_other_listeners() {
    let config =
        Config { endpoints_per_result: 5, further_listeners: 2, max_batch_rows: 100, ..Config::default() };
    let counters = run("endpoints", config, None).await;
    assert_eq!(counters.sessions_ever, 1);
    assert_eq!(counters.connections_ever, 3);
}

#[tokio::test]
async fn adbc_logs_in_over_tls() {
    let made = Tls::self_signed().unwrap();
    let file = Authority::new(&made.root_pem);
    let auth = Some(Auth::basic("ann", "secret"));
    let config = Config { tls: Some(made.tls), auth, ..Config::default() };
    assert_eq!(run("login", config, Some(&file.0)).await.handshakes, 1);
}

#[tokio::test]
async fn pyarrows_own_client_speaks_with_it() {
    run("flight", Config::default(), None).await;
}

/// The example of the manual page.
#[tokio::test]
async fn the_manual_pages_example_works() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manual = std::fs::read_to_string(here.join("../../docs/flight-local.md")).unwrap();
    let example = manual.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let server = FlightLocal::start(Config::default()).await.unwrap();
    let mut command = Command::new(here.join("../../target/adbc-venv/bin/python"));
    let output = command.args(["-c", example]).env("FLIGHT_SQL_URL", server.url()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.counters().sessions_ever, 1);
    server.stop().await;
}

/// A file with a certificate, removed at the end.
struct Authority(PathBuf);

impl Authority {
    fn new(pem: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flight-local-interop-{}.pem", std::process::id()));
        std::fs::write(&path, pem).unwrap();
        Self(path)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let (Ok(()) | Err(_)) = std::fs::remove_file(&self.0);
    }
}
