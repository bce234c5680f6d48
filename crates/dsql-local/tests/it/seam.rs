//! Another engine behind the same protocol: the behaviour of the service must not depend on the engine.

use std::sync::{Arc, Mutex};

use dsql_local::engine::{Call, Column, CopyFormat, Description, Done, Engine, Oid, Rows, Session};
use dsql_local::{Cluster, Format, SqlError, Statement};

use crate::harness::{code, config, connect};

type Log = Arc<Mutex<Vec<String>>>;

/// Answers every statement with one row, and records the calls.
struct Scribe(Log);

struct ScribeSession(Log);

impl ScribeSession {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }
}

impl Engine for Scribe {
    type Session = ScribeSession;

    async fn session(&self, _: &str) -> Result<ScribeSession, SqlError> {
        Ok(ScribeSession(self.0.clone()))
    }
}

impl Session for ScribeSession {
    async fn describe(&mut self, statement: &Statement, _: &[Oid]) -> Result<Arc<Description>, SqlError> {
        let columns = Some(vec![Column { name: "one".to_owned(), oid: 23, size: 4 }]);
        let writes = statement.text().starts_with("UPDATE");
        Ok(Arc::new(Description { parameters: vec![], columns, writes }))
    }

    async fn execute(&mut self, call: Call<'_>, rows: &mut Rows) -> Result<Done, SqlError> {
        self.note(&**call.statement.text());
        rows.begin();
        rows.field::<SqlError>(|out| {
            out.extend_from_slice(b"1");
            Ok(())
        })?;
        rows.end();
        let description = self.describe(call.statement, &[]).await?;
        Ok(Done { changed: 1, description })
    }

    async fn copy_format(&mut self, _: &Statement) -> Result<CopyFormat, SqlError> {
        Ok(CopyFormat { format: Format::Text, columns: 1 })
    }

    async fn begin(&mut self, _: bool) -> Result<(), SqlError> {
        self.note("begin");
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), SqlError> {
        self.note("commit");
        Ok(())
    }

    async fn rollback(&mut self) -> Result<(), SqlError> {
        self.note("rollback");
        Ok(())
    }
}

fn start() -> (Cluster, Log) {
    let log = Log::default();
    let engine = Scribe(log.clone());
    (Cluster::start_with(config(), |_, _| Ok(engine)).unwrap(), log)
}

fn said(log: &Log) -> Vec<String> {
    std::mem::take(&mut log.lock().unwrap())
}

#[tokio::test]
async fn what_the_service_refuses_never_reaches_the_engine() {
    let (cluster, log) = start();
    let client = connect(&cluster).await;
    for refused in ["COPY t FROM '/file'", "TRUNCATE t", "SAVEPOINT a", "SET statement_timeout = 1"] {
        assert_eq!(code(&client.simple_query(refused).await.err().unwrap()), "0A000");
    }
    client.simple_query("SHOW server_version").await.unwrap();
    assert!(said(&log).iter().all(|said| said == "rollback"));
}

#[tokio::test]
async fn the_engine_sees_begin_commit_and_rollback_only() {
    let (cluster, log) = start();
    let client = connect(&cluster).await;
    client.batch_execute("BEGIN; UPDATE a; UPDATE b; COMMIT").await.unwrap();
    assert_eq!(said(&log), ["begin", "UPDATE a", "UPDATE b", "commit"]);
    client.batch_execute("UPDATE a; UPDATE b").await.unwrap();
    assert_eq!(said(&log), ["begin", "UPDATE a", "UPDATE b", "commit"]);
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute("TRUNCATE t").await.unwrap_err();
    assert_eq!(code(&client.batch_execute("SELECT 1").await.err().unwrap()), "25P02");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(said(&log), ["begin", "rollback", "rollback"]);
}

#[tokio::test]
async fn faults_before_a_commit_undo_it_and_later_ones_do_not() {
    let (cluster, log) = start();
    for (fault, expected) in [
        ("conflict:n=1", ["begin", "UPDATE a", "rollback"].as_slice()),
        ("drop:at=before-commit,n=1", &["begin", "UPDATE a", "rollback"]),
        ("drop:at=after-commit,n=1", &["begin", "UPDATE a", "commit", "rollback"]),
    ] {
        let client = connect(&cluster).await;
        cluster.inject(fault.parse().unwrap());
        client.batch_execute("UPDATE a").await.unwrap_err();
        assert_eq!(said(&log), expected, "{fault}");
    }
}
