//! What sqlx reads from the environment behind the options. Each test runs itself again in a process whose environment
//! has it.

use std::process::Command;
use std::sync::Arc;

use dsql_local::{Cluster, Config, Credentials, Speed, TokenClock};
use forebay_dsql::{ErrorKind, Options, OptionsBuilder, RootCertificates, SqlxDsql};

use super::cluster::Keys;

/// In the process that a test has started.
const INSIDE: &str = "FOREBAY_TEST_INSIDE";

/// Runs the test `name` again with these variables; whether it was run already, and this is the inner one.
fn is_inside(name: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let name = format!("pools::environment::{name}");
    let inner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(INSIDE, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inner.stdout);
    assert!(inner.status.success() && said.contains("1 passed"), "{name}: {said}");
    false
}

fn options(cluster: &Cluster) -> OptionsBuilder {
    Options::builder(cluster.endpoint())
        .port(cluster.address().port())
        .region(cluster.region())
        .variable("DSQL_MAX_CONNS", "1")
        .variable("DSQL_STAGGERED_STARTUP", "false")
        .variable("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "1s")
        .reservoir(true)
}

#[tokio::test]
async fn an_authority_that_only_the_environment_names_is_not_believed() {
    let file = std::env::temp_dir().join(format!("forebay-authority-{}.pem", std::process::id()));
    let name = "an_authority_that_only_the_environment_names_is_not_believed";
    if !is_inside(name, &[("PGSSLROOTCERT", &file.display().to_string())]) {
        drop(std::fs::remove_file(&file));
        return;
    }
    let path = std::env::var("PGSSLROOTCERT").unwrap();
    let cluster = Cluster::start(Config {
        credentials: vec![Credentials::new("AKIDEXAMPLE", "not-a-secret")],
        speed: Speed::STOPPED,
        token_clock: TokenClock::Emulator,
        ..Config::default()
    });
    let cluster = Arc::new(cluster.unwrap());
    std::fs::write(&path, cluster.ca_pem()).unwrap();
    // The options say: public authorities.
    let error = SqlxDsql::connect(options(&cluster).build().unwrap(), Keys::of(&cluster)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permanent, "{error}");
    let told = options(&cluster).roots(RootCertificates::Pem(cluster.ca_pem().as_bytes().into()));
    let pool = SqlxDsql::connect(told.build().unwrap(), Keys::of(&cluster)).await.unwrap();
    assert_eq!(pool.status().open, 1);
}

#[tokio::test]
async fn what_cannot_be_kept_from_sqlx_is_a_problem() {
    let variables = [("PGOPTIONS", "-c search_path=other"), ("PGSSLCERT", "/no/such/file")];
    if !is_inside("what_cannot_be_kept_from_sqlx_is_a_problem", &variables) {
        return;
    }
    let cluster = super::cluster::start();
    let error = SqlxDsql::connect(options(&cluster).build().unwrap(), Keys::of(&cluster)).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("PGOPTIONS") && error.contains("PGSSLCERT"), "{error}");
    assert!(!error.contains("search_path") && !error.contains("PGSSLKEY"), "{error}");
}
