//! Background jobs: index builds and constraint validations. `template.sql` has the table of jobs; this file
//! runs them.
//!
//! A job begins one second after the transaction that submitted it, by the emulator's clock, or as soon as a
//! client waits for it. So a test can observe an unfinished job, and nobody waits for a stopped clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use uuid::Uuid;

use super::Inner;
use super::backend::Backend;
use super::quoting::literal;
use super::roles::Role;
use crate::engine::Call;
use crate::error::SqlError;
use crate::runtime::Spawner;
use crate::statement::{Statement, spans};

/// The delay before a job begins.
const DELAY: Duration = Duration::from_secs(1);

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// Held while jobs run: one at a time.
    running: Mutex<()>,
}

/// A DROP or ANALYZE. In the service they are jobs; here they are done when their transaction commits.
#[derive(Clone, Debug)]
pub(super) struct FinishedJob {
    kind: &'static str,
    object: String,
    name: String,
}

/// The jobs that a statement will have done. To be called before the statement, which may drop their objects.
pub(super) async fn finished_jobs(
    statement: &Statement,
    backend: &mut Backend,
) -> Result<Vec<FinishedJob>, SqlError> {
    let Some((kind, names)) = relations(statement) else { return Ok(Vec::new()) };
    let names: Vec<String> = names.iter().map(|name| literal(name)).collect();
    // PostgreSQL skips an ANALYZE of somebody else's table.
    let sql = format!(
        "SELECT c.oid, format('%s.%I', c.relnamespace::regnamespace, c.relname)
         FROM unnest(ARRAY[{}]::text[]) name JOIN pg_catalog.pg_class c ON c.oid = to_regclass(name)
         WHERE pg_has_role(c.relowner, 'USAGE')",
        names.join(", ")
    );
    let found = backend.rows(&sql).await?;
    Ok(found.into_iter().map(|[object, name]| FinishedJob { kind, object, name }).collect())
}

/// The relations of a DROP TABLE, DROP INDEX or ANALYZE, as written, and the type of the job.
fn relations(statement: &Statement) -> Option<(&'static str, Vec<String>)> {
    let (kind, first) = match (statement.word(0), statement.word(1)) {
        ("DROP", "TABLE" | "INDEX") => ("DROP", 2),
        ("ANALYZE" | "ANALYSE", _) => ("ANALYZE", 1),
        _ => return None,
    };
    let text = statement.text();
    let spans = spans(text);
    let skipped = ["IF", "EXISTS", "VERBOSE", "(", ")"];
    let (mut names, mut name) = (Vec::new(), String::new());
    let mut depth = 0_usize;
    for (token, place) in &spans[first.min(spans.len())..] {
        match token.as_str() {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "CASCADE" | "RESTRICT" => break,
            "," if depth == 0 => names.push(std::mem::take(&mut name)),
            word if depth == 0 && !skipped.contains(&word) => name += &text[place.clone()],
            _ => {}
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    Some((kind, names))
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
    /// Lists jobs that are done. The superuser does it, so that no other role can list what it has not done.
    pub(super) async fn record_jobs(&self, jobs: &[FinishedJob]) -> Result<(), SqlError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let row = |FinishedJob { kind, object, name }: &FinishedJob| {
            let (id, name) = (self.job_id(), literal(name));
            format!(
                "('{id}', 'completed', '{kind}', 'pg_class'::regclass, {object}, {name}, date_trunc('second', clock_timestamp()), '')"
            )
        };
        let rows: Vec<String> = jobs.iter().map(row).collect();
        let sql = format!(
            "INSERT INTO pg_catalog.dsql_local_jobs
             (job_id, status, job_type, class_id, object_id, object_name, update_time, command) VALUES {}",
            rows.join(", ")
        );
        let mut superuser = self.backend(&Role::superuser(), &[]).await?;
        let recorded = superuser.run(&sql).await;
        self.release(superuser);
        recorded
    }

    /// A new job id.
    pub(super) fn job_id(&self) -> String {
        base32(self.unique_id())
    }

    /// Runs the unfinished jobs that match a condition, one after another.
    async fn run_jobs(self: &Arc<Self>, which: &str) -> Result<(), SqlError> {
        let _running = self.jobs.running.lock().await;
        let mut superuser = self.backend(&Role::superuser(), &[]).await?;
        let find = format!(
            "UPDATE pg_catalog.dsql_local_jobs j SET status = 'processing', update_time = date_trunc('second', clock_timestamp())
             WHERE status IN ('submitted', 'processing') AND {which} RETURNING job_id, command, (
               SELECT relowner::regrole FROM pg_class WHERE oid = object_id OR oid = (
                 SELECT conrelid FROM pg_constraint k WHERE k.oid = object_id AND class_id = 'pg_constraint'::regclass)
               LIMIT 1), object_name"
        );
        for [job, command, owner, object] in superuser.rows(&find).await? {
            // The table was dropped, so there is no owner. The service has such a job completed.
            let outcome = match owner.as_str() {
                "" => Err(SqlError::new("42P01", format!("relation \"{object}\" does not exist"))),
                owner => self.run_job(owner, &command).await,
            };
            let ended = match outcome {
                Ok(()) => "status = 'completed'".to_owned(),
                Err(error) if error.code == "42P01" => {
                    format!("status = 'completed', details = {}", literal(&error.message))
                }
                Err(error) => format!("status = 'failed', details = {}", literal(&error.message)),
            };
            let note = format!(
                "UPDATE pg_catalog.dsql_local_jobs SET {ended}, update_time = date_trunc('second', clock_timestamp()) WHERE job_id = {}",
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

/// A job id is a UUID in base 32, without padding.
fn base32(id: Uuid) -> String {
    let letter = |at: u32| {
        let bits = match 123_u32.checked_sub(5 * at) {
            Some(below) => id.as_u128() >> below,
            None => id.as_u128() << (5 * at - 123),
        };
        char::from(LETTERS[usize::try_from(bits & 31).unwrap_or_default()])
    };
    (0..26).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relations_of_a_drop_are_as_written() {
        let objects = |sql: &str| relations(&Statement::split(sql)[0]);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let drop = "DROP TABLE IF EXISTS s . \"A\", b CASCADE";
        assert_eq!(objects(drop), Some(("DROP", names(&["s.\"A\"", "b"]))));
        assert_eq!(objects("ANALYSE t"), Some(("ANALYZE", names(&["t"]))));
        assert_eq!(objects("ANALYZE VERBOSE t (a, b), u"), Some(("ANALYZE", names(&["t", "u"]))));
        assert_eq!(objects("DROP VIEW v"), None);
        assert_eq!(objects("ANALYZE"), Some(("ANALYZE", names(&[]))));
    }

    #[test]
    fn a_recorded_job_id_is_this_uuid() {
        let id = uuid::uuid!("da19a47c-92ca-4d79-9b3e-82a9f18bb1af");
        assert_eq!(base32(id), "3im2i7eszjgxtgz6qku7dc5rv4");
    }
}
