//! What `forebay lease` and `forebay limiter` have in common: the way to the table, and the way out.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::io::{self, BufRead, IsTerminal, Write};
use std::marker::PhantomData;
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use forebay::rt::{self, TokioRuntime};
use forebay_aws::dynamo::{DynamoTable, Location, SetupError};
use forebay_fleet::TableError;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::ending::Ending;
use crate::output;

/// Where the table is, and how to answer.
#[derive(Clone, Debug, Args)]
pub(crate) struct Way {
    /// The address of a DynamoDB that is not AWS's
    #[arg(long, value_name = "URL")]
    dynamodb_endpoint: Option<String>,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// The cluster whose budget it is about.
#[derive(Clone, Debug, Args)]
struct Cluster {
    /// Host of the cluster
    #[arg(long, value_name = "HOST", env = "CLUSTER_ENDPOINT", value_parser = host)]
    endpoint: String,
}

/// The variable that names a table.
pub(crate) trait Variable: Clone + Debug + Send + Sync + 'static {
    const NAME: &'static str;
}

/// The name of a table.
#[derive(Clone, Debug, Args)]
pub(crate) struct Table<V: Variable> {
    /// The table
    #[arg(long = "table", value_name = "NAME", env = V::NAME)]
    pub(crate) name: String,
    #[arg(skip)]
    variable: PhantomData<V>,
}

/// What is asked about: a cluster, in a table.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target<V: Variable> {
    #[command(flatten)]
    table: Table<V>,
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    pub(crate) way: Way,
}

impl<V: Variable> Target<V> {
    /// Host of the cluster.
    pub(crate) fn endpoint(&self) -> &str {
        &self.cluster.endpoint
    }

    /// The table.
    pub(crate) async fn open(&self) -> anyhow::Result<DynamoTable> {
        self.way.table(&self.table.name, Some(self.endpoint())).await
    }

    /// What the table said instead, with its name and the remedy.
    pub(crate) fn explained(&self, error: TableError) -> anyhow::Error {
        explained(&self.table.name, error)
    }
}

/// A host as it is part of every key: in lower case, and without a port.
fn host(text: &str) -> Result<String, String> {
    Some(forebay_fleet::cluster_host(text.trim()))
        .filter(|host| is_host(host))
        .ok_or_else(|| "it is no host, such as abc.dsql.us-east-1.on.aws".to_owned())
}

/// Whether it can be the name or the address of a host. Nobody has joined under anything else, and a slip of the pen should not look
/// like a fleet that is not there.
fn is_host(host: &str) -> bool {
    let label = |label: &str| {
        let plain = label.chars().all(|one| one.is_ascii_alphanumeric() || one == '-' || one == '_');
        plain && !label.is_empty() && !label.starts_with('-')
    };
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.parse::<std::net::Ipv6Addr>().is_ok() || host.split('.').all(label)
}

/// How to be sure.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Consent {
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Done, but the answer is no: there is drift, there is nothing to evict, or somebody said no.
pub(crate) const NO: u8 = 1;
/// It could not be done: a bad call, or a table that cannot be used.
const FAILED: u8 = 2;

impl Consent {
    /// Says what is about to happen, and asks. Whether to go on.
    pub(crate) fn given(self, about: &str) -> anyhow::Result<bool> {
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() {
            bail!("{about} Nobody is there to ask: give --yes to go on");
        }
        write!(io::stderr(), "{about}\nGo on? Type yes: ").context("could not ask")?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).context("could not read the answer")?;
        let yes = answer.trim() == "yes";
        if !yes {
            writeln!(io::stderr(), "nothing was changed").context("could not tell")?;
        }
        Ok(yes)
    }
}

impl Way {
    /// The table called `name`, with the region and the credentials of the environment. The region is REGION, or what the SDK
    /// finds, or the cluster's own.
    async fn table(&self, name: &str, endpoint: Option<&str>) -> anyhow::Result<DynamoTable> {
        let place = Location {
            region: std::env::var("REGION").ok().filter(|region| !region.is_empty()),
            cluster: endpoint.map(str::to_owned),
            endpoint_url: self.dynamodb_endpoint.clone(),
        };
        Ok(DynamoTable::from_env(name, place).await?)
    }

    /// Makes the table.
    pub(crate) async fn set_up(&self, name: &str, runtime: &TokioRuntime) -> anyhow::Result<ExitCode> {
        let table = self.table(name, None).await?;
        let done = table.setup(runtime).await.map_err(|error| match error {
            SetupError::Table(error) => explained(name, error),
            error => error.into(),
        })?;
        let mut told = vec![if done.created { "made and active" } else { "is there, and as it should be" }];
        if done.expiry_enabled {
            told.push("items now end by ttl_epoch");
        }
        if done.provisioned {
            told.push(
                "it is billed by provisioned capacity, which throttles cold starts: on-demand is better",
            );
        }
        let record = json!({
            "table": name,
            "created": done.created,
            "expiry_enabled": done.expiry_enabled,
            "provisioned": done.provisioned,
        });
        self.tell(&record, &format!("{name}: {}\n", told.join("; ")))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Prints an answer in the form that was asked for.
    pub(crate) fn tell(&self, record: &serde_json::Value, text: &str) -> anyhow::Result<()> {
        if self.json { output::print(&format!("{record:#}\n")) } else { output::print(text) }
    }
}

/// How long one call on the table may take, as everywhere.
const CALL: Duration = Duration::from_secs(5);

/// A call on the table, for as long as it may take.
pub(crate) async fn bounded<T>(
    runtime: &TokioRuntime,
    call: impl Future<Output = Result<T, TableError>>,
) -> Result<T, TableError> {
    let late = || Err(TableError::Unknown(format!("nothing within {CALL:?}").into()));
    rt::within(runtime, CALL, call).await.unwrap_or_else(late)
}

/// What a table says, with its name and the remedy.
fn explained(table: &str, error: TableError) -> anyhow::Error {
    let remedy = error.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    anyhow::anyhow!("table {table}: {error}{remedy}")
}

/// Runs `work` until it is done, or someone asks to end.
pub(crate) fn run(
    work: impl AsyncFnOnce(&TokioRuntime) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("could not start a thread for the network")?;
    let runtime = TokioRuntime::new(tokio.handle().clone());
    let outcome = tokio.block_on(unless_asked(work(&runtime)));
    // A name that is being looked up is not waited for.
    tokio.shutdown_background();
    match outcome {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(error)) => {
            crate::output::say(&format!("{error:#}"));
            Ok(ExitCode::from(FAILED))
        }
        Err(ending) => {
            let _ = writeln!(io::stderr(), "broken off; it is safe to run it again");
            Ok(ending.status())
        }
    }
}

/// The outcome of `work`, or who asked to end before.
async fn unless_asked<T>(work: impl Future<Output = T>) -> Result<T, Ending> {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return Ok(work.await);
    };
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Poll::Ready(outcome) = work.as_mut().poll(context) {
            return Poll::Ready(Ok(outcome));
        }
        if interrupt.poll_recv(context).is_ready() {
            return Poll::Ready(Err(Ending::Interrupted));
        }
        terminate.poll_recv(context).map(|_| Err(Ending::Terminated))
    })
    .await
}
