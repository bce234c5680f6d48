//! Applies files, statement by statement, so that a run can end anywhere and another one continues.
//!
//! What is recorded about changes of rows is committed together with them. A change of the schema cannot be: so its text is
//! recorded before it is sent, together with a digest of all that it names. If its outcome is unknown, it has taken effect if
//! that digest has changed.

use std::sync::atomic::{AtomicUsize, Ordering};

use forebay::rt::Runtime;
use forebay_dsql::ErrorKind;
use tokio_postgres::SimpleQueryMessage;

use crate::bookkeeping::{InFlight, Migrating, PREFIX, Record, Tx};
use crate::catalog;
use crate::definition;
use crate::error::Error;
use crate::event::Event;
use crate::files::MigrationFile;
use crate::jobs::{self, Ended, Job};
use crate::lock::Lock;
use crate::migrator::Migrator;
use crate::snapshot;
use crate::sql::Statement;
use crate::steps::{Step, Work, steps};

/// How often a statement is sent whose outcome stays unknown.
const ATTEMPTS: usize = 10;

/// A run that holds the lock.
pub(crate) struct Apply<'a> {
    pub(crate) migrator: &'a Migrator,
    pub(crate) lock: &'a Lock,
    pub(crate) runtime: &'a dyn Runtime,
}

/// How a change of the schema ended.
enum Sent {
    Done {
        job: Option<String>,
    },
    /// Somebody else's fence is in the catalog.
    Fenced,
    Unknown,
}

/// What is left to do for a statement that has taken effect.
enum Settled {
    Done,
    /// Its index could not be built, and is dropped, or its constraint could not be validated.
    Again,
}

/// Where a statement is, for messages.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a MigrationFile,
    line: usize,
}

