//! `forebay gateway`: a PostgreSQL-protocol gateway to Aurora DSQL.

mod add_user;
mod check;
mod cluster;
mod environment;
mod local;
mod log;
mod password;
mod preparation;
mod run;
mod setting_flags;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use forebay::ConfigError;
use forebay_gateway::config::{ConfigBuilder, Draft, GatewayConfig};

use environment::Environment;
use preparation::Preparation;
use setting_flags::SettingFlags;

/// Run a PostgreSQL gateway to Aurora DSQL
///
/// Any client of PostgreSQL gets a session at once, with a password that does not expire. Tokens, the renewal of connections and the
/// budget of a fleet are the gateway's business. The cluster comes from the environment: CLUSTER_ENDPOINT, REGION, DSQL_*. It runs
/// until SIGTERM, which lets clients finish their transactions for drain_grace (30s, and a few seconds at the end of it); Ctrl-C does not
/// wait for that. SIGHUP reads the configuration, users and certificates again. The manual page is docs/gateway.md.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  forebay gateway --local                           # a laptop: nothing else is needed
  forebay gateway add-user app --role app_writer    # asks for the password
  forebay gateway check                             # who may log in, and as which role
  CLUSTER_ENDPOINT=abc.dsql.us-east-1.on.aws forebay gateway --users-file users.toml
  forebay gateway --config gateway.toml --mode elastic"
)]
pub(crate) struct Gateway {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum Command {
    AddUser(add_user::AddUser),
    Check(check::Check),
}

/// How to run one.
#[derive(Debug, Args)]
struct Serve {
    #[command(flatten)]
    sources: Sources,
    /// Start a local Aurora DSQL in this process, let everybody on this machine in, and print how to connect.
    #[arg(long)]
    local: bool,
}

/// Where the configuration comes from.
#[derive(Debug, Args)]
struct Sources {
    /// Read settings from this TOML file, or from the one in FOREBAY_GATEWAY_CONFIG. Flags and FOREBAY_GATEWAY_* override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags,
}

impl Sources {
    /// What they say, right or wrong. With `local`, nobody needs a password unless they say otherwise.
    fn draft(&self, environment: &Environment, local: bool) -> Draft {
        let mut builder = ConfigBuilder::default();
        if local {
            builder = builder.flag("auth", "trust");
        }
        self.settings.give(without_flags(builder, self.config.as_deref(), environment)).draft()
    }
}

/// Reads the file and the variables, but no flags.
fn without_flags(builder: ConfigBuilder, file: Option<&Path>, environment: &Environment) -> ConfigBuilder {
    let variable = std::env::var_os("FOREBAY_GATEWAY_CONFIG").filter(|file| !file.is_empty());
    let builder = match file.map(Path::to_owned).or_else(|| variable.map(PathBuf::from)) {
        Some(file) => builder.file(&file),
        None => builder,
    };
    builder.environment(environment.variables.iter().cloned())
}

impl Gateway {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            None => self.serve.run(),
            Some(Command::AddUser(add_user)) => add_user.run(),
            Some(Command::Check(check)) => check.run(),
        }
    }
}

impl Serve {
    fn run(self) -> anyhow::Result<ExitCode> {
        let preparation = Preparation::new(&self.sources, self.local)?;
        // For everything but clients, which have threads of their own.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run::run(self, preparation))
    }

    /// Reads the configuration again.
    fn configuration(&self) -> anyhow::Result<GatewayConfig> {
        let mut environment = Environment::read();
        let Draft { config, mut problems, .. } = self.sources.draft(&environment, self.local);
        problems.append(&mut environment.problems);
        if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }.into()) }
    }
}
