//! The same with sqlx, in standard mode: a pool that opens what is missing. One line makes it a reservoir.
//!
//! `cargo run -p forebay-dsql --example sqlx`

use std::time::Duration;

use forebay_dsql::{Error, SqlxDsql};
use sqlx::{Executor, Row};

mod local;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = local::Local::start()?;
    // One process alone need not wait for others at its start.
    let options = cluster.options().reservoir(false).max_connections(5);
    let options = options.startup_jitter(Duration::ZERO).build()?;
    let dsql = SqlxDsql::builder(options, cluster.signer())
        // For each connection, and again after each reset. Without a hook, `SqlxDsql::connect` is enough.
        .after_connect(|connection, _| {
            Box::pin(async move {
                connection.pg().execute("SET application_name TO 'accounts'").await?;
                Ok(())
            })
        })
        .connect()
        .await?;
    println!("connected in {:?} mode: {} open", dsql.status().mode, dsql.status().open);

    {
        let mut connection = dsql.acquire().await?; // derefs to sqlx::PgConnection
        connection.execute("CREATE TABLE account (id bigint PRIMARY KEY, balance bigint)").await?;
        connection.execute("INSERT INTO account VALUES (1, 100), (2, 0)").await?;
    }

    cluster.fail("conflict:n=1")?;
    dsql.run("transfer", async |mut tx| {
        sqlx::query("UPDATE account SET balance = balance - $1 WHERE id = 1")
            .bind(10_i64)
            .execute(tx.pg())
            .await?;
        sqlx::query("UPDATE account SET balance = balance + $1 WHERE id = 2")
            .bind(10_i64)
            .execute(tx.pg())
            .await?;
        Ok::<_, Error>(())
    })
    .await?;

    let mut connection = dsql.acquire_within(Duration::from_secs(1)).await?;
    let rows = sqlx::query("SELECT id, balance FROM account ORDER BY id").fetch_all(connection.pg()).await?;
    for row in rows {
        println!("account {}: {}", row.get::<i64, _>(0), row.get::<i64, _>(1));
    }
    drop(connection);

    let drained = dsql.drain(Duration::from_secs(5)).await;
    println!("drained: {}", drained.is_complete());
    Ok(())
}
