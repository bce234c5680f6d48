//! Background jobs: index builds and constraint validations. `template.sql` has the table of jobs; this file
//! runs them.
//!
//! A job begins one second after the transaction that submitted it, by the emulator's clock, or as soon as a
//! client waits for it. So a test can observe an unfinished job, and nobody waits for a stopped clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::Inner;
use super::backend::Backend;
use super::quoting::literal;
use super::roles::Role;
use crate::engine::Call;
use crate::error::SqlError;
use crate::runtime::Spawner;
use crate::statement::spans;

/// The delay before a job begins.
const DELAY: Duration = Duration::from_secs(1);

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

#[derive(Debug, Default)]
pub(super) struct Jobs {
    named: AtomicU64,
    /// Held while jobs run: one at a time.
    running: Mutex<()>,
}

/// Schedules the jobs of a transaction that has committed.
pub(super) fn schedule(inner: &Arc<Inner>) {
    let (weak, clock) = (Arc::downgrade(inner), inner.clock.clone());
    let due = clock.now().saturating_add(DELAY);
    Spawner::here().spawn(async move {
        clock.sleep_until(due).await;
        if let Some(inner) = weak.upgrade() {
            // On failure, the jobs keep their status, which clients can read.
            drop(inner.run_jobs("true").await);
        }
    });
}

/// The job id in a `CALL sys.wait_for_job(...)`, if it can be read from the statement.
pub(super) fn awaited_job(call: &Call<'_>) -> Option<String> {
    if !call.statement.begins(&["CALL", "SYS", "WAIT_FOR_JOB"]) {
        return None;
    }
    let text = call.statement.text();
    // After CALL, SYS, a dot, the name and a parenthesis.
    let spans = spans(text);
    let (argument, number) = (spans.get(5)?, spans.get(6)?);
    let id = match &text[argument.1.clone()] {
        "$" => {
            let value = call.values.get(number.0.parse::<usize>().ok()?.checked_sub(1)?)?;
            std::str::from_utf8(value.as_ref()?).ok()?
        }
        quoted => quoted.strip_prefix('\'')?.strip_suffix('\'')?,
    };
    let known = |letter: u8| letter.is_ascii_lowercase() || (b'2'..=b'7').contains(&letter);
    id.bytes().all(known).then(|| id.to_owned())
}

/// Waits until a job has ended. Returns at once if there is no such job.
///
/// # Cancel safety
/// If dropped, the job continues.
pub(super) async fn wait_for(inner: &Arc<Inner>, id: String) {
    let inner = inner.clone();
    // On failure, the job keeps its status, which clients can read.
    let run = async move { drop(inner.run_jobs(&format!("job_id = {}", literal(&id))).await) };
    Spawner::here().finish(run).await;
}

impl Inner {
    /// A new job id. It is unique across clusters, because the server's directory has a random name.
    pub(super) fn name_job(&self) -> String {
        let number = self.jobs.named.fetch_add(1, Ordering::Relaxed);
        let directory = self.server.directory().as_os_str().as_encoded_bytes();
        let digest = Sha256::new().chain_update(directory).chain_update(number.to_be_bytes()).finalize();
        digest[..26].iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect()
    }

    /// Runs the unfinished jobs that match a condition, one after another.
    async fn run_jobs(self: &Arc<Self>, which: &str) -> Result<(), SqlError> {
        let _running = self.jobs.running.lock().await;
        let mut superuser = self.backend(&Role::superuser(), &[]).await?;
        let find = format!(
            "UPDATE pg_catalog.dsql_local_jobs j SET status = 'processing', update_time = clock_timestamp()
             WHERE status IN ('submitted', 'processing') AND {which} RETURNING job_id, command, (
               SELECT relowner::regrole FROM pg_class WHERE oid = object_id OR oid = (
                 SELECT conrelid FROM pg_constraint k WHERE k.oid = object_id AND class_id = 'pg_constraint'::regclass)
               LIMIT 1)"
        );
        for [job, command, owner] in superuser.rows(&find).await? {
            let ended = match self.run_job(&owner, &command).await {
                Ok(()) => "status = 'completed'".to_owned(),
                Err(error) => format!("status = 'failed', details = {}", literal(&error.message)),
            };
            let note = format!(
                "UPDATE pg_catalog.dsql_local_jobs SET {ended}, update_time = clock_timestamp() WHERE job_id = {}",
                literal(&job)
            );
            superuser.run(&note).await?;
        }
        self.release(superuser);
        Ok(())
    }

    /// Runs as the owner of the table: the command may call functions of the owner.
    async fn run_job(self: &Arc<Self>, owner: &str, command: &str) -> Result<(), SqlError> {
        let mut backend = Backend::connect(self.server.directory(), Role::owner(owner)).await?;
        backend.run("SET lock_timeout = 0").await?;
        // Other transactions hold locks on the table.
        let _priority = self.locks.priority().await;
        let pid = backend.pid;
        self.locks.run_with_priority(self, pid, backend.run(command)).await
    }
}
