//! `forebay limiter`: the connect rate that a fleet shares.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use forebay::rt::{self, Runtime, TokioRuntime};
use forebay_fleet::{Table as _, TableError, operator};
use serde_json::json;

use crate::fleet_args::{self, Setup, Target, Variable};

/// How long one call on the table may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Show a fleet's shared connect rate
#[derive(Debug, Args)]
#[command(
    after_help = "Region and credentials come from the environment, as for any program on AWS: REGION or AWS_REGION, \
                  AWS_PROFILE, keys, roles. Without a region it is the cluster's.\n\nExit status: 0 on success, 2 on \
                  failure, 130 after Ctrl-C.\n\nExamples:\n  forebay limiter setup --table forebay\n  forebay limiter \
                  status --table forebay --endpoint abc.dsql.us-east-1.on.aws"
)]
pub(crate) struct Limiter {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create the table, or check the one that is there; safe to repeat
    ///
    /// It may be the table of the leases: the two never touch each other's items.
    #[command(after_help = "Example:\n  forebay limiter setup --table forebay")]
    Setup(Setup<RateTable>),
    /// Show how long a new caller waits for a permit, and how many permits the last full second had
    #[command(
        after_help = "Example:\n  forebay limiter status --table forebay --endpoint abc.dsql.us-east-1.on.aws --json"
    )]
    Status(Target<RateTable>),
}

#[derive(Clone, Debug)]
struct RateTable;

impl Variable for RateTable {
    const NAME: &'static str = "DSQL_DISTRIBUTED_RATE_LIMITER_TABLE";
}

impl Limiter {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Setup(setup) => setup.run(),
            Command::Status(target) => fleet_args::run(async |runtime| status(&target, runtime).await),
        }
    }
}

async fn status(target: &Target<RateTable>, runtime: &TokioRuntime) -> anyhow::Result<ExitCode> {
    let endpoint = target.endpoint.as_str();
    let table = target.open().await?;
    let failed = |error: TableError| target.explained(error);
    let reserved = operator::rate_reserved(&table, runtime, endpoint).await.map_err(failed)?;
    let second = runtime.wall().as_secs().saturating_sub(1);
    let key = format!("dsqlconnect#{endpoint}#{second}");
    let late = || Err(TableError::Unknown(format!("no answer within {CALL_TIMEOUT:?}").into()));
    let window = rt::within(runtime, CALL_TIMEOUT, table.get(&key)).await.unwrap_or_else(late);
    let window = window.map_err(failed)?.and_then(|item| item.number("count"));
    let bucket = match reserved {
        None => "bucket: not used yet".to_owned(),
        Some(Duration::ZERO) => "bucket: a permit is available now".to_owned(),
        Some(wait) => format!("bucket: a new caller waits {:.1} s for a permit", wait.as_secs_f64()),
    };
    let windows = match window {
        None => "window: no permits in the last full second".to_owned(),
        Some(count) => format!("window: {count} permits in the last full second"),
    };
    let record = json!({
        "endpoint": endpoint,
        "rate_reserved_seconds": reserved.map(|wait| wait.as_secs_f64()),
        "window_last_second": window,
    });
    target.print(&record, &format!("{endpoint}\n{bucket}\n{windows}\n"))?;
    Ok(ExitCode::SUCCESS)
}
