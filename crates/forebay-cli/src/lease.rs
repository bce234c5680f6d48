//! `forebay lease`: the connections that a fleet shares.

mod status;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use forebay::duration;
use forebay::rt::TokioRuntime;
use forebay_fleet::operator::{self, ReconcileError};
use serde_json::json;

use self::status::Status;
use crate::fleet_args::{self, Confirm, NO, Setup, Target, Variable};

/// Show and repair a fleet's shared connections
#[derive(Debug, Args)]
#[command(
    after_help = "Region and credentials come from the environment, as for any program on AWS: REGION or AWS_REGION, \
                  AWS_PROFILE, keys, roles. Without a region it is the cluster's.\n\nExit status: 0 on success, 1 on a \
                  negative result (drift, nothing to evict, not confirmed), 2 on failure, 130 after \
                  Ctrl-C.\n\nExamples:\n  forebay lease setup --table forebay\n  forebay lease status --table forebay \
                  --endpoint abc.dsql.us-east-1.on.aws\n  forebay lease evict his4k2pq --table forebay --endpoint \
                  abc.dsql.us-east-1.on.aws --yes"
)]
pub(crate) struct Lease {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create the table, or check the one that is there; safe to repeat
    ///
    /// The table gets a partition key pk (string), on-demand billing and a time-to-live on ttl_epoch. Of an
    /// existing table, only the time-to-live is changed.
    #[command(after_help = "Example:\n  forebay lease setup --table forebay")]
    Setup(Setup<LeaseTable>),
    /// Show which instance holds how many slots, the age of its heartbeat, and whether the counts add up
    ///
    /// Drift is the number of free and held slots less the capacity. In the ledger it is zero, or something
    /// is broken. A counter (mode counter) drifts when an instance crashes: see reconcile.
    #[command(
        after_help = "The exit status is 1 if there is drift, or a shard that cannot be read.\n\nExample:\n  forebay \
                      lease status --table forebay --endpoint abc.dsql.us-east-1.on.aws --json | jq .instances"
    )]
    Status(Target<LeaseTable>),
    Reconcile(Reconcile),
    Reset(Reset),
    Evict(Evict),
}

/// Set the counter of mode counter to the number of leases that are held
///
/// It deletes the leases of dead instances. It first watches those that seem dead for 100 seconds, since
/// clocks differ. It refuses while there are signs of instances that do not renew their leases: their
/// connections outlive their items, so nobody can count them.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  forebay lease reconcile --table forebay --endpoint abc.dsql.us-east-1.on.aws --yes"
)]
struct Reconcile {
    #[command(flatten)]
    target: Target<LeaseTable>,
    /// The longest that a connection of such an instance can live
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    longest_session: Duration,
    #[command(flatten)]
    confirm: Confirm,
}

/// Delete everything about a cluster: the ledger, the shared rate, and the counter unless it is in use
///
/// Live instances join again within a heartbeat or two, with their connections and their numbers. Until all
/// have, the fleet can open more connections than the limit, and a new instance may get the number of a live
/// one. If ids carry the number, start no instance meanwhile. After a change of the limit, a reset makes the
/// ledger use it.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  forebay lease reset --table forebay --endpoint abc.dsql.us-east-1.on.aws"
)]
struct Reset {
    #[command(flatten)]
    target: Target<LeaseTable>,
    #[command(flatten)]
    confirm: Confirm,
}

/// Remove one instance from the ledger, as if it were dead: its slots are free immediately
///
/// A live instance joins again within a heartbeat, with its connections and its number. Until then the
/// cluster may have more connections than the limit, and a new instance may get its number, which its ids
/// still carry.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  forebay lease evict his4k2pq --table forebay --endpoint abc.dsql.us-east-1.on.aws"
)]
struct Evict {
    /// The instance, as status names it
    #[arg(value_name = "INSTANCE")]
    instance: String,
    #[command(flatten)]
    target: Target<LeaseTable>,
    #[command(flatten)]
    confirm: Confirm,
}

