//! The tables in which runs are recorded.

use std::time::Duration;

use tokio_postgres::Client;

use forebay_dsql::{Dsql, Error, ErrorKind, PooledConnection, Postgres, Sessions};

use crate::files::MigrationFile;

/// The prefix of all tables of this crate.
pub(crate) const PREFIX: &str = "forebay_schema_";

/// How often a transaction with an unknown outcome is run again. Each of these transactions finds out by itself whether it has
/// been committed.
const ATTEMPTS: usize = 5;

/// The tables, in a schema of the database.
#[derive(Clone, Debug)]
pub(crate) struct Bookkeeping {
    /// Quoted.
    schema: String,
}

/// What is recorded about one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The version, as its key.
    pub(crate) version: String,
    pub(crate) file: String,
    pub(crate) checksum: String,
    /// How many of its statements are applied.
    pub(crate) done: usize,
    /// The checksum of those.
    pub(crate) prefix: String,
    /// When it was applied, as text; none while it is not applied as a whole.
    pub(crate) applied: Option<String>,
    pub(crate) in_flight: Option<InFlight>,
}

/// A statement that may have taken effect or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) statement: String,
    /// The digest of what it names, before it was sent.
    pub(crate) before: String,
    /// The job that it submitted, if that is known.
    pub(crate) job: Option<String>,
}

impl Record {
    /// Of a file of which nothing is applied.
    pub(crate) fn new(file: &MigrationFile) -> Self {
        Self {
            version: file.version().key(),
            file: file.path().to_owned(),
            checksum: file.checksum().to_owned(),
            done: 0,
            prefix: file.prefix_checksum(0),
            applied: None,
            in_flight: None,
        }
    }
}

impl Bookkeeping {
    pub(crate) fn new(schema: &str) -> Self {
        Self { schema: format!("\"{}\"", schema.replace('"', "\"\"")) }
    }

    /// The full name of a table.
    pub(crate) fn table(&self, name: &str) -> String {
        format!("{}.{PREFIX}{name}", self.schema)
    }

    /// The tables, each with the statement that creates it.
    fn definitions(&self) -> [(&'static str, String); 4] {
        let create = |name: &'static str, columns: &str| {
            (name, format!("CREATE TABLE IF NOT EXISTS {} ({columns})", self.table(name)))
        };
        [
            create("lock", "id int PRIMARY KEY, fence bigint NOT NULL, holder text, writes bigint NOT NULL"),
            create("heartbeat", "id int PRIMARY KEY, fence bigint NOT NULL, beat bigint NOT NULL"),
            create(
                "files",
                "name text, version text, file text NOT NULL, checksum text NOT NULL, done int NOT NULL, prefix text NOT NULL, \
                 applied timestamptz, statement text, before text, job text, PRIMARY KEY (name, version)",
            ),
            create("snapshot", "name text, object text, facts text NOT NULL, PRIMARY KEY (name, object)"),
        ]
    }

    /// Which of the tables are there.
    async fn missing(&self, client: &Client) -> Result<Vec<String>, Error> {
        let mut missing = Vec::new();
        for (name, sql) in self.definitions() {
            let row = client.query_one("SELECT to_regclass($1) IS NULL", &[&self.table(name)]).await?;
            if row.try_get(0)? {
                missing.push(sql);
            }
        }
        Ok(missing)
    }

    /// Whether all tables are there.
    pub(crate) async fn exists(&self, dsql: &Dsql) -> Result<bool, Error> {
        run(dsql, "schema_exists", async |tx| self.is_there(&tx).await).await
    }

    /// The same, in a transaction.
    pub(crate) async fn is_there(&self, client: &Client) -> Result<bool, Error> {
        Ok(self.missing(client).await?.is_empty())
    }

    /// Whether anything is recorded about any application.
    pub(crate) async fn is_used(&self, client: &Client) -> Result<bool, Error> {
        let sql = format!("SELECT count(*) FROM {}", self.table("files"));
        Ok(client.query_one(&sql, &[]).await?.try_get::<_, i64>(0)? > 0)
    }

    /// Creates what is missing. Two runs may do this at the same time.
    pub(crate) async fn create(&self, dsql: &Dsql) -> Result<(), Error> {
        let missing = run(dsql, "schema_exists", async |tx| self.missing(&tx).await).await?;
        for sql in missing {
            let created = run(dsql, "schema_create", async |tx| Ok(tx.batch_execute(&sql).await?)).await;
            // Another run was first: PostgreSQL itself does not always take that for success.
            if let Err(error) = created {
                let still = run(dsql, "schema_exists", async |tx| self.missing(&tx).await).await?;
                if still.contains(&sql) {
                    return Err(error);
                }
            }
        }
        let (lock, heartbeat) = (self.table("lock"), self.table("heartbeat"));
        run(dsql, "schema_create", async |tx| {
            let sql = format!("INSERT INTO {lock} VALUES (1, 0, NULL, 0) ON CONFLICT DO NOTHING");
            tx.execute(&sql, &[]).await?;
            let sql = format!("INSERT INTO {heartbeat} VALUES (1, 0, 0) ON CONFLICT DO NOTHING");
            tx.execute(&sql, &[]).await?;
            Ok(())
        })
        .await
    }