impl Apply<'_> {
    /// Applies the rest of a file. Returns how many statements that were.
    pub(crate) async fn file(
        &self,
        file: &MigrationFile,
        record: &mut Record,
        previous: Option<&MigrationFile>,
    ) -> Result<usize, Error> {
        let of = file.statements().len();
        let before = record.done;
        self.tell(Event::File { file: file.path().to_owned(), done: before, of });
        for step in steps(file, record.done, self.migrator.fix) {
            let Some(head) = step.head() else { continue };
            let place = Place { file, line: head.line() };
            if (self.migrator.stopped)() {
                return Err(Error::Stopped { at: format!("before {}:{}", file.path(), head.line()) });
            }
            match &step.work {
                Work::Ddl(statement) => self.schema_change(place, record, &step, statement).await?,
                Work::Dml(statements) => self.row_changes(place, record, &step, statements).await?,
                Work::Repeatable(statement) => self.repeatable(place, record, &step, statement).await?,
            }
        }
        self.finish(file, record, previous).await?;
        self.tell(Event::Applied { file: file.path().to_owned() });
        Ok(of - before)
    }

    /// A step is about to be sent.
    fn begin(&self, file: &MigrationFile, step: &Step) {
        if let Some(head) = step.head() {
            self.tell(Event::Statement {
                file: file.path().to_owned(),
                line: head.line(),
                number: step.number + 1,
                of: file.statements().len(),
                summary: head.summary(),
            });
        }
    }

    fn tell(&self, event: Event) {
        self.migrator.observer.tell(&event);
    }

    /// The record after a step.
    fn after(&self, file: &MigrationFile, record: &Record, done: usize) -> Record {
        Record {
            done,
            prefix: file.prefix_checksum(done),
            checksum: file.checksum().to_owned(),
            file: file.path().to_owned(),
            in_flight: None,
            ..record.clone()
        }
    }

    /// Records the progress of a file.
    async fn record(&self, record: &mut Record, next: Record) -> Result<(), Error> {
        let (tables, name) = (&self.migrator.tables, self.migrator.migrations.name());
        self.lock.run("schema_record", async |tx| tables.write(&tx, name, &next).await).await?;
        *record = next;
        Ok(())
    }

    /// Changes rows, and records it in the same transaction.
    async fn row_changes(
        &self,
        place: Place<'_>,
        record: &mut Record,
        step: &Step,
        statements: &[Statement],
    ) -> Result<(), Error> {
        let (tables, name) = (&self.migrator.tables, self.migrator.migrations.name());
        let next = self.after(place.file, record, step.next);
        let (version, done) = (&record.version, record.done);
        // The number of the statement that was sent last.
        let sent = AtomicUsize::new(0);
        self.begin(place.file, step);
        let outcome = self
            .lock
            .run("schema_rows", async |mut tx| {
                // The commit of an earlier attempt was not answered.
                if tables.done(&tx, name, version).await? > done {
                    return Ok(());
                }
                prepare(&mut tx, step).await?;
                for (number, statement) in statements.iter().enumerate() {
                    sent.store(number, Ordering::Relaxed);
                    tx.batch_execute(statement.text()).await?;
                }
                tables.write(&tx, name, &next).await
            })
            .await;
        match outcome {
            // At the commit, too: a transaction may be too large, or conflict again and again.
            Err(Error::Database(cause)) => {
                let statement = &statements[sent.load(Ordering::Relaxed)];
                Err(self.failed(Place { line: statement.line(), ..place }, record, statement, cause))
            }
            outcome => {
                outcome?;
                *record = next;
                Ok(())
            }
        }
    }

    fn failed(
        &self,
        place: Place<'_>,
        record: &Record,
        statement: &Statement,
        cause: forebay_dsql::Error,
    ) -> Error {
        Error::Statement {
            file: place.file.path().to_owned(),
            line: place.line,
            summary: statement.summary(),
            done: record.done,
            cause,
        }
    }

    /// A statement that may run twice.
    async fn repeatable(
        &self,
        place: Place<'_>,
        record: &mut Record,
        step: &Step,
        statement: &Statement,
    ) -> Result<(), Error> {
        self.begin(place.file, step);
        match self.send(step, statement).await {
            Ok(Sent::Done { .. } | Sent::Unknown) => {
                let next = self.after(place.file, record, step.next);
                self.record(record, next).await
            }
            Ok(Sent::Fenced) => Err(Error::Deposed),
            Err(cause) => Err(self.failed(place, record, statement, cause)),
        }
    }

    /// Changes the schema.
    async fn schema_change(
        &self,
        place: Place<'_>,
        record: &mut Record,
        step: &Step,
        statement: &Statement,
    ) -> Result<(), Error> {
        // Whether an earlier attempt may still turn out to have been committed.
        let mut in_doubt = record.in_flight.is_some();
        let mut attempts = 0;
        loop {
            attempts += 1;
            if attempts > ATTEMPTS {
                let unknown = "the connection is lost at every commit";
                let cause = forebay_dsql::Error::new(ErrorKind::CommitUnknown, unknown);
                return Err(self.failed(place, record, statement, cause));
            }
            if let Some(in_flight) = record.in_flight.clone() {
                let applied = self.took_effect(&in_flight).await?;
                self.tell(Event::Recovered { file: place.file.path().to_owned(), line: place.line, applied });
                if applied {
                    self.is_what_the_file_says(place, &in_flight, step, statement).await?;
                    if let Settled::Done = self.settle(place, &in_flight, statement).await? {
                        break;
                    }
                }
            }
            self.intend(record, place.file, statement).await?;
            self.begin(place.file, step);
            match self.send(step, statement).await {
                Ok(Sent::Done { job: None }) => break,
                Ok(Sent::Done { job: Some(job) }) => {
                    let in_flight =
                        record.in_flight.clone().map(|it| InFlight { job: Some(job.clone()), ..it });
                    self.record(record, Record { in_flight, ..record.clone() }).await?;
                    // If the server has forgotten the job, the catalog tells what has become of it.
                    if self.wait(place, &job).await? {
                        break;
                    }
                }
                Ok(Sent::Unknown) => {
                    in_doubt = true;
                    self.lock.fence_schema_changes().await?;
                }
                Ok(Sent::Fenced) if self.lock.is_held().await? => self.lock.fence_schema_changes().await?,
                Ok(Sent::Fenced) => return Err(Error::Deposed),
                Err(cause) => {
                    let in_flight = record.in_flight.clone();
                    let applied = match &in_flight {
                        Some(in_flight) if in_doubt => self.took_effect(in_flight).await?,
                        _ => false,
                    };
                    if !applied {
                        let error = self.failed(place, record, statement, cause);
                        self.record(record, Record { in_flight: None, ..record.clone() }).await?;
                        return Err(error);
                    }
                }
            }
        }
        let next = self.after(place.file, record, step.next);
        self.record(record, next).await
    }

    /// The digest of all that a statement names.
    async fn digest(&self, statement: &Statement) -> Result<String, Error> {
        let names: Vec<String> = statement.names().into_iter().collect();
        let digest = crate::bookkeeping::run(&self.migrator.dsql, "schema_digest", async |tx| {
            Ok(catalog::digest(&catalog::facts(&tx, Some(&names), PREFIX).await?))
        });
        Ok(digest.await?)
    }

    /// Whether a statement has taken effect. What is still under way must not be able to commit any more.
    async fn took_effect(&self, in_flight: &InFlight) -> Result<bool, Error> {
        Ok(self.digest(&Statement::parse(&in_flight.statement)).await? != in_flight.before)
    }

    /// Records a statement that is about to be sent.
    async fn intend(
        &self,
        record: &mut Record,
        file: &MigrationFile,
        statement: &Statement,
    ) -> Result<(), Error> {
        let before = self.digest(statement).await?;
        let in_flight = Some(InFlight { statement: statement.text().to_owned(), before, job: None });
        let next = Record { in_flight, ..self.after(file, record, record.done) };
        self.record(record, next).await
    }

    /// Sends a change of the schema, in a transaction of its own.
    async fn send(&self, step: &Step, statement: &Statement) -> Result<Sent, forebay_dsql::Error> {
        let dsql = &self.migrator.dsql;
        let pool = Migrating(dsql);
        let sent = dsql.transactions().run(&pool, "schema_change", async |mut tx: Tx| {
            if !self.lock.may_change_schema(&tx).await? {
                return Ok(Sent::Fenced);
            }
            prepare(&mut tx, step).await?;
            let answer = tx.simple_query(statement.text()).await?;
            let job = answer.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) if statement.submits_job() => {
                    row.try_get("job_id").ok().flatten()
                }
                _ => None,
            });
            Ok::<_, forebay_dsql::Error>(Sent::Done { job: job.map(str::to_owned) })
        });
        match sent.await {
            Err(error) if error.kind() == ErrorKind::CommitUnknown => Ok(Sent::Unknown),
            sent => sent,
        }
    }

    /// Checks that what has taken effect is what the file has now.
    async fn is_what_the_file_says(
        &self,
        place: Place<'_>,
        in_flight: &InFlight,
        step: &Step,
        statement: &Statement,
    ) -> Result<(), Error> {
        let doubt = |what: String, remedy: &str| Error::Doubt {
            file: place.file.path().to_owned(),
            line: place.line,
            what,
            remedy: remedy.to_owned(),
        };
        if Statement::parse(&in_flight.statement).canonical() != statement.canonical() {
            let what = format!("it took effect as: {}", in_flight.statement);
            return Err(doubt(
                what,
                "restore that text in the file, or undo it in the database, and run this again",
            ));
        }
        let Some(table) = definition::created_table(statement) else { return Ok(()) };
        let found = crate::bookkeeping::run(&self.migrator.dsql, "schema_columns", async |mut tx| {
            // The path on which the server looks for the table is that of the statement.
            prepare(&mut tx, step).await?;
            catalog::columns(&tx, &table.name).await
        });
        let found = found.await?;
        if table.columns.as_ref().is_some_and(|columns| !found.is_empty() && *columns != found) {
            let what = format!("table {} has other columns now: {}", table.name, found.join(", "));
            return Err(doubt(what, "drop it, or give it these columns, and run this again"));
        }
        Ok(())
    }

    /// Waits for the job of a statement that has taken effect in an earlier attempt.
    async fn settle(
        &self,
        place: Place<'_>,
        in_flight: &InFlight,
        statement: &Statement,
    ) -> Result<Settled, Error> {
        if !statement.submits_job() {
            return Ok(Settled::Done);
        }
        let Some(created) = definition::created_index(statement) else {
            // A constraint: it is valid as soon as its job is done.
            let job = match &in_flight.job {
                Some(id) => jobs::find(&self.migrator.dsql, id).await?,
                None => None,
            };
            return match job {
                Some(job) if job.is_running() => self.wait(place, &job.id).await.map(|_| Settled::Done),
                Some(job) if job.status != "completed" => Ok(Settled::Again),
                _ => Ok(Settled::Done),
            };
        };
        let invalid = crate::bookkeeping::run(&self.migrator.dsql, "schema_indexes", async |tx| {
            jobs::invalid_indexes(&tx, Some(&created)).await
        });
        let mut again = false;
        for index in invalid.await? {
            match &index.job {
                // It belongs to something else.
                Some(job) if in_flight.job.as_ref().is_some_and(|known| *known != job.id) => {}
                Some(job) if job.is_running() => drop(self.wait(place, &job.id).await?),
                _ => {
                    self.tell(Event::Rebuild { index: index.name.clone() });
                    self.drop_index(&index.name).await?;
                    again = true;
                }
            }
        }
        Ok(if again { Settled::Again } else { Settled::Done })
    }

    async fn drop_index(&self, index: &str) -> Result<(), Error> {
        let statement = Statement::parse(&format!("DROP INDEX IF EXISTS {index}"));
        let step = Step { number: 0, next: 0, settings: Vec::new(), work: Work::Ddl(statement.clone()) };
        loop {
            match self.send(&step, &statement).await? {
                Sent::Done { .. } => return Ok(()),
                Sent::Fenced => return Err(Error::Deposed),
                Sent::Unknown => self.lock.fence_schema_changes().await?,
            }
        }
    }

    /// Waits for a job, and fails if it did. Returns whether the server still knows it.
    async fn wait(&self, place: Place<'_>, id: &str) -> Result<bool, Error> {
        let tell = |job: &Job, waited| {
            let Job { id, object, status, .. } = job.clone();
            self.tell(Event::Job { job: id, object, status, waited });
        };
        let ended = jobs::wait(&self.migrator.dsql, self.runtime, id, &*self.migrator.stopped, &tell).await?;
        match ended {
            Ended::Stopped => {
                let at = format!(
                    "while job {id} goes on in the background ({}:{})",
                    place.file.path(),
                    place.line
                );
                Err(Error::Stopped { at })
            }
            Ended::Job(Some(job)) if job.status != "completed" => Err(Error::Job {
                file: place.file.path().to_owned(),
                line: place.line,
                job: job.id,
                object: job.object,
                details: job.details,
            }),
            Ended::Job(job) => Ok(job.is_some()),
        }
    }

    /// Records that a file is applied, together with what the application itself records.
    async fn finish(
        &self,
        file: &MigrationFile,
        record: &mut Record,
        previous: Option<&MigrationFile>,
    ) -> Result<(), Error> {
        let (tables, name) = (&self.migrator.tables, self.migrator.migrations.name());
        let next = self.after(file, record, file.statements().len());
        let applied = self.lock.run("schema_applied", async |tx| {
            let known = tables.records(&tx, name).await?;
            if known.iter().any(|one| one.version == next.version && one.applied.is_some()) {
                return Ok(());
            }
            if let Some(hook) = &self.migrator.hook {
                hook.applied(&tx, file, previous.map(MigrationFile::version)).await?;
            }
            tables.write(&tx, name, &next).await?;
            snapshot::outdate(&tx, tables, name).await?;
            tables.mark_applied(&tx, name, &next.version).await
        });
        applied.await?;
        *record = Record { applied: Some(String::new()), ..next };
        Ok(())
    }
}

/// Sets what the file sets before a step. Nobody else gets this connection afterwards.
async fn prepare(tx: &mut Tx, step: &Step) -> Result<(), forebay_dsql::Error> {
    for setting in &step.settings {
        tx.mark_bad();
        tx.batch_execute(setting).await?;
    }
    Ok(())
}
