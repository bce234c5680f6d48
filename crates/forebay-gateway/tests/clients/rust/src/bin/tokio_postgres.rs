//! tokio-postgres: named statements, pipelines of futures, portals, COPY, cancel.

use clients::{Client, Failure, copies, pause, row, setting, undoes_set};
use futures_util::{SinkExt, TryStreamExt, future};
use tokio_postgres::error::SqlState;
use tokio_postgres::{NoTls, SimpleQueryMessage, Statement};
use uuid::Uuid;

struct One {
    client: tokio_postgres::Client,
    number: usize,
    name: String,
    statements: Vec<Statement>,
}

fn code<T>(result: Result<T, tokio_postgres::Error>) -> Option<SqlState> {
    result.err().and_then(|error| error.code().cloned())
}

impl One {
    async fn settings(&self) -> Result<(), Failure> {
        let shown: String = self.client.query_one("SHOW application_name", &[]).await?.get(0);
        setting("application_name", &shown, &self.name);
        Ok(())
    }

    async fn statements(&self, round: i32) -> Result<(), Failure> {
        for (n, statement) in (0..).zip(&self.statements) {
            row("prepared", self.client.query_one(statement, &[&round]).await?.get(0), round + n);
        }
        // All are on their way before the first is answered.
        let adders = self
            .statements
            .iter()
            .map(|statement| async move { self.client.query_one(statement, &[&round]).await });
        let sums: Vec<i32> = future::try_join_all(adders).await?.iter().map(|found| found.get(0)).collect();
        row("pipeline", sums, (0..5).map(|n| round + n).collect());
        let (good, bad, late) = tokio::join!(
            async { self.client.query_one(&self.statements[1], &[&round]).await },
            async { self.client.query_one("SELECT $1::int / 0", &[&round]).await },
            async { self.client.query_one(&self.statements[2], &[&round]).await },
        );
        row("an error in a pipeline", code(bad), Some(SqlState::DIVISION_BY_ZERO));
        row("around it", (good?.get(0), late?.get(0)), (round + 1, round + 2));
        let several = self.client.simple_query("SELECT 1; SELECT 2").await?;
        let texts = several.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(found) => found.get(0).map(str::to_owned),
            _ => None,
        });
        row("simple", texts.collect(), vec!["1".to_owned(), "2".to_owned()]);
        row(
            "a bad batch",
            code(self.client.batch_execute("SELECT 1; SELEKT 2").await),
            Some(SqlState::SYNTAX_ERROR),
        );
        Ok(())
    }

    async fn transaction(&mut self, round: i32) -> Result<(), Failure> {
        let key = Uuid::new_v4();
        let client = format!("tokio-{}", self.number);
        let transaction = self.client.transaction().await?;
        if undoes_set() {
            transaction.batch_execute("SET LOCAL application_name = 'local'").await?;
        }
        transaction
            .execute("INSERT INTO judged (id, client, n) VALUES ($1, $2, $3)", &[&key, &client, &round])
            .await?;
        pause(round).await;
        // A portal that is suspended after each ten rows.
        let portal = transaction.bind("SELECT n FROM generate_series(1, 25) AS n", &[]).await?;
        let mut got = Vec::new();
        loop {
            let rows = transaction.query_portal(&portal, 10).await?;
            got.extend(rows.iter().map(|found| found.get::<_, i32>(0)));
            if rows.len() < 10 {
                break;
            }
        }
        row("portal", got, (1..=25).collect());
        transaction.commit().await?;
        let look = "SELECT n FROM judged WHERE id = $1";
        row("committed", self.client.query_one(look, &[&key]).await?.get(0), round);
        let transaction = self.client.transaction().await?;
        if undoes_set() {
            transaction.batch_execute("SET application_name = 'undone'").await?;
        }
        transaction.execute("UPDATE judged SET n = -1 WHERE id = $1", &[&key]).await?;
        let failed = transaction.query_one("SELECT $1::int / 0", &[&round]).await;
        row("an error", code(failed), Some(SqlState::DIVISION_BY_ZERO));
        row(
            "a failed transaction",
            code(transaction.batch_execute("SELECT 1").await),
            Some(SqlState::IN_FAILED_SQL_TRANSACTION),
        );
        transaction.rollback().await?;
        row("rolled back", self.client.query_one(look, &[&key]).await?.get(0), round);
        self.client.execute("DELETE FROM judged WHERE id = $1", &[&key]).await?;
        Ok(())
    }

    async fn large(&self) -> Result<(), Failure> {
        let text: String = self.client.query_one("SELECT repeat('x', 300000)", &[]).await?.get(0);
        row("large row", text.len(), 300_000);
        let length = self.client.query_one("SELECT length($1::text)", &[&"y".repeat(300_000)]).await?.get(0);
        row("large parameter", length, 300_000);
        Ok(())
    }

    async fn copy(&self, round: i32) -> Result<(), Failure> {
        let name = format!("tokio-copy-{}-{round}", self.number);
        let lines: String = (0..20).map(|n| format!("{}\t{name}\t{n}\n", Uuid::new_v4())).collect();
        let sink = self.client.copy_in("COPY judged (id, client, n) FROM STDIN").await?;
        let mut sink = std::pin::pin!(sink);
        sink.send(std::io::Cursor::new(lines.into_bytes())).await?;
        row("copied in", sink.finish().await?, 20);
        let out = format!("COPY (SELECT n FROM judged WHERE client = '{name}' ORDER BY n) TO STDOUT");
        let chunks: Vec<_> = self.client.copy_out(&out).await?.try_collect().await?;
        let expected: String = (0..20).map(|n| format!("{n}\n")).collect();
        row("copied", String::from_utf8(chunks.concat())?, expected);
        self.client.execute("DELETE FROM judged WHERE client = $1", &[&name]).await?;
        Ok(())
    }
}

impl Client for One {
    async fn open(number: usize) -> Result<Self, Failure> {
        let mut config = tokio_postgres::Config::new();
        config.host(std::env::var("PGHOST")?).port(std::env::var("PGPORT")?.parse()?);
        config.user(std::env::var("PGUSER")?).password(std::env::var("PGPASSWORD")?);
        config.dbname(std::env::var("PGDATABASE")?).application_name(format!("tokio-{number}"));
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        let texts = (0..5).map(|n| format!("SELECT $1::int + {n}"));
        let statements = future::try_join_all(texts.map(|text| {
            let client = &client;
            async move { client.prepare(&text).await }
        }))
        .await?;
        Ok(Self { client, number, name: format!("tokio-{number}"), statements })
    }

    async fn round(&mut self, round: i32) -> Result<(), Failure> {
        self.settings().await?;
        self.statements(round).await?;
        self.name = format!("tokio-{}-{round}", self.number);
        self.client.batch_execute(&format!("SET application_name = '{}'", self.name)).await?;
        pause(round).await;
        self.transaction(round).await?;
        self.settings().await?;
        if round % 3 == 0 {
            self.large().await?;
        }
        if copies() && round % 3 == 1 {
            self.copy(round).await?;
        }
        if round % 5 == 0 {
            self.client.batch_execute("RESET ALL").await?;
            self.name = format!("tokio-{}", self.number);
        }
        self.settings().await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    clients::laps::<One>().await
}
