//! A process that comes and goes, such as a function: a connection or two, no pause at the start, and a time limit for all.
//!
//! `cargo run -p forebay-dsql --example short_lived`
#![allow(clippy::disallowed_methods, reason = "it shows how long things take")]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use forebay::Config;
use forebay_dsql::{Dsql, Error};

mod local;

/// One for the whole process: an instance that is called again finds its connections as it left them.
static DSQL: OnceLock<Dsql> = OnceLock::new();

/// What the platform calls for each event.
async fn handle(event: i64) -> Result<i64, Error> {
    let dsql = DSQL.get().expect("the start has set it");
    dsql.run("count", async |tx| {
        tx.execute("INSERT INTO event VALUES ($1)", &[&event]).await?;
        Ok(tx.query_one("SELECT count(*) FROM event", &[]).await?.get(0))
    })
    .await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = local::Local::start()?;
    let started = Instant::now();
    // On demand: nothing is opened that nobody waits for. Many instances start at once, each with its own little pool, so
    // the burst is small; and the connection must not outlive what the platform lets an idle process live.
    let config = Config::default()
        .max_open(2)
        .on_demand(1)
        .startup_jitter(Duration::ZERO)
        .rate(2.0, 2)
        .server_limit(Duration::from_secs(3_600));
    let options = cluster.options().reservoir(true).config(config).build()?;
    let dsql = Dsql::connect(options, cluster.signer()).await?;
    dsql.acquire().await?.batch_execute("CREATE TABLE event (id bigint)").await?;
    DSQL.get_or_init(|| dsql);
    println!("cold start took {:?}", started.elapsed());

    for event in 1..=3 {
        let began = Instant::now();
        println!("event {event}: {} so far, in {:?}", handle(event).await?, began.elapsed());
    }

    // The platform says that the process is about to end.
    let dsql = DSQL.get().ok_or("the start has set it")?;
    println!("drained: {}", dsql.drain(Duration::from_millis(500)).await.is_complete());
    Ok(())
}
