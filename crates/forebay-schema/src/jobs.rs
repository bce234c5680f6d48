//! Jobs that the server works on in the background: builds of indexes, checks of constraints.

use std::pin::pin;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay_dsql::{Dsql, Error, ErrorKind};
use futures_util::future::{Either, select};
use tokio_postgres::Client;

use crate::bookkeeping::run;
use crate::definition::CreatedIndex;

/// How often a job is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What `sys.jobs` says of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) object: String,
    pub(crate) status: String,
    pub(crate) details: String,
}

impl Job {
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.status.as_str(), "submitted" | "processing")
    }
}

/// An index that is not usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidIndex {
    /// Quoted, with its schema.
    pub(crate) name: String,
    /// Its table, in the same way.
    pub(crate) table: String,
    /// The job that builds it, or did not; none if the server no longer knows it.
    pub(crate) job: Option<Job>,
}

/// Looks a job up; none if the server no longer knows it.
pub(crate) async fn find(dsql: &Dsql, id: &str) -> Result<Option<Job>, Error> {
    run(dsql, "schema_job", async |tx| {
        let sql = "SELECT job_id::text, object_name::text, status::text, coalesce(details, '')::text
                   FROM sys.jobs WHERE job_id::text = $1";
        let row = tx.query_opt(sql, &[&id]).await?;
        row.map(|row| {
            Ok(Job {
                id: row.try_get(0)?,
                object: row.try_get(1)?,
                status: row.try_get(2)?,
                details: row.try_get(3)?,
            })
        })
        .transpose()
    })
    .await
}

/// The indexes that are not valid: those that a statement has created, or all.
pub(crate) async fn invalid_indexes(
    client: &Client,
    created: Option<&CreatedIndex>,
) -> Result<Vec<InvalidIndex>, Error> {
    let sql = format!(
        "SELECT DISTINCT ON (1) format('%I.%I', n.nspname, x.relname), j.job_id::text, j.status::text, coalesce(j.details, '')::text,
           format('%I.%I', n.nspname, t.relname)
         FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
         JOIN pg_catalog.pg_class t ON t.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = x.relnamespace
         LEFT JOIN sys.jobs j ON j.object_id = i.indexrelid AND j.job_type = 'INDEX_BUILD'
         WHERE {} AND NOT i.indisvalid AND ($1::text IS NULL OR x.relname = $1) AND ($2::text IS NULL OR t.relname = $2)
         ORDER BY 1, j.start_time DESC",
        crate::catalog::OWN_SCHEMAS
    );
    let mut indexes = Vec::new();
    let (name, table) = (created.and_then(|one| one.name.as_ref()), created.map(|one| &one.table));
    for row in client.query(&sql, &[&name, &table]).await? {
        let name: String = row.try_get(0)?;
        let id: Option<String> = row.try_get(1)?;
        let job = match id {
            Some(id) => {
                Some(Job { id, object: name.clone(), status: row.try_get(2)?, details: row.try_get(3)? })
            }
            None => None,
        };
        indexes.push(InvalidIndex { name, table: row.try_get(4)?, job });
    }
    Ok(indexes)
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It is no longer running. None if the server no longer knows it.
    Job(Option<Job>),
    /// The caller wants to stop; the job goes on.
    Stopped,
}

/// Waits until a job is no longer running. `tell` hears of it once a second.
///
/// # Cancel safety
/// If the future is dropped, the job goes on.
pub(crate) async fn wait(
    dsql: &Dsql,
    runtime: &dyn Runtime,
    id: &str,
    stopped: &(dyn Fn() -> bool + Send + Sync),
    tell: &(dyn Fn(&Job, Duration) + Send + Sync),
) -> Result<Ended, Error> {
    let began = runtime.now();
    // The server wakes this one up. It may give up earlier, after the longest life of a transaction: then there is another.
    let mut call = pin!(call(dsql, id));
    let mut is_calling = true;
    loop {
        match find(dsql, id).await? {
            Some(job) if job.is_running() => tell(&job, runtime.now().since(began)),
            job => return Ok(Ended::Job(job)),
        }
        if stopped() {
            return Ok(Ended::Stopped);
        }
        let pause = runtime.sleep_until(runtime.now() + LOOK);
        if is_calling {
            if let Either::Left(_) = select(call.as_mut(), pause).await {
                is_calling = false;
            }
        } else {
            pause.await;
        }
    }
}

/// `CALL sys.wait_for_job`, again while that fails for a reason that passes.
async fn call(dsql: &Dsql, id: &str) {
    loop {
        let called = async {
            let mut connection = dsql.acquire().await?;
            // It takes as long as the job.
            connection.set_statement_deadline(None);
            connection.batch_execute(&format!("CALL sys.wait_for_job('{}')", id.replace('\'', "''"))).await?;
            Ok::<_, Error>(())
        };
        match called.await {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Conflict(_)
                        | ErrorKind::Disconnected
                        | ErrorKind::Limit(_)
                        | ErrorKind::Unavailable
                ) => {}
            // Whatever the outcome, the job's own status tells.
            _ => return,
        }
    }
}