#[derive(Clone, Debug)]
struct LeaseTable;

impl Variable for LeaseTable {
    const NAME: &'static str = "DSQL_DISTRIBUTED_CONN_LEASE_TABLE";
}

fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "it is not a time, such as 1h or 30m".to_owned())
}

impl Lease {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Setup(setup) => setup.run(),
            Command::Status(target) => fleet_args::run(async |runtime| status(&target, runtime).await),
            Command::Reconcile(reconcile) => reconcile.run(),
            Command::Reset(reset) => reset.run(),
            Command::Evict(evict) => evict.run(),
        }
    }
}

async fn status(target: &Target<LeaseTable>, runtime: &TokioRuntime) -> anyhow::Result<ExitCode> {
    let table = target.open().await?;
    let status = Status::read(&table, runtime, &target.endpoint).await;
    let status = status.map_err(|error| target.explained(error))?;
    target.print(&status.record(), &status.to_string())?;
    Ok(if status.is_exact() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

impl Reconcile {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let endpoint = self.target.endpoint.as_str();
        let about = format!(
            "This sets the counter of {endpoint}, and deletes the leases of dead instances. It first watches those that \
             seem dead for 100 s."
        );
        self.confirm.run(&about, async |runtime| {
            let table = self.target.open().await?;
            let done = operator::reconcile(&table, runtime, endpoint, self.longest_session).await;
            let done = done.map_err(|error| match error {
                ReconcileError::Table(error) => self.target.explained(error),
                error => error.into(),
            })?;
            let record = json!({ "counted": done.counted, "held": done.held, "expired": done.expired });
            let text = format!(
                "the counter was {}, and is {} now; {} leases of dead instances deleted\n",
                done.counted, done.held, done.expired
            );
            self.target.print(&record, &text)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

impl Reset {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let endpoint = self.target.endpoint.as_str();
        let about = format!(
            "This deletes the record of who holds connections to {endpoint}. Until every instance has joined again, in about \
             a minute, the fleet may exceed the limit, and a new instance may get the number of a live one, which its ids \
             carry."
        );
        self.confirm.run(&about, async |runtime| {
            let table = self.target.open().await?;
            let done = operator::reset(&table, runtime, endpoint).await;
            let kept = done.map_err(|error| self.target.explained(error))?.counter_kept;
            let mut text = "deleted; live instances join again\n".to_owned();
            if let Some(active) = kept {
                text += &format!(
                    "kept: the counter, which is {active} and in use; `forebay lease reconcile` corrects it\n"
                );
            }
            self.target.print(&json!({ "reset": endpoint, "counter_kept": kept }), &text)?;
            Ok(if kept.is_none() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
        })
    }
}

impl Evict {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let (endpoint, instance) = (self.target.endpoint.as_str(), &self.instance);
        let about = format!(
            "This frees the slots and the number of {instance}. If it is alive and holds connections to {endpoint}, the \
             fleet may exceed the limit until it has joined again, and a new instance may get its number, which its ids \
             carry."
        );
        self.confirm.run(&about, async |runtime| {
            let table = self.target.open().await?;
            let before = operator::survey(&table, runtime, endpoint).await;
            let before = before.map_err(|error| self.target.explained(error))?;
            let found = before.instances.iter().any(|known| known.instance == *instance);
            let freed = operator::evict(&table, runtime, endpoint, instance).await;
            let freed = freed.map_err(|error| self.target.explained(error))?;
            let text = if found {
                format!("{instance} is removed; {freed} slots are free\n")
            } else {
                format!("there is no instance {instance}; `forebay lease status` lists them\n")
            };
            self.target.print(&json!({ "instance": instance, "found": found, "freed": freed }), &text)?;
            Ok(if found { ExitCode::SUCCESS } else { ExitCode::from(NO) })
        })
    }
}
