//! A reservoir of tokio-postgres connections: queries, a transaction that conflicts, a clean end.
//!
//! `cargo run -p forebay-dsql --example tokio_postgres`

use std::time::Duration;

use forebay_dsql::{Dsql, Error};

mod local;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = local::Local::start()?;
    // One process alone need not wait for others at its start.
    let options = cluster.options().max_connections(5).startup_jitter(Duration::ZERO).build()?;
    let dsql = Dsql::builder(options, cluster.signer())
        // For each connection, and again after each reset. Without a hook, `Dsql::connect` is enough.
        .after_connect(|connection, _| {
            Box::pin(async move { Ok(connection.batch_execute("SET application_name TO 'accounts'").await?) })
        })
        .connect()
        .await?;
    println!("connected: {} ready", dsql.status().idle);

    {
        let connection = dsql.acquire().await?; // derefs to tokio_postgres::Client
        connection.batch_execute("CREATE TABLE account (id bigint PRIMARY KEY, balance bigint)").await?;
        connection.execute("INSERT INTO account VALUES (1, 100), (2, 0)", &[]).await?;
    } // given back here

    // Whoever commits second loses, in Aurora DSQL; `run` runs the whole of it again.
    cluster.fail("conflict:n=2")?;
    let mut attempts = 0;
    dsql.run("transfer", |tx| {
        attempts += 1;
        async move {
            tx.execute("UPDATE account SET balance = balance - 10 WHERE id = 1", &[]).await?;
            tx.execute("UPDATE account SET balance = balance + 10 WHERE id = 2", &[]).await?;
            Ok::<_, Error>(())
        }
    })
    .await?;
    println!("transferred after {attempts} attempts");

    {
        // What is left open is rolled back in the background; nobody else finds it.
        let connection = dsql.acquire().await?;
        connection.batch_execute("BEGIN").await?;
        connection.batch_execute("UPDATE account SET balance = 0").await?;
        println!("given back as it is: {:?}", connection.state());
    }

    let connection = dsql.acquire_within(Duration::from_secs(1)).await?;
    for row in connection.query("SELECT id, balance FROM account ORDER BY id", &[]).await? {
        println!("account {}: {}", row.get::<_, i64>(0), row.get::<_, i64>(1));
    }
    drop(connection);

    let drained = dsql.drain(Duration::from_secs(5)).await;
    println!("drained: {}", drained.is_complete());
    Ok(())
}
