//! `forebay schema`: migrations for Aurora DSQL.

mod connection;
mod named;
mod progress;
mod report;
mod source;

use std::future::poll_fn;
use std::io::{self, IsTerminal};
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use forebay::duration;
use forebay::rt::TokioRuntime;
use forebay_schema::{Error, Migrator, Rules, Version};
use serde_json::{Value, json};

use crate::output;
use crate::printable::printable_lines;
use crate::signals::Requests;
use source::Source;

/// The exit status of a negative result.
const NO: u8 = 1;
/// The exit status of a failure.
const FAILED: u8 = 2;

/// Apply and check schema migrations
///
/// For any directory of numbered SQL files. Each statement is a transaction of its own, as Aurora DSQL needs it. A run may be
/// interrupted anywhere: the same command continues. The manual page is docs/schema.md.
#[derive(Debug, Args)]
#[command(
    after_help = "The cluster comes from the environment, as for services: CLUSTER_ENDPOINT, REGION, CLUSTER_USER, PGPORT, \
                  PGSSLROOTCERT; the keys from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and with feature aws from any other \
                  place that AWS's SDK knows.\n\nExit status: 0 on success, 1 on a negative result (differences, statements that are \
                  refused, files that are not applied), 2 on failure, 130 after Ctrl-C, 143 after SIGTERM.\n\nExamples:\n  forebay \
                  schema check migrations\n  forebay schema setup migrations --dry-run\n  forebay schema setup \
                  migrations\n  forebay schema status migrations --json"
)]
pub(crate) struct Schema {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Set an empty database up, or bring one up to date that is; safe to repeat
    ///
    /// It refuses a database with tables that nothing is recorded about. --baseline VERSION records that they are what the files
    /// up to this version make.
    #[command(
        after_help = "Examples:\n  forebay schema setup migrations\n  forebay schema setup --schema temporal\n  forebay \
                            schema setup migrations --baseline 0042"
    )]
    Setup {
        #[command(flatten)]
        run: Run,
        /// Record the files up to this version as applied, without running them
        #[arg(long, value_name = "VERSION", value_parser = version)]
        baseline: Option<Version>,
    },
    /// Apply the files that are not applied yet, to a database that is set up
    #[command(after_help = "Example:\n  forebay schema update migrations --to 0042")]
    Update(Run),
    /// Compare the database with the files, and with what it was like after the last run
    ///
    /// The exit status is 1 if they differ.
    #[command(after_help = "Example:\n  forebay schema verify migrations && deploy")]
    Verify {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        common: Common,
        /// Count tables that no migration has made as a difference
        #[arg(long)]
        strict: bool,
    },
    /// Show which files are applied
    ///
    /// The exit status is 1 unless all are.
    #[command(after_help = "Example:\n  forebay schema status migrations --json | jq .files")]
    Status {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        common: Common,
    },
    /// Print the live schema as SQL that setup accepts
    ///
    /// Without roles, owners, grants and rows.
    #[command(after_help = "Example:\n  forebay schema dump > migrations/0001_base.sql")]
    Dump(Common),
    /// List what Aurora DSQL will refuse of the files, without a database
    ///
    /// The exit status is 1 if there is something.
    #[command(after_help = "Example:\n  forebay schema check migrations")]
    Check {
        #[command(flatten)]
        source: Source,
        /// What the cluster accepts
        #[arg(long, value_enum, default_value_t = RuleSet::Today)]
        rules: RuleSet,
        /// Print one JSON object to stdout, and nothing else
        #[arg(long)]
        json: bool,
    },
}

/// A run that changes the database.
#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    common: Common,
    /// Print each transaction that would run, and run none
    #[arg(long)]
    dry_run: bool,
    /// Rewrite statements where Aurora DSQL leaves only one other way, and say so: CREATE INDEX becomes CREATE INDEX ASYNC, a
    /// transaction with several changes of the schema becomes several, settings that cannot be set are left out
    #[arg(long)]
    fix: bool,
    /// What the cluster accepts: files are checked by these rules first
    #[arg(long, value_enum, default_value_t = RuleSet::Today)]
    rules: RuleSet,
    /// Apply no later version than this one
    #[arg(long, value_name = "VERSION", value_parser = version)]
    to: Option<Version>,
    /// How long to wait while another run works
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    wait: Duration,
    /// Record the present text of files that were changed after they were applied
    #[arg(long)]
    accept_changed: bool,
    /// Apply new files also if a later version is applied
    #[arg(long)]
    out_of_order: bool,
}

/// What all commands with a database have.
#[derive(Debug, Args)]
struct Common {
    /// The schema of the database with the tables that record what is applied; it must exist
    #[arg(long, value_name = "SCHEMA", default_value = "public")]
    bookkeeping: String,
    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RuleSet {
    /// What the service accepts today
    Today,
    /// The smaller set of older clusters
    Spec,
}

impl From<RuleSet> for Rules {
    fn from(rules: RuleSet) -> Self {
        match rules {
            RuleSet::Today => Self::Today,
            RuleSet::Spec => Self::Spec,
        }
    }
}

fn version(text: &str) -> Result<Version, String> {
    Version::parse(text).ok_or_else(|| "it is not a version, such as 0042 or 1.1".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "it is not a time, such as 10m or 0s".to_owned())
}

/// What a command has to say.
struct Answer {
    json: Value,
    text: String,
    /// The text is SQL: a file must have it as it is.
    is_sql: bool,
    /// Whether the result is what was hoped for.
    is_good: bool,
}

impl Answer {
    fn good(json: Value, text: String) -> Self {
        Self { json, text, is_sql: false, is_good: true }
    }

