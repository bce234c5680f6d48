//! The arguments and exit statuses that `forebay lease` and `forebay limiter` share.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::io::{self, BufRead, IsTerminal, Write};
use std::marker::PhantomData;
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;

use anyhow::{Context, bail};
use clap::Args;
use forebay::rt::TokioRuntime;
use forebay_aws::dynamo::{DynamoTable, Location, SetupError};
use forebay_fleet::TableError;
use serde_json::json;

use crate::output;
use crate::signals::{Ending, Signals};

/// Where DynamoDB is, and how to print.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// The address of a DynamoDB other than AWS's
    #[arg(long, value_name = "URL")]
    dynamodb_endpoint: Option<String>,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// The environment variable that names a table.
pub(crate) trait Variable: Clone + Debug + Send + Sync + 'static {
    const NAME: &'static str;
}

/// The name of a table.
#[derive(Clone, Debug, Args)]
struct Table<V: Variable> {
    /// The table
    #[arg(long = "table", value_name = "NAME", env = V::NAME)]
    name: String,
    #[arg(skip)]
    variable: PhantomData<V>,
}

/// A table to create.
#[derive(Clone, Debug, Args)]
pub(crate) struct Setup<V: Variable> {
    #[command(flatten)]
    table: Table<V>,
    #[command(flatten)]
    common: Common,
}

/// A cluster in a table.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target<V: Variable> {
    #[command(flatten)]
    table: Table<V>,
    /// Host of the cluster
    #[arg(long, value_name = "HOST", env = "CLUSTER_ENDPOINT", value_parser = host)]
    pub(crate) endpoint: String,
    #[command(flatten)]
    common: Common,
}

impl<V: Variable> Setup<V> {
    /// Creates the table, or checks the one that is there.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        run(async |runtime| {
            let name = self.table.name.as_str();
            let table = self.common.table(name, None).await?;
            let done = table.setup(runtime).await.map_err(|error| match error {
                SetupError::Table(error) => explained(name, error),
                error => error.into(),
            })?;
            let mut notes = vec![if done.created { "created and active" } else { "exists, and is correct" }];
            if done.expiry_enabled {
                notes.push("its items now expire by ttl_epoch");
            }
            if done.provisioned {
                notes.push("its capacity is provisioned, which throttles cold starts: on-demand is better");
            }
            let record = json!({
                "table": name,
                "created": done.created,
                "expiry_enabled": done.expiry_enabled,
                "provisioned": done.provisioned,
            });
            self.common.print(&record, &format!("{name}: {}\n", notes.join("; ")))?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

impl<V: Variable> Target<V> {
    pub(crate) async fn open(&self) -> anyhow::Result<DynamoTable> {
        self.common.table(&self.table.name, Some(&self.endpoint)).await
    }

    /// Prints a result as JSON or as text.
    pub(crate) fn print(&self, record: &serde_json::Value, text: &str) -> anyhow::Result<()> {
        self.common.print(record, text)
    }

    /// The table's error, with its name and the remedy.
    pub(crate) fn explained(&self, error: TableError) -> anyhow::Error {
        explained(&self.table.name, error)
    }
}

/// The host as the table's keys have it: in lower case, and without a port.
fn host(text: &str) -> Result<String, String> {
    Some(forebay_fleet::cluster_host(text.trim()))
        .filter(|host| is_host(host))
        .ok_or_else(|| "it is not a host, such as abc.dsql.us-east-1.on.aws".to_owned())
}

/// Whether it can be the name or the address of a host. A typo must not look like a fleet without members.
fn is_host(host: &str) -> bool {
    let label = |label: &str| {
        let plain = label.chars().all(|one| one.is_ascii_alphanumeric() || one == '-' || one == '_');
        plain && !label.is_empty() && !label.starts_with('-')
    };
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.parse::<std::net::Ipv6Addr>().is_ok() || host.split('.').all(label)
}

/// Whether to ask before a change.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Confirm {
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// The exit status of a negative result: drift, nothing to evict, or the user said no.
pub(crate) const NO: u8 = 1;
/// The exit status of a failure: a wrong argument, or a table that cannot be used.
const FAILED: u8 = 2;

impl Confirm {
    /// Says what is about to happen, and asks whether to go on.
    fn ask(self, about: &str) -> anyhow::Result<bool> {
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() {
            bail!("{about} stdin is not a terminal, so nobody can confirm it: give --yes to go on");
        }
        write!(io::stderr(), "{}\nGo on? Type yes: ", output::wrap(about, output::WIDTH))
            .context("cannot ask")?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
        let yes = answer.trim() == "yes";
        if !yes {
            output::say("nothing was changed");
        }
        Ok(yes)
    }

    /// Runs `work` if the user agrees. It asks before it listens for signals, so Ctrl-C ends the question.
    pub(crate) fn run(
        self,
        about: &str,
        work: impl AsyncFnOnce(&TokioRuntime) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        match self.ask(about) {
            Ok(true) => run(work),
            Ok(false) => Ok(ExitCode::from(NO)),
            Err(error) => run(async |_| Err(error)),
        }
    }
}

impl Common {
    /// The table called `name`, with the credentials of the environment. The region is REGION, or what the
    /// SDK finds, or the cluster's.
    async fn table(&self, name: &str, endpoint: Option<&str>) -> anyhow::Result<DynamoTable> {
        let place = Location {
            region: std::env::var("REGION").ok().filter(|region| !region.is_empty()),
            cluster: endpoint.map(str::to_owned),
            endpoint_url: self.dynamodb_endpoint.clone(),
        };
        Ok(DynamoTable::from_env(name, place).await?)
    }

    fn print(&self, record: &serde_json::Value, text: &str) -> anyhow::Result<()> {
        if self.json { output::print(&format!("{record:#}\n")) } else { output::print(text) }
    }
}

fn explained(table: &str, error: TableError) -> anyhow::Error {
    let remedy = error.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    anyhow::anyhow!("table {table}: {error}{remedy}")
}

/// Runs `work` until it is done, or a signal ends it.
pub(crate) fn run(
    work: impl AsyncFnOnce(&TokioRuntime) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start a thread for the network")?;
    let runtime = TokioRuntime::new(tokio.handle().clone());
    let outcome = tokio.block_on(unless_ended(work(&runtime)));
    // Does not wait for name lookups under way.
    tokio.shutdown_background();
    match outcome {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(error)) => {
            output::say(&format!("{error:#}"));
            Ok(ExitCode::from(FAILED))
        }
        Err(ending) => {
            output::say("ended early; it is safe to run it again");
            Ok(ending.status())
        }
    }
}

/// The outcome of `work`, or the signal that came before.
async fn unless_ended<T>(work: impl Future<Output = T>) -> Result<T, Ending> {
    let Ok(mut signals) = Signals::listen() else { return Ok(work.await) };
    let (mut work, mut ended) = (pin!(work), pin!(signals.recv()));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(outcome) => Poll::Ready(Ok(outcome)),
        Poll::Pending => ended.as_mut().poll(context).map(Err),
    })
    .await
}