    /// The records of one application.
    pub(crate) async fn records(&self, client: &Client, name: &str) -> Result<Vec<Record>, Error> {
        let sql = format!(
            "SELECT version, file, checksum, done, prefix, applied::text, statement, before, job FROM {} WHERE name = $1",
            self.table("files")
        );
        let mut records = Vec::new();
        for row in client.query(&sql, &[&name]).await? {
            let statement: Option<String> = row.try_get(6)?;
            let before: Option<String> = row.try_get(7)?;
            records.push(Record {
                version: row.try_get(0)?,
                file: row.try_get(1)?,
                checksum: row.try_get(2)?,
                done: usize::try_from(row.try_get::<_, i32>(3)?).unwrap_or_default(),
                prefix: row.try_get(4)?,
                applied: row.try_get(5)?,
                in_flight: match (statement, before) {
                    (Some(statement), Some(before)) => {
                        Some(InFlight { statement, before, job: row.try_get(8)? })
                    }
                    _ => None,
                },
            });
        }
        Ok(records)
    }

    /// Writes a record as a whole.
    pub(crate) async fn write(&self, client: &Client, name: &str, record: &Record) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO {} (name, version, file, checksum, done, prefix, applied, statement, before, job)
             VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8, $9, $10)
             ON CONFLICT (name, version) DO UPDATE SET file = excluded.file, checksum = excluded.checksum, done = excluded.done,
               prefix = excluded.prefix, applied = excluded.applied, statement = excluded.statement, before = excluded.before, job = excluded.job",
            self.table("files")
        );
        let in_flight = record.in_flight.as_ref();
        let done = i32::try_from(record.done).unwrap_or(i32::MAX);
        client
            .execute(
                &sql,
                &[
                    &name,
                    &record.version,
                    &record.file,
                    &record.checksum,
                    &done,
                    &record.prefix,
                    &record.applied,
                    &in_flight.map(|it| &it.statement),
                    &in_flight.map(|it| &it.before),
                    &in_flight.and_then(|it| it.job.as_ref()),
                ],
            )
            .await?;
        Ok(())
    }

    /// Notes the time at which a file was applied. What is known of the schema is out of date from then on.
    pub(crate) async fn mark_applied(&self, client: &Client, name: &str, version: &str) -> Result<(), Error> {
        let sql =
            format!("UPDATE {} SET applied = now() WHERE name = $1 AND version = $2", self.table("files"));
        client.execute(&sql, &[&name, &version]).await?;
        Ok(())
    }

    /// How many statements of a file are applied.
    pub(crate) async fn done(&self, client: &Client, name: &str, version: &str) -> Result<usize, Error> {
        let sql = format!("SELECT done FROM {} WHERE name = $1 AND version = $2", self.table("files"));
        let row = client.query_opt(&sql, &[&name, &version]).await?;
        let done: i32 = row.map_or(Ok(0), |row| row.try_get(0))?;
        Ok(usize::try_from(done).unwrap_or_default())
    }
}

/// How long a transaction of a migration may take with its retries, whatever the pool says: Aurora DSQL ends one after 5 minutes, and
/// a service's deadline is for its requests.
const DEADLINE: Duration = Duration::from_secs(10 * 60);

/// A pool for migrations.
pub(crate) struct Migrating<'a>(pub(crate) &'a Dsql);

impl Sessions for Migrating<'_> {
    type Session = PooledConnection<'static, Postgres>;

    async fn session(&self) -> Result<Self::Session, Error> {
        self.0.session().await
    }

    fn patience(&self) -> Option<Duration> {
        self.0.patience()
    }

    fn deadline(&self) -> Option<Duration> {
        Some(DEADLINE)
    }

    async fn session_within(&self, wait: Duration) -> Result<Self::Session, Error> {
        self.0.session_within(wait).await
    }
}

/// A transaction that may be run again although it was committed: it finds out, or does the same once more.
pub(crate) async fn run<T, F>(
    dsql: &Dsql,
    operation: &'static str,
    body: impl Fn(Tx) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut attempts = 0;
    loop {
        attempts += 1;
        match dsql.transactions().run(&Migrating(dsql), operation, &body).await {
            Err(error) if error.kind() == ErrorKind::CommitUnknown && attempts < ATTEMPTS => {}
            outcome => return outcome,
        }
    }
}

/// A connection with an open transaction.
pub(crate) type Tx = forebay_dsql::Transaction<PooledConnection<'static, Postgres>>;