    /// What is printed. Names in files and in databases must not control the terminal.
    fn shown(self, is_json: bool) -> String {
        match self {
            Self { json, .. } if is_json => format!("{json}\n"),
            Self { text, is_sql: true, .. } if !io::stdout().is_terminal() => text,
            Self { text, .. } => printable_lines(&text),
        }
    }
}

/// Work that changes nothing: a signal ends it at once.
async fn until_asked<T>(
    requests: &Requests,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let (mut work, mut asked) = (pin!(work), pin!(requests.wait()));
    poll_fn(|context| match asked.as_mut().poll(context) {
        Poll::Ready(_) => {
            Poll::Ready(Err(Error::Stopped { at: "before anything was changed".to_owned() }.into()))
        }
        Poll::Pending => work.as_mut().poll(context),
    })
    .await
}

impl Schema {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let handle = TokioRuntime::new(runtime.handle().clone());
        let ended = runtime.block_on(async {
            let requests = Requests::listen(&handle);
            let is_json = self.command.is_json();
            match self.command.answer(&requests, &handle).await {
                Ok(answer) => {
                    let is_good = answer.is_good;
                    output::print(&answer.shown(is_json))?;
                    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(NO) })
                }
                Err(error) => {
                    if is_json {
                        output::print(&format!("{}\n", report::failure(&error)))?;
                    }
                    output::say(&printable_lines(&format!("{error:#}")));
                    Ok(match (requests.asked(), error.downcast_ref()) {
                        (Some(ending), Some(Error::Stopped { .. })) => ending.status(),
                        (_, Some(Error::Refused(_))) => ExitCode::from(NO),
                        _ => ExitCode::from(FAILED),
                    })
                }
            }
        });
        // Nobody waits for a name that the resolver is still looking for.
        runtime.shutdown_background();
        ended
    }
}

impl Command {
    fn is_json(&self) -> bool {
        match self {
            Self::Setup { run, .. } | Self::Update(run) => run.common.json,
            Self::Verify { common, .. } | Self::Status { common, .. } | Self::Dump(common) => common.json,
            Self::Check { json, .. } => *json,
        }
    }

    async fn answer(&self, requests: &Requests, runtime: &TokioRuntime) -> anyhow::Result<Answer> {
        match self {
            Self::Setup { run, baseline } => run.answer(requests, runtime, Some(baseline.as_ref())).await,
            Self::Update(run) => run.answer(requests, runtime, None).await,
            Self::Check { source, rules, .. } => {
                let found = source.find()?;
                Ok(report::findings(&found.migrations, &Migrator::check(&found.migrations, (*rules).into())))
            }
            _ => until_asked(requests, self.look()).await,
        }
    }

    /// The commands that read the database.
    async fn look(&self) -> anyhow::Result<Answer> {
        match self {
            Self::Verify { source, common, strict } => {
                Ok(report::verification(&common.migrator(source).await?.verify().await?, *strict))
            }
            Self::Status { source, common } => {
                Ok(report::status(&common.migrator(source).await?.status().await?))
            }
            _ => {
                let sql = forebay_schema::dump(&connection::connect().await?).await?;
                Ok(Answer { is_sql: true, ..Answer::good(json!({ "sql": sql }), sql) })
            }
        }
    }
}

impl Common {
    async fn migrator(&self, source: &Source) -> anyhow::Result<Migrator> {
        let found = source.find()?;
        let migrator = Migrator::new(connection::connect().await?, found.migrations)
            .bookkeeping_schema(&self.bookkeeping);
        Ok(match found.hook {
            Some(hook) => migrator.hook(hook),
            None => migrator,
        })
    }
}

impl Run {
    /// `baseline` is there if the database may be set up.
    async fn answer(
        &self,
        requests: &Requests,
        runtime: &TokioRuntime,
        baseline: Option<Option<&Version>>,
    ) -> anyhow::Result<Answer> {
        let stopped = requests.clone();
        let progress = progress::Progress::new(runtime.clone(), self.common.json);
        let shown = progress.clone();
        let mut migrator = until_asked(requests, self.common.migrator(&self.source))
            .await?
            .fix(self.fix)
            .rules(self.rules.into())
            .wait_for_lock(self.wait)
            .accept_changed(self.accept_changed)
            .out_of_order(self.out_of_order)
            .stop_when(move || stopped.go_on().is_break())
            .observer(move |event| shown.show(event));
        if let Some(to) = &self.to {
            migrator = migrator.to(to.clone());
        }
        if self.dry_run {
            return until_asked(requests, async {
                if baseline.is_none() && !migrator.status().await?.is_set_up {
                    return Err(Error::NotSetUp { name: migrator.migrations().name().to_owned() }.into());
                }
                Ok(report::plan(&migrator.plan_from(baseline.flatten()).await?))
            })
            .await;
        }
        let outcome = match baseline {
            Some(Some(baseline)) => migrator.setup_from(baseline).await,
            Some(None) => migrator.setup().await,
            None => migrator.update().await,
        };
        progress.clear();
        Ok(report::summary(migrator.migrations(), &outcome?))
    }
}
