//! `forebay limiter`: the connect rate that a fleet shares.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use forebay::rt::{Runtime, TokioRuntime};
use forebay_fleet::{Table as _, TableError, operator};
use serde_json::json;

use crate::fleet::{self, Table, Target, Variable, Way, bounded};

/// Look at the connect rate a fleet shares
#[derive(Debug, Args)]
#[command(
    after_help = "Region and credentials come from the environment, as for any program on AWS: REGION or AWS_REGION, \
                  AWS_PROFILE, keys, roles. Without a region, the cluster's is taken.\n\nExit status: 0 if it is done, 2 if it \
                  could not be done, 130 after Ctrl-C.\n\nExamples:\n  forebay limiter setup --table forebay\n  forebay limiter \
                  status --table forebay --endpoint abc.dsql.us-east-1.on.aws"
)]
pub(crate) struct Limiter {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Setup(Setup),
    Status(Shown),
}

/// Make the table, or see that it is as it must be; safe to repeat
///
/// It may be the table of the leases: the two never touch each other's items.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  forebay limiter setup --table forebay")]
struct Setup {
    #[command(flatten)]
    table: Table<RateTable>,
    #[command(flatten)]
    way: Way,
}

/// How long a newcomer waits for a permit, and how many were given in the last full second
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  forebay limiter status --table forebay --endpoint abc.dsql.us-east-1.on.aws --json"
)]
struct Shown {
    #[command(flatten)]
    target: Target<RateTable>,
}

#[derive(Clone, Debug)]
struct RateTable;

impl Variable for RateTable {
    const NAME: &'static str = "DSQL_DISTRIBUTED_RATE_LIMITER_TABLE";
}

impl Limiter {
    /// Does it, and tells the exit status.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Setup(setup) => {
                fleet::run(async |runtime| setup.way.set_up(&setup.table.name, runtime).await)
            }
            Command::Status(shown) => fleet::run(async |runtime| shown.show(runtime).await),
        }
    }
}

impl Shown {
    async fn show(&self, runtime: &TokioRuntime) -> anyhow::Result<ExitCode> {
        let endpoint = self.target.endpoint();
        let table = self.target.open().await?;
        let failed = |error: TableError| self.target.explained(error);
        let reserved = operator::rate_reserved(&table, runtime, endpoint).await.map_err(failed)?;
        let second = runtime.wall().as_secs().saturating_sub(1);
        let key = format!("dsqlconnect#{endpoint}#{second}");
        let window = bounded(runtime, table.get(&key)).await.map_err(failed)?;
        let window = window.and_then(|item| item.number("count"));
        let bucket = match reserved {
            None => "bucket: not used yet".to_owned(),
            Some(Duration::ZERO) => "bucket: a permit is to be had at once".to_owned(),
            Some(ahead) => format!("bucket: a newcomer waits {:.1} s for a permit", ahead.as_secs_f64()),
        };
        let windows = match window {
            None => "window: no permits in the last full second".to_owned(),
            Some(count) => format!("window: {count} permits in the last full second"),
        };
        let record = json!({
            "endpoint": endpoint,
            "rate_reserved_seconds": reserved.map(|ahead| ahead.as_secs_f64()),
            "window_last_second": window,
        });
        self.target.way.tell(&record, &format!("{endpoint}\n{bucket}\n{windows}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}
