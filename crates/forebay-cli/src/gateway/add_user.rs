//! `forebay gateway add-user`: adds a user to the users file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use forebay::ConfigError;
use forebay::rt::{Runtime, TokioRuntime};
use forebay_gateway::config::{Authentication, ConfigBuilder, Draft};
use forebay_gateway::users::{CertificateRule, ITERATIONS, Network, NewUser, ScramVerifier, add_user};

use super::environment::Environment;
use super::password;
use crate::output;

/// Add a user to the users file of a gateway
///
/// It asks for the password, or reads it as a line from stdin. The file gets a SCRAM verifier, from which the password cannot be
/// computed. It is replaced as a whole and keeps its owner and mode; only its owner can read a new one. A running gateway reads it again on SIGHUP.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay gateway add-user app --role app_writer
  forebay gateway add-user bi --role reader --mode elastic --allow 10.0.0.0/8
  pass show db/app | forebay gateway add-user app --role app_writer --users-file /etc/forebay/users.toml
  forebay gateway add-user batch --role writer --certificate batch.example.com --no-password")]
pub(super) struct AddUser {
    /// What clients call themselves
    name: String,
    /// The role of the cluster that they get
    #[arg(long)]
    role: String,
    /// The users file; it is made if it is missing. Default: the one that the gateway would read
    #[arg(long, value_name = "FILE")]
    users_file: Option<PathBuf>,
    /// The configuration of the gateway, which may name the users file. Default: the one in FOREBAY_GATEWAY_CONFIG
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How clients of the gateway prove who they are: scram, or trust. Default: as the gateway is configured
    #[arg(long, value_name = "METHOD", value_parser = ["scram", "trust"])]
    auth: Option<String>,
    /// The database of the cluster. Default: postgres
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// How long a client keeps a backend. Default: as the gateway is configured
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Only from this network, such as 10.0.0.0/8; unix for the Unix socket; can be given several times
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<Network>,
    /// The client certificate that is needed: its common name, or sha256: and its fingerprint
    #[arg(long, value_name = "RULE")]
    certificate: Option<CertificateRule>,
    /// Ask for no password: a certificate is enough, or auth is trust
    #[arg(long)]
    no_password: bool,
    /// How often the password is hashed: more make it harder to guess from a stolen file, and each login slower for the client
    #[arg(long, value_name = "NUMBER", default_value_t = ITERATIONS, value_parser = clap::value_parser!(u32).range(4_096..=1_000_000))]
    iterations: u32,
    /// Print the entry instead of writing it to the file; it has the verifier, which is a secret
    #[arg(long)]
    print: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// As long as it is connected.
    Session,
    /// Until it is idle, or somebody else needs it.
    Elastic,
}

impl AddUser {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let environment = Environment::read();
        let draft = self.draft(&environment);
        if self.no_password && self.certificate.is_none() {
            ensure_trust(&draft)?;
        }
        let mut user = NewUser {
            name: self.name,
            verifier: None,
            certificate: self.certificate.map(|rule| rule.to_string()),
            role: self.role,
            database: self.database,
            mode: self.mode.map(|mode| match mode {
                Mode::Session => forebay_gateway::users::Mode::Session,
                Mode::Elastic => forebay_gateway::users::Mode::Elastic,
            }),
            allow: self.allow,
        };
        // Before somebody types a password.
        user.validate()?;
        let users_file = match self.users_file {
            _ if self.print => PathBuf::new(),
            Some(given) => given,
            None => of_gateway(draft, environment)?,
        };
        if !self.no_password {
            let password = password::ask(&user.name)?;
            user.verifier = Some(ScramVerifier::derive(&password, &random::<16>()?, self.iterations));
        }
        if self.print {
            output::print(&user.to_toml())?;
        } else {
            add_user(&users_file, &user, &random::<32>()?)?;
            output::say(&format!(
                "{} has the user {:?}, with role {:?}",
                users_file.display(),
                user.name,
                user.role
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// What the gateway would read, as far as it matters here.
    fn draft(&self, environment: &Environment) -> Draft {
        let builder = super::without_flags(ConfigBuilder::default(), self.config.as_deref(), environment);
        self.auth.iter().fold(builder, |builder, auth| builder.flag("auth", auth)).draft()
    }
}

/// The users file of the gateway, if everything is known that may name one. Other mistakes are the gateway's business.
fn of_gateway(mut draft: Draft, mut environment: Environment) -> Result<PathBuf, ConfigError> {
    let name = "FOREBAY_GATEWAY_USERS_FILE";
    environment.problems.retain(|problem| problem.setting == name);
    if draft.is_known("users_file") && environment.problems.is_empty() {
        return Ok(draft.config.users_file);
    }
    draft.problems.append(&mut environment.problems);
    Err(ConfigError { problems: draft.problems })
}

/// A gateway with another method would refuse the file at its next start.
fn ensure_trust(draft: &Draft) -> anyhow::Result<()> {
    ensure!(
        draft.config.auth == Authentication::Trust,
        "a user without a password and without a certificate can log in only where auth is trust, and here it is scram; leave out \
         --no-password, add --certificate, or say --auth trust if the gateway has it"
    );
    Ok(())
}

/// Random bytes of the operating system.
fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let runtime = TokioRuntime::new(runtime.handle().clone());
    let mut bytes = [0; N];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&runtime.entropy().to_ne_bytes()[..chunk.len()]);
    }
    Ok(bytes)
}
