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
use crate::fleet::{self, Consent, NO, Table, Target, Variable, Way};

/// Look at the connections a fleet shares, and mend what keeps count of them
#[derive(Debug, Args)]
#[command(
    after_help = "Region and credentials come from the environment, as for any program on AWS: REGION or AWS_REGION, \
                  AWS_PROFILE, keys, roles. Without a region, the cluster's is taken.\n\nExit status: 0 if it is done, 1 if \
                  the answer is no (drift, nothing to evict, not agreed to), 2 if it could not be done, 130 after \
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
    Setup(Setup),
    Status(Shown),
    Reconcile(Reconcile),
    Reset(Reset),
    Evict(Evict),
}

/// Make the table, or see that it is as it must be; safe to repeat
///
/// The table gets a partition key pk (string), on-demand billing and a time-to-live on ttl_epoch. One that is there already
/// is only looked at, but for its time-to-live.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  forebay lease setup --table forebay")]
struct Setup {
    #[command(flatten)]
    table: Table<LeaseTable>,
    #[command(flatten)]
    way: Way,
}

/// Who holds what, how long ago each said that it lives, and whether it all adds up
///
/// Drift is what is free and what is held, less what there is. In the ledger it is always zero, or something is broken. A
/// counter (mode counter) drifts when an instance crashes: see reconcile.
#[derive(Debug, Args)]
#[command(
    after_help = "The exit status is 1 if there is drift, or a shard that cannot be read.\n\nExample:\n  forebay lease status --table forebay \
                        --endpoint abc.dsql.us-east-1.on.aws --json | jq .instances"
)]
struct Shown {
    #[command(flatten)]
    target: Target<LeaseTable>,
}

/// Set the counter of mode counter to the leases that are held
///
/// Leases of the dead are deleted; those that seem to be are watched for 100 seconds before, since clocks differ. It refuses
/// while there are signs of peers that do not renew their leases: their connections outlive their items, so nobody can count
/// them.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  forebay lease reconcile --table forebay --endpoint abc.dsql.us-east-1.on.aws --yes"
)]
struct Reconcile {
    #[command(flatten)]
    target: Target<LeaseTable>,
    /// The longest a connection of such a peer can live
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    longest_session: Duration,
    #[command(flatten)]
    consent: Consent,
}

/// Forget everything about a cluster: ledger, shared rate, and the counter unless it is in use
///
/// Instances that live join anew with what they hold and the number they had, within a beat or two. Until all have, more can
/// be opened than the limit, and an instance that starts may be given the number of one that lives: start none meanwhile, if
/// ids carry it. After a change of the limit, this is how the ledger learns of it.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  forebay lease reset --table forebay --endpoint abc.dsql.us-east-1.on.aws"
)]
struct Reset {
    #[command(flatten)]
    target: Target<LeaseTable>,
    #[command(flatten)]
    consent: Consent,
}

/// Take one instance out of the ledger, as if it were dead: its slots are free at once
///
/// An instance that lives joins anew with what it holds and the number it had, within a beat. Until then the cluster may see
/// more connections than the limit, and one that starts may be given its number, which its ids still carry.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  forebay lease evict his4k2pq --table forebay --endpoint abc.dsql.us-east-1.on.aws"
)]
struct Evict {
    /// The instance, as status calls it
    #[arg(value_name = "INSTANCE")]
    instance: String,
    #[command(flatten)]
    target: Target<LeaseTable>,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Debug)]
struct LeaseTable;

impl Variable for LeaseTable {
    const NAME: &'static str = "DSQL_DISTRIBUTED_CONN_LEASE_TABLE";
}

fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "it is no time, such as 1h or 30m".to_owned())
}

impl Lease {
    /// Does it, and tells the exit status.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Setup(setup) => {
                fleet::run(async |runtime| setup.way.set_up(&setup.table.name, runtime).await)
            }
            Command::Status(shown) => fleet::run(async |runtime| shown.show(runtime).await),
            Command::Reconcile(reconcile) => reconcile.run(),
            Command::Reset(reset) => reset.run(),
            Command::Evict(evict) => evict.run(),
        }
    }
}

