//! Python clients: boto3, psycopg and AWS's own connector. The script is `tests/python/clients.py`.

use std::path::Path;
use std::process::Command;

use dsql_local::{Cluster, Config, Credentials};

const KEY: &str = "AKIDINTEROP";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// Runs one function of the script with a minimal environment.
fn run(function: &str, endpoint: &str, config: Config) {
    let config = Config {
        endpoint: endpoint.to_owned(),
        credentials: vec![Credentials::new(KEY, SECRET)],
        control: Some(([127, 0, 0, 1], 0).into()),
        ..config
    };
    let cluster = Cluster::start(config).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = here.join("../../target/interop-venv/bin/python");
    assert!(python.exists(), "there is no {}: ./test makes it", python.display());
    let output = Command::new(python)
        .arg(here.join("tests/python/clients.py"))
        .arg(function)
        .env("CLUSTER_ENDPOINT", endpoint)
        .env("AWS_REGION", cluster.region())
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env_remove("AWS_SESSION_TOKEN")
        .env("PGHOSTADDR", cluster.address().ip().to_string())
        .env("PGPORT", cluster.address().port().to_string())
        .env("PGSSLMODE", "verify-full")
        .env("PGSSLROOTCERT", cluster.ca_file())
        .env("DSQL_LOCAL_CONTROL", format!("http://{}", cluster.control_address().unwrap()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{function}: {}", String::from_utf8_lossy(&output.stderr));
}

const NAME: &str = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws";

#[test]
fn boto3s_tokens_open_psycopgs_connections() {
    run("tokens", NAME, Config::default());
}

#[test]
fn boto3s_token_one_second_too_old_is_refused_with_the_hint() {
    // One second more than the token's validity, and one for the time until here.
    run("expired", NAME, Config { token_skew: 902, ..Config::default() });
}

#[test]
fn psycopg_reads_and_writes() {
    run("statements", "localhost", Config::default());
}

#[test]
fn awss_python_connector_connects_pools_and_retries() {
    run("connector", NAME, Config::default());
}
