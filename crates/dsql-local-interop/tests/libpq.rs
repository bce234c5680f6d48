//! psql and pgbench, as Debian ships them.

use std::fs;
use std::process::{Command, Output};

use dsql_local::{Cluster, Config, Credentials};

fn start() -> Cluster {
    Cluster::start(Config { credentials: vec![Credentials::new("AKIDINTEROP", "x")], ..Config::default() })
        .unwrap()
}

fn client(program: &str, cluster: &Cluster) -> Command {
    let mut command = Command::new(program);
    command
        .env("PGHOST", cluster.endpoint())
        .env("PGPORT", cluster.address().port().to_string())
        .env("PGUSER", "admin")
        .env("PGDATABASE", "postgres")
        .env("PGSSLMODE", "verify-full")
        .env("PGSSLROOTCERT", cluster.ca_file())
        .env("PGPASSWORD", cluster.token("admin").unwrap());
    command
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{error}: apt-get install postgresql"))
}

fn psql(cluster: &Cluster, sql: &str) -> (String, String) {
    let output =
        output(client("psql", cluster).args(["-X", "-A", "-t", "-v", "VERBOSITY=verbose", "-c", sql]));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn psql_asks_and_is_answered() {
    let cluster = start();
    assert_eq!(psql(&cluster, "SELECT 1 AS one, 'two'"), ("1|two".into(), String::new()));
    let made = psql(&cluster, "CREATE TABLE t (id int PRIMARY KEY, name text)");
    assert_eq!(made.0, "CREATE TABLE");
    assert_eq!(psql(&cluster, "INSERT INTO t VALUES (1, 'a'), (2, NULL)").0, "INSERT 0 2");
    assert_eq!(psql(&cluster, "SELECT * FROM t ORDER BY id").0, "1|a\n2|");
    assert_eq!(psql(&cluster, "SELECT 1; SELECT 2").0, "1\n2");
    let copy = psql(&cluster, "COPY t FROM STDIN").1;
    assert!(copy.starts_with("ERROR:  0A000: COPY needs the PostgreSQL engine"), "{copy}");
}

#[test]
fn psql_shows_the_hint_of_an_expired_token() {
    let cluster = start();
    let date = std::time::UNIX_EPOCH.elapsed().unwrap() - std::time::Duration::from_secs(902);
    let keys = Credentials::new("AKIDINTEROP", "x");
    let life = std::time::Duration::from_secs(900);
    let old = dsql_local::sign(&keys, "localhost", "us-east-1", dsql_local::Action::ConnectAdmin, date, life);
    let refused = output(client("psql", &cluster).env("PGPASSWORD", old).args(["-c", "SELECT 1"]));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("unable to accept connection, access denied"), "{said}");
    assert!(said.contains("HINT:  Signature expired: "), "{said}");
}

#[test]
fn pgbench_runs_its_own_script_and_ours_in_every_mode() {
    let cluster = start();
    for sql in [
        "CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88))",
        "CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84))",
        "CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84))",
        "CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
        "INSERT INTO pgbench_branches (bid, bbalance) VALUES (1, 0)",
        "INSERT INTO pgbench_tellers (tid, bid, tbalance) SELECT g, 1, 0 FROM generate_series(1, 10) AS g",
        "INSERT INTO pgbench_accounts (aid, bid, abalance) SELECT g, 1, 0 FROM generate_series(1, 100000) AS g",
    ] {
        let (_, problem) = psql(&cluster, sql);
        assert!(problem.is_empty(), "{sql}: {problem}");
    }
    let script = std::env::temp_dir().join(format!("dsql-local-interop-{}.sql", std::process::id()));
    fs::write(&script, "\\set n random(1, 100)\nSELECT abalance FROM pgbench_accounts WHERE aid = :n;\n")
        .unwrap();
    for mode in ["simple", "extended", "prepared"] {
        for flags in [&["-f", script.to_str().unwrap()][..], &["-b", "tpcb-like"]] {
            let bench = output(
                client("pgbench", &cluster).args(["-n", "-c", "4", "-t", "20", "-M", mode]).args(flags),
            );
            let said = String::from_utf8_lossy(&bench.stdout).into_owned();
            let problems = String::from_utf8_lossy(&bench.stderr).into_owned();
            assert!(bench.status.success(), "{mode} {flags:?}: {problems}");
            assert!(said.contains("number of transactions actually processed: 80/80"), "{mode}: {said}");
        }
    }
    fs::remove_file(script).unwrap();
    // The sum of all balances stays the same.
    let sums = psql(
        &cluster,
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)",
    );
    assert_eq!(sums, ("t".into(), String::new()));
}
