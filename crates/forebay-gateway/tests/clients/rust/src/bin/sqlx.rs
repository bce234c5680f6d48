//! sqlx: statements that it caches and closes by name, transactions, its pool with its ping.

use clients::{Client, Failure, copies, pause, row, setting, undoes_set};
use futures_util::TryStreamExt;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use uuid::Uuid;

struct One {
    connection: PgConnection,
    pool: PgPool,
    number: usize,
    name: String,
}

fn options(name: &str) -> Result<PgConnectOptions, Failure> {
    let options = PgConnectOptions::new_without_pgpass()
        .host(&std::env::var("PGHOST")?)
        .port(std::env::var("PGPORT")?.parse()?);
    let options = options.username(&std::env::var("PGUSER")?).password(&std::env::var("PGPASSWORD")?);
    let options = options.database(&std::env::var("PGDATABASE")?).ssl_mode(PgSslMode::Disable);
    // More texts than this in a round: old statements are closed all the time.
    Ok(options.application_name(name).statement_cache_capacity(4))
}

fn code<T>(result: Result<T, sqlx::Error>) -> Option<String> {
    result.err().and_then(|error| Some(error.as_database_error()?.code()?.into_owned()))
}

impl One {
    async fn settings(&mut self) -> Result<(), Failure> {
        let shown: String =
            sqlx::query_scalar("SHOW application_name").fetch_one(&mut self.connection).await?;
        setting("application_name", &shown, &self.name);
        Ok(())
    }

    async fn transaction(&mut self, round: i32) -> Result<(), Failure> {
        let key = Uuid::new_v4();
        let look = "SELECT n FROM judged WHERE id = $1";
        let mut transaction = self.connection.begin().await?;
        if undoes_set() {
            transaction.execute("SET LOCAL application_name = 'local'").await?;
        }
        let insert = sqlx::query("INSERT INTO judged (id, client, n) VALUES ($1, $2, $3)")
            .bind(key)
            .bind("sqlx")
            .bind(round);
        insert.execute(&mut *transaction).await?;
        pause(round).await;
        transaction.commit().await?;
        let found: i32 = sqlx::query_scalar(look).bind(key).fetch_one(&mut self.connection).await?;
        row("committed", found, round);
        let mut transaction = self.connection.begin().await?;
        if undoes_set() {
            transaction.execute("SET application_name = 'undone'").await?;
        }
        sqlx::query("UPDATE judged SET n = -1 WHERE id = $1").bind(key).execute(&mut *transaction).await?;
        let failed = sqlx::query("SELECT $1::int / 0").bind(round).execute(&mut *transaction).await;
        row("an error", code(failed), Some("22012".to_owned()));
        // The rollback is sent with the next statement.
        drop(transaction);
        let found: i32 = sqlx::query_scalar(look).bind(key).fetch_one(&mut self.connection).await?;
        row("rolled back", found, round);
        sqlx::query("DELETE FROM judged WHERE id = $1").bind(key).execute(&mut self.connection).await?;
        Ok(())
    }

    async fn copy(&mut self, round: i32) -> Result<(), Failure> {
        let name = format!("sqlx-copy-{}-{round}", self.number);
        let lines: String = (0..20).map(|n| format!("{}\t{name}\t{n}\n", Uuid::new_v4())).collect();
        let mut copy = self.connection.copy_in_raw("COPY judged (id, client, n) FROM STDIN").await?;
        copy.send(lines.as_bytes()).await?;
        row("copied in", copy.finish().await?, 20);
        let out = format!("COPY (SELECT n FROM judged WHERE client = '{name}' ORDER BY n) TO STDOUT");
        let chunks: Vec<_> = self.connection.copy_out_raw(&out).await?.try_collect().await?;
        let expected: String = (0..20).map(|n| format!("{n}\n")).collect();
        row("copied", String::from_utf8(chunks.concat())?, expected);
        sqlx::query("DELETE FROM judged WHERE client = $1").bind(name).execute(&mut self.connection).await?;
        Ok(())
    }

    async fn pooled(&self, round: i32) -> Result<(), Failure> {
        let mut lent = self.pool.acquire().await?;
        let shown: String = sqlx::query_scalar("SHOW application_name").fetch_one(&mut *lent).await?;
        setting("pool", &shown, "pooled");
        row("pool", sqlx::query_scalar("SELECT $1::int").bind(round).fetch_one(&mut *lent).await?, round);
        Ok(())
    }
}

impl Client for One {
    async fn open(number: usize) -> Result<Self, Failure> {
        let name = format!("sqlx-{number}");
        let connection = PgConnection::connect_with(&options(&name)?).await?;
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options("pooled")?);
        Ok(Self { connection, pool, number, name })
    }

    async fn round(&mut self, round: i32) -> Result<(), Failure> {
        self.settings().await?;
        for n in 0..8 {
            let sum: i32 = sqlx::query_scalar(AssertSqlSafe(format!("SELECT $1::int + {n}")))
                .bind(round)
                .fetch_one(&mut self.connection)
                .await?;
            row("cached", sum, round + n);
        }
        pause(round).await;
        self.name = format!("sqlx-{}-{round}", self.number);
        self.connection.execute(AssertSqlSafe(format!("SET application_name = '{}'", self.name))).await?;
        self.transaction(round).await?;
        self.settings().await?;
        self.connection.ping().await?;
        let bad = sqlx::raw_sql("SELECT 1; SELEKT 2").execute(&mut self.connection).await;
        row("a bad batch", code(bad), Some("42601".to_owned()));
        let list: Vec<i32> = sqlx::query_scalar("SELECT n FROM generate_series(1, 500) AS n")
            .fetch_all(&mut self.connection)
            .await?;
        row("many rows", list.iter().sum(), 125_250);
        if round % 3 == 0 {
            let text: String =
                sqlx::query_scalar("SELECT repeat('x', 300000)").fetch_one(&mut self.connection).await?;
            row("large row", text.len(), 300_000);
            let length = sqlx::query_scalar("SELECT length($1::text)")
                .bind("y".repeat(300_000))
                .fetch_one(&mut self.connection)
                .await?;
            row("large parameter", length, 300_000);
        }
        if copies() && round % 3 == 1 {
            self.copy(round).await?;
        }
        if round % 5 == 0 {
            self.connection.clear_cached_statements().await?;
            self.connection.execute("RESET ALL").await?;
            self.name = format!("sqlx-{}", self.number);
        }
        self.pooled(round).await?;
        self.settings().await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    clients::laps::<One>().await
}