impl Shown {
    async fn show(&self, runtime: &TokioRuntime) -> anyhow::Result<ExitCode> {
        let endpoint = self.target.endpoint();
        let table = self.target.open().await?;
        let status = Status::look(&table, runtime, endpoint).await;
        let status = status.map_err(|error| self.target.explained(error))?;
        self.target.way.tell(&status.record(), &status.to_string())?;
        Ok(if status.is_exact() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
    }
}

impl Reconcile {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let endpoint = self.target.endpoint();
        let about = format!(
            "This sets the counter of {endpoint}, and deletes the leases of the dead. Those that seem to be are watched for 100 s before."
        );
        agreed(self.consent, &about, async |runtime| {
            let table = self.target.open().await?;
            let done = operator::reconcile(&table, runtime, endpoint, self.longest_session).await;
            let done = done.map_err(|error| match error {
                ReconcileError::Table(error) => self.target.explained(error),
                error => error.into(),
            })?;
            let record = json!({ "counted": done.counted, "held": done.held, "expired": done.expired });
            let text = format!(
                "the counter said {}, and says {} now; {} leases of the dead deleted\n",
                done.counted, done.held, done.expired
            );
            self.target.way.tell(&record, &text)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

impl Reset {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let endpoint = self.target.endpoint();
        let about = format!(
            "This forgets who holds connections to {endpoint}. Until every instance has joined anew, in a minute or so, the \
             limit may be exceeded, and an instance that starts may be given the number of one that lives, which its ids \
             carry."
        );
        agreed(self.consent, &about, async |runtime| {
            let table = self.target.open().await?;
            let done = operator::reset(&table, runtime, endpoint).await;
            let kept = done.map_err(|error| self.target.explained(error))?.counter_kept;
            let mut text = "forgotten; instances that live join anew\n".to_owned();
            if let Some(active) = kept {
                text += &format!(
                    "kept: the counter, which counts {active} and is in use; `forebay lease reconcile` mends it\n"
                );
            }
            self.target.way.tell(&json!({ "reset": endpoint, "counter_kept": kept }), &text)?;
            Ok(if kept.is_none() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
        })
    }
}

impl Evict {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let (endpoint, instance) = (self.target.endpoint(), &self.instance);
        let about = format!(
            "This frees the slots and the number of {instance}. If it lives and holds connections to {endpoint}, the limit \
             may be exceeded until it has joined anew, and one that starts meanwhile may be given the number that its ids \
             carry."
        );
        agreed(self.consent, &about, async |runtime| {
            let table = self.target.open().await?;
            let before = operator::survey(&table, runtime, endpoint).await;
            let before = before.map_err(|error| self.target.explained(error))?;
            let there = before.instances.iter().any(|known| known.instance == *instance);
            let freed = operator::evict(&table, runtime, endpoint, instance).await;
            let freed = freed.map_err(|error| self.target.explained(error))?;
            let text = if there {
                format!("{instance} is out; {freed} slots are free\n")
            } else {
                format!("there is no instance {instance}; `forebay lease status` lists them\n")
            };
            self.target.way.tell(&json!({ "instance": instance, "found": there, "freed": freed }), &text)?;
            Ok(if there { ExitCode::SUCCESS } else { ExitCode::from(NO) })
        })
    }
}

/// Does it, if it is agreed to. The question comes before signals are listened for: Ctrl-C ends it as any other program.
fn agreed(
    consent: Consent,
    about: &str,
    work: impl AsyncFnOnce(&TokioRuntime) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    match consent.given(about) {
        Ok(true) => fleet::run(work),
        Ok(false) => Ok(ExitCode::from(NO)),
        Err(error) => fleet::run(async |_| Err(error)),
    }
}
