//! Connections that end in every way there is, at a statement and in a COMMIT.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_dsql::{
    Conflict, ConnectionState, Driver, DsqlPool, Error, ErrorKind, Postgres, PostgresConnection, Session,
    Sqlx, SqlxConnection,
};

use super::cluster::{PATIENCE, eventually};
use crate::fake::{Act, Anybody, Fake, done, error, in_order, message};

/// Runs a statement, through whichever client.
trait Run {
    fn run(&mut self, sql: &'static str) -> impl Future<Output = Result<(), Error>> + Send;
}

impl Run for PostgresConnection {
    async fn run(&mut self, sql: &'static str) -> Result<(), Error> {
        Ok(self.batch_execute(sql).await?)
    }
}

impl Run for SqlxConnection {
    async fn run(&mut self, sql: &'static str) -> Result<(), Error> {
        sqlx::Executor::execute(self.pg(), sql).await?;
        Ok(())
    }
}

fn says(severity: &str, code: &str) -> Act {
    Act::Send(error(severity, code, "as the script says"))
}

/// A record of TLS that nobody can decrypt.
fn garbled() -> Act {
    Act::Garble([&[0x17, 3, 3, 0, 20][..], &[7; 20]].concat())
}

/// What ends a connection.
fn ends() -> Vec<(&'static str, Vec<Act>)> {
    vec![
        ("closed", vec![Act::Close]),
        ("FATAL 57P01", vec![says("FATAL", "57P01"), Act::Close]),
        ("FATAL 53200", vec![says("FATAL", "53200"), Act::Close]),
        ("FATAL 58030", vec![says("FATAL", "58030"), Act::Close]),
        ("FATAL 57P04", vec![says("FATAL", "57P04"), Act::Close]),
        ("FATAL 08P01", vec![says("FATAL", "08P01"), Act::Close]),
        ("FATAL 25P03", vec![says("FATAL", "25P03"), Act::Close]),
        ("PANIC XX001", vec![says("PANIC", "XX001"), Act::Close]),
        ("garbled under TLS", vec![garbled(), Act::Close]),
        ("no TLS any more", vec![Act::Garble(b"HTTP/1.1 502 Bad Gateway\r\n\r\n".to_vec()), Act::Close]),
        ("half an answer", vec![Act::Send(vec![b'C', 0, 0]), Act::Close]),
        ("a frame of no kind", vec![Act::Send(message(b'!', b"abc")), Act::Close]),
    ]
}

/// Runs a transaction against a server that follows `acts` at the first `at`: the outcome, how often the body ran, and
/// how often COMMIT came.
async fn fate<C>(at: &'static str, acts: Vec<Act>) -> (Result<(), ErrorKind>, usize, usize)
where
    C: Driver<Connection: Session + Sync + Run>,
{
    let (bodies, commits, met) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let seen = Arc::clone(&commits);
    let fake = Fake::start(move |text| {
        if text == "COMMIT" {
            seen.fetch_add(1, Ordering::SeqCst);
        }
        let first = text == at && met.fetch_add(1, Ordering::SeqCst) == 0;
        if first { acts.clone() } else { vec![Act::Send(in_order(text))] }
    })
    .await;
    let options = fake.options(1).reservoir(true).build().unwrap();
    let pool: DsqlPool<C> = DsqlPool::connect(options, Anybody).await.unwrap();
    let run = pool.run("lost", |mut tx| {
        bodies.fetch_add(1, Ordering::SeqCst);
        async move {
            tx.run("INSERT").await?;
            Ok::<_, Error>(())
        }
    });
    let outcome = tokio::time::timeout(PATIENCE, run).await.unwrap();
    let outcome = outcome.map_err(|error| error.kind());
    (outcome, bodies.into_inner(), commits.load(Ordering::SeqCst))
}

async fn a_commit_that_was_lost_is_unknown<C>()
where
    C: Driver<Connection: Session + Sync + Run>,
{
    let mut cases = ends();
    let goes_on = || Act::Send(message(b'Z', b"I"));
    cases.extend([
        ("08006", vec![says("ERROR", "08006"), goes_on()]),
        ("08007", vec![says("ERROR", "08007"), goes_on()]),
        ("40003", vec![says("ERROR", "40003"), goes_on()]),
        ("XX000", vec![says("ERROR", "XX000"), goes_on()]),
        ("done, but not ready", vec![Act::Send(message(b'C', b"COMMIT\0")), Act::Close]),
        ("asked for a COPY", vec![Act::Send(message(b'G', &[0, 0, 0])), Act::Close]),
    ]);
    for (case, acts) in cases {
        assert_eq!(fate::<C>("COMMIT", acts).await, (Err(ErrorKind::CommitUnknown), 1, 1), "{case}");
    }
    // A refusal is none of these.
    let conflict = vec![Act::Send(error("ERROR", "40001", "OC000")), goes_on()];
    assert_eq!(fate::<C>("COMMIT", conflict).await, (Ok(()), 2, 2));
    let violated = vec![says("ERROR", "23505"), goes_on()];
    assert_eq!(fate::<C>("COMMIT", violated).await, (Err(ErrorKind::Permanent), 1, 1));
}

async fn a_statement_that_was_lost_is_run_again<C>()
where
    C: Driver<Connection: Session + Sync + Run>,
{
    for (case, acts) in ends() {
        for at in ["INSERT", "BEGIN"] {
            let (outcome, bodies, commits) = fate::<C>(at, acts.clone()).await;
            assert_eq!((outcome, commits), (Ok(()), 1), "{case} at {at}");
            assert_eq!(bodies, if at == "INSERT" { 2 } else { 1 }, "{case} at {at}");
        }
    }
}

#[tokio::test]
async fn a_commit_that_was_lost_is_unknown_with_tokio_postgres() {
    a_commit_that_was_lost_is_unknown::<Postgres>().await;
}

#[tokio::test]
async fn a_commit_that_was_lost_is_unknown_with_sqlx() {
    a_commit_that_was_lost_is_unknown::<Sqlx>().await;
}

#[tokio::test]
async fn a_statement_that_was_lost_is_run_again_with_tokio_postgres() {
    a_statement_that_was_lost_is_run_again::<Postgres>().await;
}

#[tokio::test]
async fn a_statement_that_was_lost_is_run_again_with_sqlx() {
    a_statement_that_was_lost_is_run_again::<Sqlx>().await;
}

/// Whoever overlooks an error hears only that the transaction is aborted, and not why.
#[tokio::test]
async fn a_conflict_that_was_overlooked_is_still_a_conflict() {
    let aborted = || Act::Send([error("ERROR", "25P02", "is aborted"), message(b'Z', b"E")].concat());
    for insists in [true, false] {
        let met = AtomicUsize::new(0);
        let fake = Fake::start(move |text| {
            let first = met.load(Ordering::SeqCst) == 0;
            match text {
                "INSERT" if first => {
                    vec![Act::Send([error("ERROR", "40001", "(OC001)"), message(b'Z', b"E")].concat())]
                }
                "UPDATE" if first => vec![aborted()],
                "COMMIT" | "ROLLBACK" if first => {
                    met.store(1, Ordering::SeqCst);
                    vec![Act::Send(done("ROLLBACK", b"I"))]
                }
                text => vec![Act::Send(in_order(text))],
            }
        })
        .await;
        let options = fake.options(1).reservoir(true).build().unwrap();
        let pool: DsqlPool<Postgres> = DsqlPool::connect(options, Anybody).await.unwrap();
        let mut bodies = 0;
        let outcome = pool.run("upsert", |mut tx| {
            bodies += 1;
            async move {
                if tx.run("INSERT").await.is_err() && insists {
                    tx.run("UPDATE").await?;
                }
                Ok::<_, Error>(())
            }
        });
        outcome.await.unwrap();
        assert_eq!(bodies, 2, "insists: {insists}");
    }
    assert_eq!(ErrorKind::of_server("25P02", "is aborted", None), ErrorKind::Permanent, "by itself");
    assert_eq!(ErrorKind::of_server("40001", "OC001", None), ErrorKind::Conflict(Conflict::Schema));
}

#[tokio::test]
async fn a_server_that_has_begun_to_speak_is_waited_for() {
    let fake = Fake::start(|text| {
        let idle = done("SELECT 0", b"I");
        match text {
            "half" => vec![Act::Send([idle, vec![b'N', 0, 0]].concat())],
            _ => vec![Act::Send(idle)],
        }
    })
    .await;
    let options = fake.options(1).reservoir(true).build().unwrap();
    let pool: DsqlPool<Postgres> = DsqlPool::connect(options, Anybody).await.unwrap();
    let lent = pool.acquire().await.unwrap();
    lent.batch_execute("whole").await.unwrap();
    eventually("it is clean", || lent.state() == ConnectionState::Clean).await;
    lent.batch_execute("half").await.unwrap();
    assert_eq!(lent.state(), ConnectionState::Unanswered, "nobody knows what it will be");
}
